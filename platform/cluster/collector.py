"""The collector: one process that asks every node once a second, for all browsers, scripts and the archive."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence

import httpx
import uvloop
from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from analytics.archive import ArchiveWriter
from cluster import store
from cluster.archiving import Archiving
from cluster.delta import delta
from cluster.directory import Directory
from cluster.latency import LatencyWindow
from cluster.live import CLUSTER, abroadcast
from cluster.poller import Pollers
from cluster.rows import Clients, Snapshot
from cluster.snapshot import NodeView, build_snapshot, client_rows

logger = logging.getLogger(__name__)

BEAT_S = 1.0
BEAT_DEADLINE_S = 0.8
DISCOVERY_S = 2.0
DISCOVERY_TIMEOUT_S = 2.0


class Collector:
    """Directory, pollers and window of one cluster, and the Redis where the picture goes."""

    def __init__(self, *, client: httpx.AsyncClient, redis: Redis, directory: Directory, archiving: Archiving) -> None:
        self.client = client
        self.redis = redis
        self.directory = directory
        self.archiving = archiving
        self.pollers = Pollers()
        self.latencies = LatencyWindow()
        self.views: list[NodeView] = []
        self.picture: Snapshot | None = None
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._standing_by = False
        self._failing = False

    async def beat(self) -> None:
        """Ask, draw, tell. Raises nothing: a beat that fails is logged, the first of a row of them in full."""
        try:
            if not await self._is_at_work():
                return
            await self._collect()
        except (RedisError, OSError) as error:
            if not self._failing:
                logger.error("cannot tell Redis", extra={"error": str(error)})
            self._failing = True
        except Exception:  # a defect must not end the process that everybody watches
            if not self._failing:
                logger.exception("a beat failed")
            self._failing = True
        else:
            if self._failing:
                logger.info("beats again")
            self._failing = False

    async def _is_at_work(self) -> bool:
        at_work = await store.hold_collector(self.redis, self.holder)
        if not at_work and not self._standing_by:
            logger.warning("another collector is at work; standing by")
        if at_work and (self._standing_by or self.picture is None):
            # Versions go on from the picture that browsers may hold.
            kept = await self.redis.get(store.SNAPSHOT)
            self.picture = json.loads(kept) if kept else None
        self._standing_by = not at_work
        return at_work

    async def _collect(self) -> None:
        for gone in self.pollers.follow(self.directory.nodes):
            self.latencies.forget(gone)
        watched = await store.watched_channels(self.redis)
        self.views = await self.pollers.beat(self.client, with_clients=bool(watched), within=BEAT_DEADLINE_S)
        for view in self.views:
            if view.error is not None:
                self.latencies.lose(view.node.id)
            elif view.latest is not None:
                self.latencies.observe(view.node.id, view.latest.stats, view.latest.read_at)
        await self._tell()
        for channel in watched:
            message: Clients = {
                "type": "clients",
                "topic": channel.topic,
                "channel": channel.name,
                "clients": client_rows(self.views, channel.topic, channel.name, now=time.time()),
            }
            await abroadcast(channel.group, dict(message))
        self.archiving.beat(self.views, now=time.monotonic())

    async def _tell(self) -> None:
        before = self.picture or empty_picture()
        after = build_snapshot(
            self.views,
            self.latencies,
            self.directory.registered,
            version=before["version"] + 1,
            taken_at_ms=time.time_ns() // 1_000_000,
        )
        addresses = {view.node.id: view.node.address for view in self.views}
        await store.keep_snapshot(self.redis, after, addresses)
        self.picture = after
        await abroadcast(CLUSTER, dict(delta(before, after)))

    async def discover(self) -> None:
        """Ask the registries, again and again, apart from the beats."""
        while True:
            try:
                await self.directory.refresh(self.client, now=time.monotonic())
            except Exception:
                logger.exception("discovery failed")
            await asyncio.sleep(DISCOVERY_S)

    async def run(self, stop: asyncio.Event) -> None:
        """Beat once a second until told to stop. A beat that took too long delays the next; none is made up for."""
        discovery = asyncio.create_task(self.discover())
        try:
            due = time.monotonic()
            while not stop.is_set():
                await self.beat()
                due = max(due + BEAT_S, time.monotonic())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, due - time.monotonic()))
        finally:
            discovery.cancel()
            self.pollers.follow([])
            self.archiving.take(self.views)
            await self.archiving.finish()
            with contextlib.suppress(RedisError, OSError):
                await store.release_collector(self.redis, self.holder)


def empty_picture() -> Snapshot:
    return {"version": 0, "taken_at": 0, "nodes": [], "topics": [], "channels": []}


async def collect(stop: asyncio.Event) -> None:
    """Collect from the cluster that the settings name, until ``stop`` is set."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with (
        # trust_env: a proxy meant for the internet must not stand between us and a broker beside us.
        httpx.AsyncClient(timeout=DISCOVERY_TIMEOUT_S, limits=limits, trust_env=False) as client,
        store.connect_async() as redis,
    ):
        collector = Collector(
            client=client,
            redis=redis,
            directory=Directory(lookupd=settings.NSQLOOKUPD_HTTP_ADDRESSES, nsqd=settings.NSQD_HTTP_ADDRESSES),
            archiving=Archiving(lambda: ArchiveWriter(settings.NSQ_ARCHIVE)),
        )
        logger.info(
            "collecting",
            extra={
                "lookupd": ",".join(settings.NSQLOOKUPD_HTTP_ADDRESSES),
                "nsqd": ",".join(settings.NSQD_HTTP_ADDRESSES),
                "archive": settings.NSQ_ARCHIVE,
            },
        )
        await collector.run(stop)


async def collect_until_signalled() -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    await collect(stop)
    logger.info("stopped")


def main(argv: Sequence[str]) -> int:
    """The process. Django must have been set up; what it reads stands in the settings. Returns the exit status."""
    argparse.ArgumentParser(
        prog="nsq collector", description="Ask every broker once a second, for all browsers and the archive."
    ).parse_args(argv)
    uvloop.run(collect_until_signalled())
    return 0
