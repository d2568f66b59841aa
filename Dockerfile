# The images of compose.yaml and of the Helm chart: `broker` has nsqd and nsqlookupd, `platform` has everything.
# docs/containers.md describes their use, and how to build them on other base images.

# Debian, for the build and the platform. Its /usr/bin/python3.13 must be that of MINIMAL.
ARG DEBIAN=docker.io/library/debian:trixie-slim
# Python without a shell or a package manager, for the broker.
ARG MINIMAL=gcr.io/distroless/python3-debian13:nonroot

FROM ${DEBIAN} AS python
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3.13 \
    && rm -rf /var/lib/apt/lists/*

FROM python AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make python3.13-dev python3.13-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
RUN python3.13 -m venv /opt/nsq
ENV PATH=/opt/nsq/bin:$PATH
COPY constraints.txt ./
COPY distributions/requirements.py distributions/
COPY distributions/common/pyproject.toml distributions/common/
COPY distributions/client/pyproject.toml distributions/client/
COPY distributions/daemons/pyproject.toml distributions/daemons/
COPY distributions/analytics/pyproject.toml distributions/analytics/
COPY distributions/platform/pyproject.toml distributions/platform/

# Packages of other projects come first, so that a changed source file does not install them again.
FROM build AS broker-requirements
RUN --mount=type=cache,target=/root/.cache/pip \
    python distributions/requirements.py nsq-daemons > requirements.txt \
    && pip install --no-compile --constraint constraints.txt --requirement requirements.txt

FROM build AS platform-requirements
RUN --mount=type=cache,target=/root/.cache/pip \
    python distributions/requirements.py nsq-platform > requirements.txt \
    && pip install --no-compile --constraint constraints.txt --requirement requirements.txt

FROM platform-requirements AS wheels
COPY . .
RUN make wheels VENV=/opt/nsq EXTRAS=

# Users of the images cannot write bytecode, so it is compiled here. It is used without a look at the source's time,
# which some builders change.
FROM broker-requirements AS broker-installed
COPY --from=wheels /src/build/distributions/*.whl wheels/
RUN pip install --no-compile --no-deps wheels/nsq_common-*.whl wheels/nsq_daemons-*.whl \
    && pip uninstall --quiet --yes pip setuptools \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/nsq/lib \
    && mkdir -p /srv/brokerd

FROM platform-requirements AS platform-installed
COPY --from=wheels /src/build/distributions/*.whl wheels/
RUN pip install --no-compile --no-deps wheels/nsq_*.whl \
    && pip uninstall --quiet --yes pip setuptools \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/nsq/lib \
    && mkdir -p /srv/home /srv/archive /srv/reports /srv/history

FROM ${MINIMAL} AS broker
COPY --from=broker-installed /opt/nsq /opt/nsq
# Docker gives a new volume the owner of the folder on which it is mounted.
COPY --from=broker-installed --chown=65532:65532 /srv /srv
ENV PATH=/opt/nsq/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    BROKERD_DRAIN_TIMEOUT=8s
USER 65532:65532
WORKDIR /srv/brokerd
VOLUME /srv/brokerd
EXPOSE 4150 4151 4160 4161
# It drains the broker: no more publishes, consumers finish what they can, then the process ends. Without `--time`,
# `docker stop` waits for ten seconds.
STOPSIGNAL SIGUSR1
HEALTHCHECK --interval=5s --timeout=3s --retries=5 CMD ["python", "-m", "nsqdaemon.probe", "http://127.0.0.1:4151/ping"]
ENTRYPOINT []
CMD ["nsqd", "--data-path=/srv/brokerd"]

FROM python AS platform
RUN groupadd --gid 65532 nsq && useradd --uid 65532 --gid nsq --home-dir /srv/home --shell /usr/sbin/nologin nsq
COPY --from=platform-installed /opt/nsq /opt/nsq
COPY --from=platform-installed --chown=65532:65532 /srv /srv
COPY deploy/images/java deploy/images/executor /opt/nsq/bin/
ENV PATH=/opt/nsq/bin:$PATH \
    JAVA_HOME=/opt/nsq \
    NSQ_HOME=/srv/home \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /srv/home
EXPOSE 4171
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --retries=5 CMD ["python", "-m", "nsqdaemon.probe", "http://127.0.0.1:4171/ping"]
CMD ["nsq", "web", "--http-address=0.0.0.0:4171"]
