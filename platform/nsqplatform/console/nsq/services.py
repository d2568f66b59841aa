"""The platform's processes: their commands and readiness checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsqplatform.clusters.declaration import DEFAULT, DEFAULT_ONLY
from nsqplatform.console.checkout import CHECKOUT
from nsqplatform.console.environment import ALLOWED_HOSTS, ARCHIVE, CLUSTERS, HISTORY, REPORTS, SITE
from nsqplatform.console.nsq.child import PERMANENT_ERROR_STATUS, Service
from nsqplatform.console.nsq.home import Home
from nsqplatform.console.nsq.pair import SECOND, PairPlan
from nsqplatform.console.nsq.ports import Address, Claim, own_names
from nsqplatform.console.nsq.readiness import PID_FILE, http_ping, pid_written, redis_ping, snapshot_taken
from nsqplatform.console.nsq.redis import redis_command
from nsqplatform.console.private_folder import GROUP_AND_OTHERS

PLATFORM = ("collector", "web", "worker", "dispatcher", "beat")
STAGES = (("redis", "lookup"), ("brokerd",), PLATFORM)
NAMES = tuple(name for stage in STAGES for name in stage)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The processes that ``nsq up`` runs, and their addresses."""

    home: Home
    nsqd_tcp: Address
    nsqd_http: Address
    lookupd_tcp: Address
    lookupd_http: Address
    http: Address
    without: frozenset[str]
    log_level: str
    """Log level of broker and registry."""
    redis_url: str | None
    """URL of an external Redis; None for the bundled one."""
    clusters: Sequence[str] = (DEFAULT,)
    """Names of the clusters, each of which has a collector."""
    is_mirrored: bool = False
    """Whether the broker is a mirrored pair."""
    chosen: frozenset[str] = frozenset()
    """Flags of the addresses that were given one by one; the others follow the base of all ports."""

    def runs(self, name: str) -> bool:
        return name not in self.without and not (name == "redis" and self.redis_url)

    @property
    def runs_platform(self) -> bool:
        """Whether any process needs Django, the database and Redis."""
        return any(map(self.runs, PLATFORM))

    @property
    def pair(self) -> PairPlan | None:
        """The mirrored pair, if one runs."""
        if not self.is_mirrored or not self.runs("brokerd"):
            return None
        return PairPlan(self.home, self.nsqd_tcp, self.nsqd_http)

    @property
    def site(self) -> str:
        """The base URL that people open: NSQ_SITE, else the web platform's address."""
        return SITE.read(os.environ, f"http://{self.http.elsewhere}")

    def claims(self) -> list[Claim]:
        """The addresses on which the chosen processes listen."""
        every = {
            "brokerd": [
                Claim(self.nsqd_tcp, "the broker's TCP", "--nsqd-tcp-address"),
                Claim(self.nsqd_http, "the broker's HTTP", "--nsqd-http-address"),
            ],
            "lookup": [
                Claim(self.lookupd_tcp, "the registry's TCP", "--lookupd-tcp-address"),
                Claim(self.lookupd_http, "the registry's HTTP", "--lookupd-http-address"),
            ],
            "web": [Claim(self.http, "the web platform", "--http-address")],
        }
        every["brokerd"] += self.pair.claims() if self.pair else []
        return [claim for name, claims in every.items() if self.runs(name) for claim in claims]

    def environment(self) -> dict[str, str]:
        """The environment variables of the platform's processes (docs/settings-platform.md)."""
        made = {
            "NSQ_HOME": str(self.home.path),
            "REDIS_URL": self.redis_url or f"unix://{self.home.redis_socket()}",
            "PYTHONPATH": python_path(),
            "PYTHONUNBUFFERED": "1",
            SITE.name: self.site,
        }
        if not self.http.is_loopback:
            # People on other machines open the pages under one of these.
            made[ALLOWED_HOSTS.name] = ",".join([*filter(None, [os.environ.get(ALLOWED_HOSTS.name)]), *own_names()])
        if self.runs("lookup"):
            made["NSQLOOKUPD_HTTP_ADDRESSES"] = str(self.lookupd_http.reachable)
        elif self.runs("brokerd"):
            made["NSQD_HTTP_ADDRESSES"] = str(self.nsqd_http.reachable)
        return made

    def stages(self) -> list[list[Service]]:
        """The chosen services in order of dependency: Redis and registry, broker, then the platform's processes."""
        makers = {
            "redis": self._redis,
            "lookup": self._lookup,
            "brokerd": self._brokerd,
            "web": self._web,
            "worker": self._worker,
            "dispatcher": self._dispatcher,
            "beat": self._beat,
        }
        found = [[makers[name]() for name in stage if self.runs(name) and name != "collector"] for stage in STAGES]
        if self.runs("collector"):
            found[-1] = [*collectors(self.clusters, self.environment()["REDIS_URL"]), *found[-1]]
        if pair := self.pair:
            found[0].append(pair.etcd_service())
            found[1].append(self._broker(SECOND, pair.second_tcp, pair.second_http, self.home.path / SECOND))
        return found

    def _redis(self) -> Service:
        return bundled_redis(self.home)

    def _lookup(self) -> Service:
        return Service(
            name="lookup",
            command=nsq(
                "lookup",
                *("--tcp-address", self.lookupd_tcp),
                *("--http-address", self.lookupd_http),
                *("--log-level", self.log_level),
            ),
            detail=f"tcp {self.lookupd_tcp}, http {self.lookupd_http}",
            ready=http_ping(self.lookupd_http),
        )

    def _brokerd(self) -> Service:
        return self._broker("brokerd", self.nsqd_tcp, self.nsqd_http, self.home.brokerd)

    def _broker(self, name: str, tcp: Address, http: Address, data_path: Path) -> Service:
        arguments: list[object] = [
            *("--tcp-address", tcp),
            *("--http-address", http),
            *("--data-path", data_path),
            *("--log-level", self.log_level),
            *("--permanent-error-status", PERMANENT_ERROR_STATUS),
        ]
        if tcp.reachable == tcp:
            # Consumers get the listening address, because the host's name may resolve to another one.
            arguments += ["--broadcast-address", tcp.host]
        if self.runs("lookup"):
            arguments += ["--lookupd-tcp-address", self.lookupd_tcp.reachable]
        if pair := self.pair:
            arguments += pair.flags(second=name == SECOND)
        return Service(
            name=name,
            command=nsq("brokerd", *arguments),
            detail=f"tcp {tcp}, http {http}",
            ready=http_ping(http),
            umask=GROUP_AND_OTHERS,
        )

    def _web(self) -> Service:
        return Service(
            name="web",
            command=nsq("web", "--http-address", self.http),
            detail=f"http {self.http}",
            ready=http_ping(self.http),
            umask=private_umask(),
        )

    def _worker(self) -> Service:
        return self._with_pid_file("worker", "runs reports")

    def _dispatcher(self) -> Service:
        return self._with_pid_file("dispatcher", "runs jobs, keeps history, queues due reports, sends notifications")

    def _beat(self) -> Service:
        return self._with_pid_file("beat", "starts due reports and the dispatcher's periodic tasks")

    def _with_pid_file(self, name: str, detail: str) -> Service:
        pid_file = self.home.run / f"{name}.pid"
        return Service(
            name=name,
            command=nsq(name),
            detail=detail,
            ready=pid_written(pid_file),
            environment={PID_FILE: str(pid_file)},
            umask=private_umask(),
        )


def bundled_redis(home: Home) -> Service:
    socket = home.redis_socket()
    return Service(
        name="redis",
        command=redis_command(home, socket),
        detail=f"unix {socket}",
        ready=redis_ping(f"unix://{socket}"),
        umask=GROUP_AND_OTHERS,
    )


def collectors(clusters: Sequence[str], redis_url: str) -> list[Service]:
    """A collector for each cluster."""
    return [
        Service(
            name="collector" if cluster == DEFAULT else f"collector {cluster}",
            command=nsq("collector") if cluster == DEFAULT else nsq("collector", "--cluster", cluster),
            detail="polls every second",
            ready=snapshot_taken(redis_url, cluster),
            umask=private_umask(),
        )
        for cluster in clusters
    ]


def private_umask(environ: Mapping[str, str] = os.environ) -> int:
    """The umask of the platform's processes: other users read nothing, unless a folder was chosen for archive, results
    or history, which may be shared. Its files then have the permissions of the user's own umask."""
    is_shared = any(environ.get(folder.name) for folder in (ARCHIVE, REPORTS, HISTORY))
    return -1 if is_shared else GROUP_AND_OTHERS


def declared_clusters(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the clusters that NSQ_CLUSTERS declares. Raises InvalidVariable."""
    return [each.name for each in CLUSTERS.read(environ, DEFAULT_ONLY)]


def python_path() -> str:
    """``PYTHONPATH`` of child processes: the source roots of a checkout precede installed packages."""
    roots = (
        [str(CHECKOUT / root) for root in (".", "platform", "lookup", "analytics", "integrations")] if CHECKOUT else []
    )
    return os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH", "")])])


def nsq(*words: object) -> list[str]:
    return [sys.executable, "-m", "nsqplatform.console.nsq", *map(str, words)]
