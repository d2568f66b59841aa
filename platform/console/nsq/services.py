"""The platform's processes: how each is started, and how to tell that it does its work."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from redis.asyncio import Redis

from console.nsq.child import Service
from console.nsq.home import Home
from console.nsq.ports import Address, Claim
from console.nsq.redis import redis_command

Ready = Callable[[], Awaitable[bool]]

NAMES = ("redis", "lookup", "brokerd", "collector", "web", "worker", "beat")
PROBE_SECONDS = 2.0
SNAPSHOT_KEY = "nsq:snapshot"
SOURCE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What ``nsq up`` was asked to run, and where."""

    home: Home
    nsqd_tcp: Address
    nsqd_http: Address
    lookupd_tcp: Address
    lookupd_http: Address
    http: Address
    without: frozenset[str]
    redis_url: str | None
    """A Redis that runs elsewhere; None for the bundled one."""

    def runs(self, name: str) -> bool:
        return name not in self.without and not (name == "redis" and self.redis_url)

    def claims(self) -> list[Claim]:
        """The addresses the chosen processes will listen on."""
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
        return [claim for name, claims in every.items() if self.runs(name) for claim in claims]

    def environment(self) -> dict[str, str]:
        """What the platform's processes read, as docs/architecture.md lists it."""
        python_path = [str(SOURCE_ROOT), str(SOURCE_ROOT.parent), os.environ.get("PYTHONPATH", "")]
        made = {
            "NSQ_HOME": str(self.home.path),
            "REDIS_URL": self.redis_url or f"unix://{self.home.redis_socket()}",
            "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
            "PYTHONUNBUFFERED": "1",
        }
        if self.runs("lookup"):
            made["NSQLOOKUPD_HTTP_ADDRESSES"] = str(self.lookupd_http.reachable)
        elif self.runs("brokerd"):
            made["NSQD_HTTP_ADDRESSES"] = str(self.nsqd_http.reachable)
        return made

    def stages(self) -> list[list[Service]]:
        """The services in the order of need: stores and registry, broker, then what lives from them."""
        environment = self.environment()
        redis_url = environment["REDIS_URL"]
        socket = self.home.redis_socket()
        every = [
            [
                self._service(
                    "redis", lambda: redis_command(self.home, socket), f"unix {socket}", redis_ping(redis_url)
                ),
                self._service(
                    "lookup",
                    lambda: nsq("lookup", "--tcp-address", self.lookupd_tcp, "--http-address", self.lookupd_http),
                    f"tcp {self.lookupd_tcp}, http {self.lookupd_http}",
                    http_ping(self.lookupd_http),
                ),
            ],
            [
                self._service(
                    "brokerd",
                    self._brokerd,
                    f"tcp {self.nsqd_tcp}, http {self.nsqd_http}",
                    http_ping(self.nsqd_http),
                )
            ],
            [
                self._service("collector", lambda: nsq("collector"), "every second", snapshot_taken(redis_url)),
                self._service(
                    "web",
                    lambda: nsq("web", "--http-address", self.http),
                    f"http {self.http}",
                    http_ping(self.http),
                ),
                self._service("worker", lambda: nsq("worker"), "runs reports", worker_answers(), signal.SIGQUIT),
                self._service("beat", lambda: nsq("beat"), "starts scheduled reports", stays_up(2.0)),
            ],
        ]
        return [[service for service in stage if service is not None] for stage in every]

    def _service(
        self,
        name: str,
        command: Callable[[], list[str]],
        detail: str,
        ready: Ready,
        orphan_signal: signal.Signals = signal.SIGTERM,
    ) -> Service | None:
        if not self.runs(name):
            return None
        return Service(name=name, command=command(), detail=detail, ready=ready, orphan_signal=orphan_signal)

    def _brokerd(self) -> list[str]:
        arguments: list[Any] = [
            *("--tcp-address", self.nsqd_tcp),
            *("--http-address", self.nsqd_http),
            *("--data-path", self.home.brokerd),
        ]
        if self.nsqd_tcp.reachable == self.nsqd_tcp:
            # Where it is told to listen is where consumers are told to come; a host's name may resolve elsewhere.
            arguments += ["--broadcast-address", self.nsqd_tcp.host]
        if self.runs("lookup"):
            arguments += ["--lookupd-tcp-address", self.lookupd_tcp.reachable]
        return nsq("brokerd", *arguments)


def nsq(*words: object) -> list[str]:
    return [sys.executable, "-m", "console.nsq", *map(str, words)]


def http_ping(address: Address) -> Ready:
    url = f"http://{address.reachable}/ping"

    async def ready() -> bool:
        async with httpx.AsyncClient(timeout=PROBE_SECONDS, trust_env=False) as client:
            return (await client.get(url)).status_code == 200

    return ready


def redis_ping(url: str) -> Ready:
    async def ready() -> bool:
        async with Redis.from_url(url, socket_timeout=PROBE_SECONDS) as client:
            return bool(await client.ping())

    return ready


def snapshot_taken(redis_url: str) -> Ready:
    """The collector works when the snapshot in Redis is another than the one found first."""
    first: list[object] = []

    async def ready() -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PROBE_SECONDS) as client:
            snapshot = await client.get(SNAPSHOT_KEY)
        if not first:
            first.append(snapshot)
        return snapshot is not None and snapshot != first[0]

    return ready


def worker_answers() -> Ready:
    def ping() -> bool:
        from console.celery import app

        return bool(app.control.ping(timeout=1.0, limit=1))

    async def ready() -> bool:
        return await asyncio.to_thread(ping)

    return ready


def stays_up(seconds: float) -> Ready:
    """For a process that answers nobody: asked while it lives, so it lived that long. Begins anew after a death."""
    asked: list[float] = []

    async def ready() -> bool:
        now = time.monotonic()
        if asked and now - asked[-1] > seconds:
            asked.clear()  # nobody asked for a while: this is another life
        asked.append(now)
        if now - asked[0] < seconds:
            return False
        asked.clear()
        return True

    return ready
