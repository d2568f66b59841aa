"""Readiness checks of processes. Each function returns a coroutine function for console.nsq.child.Service.ready."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import psutil
from redis.asyncio import Redis

from nsqplatform.clusters.declaration import DEFAULT, redis_prefix
from nsqplatform.console.nsq.ports import Address

Ready = Callable[[], Awaitable[bool]]

PROBE_SECONDS = 2.0
PID_FILE = "NSQ_PID_FILE"


def plain_client() -> httpx.AsyncClient:
    """Return a client for requests without TLS. It reads no certificates, which takes much longer than a request."""
    return httpx.AsyncClient(timeout=PROBE_SECONDS, trust_env=False, verify=False)


def http_ping(address: Address, base: str = "") -> Ready:
    """Ready if ``GET /ping`` below ``base`` returns 200."""
    url = f"http://{address.reachable}{base}/ping"

    async def ready() -> bool:
        async with plain_client() as client:
            return (await client.get(url)).status_code == 200

    return ready


def etcd_health(address: Address) -> Ready:
    """Ready if etcd's ``GET /health`` says so."""

    async def ready() -> bool:
        async with plain_client() as client:
            answer = await client.get(f"http://{address}/health")
        return answer.status_code == 200 and answer.json()["health"] == "true"

    return ready


def redis_ping(url: str) -> Ready:
    async def ready() -> bool:
        async with Redis.from_url(url, socket_timeout=PROBE_SECONDS) as client:
            return bool(await client.ping())

    return ready


def snapshot_taken(redis_url: str, cluster: str = DEFAULT) -> Ready:
    """Ready if the snapshot in Redis differs from the first one read."""
    first: list[object] = []

    async def ready() -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PROBE_SECONDS) as client:
            state = await client.get(f"{redis_prefix(cluster)}state")
        if not first:
            first.append(state)
        return state is not None and state != first[0]

    return ready


def pid_written(pid_file: Path) -> Ready:
    """For a process that does not listen: ready if it has written its pid with :func:`write_pid_file`, and is alive."""

    async def ready() -> bool:
        return psutil.pid_exists(int(pid_file.read_text()))  # noqa: ASYNC240 (a few bytes in the page cache)

    return ready


def write_pid_file() -> None:
    """Signal readiness: write this process's pid into the file that the environment names, if any."""
    if path := os.environ.get(PID_FILE):
        Path(path).write_text(str(os.getpid()))
