"""The collector: one process that asks every node once a second, for all browsers, scripts and the archive."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence

import aiohttp
import httpx
import uvloop
from django.conf import settings
from django.utils.module_loading import import_string
from redis.asyncio import Redis
from redis.exceptions import RedisError

from analytics.archive import ArchiveWriter
from cluster import metrics, store, upstream
from cluster.archiving import Archiving
from cluster.delta import Deltas
from cluster.directory import Directory
from cluster.drawing import Drawing
from cluster.history import Recorder
from cluster.latency import LatencyWindow
from cluster.listening import Listener, Listeners
from cluster.live import Message, tell
from cluster.picture import EVERYTHING, NOTHING, Picture
from cluster.poller import Pollers
from cluster.reading import NodeView
from cluster.rows import Clients
from cluster.watched import client_rows

logger = logging.getLogger(__name__)

BEAT_S = 1.0
BEAT_DEADLINE_S = 0.6
DISCOVERY_S = 2.0
SWEEP_S = 30.0
DISCOVERY_TIMEOUT_S = 2.0


class Collector:
    """Directory, pollers and window of one cluster, and the Redis where the picture goes. ``client`` is for what
    registries and nodes are asked now and then, ``session`` for what nodes are asked with every beat."""

    def __init__(
        self,
        *,
        client: httpx.AsyncClient,
        session: aiohttp.ClientSession,
        redis: Redis,
        directory: Directory,
        archiving: Archiving,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.client = client
        self.session = session
        self.redis = redis
        self.directory = directory
        self.archiving = archiving
        self.pollers = Pollers()
        self.latencies = LatencyWindow()
        self.drawing = Drawing(self.latencies)
        self.views: list[NodeView] = []
        self.picture: Picture | None = None
        self.recorder = Recorder()
        self.listeners = Listeners(listeners)
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._observed: dict[str, float] = {}
        """When the reading of each node was read that the latencies have taken."""
        self._standing_by = False
        self._failing = False
        self._sweep_due = 0.0

    async def beat(self) -> None:
        """Ask, draw, tell. Raises nothing: a beat that fails is logged, the first of a row of them in full."""
        try:
            if not await self._is_at_work():
                return
            with metrics.beat_seconds.time():
                await self._collect()
        except (RedisError, OSError) as error:
            if not self._failing:
                logger.error("cannot tell Redis", extra={"error": str(error)})
            self._failing = True
            metrics.failed_beats.inc()
        except Exception:  # a defect must not end the process that everybody watches
            if not self._failing:
                logger.exception("a beat failed")
            self._failing = True
            metrics.failed_beats.inc()
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
            kept = await self.redis.get(store.PICTURE)
            self.picture = Picture.kept(kept) if kept else None
        self._standing_by = not at_work
        return at_work

    async def _collect(self) -> None:
        registries = self.directory.complaints  # those of the nodes that this beat asks
        for gone in self.pollers.follow(self.directory.nodes):
            self.latencies.forget(gone)
            self._observed.pop(gone, None)
        watched, views = await store.looked_at(self.redis)
        self.views = await self.pollers.beat(self.session, with_clients=bool(watched), within=BEAT_DEADLINE_S)
        heard_all, has_all = self.pollers.heard_all, self.pollers.has_all
        for view in self.views:
            if view.error is not None:
                self.latencies.lose(view.node.id)
            elif view.latest is not None and self._observed.get(view.node.id) != view.latest.read_at:
                self._observed[view.node.id] = view.latest.read_at
                self.latencies.observe(view.node.id, view.latest.stats, view.latest.read_at)
        before, after = self.picture, self._drawn()
        deltas = Deltas(before or NOTHING, after)
        told: list[tuple[str, Message]] = [(view.group, deltas.of(view)) for view in (EVERYTHING, *views)]
        for channel in watched:
            clients = client_rows(self.views, channel.topic, channel.name, now=time.time())
            shown: Clients = {"type": "clients", "topic": channel.topic, "channel": channel.name, "clients": clients}
            told.append((channel.group, shown))
        # First what browsers wait for. One that needs the whole picture meanwhile is shown the last one, and the gap
        # makes it ask again.
        await tell(self.redis, told)
        self.picture = after
        addresses = {view.node.id: view.node.address for view in self.views}
        await store.keep_picture(self.redis, after, addresses, registries, metrics.collector_text(), has_all=has_all)
        self.listeners.beat(after, before)
        if heard_all:  # a depth without that of a node not yet asked is no history
            await store.keep_history(self.redis, self.recorder.beat(after))
        self.archiving.beat(self.views, now=time.monotonic())

    def _drawn(self) -> Picture:
        after = self.drawing.draw(
            self.views,
            self.directory.registered,
            version=self.picture.version + 1 if self.picture else 1,
            taken_at_ms=time.time_ns() // 1_000_000,
        )
        self._count(after)
        return after

    @staticmethod
    def _count(picture: Picture) -> None:
        up = picture.nodes.columns.get("state", []).count("up")
        metrics.nodes.labels("up").set(up)
        metrics.nodes.labels("down").set(len(picture.nodes) - up)
        metrics.topics.set(len(picture.topics))
        metrics.channels.set(len(picture.channels))

    async def discover(self) -> None:
        """Ask the registries, again and again, apart from the beats."""
        while True:
            with contextlib.suppress(RedisError, OSError):  # the beat says so; meanwhile the last ones are asked
                self.directory.follow(store.lookupd_in_force(await self.redis.get(store.LOOKUPD)))
            try:
                await self.directory.refresh(self.client, now=time.monotonic())
            except Exception:
                logger.exception("discovery failed")
            await asyncio.sleep(DISCOVERY_S)

    def _sweep(self, now: float) -> None:
        """Free what refers to itself, now and then, while nobody waits for an answer or a change."""
        if now >= self._sweep_due:
            gc.collect()
            self._sweep_due = now + SWEEP_S

    async def run(self, stop: asyncio.Event) -> None:
        """Beat once a second until told to stop. A beat that took too long delays the next; none is made up for."""
        discovery = asyncio.create_task(self.discover())
        try:
            due = time.monotonic()
            while not stop.is_set():
                metrics.beat_lateness_seconds.observe(max(0.0, time.monotonic() - due))
                await self.beat()
                self._sweep(time.monotonic())
                due = max(due + BEAT_S, time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - time.monotonic())):
                        await stop.wait()
        finally:
            discovery.cancel()
            await self.pollers.stop()
            self.archiving.take(self.views)
            await self.archiving.finish()
            await self.listeners.finish()
            with contextlib.suppress(RedisError, OSError):
                await store.release_collector(self.redis, self.holder)


async def collect(stop: asyncio.Event) -> None:
    """Collect from the cluster that the settings name, until ``stop`` is set."""
    async with (
        upstream.client(timeout_s=DISCOVERY_TIMEOUT_S) as client,
        upstream.session() as session,
        store.connect_async() as redis,
    ):
        collector = Collector(
            client=client,
            session=session,
            redis=redis,
            directory=Directory(lookupd=settings.NSQLOOKUPD_HTTP_ADDRESSES, nsqd=settings.NSQD_HTTP_ADDRESSES),
            archiving=Archiving(lambda: ArchiveWriter(settings.NSQ_ARCHIVE)),
            listeners=[import_string(name)() for name in settings.COLLECTOR_LISTENERS],
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
    # A beat makes and drops a hundred thousand objects without a cycle among them, and looking for one whenever so many
    # came would cost it a third more; so cycles are looked for aside, and never in what a start leaves behind.
    gc.freeze()
    gc.disable()
    uvloop.run(collect_until_signalled())
    return 0
