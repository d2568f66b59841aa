# One image for every process of compose.yaml: each has its command there.

FROM node:24-bookworm-slim AS node

FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules /usr/local/lib/node_modules
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
WORKDIR /opt/nsq
COPY . .
# `make setup` installs what the tests need too; the image takes what runs.
RUN make setup EXTRAS= && rm -rf frontend/node_modules

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home-dir /srv --shell /usr/sbin/nologin nsq \
    && install --directory --owner=nsq --group=nsq /srv /srv/brokerd /srv/archive /srv/reports /srv/history /srv/home
COPY --from=build /opt/nsq /opt/nsq
ENV PATH=/opt/nsq/.venv/bin:$PATH \
    NSQ_HOME=/srv/home \
    PYTHONUNBUFFERED=1
WORKDIR /opt/nsq
USER nsq
EXPOSE 4150 4151 4160 4161 4171
CMD ["nsq", "--help"]
