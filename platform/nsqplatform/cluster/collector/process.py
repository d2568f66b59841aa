"""The collector: one process that polls every node once a second, for all browsers, API clients and the archive."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence

import uvloop
from django.conf import settings
from django.utils.module_loading import import_string
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nsqanalytics.archive import ArchiveWriter, HourlyWriter
from nsqanalytics.life_events import lives_path
from nsqcluster import Client
from nsqplatform.cluster import metrics, node_client, store
from nsqplatform.cluster.clients.rates import ClientRates
from nsqplatform.cluster.clients.rows import client_rows
from nsqplatform.cluster.collector.archiver import Archiver
from nsqplatform.cluster.collector.damaged_files import DamagedFilesWatch
from nsqplatform.cluster.collector.directory import Directory
from nsqplatform.cluster.collector.listeners import Listener, Listeners
from nsqplatform.cluster.collector.lives import LifeReader
from nsqplatform.cluster.history.records import Recorder
from nsqplatform.cluster.live.broadcast import Message, publish
from nsqplatform.cluster.readings.clock import Clock
from nsqplatform.cluster.readings.pairs import superseded
from nsqplatform.cluster.readings.poller import Pollers
from nsqplatform.cluster.readings.reading import NodeView
from nsqplatform.cluster.snapshots.builder import SnapshotBuilder
from nsqplatform.cluster.snapshots.delta import Deltas
from nsqplatform.cluster.snapshots.latency import LatencyWindow
from nsqplatform.cluster.snapshots.rows import Clients
from nsqplatform.cluster.snapshots.snapshot import EMPTY, EVERYTHING, Snapshot
from nsqplatform.clusters import current
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
POLL_DEADLINE_S = 0.6
DISCOVERY_S = 2.0
SWEEP_S = 30.0


class Collector:
    """Polls one cluster, builds its snapshots and stores them in Redis.

    ``client`` is for discovery and for the polls of nodes.
    """

    def __init__(
        self,
        *,
        client: Client,
        redis: Redis,
        directory: Directory,
        archiver: Archiver,
        damaged_files: DamagedFilesWatch,
        lives: LifeReader,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.client = client
        self.redis = redis
        self.directory = directory
        self.archiver = archiver
        self.damaged_files = damaged_files
        self.lives = lives
        self.clock = Clock()
        self.pollers = Pollers(self.clock)
        self.latencies = LatencyWindow()
        self.builder = SnapshotBuilder(self.latencies)
        self.views: list[NodeView] = []
        self.snapshot: Snapshot | None = None
        self.recorder = Recorder()
        self.client_rates = ClientRates()
        self.listeners = Listeners(listeners)
        self.archiver.on_batch = self.listeners.on_batch
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._observed: dict[str, float] = {}
        """By node id, ``read_at`` of the reading that was last added to the latencies."""
        self._standing_by = False
        self._failing = False
        self._sweep_due: Seconds = 0.0

    async def poll(self) -> None:
        """Poll, build a snapshot, publish it. Raises nothing: failures are counted, and the first of consecutive ones
        is logged."""
        try:
            if not await self._is_active():
                return
            with metrics.poll_seconds.time():
                await self._collect()
        except (RedisError, OSError) as error:
            if not self._failing:
                logger.error("cannot write to Redis", extra={"error": str(error)})
            self._failing = True
            metrics.failed_polls.inc()
        except Exception:  # a defect must not end the process
            if not self._failing:
                logger.exception("a poll failed")
            self._failing = True
            metrics.failed_polls.inc()
        else:
            if self._failing:
                logger.info("polls succeed again")
            self._failing = False

    async def _is_active(self) -> bool:
        at_work = await store.acquire_collector(self.redis, self.holder)
        if not at_work and not self._standing_by:
            logger.warning("another collector is active; standing by")
        if at_work and (self._standing_by or self.snapshot is None):
            # Versions continue from the snapshot that browsers may have.
            kept = await self.redis.get(store.SNAPSHOT())
            self.snapshot = Snapshot.continued(kept) if kept else None
            if self.snapshot is not None:  # and times do not go back before those of another collector
                self.clock.not_before(self.snapshot.taken_at_ms / 1000)
                known = store.nodes_of(await self.redis.get(store.NODES()))
                self.builder.continue_from(
                    self.snapshot, {each.node.id: each.read_at for each in known if each.read_at is not None}
                )
                self.directory.remember((each.node for each in known), now=time.monotonic())
        self._standing_by = not at_work
        return at_work

    async def _collect(self) -> None:
        registries = self.directory.errors  # as of the nodes that this poll queries
        for gone in self.pollers.set_nodes(self.directory.nodes):
            self.latencies.forget(gone)
            self._observed.pop(gone, None)
        watched, views = await store.watches(self.redis)
        views_of_all = await self.pollers.poll(self.client, with_clients=bool(watched), within_s=POLL_DEADLINE_S)
        self.views = self._without_superseded(views_of_all)
        self.directory.keep([view.node.id for view in self.views if view.drain], now=time.monotonic())
        all_answered, has_all = self.pollers.all_answered, self.pollers.has_all
        for view in self.views:
            if view.error is not None:
                self.latencies.lose(view.node.id)
            elif view.latest is not None and self._observed.get(view.node.id) != view.latest.read_at:
                self._observed[view.node.id] = view.latest.read_at
                self.latencies.observe(view.node.id, view.latest.stats, view.latest.read_at)
        # Read after the poll, so that it has every channel that was emptied before its node answered.
        before, after = self.snapshot, self._build(await store.emptied_channels(self.redis))
        deltas = Deltas(before or EMPTY, after)
        messages: list[tuple[str, Message]] = [(view.group, deltas.of(view)) for view in (EVERYTHING, *views)]
        self.client_rates.keep(watched)
        read_at = {view.node.id: view.latest.read_at for view in self.views if view.latest is not None}
        for channel in watched:
            rows = client_rows(self.views, channel.topic, channel.name, now=time.time())
            clients = self.client_rates.add(channel, rows, read_at)
            message: Clients = {"type": "clients", "topic": channel.topic, "channel": channel.name, "clients": clients}
            messages.append((channel.group, message))
        # Deltas first: browsers wait for them. A browser that needs the whole snapshot meanwhile is sent the last one,
        # and requests it again because of the gap.
        await publish(self.redis, messages)
        self.snapshot = after
        addresses = {view.node.id: view.node.address for view in self.views}
        await store.store_snapshot(
            self.redis,
            after,
            addresses,
            self._known_nodes(),
            registries,
            metrics.collector_text(),
            self.damaged_files.latest,
            has_all=has_all,
        )
        self.listeners.notify(after, before)
        if all_answered:  # a sum without the nodes not yet polled is not recorded
            await store.store_history(self.redis, self.recorder.record(after))
        self.archiver.add(self.views, now=time.monotonic())
        self.lives.add(self.client, self.views, now=time.monotonic())

    def _without_superseded(self, views: list[NodeView]) -> list[NodeView]:
        """The views without those of nodes whose pair another member represents."""
        hidden = superseded(views, self.directory.listed_at)
        for name in hidden:
            self.latencies.forget(name)
            self._observed.pop(name, None)
        return [view for view in views if view.node.id not in hidden] if hidden else views

    def _known_nodes(self) -> list[store.KnownNode]:
        latest = {view.node.id: view.latest for view in self.views}
        return [
            store.KnownNode(node=node, read_at=self.builder.read_at(node.id, latest.get(node.id)))
            for node in self.directory.nodes
        ]

    def _build(self, emptied: frozenset[store.Channel]) -> Snapshot:
        after = self.builder.build(
            self.views,
            self.directory.registered,
            version=self.snapshot.version + 1 if self.snapshot else 1,
            taken_at_ms=math.ceil(self.clock.now() * 1000),
            emptied=emptied,
        )
        self._count(after)
        return after

    @staticmethod
    def _count(snapshot: Snapshot) -> None:
        up = snapshot.nodes.columns.get("state", []).count("up")
        metrics.nodes.labels("up").set(up)
        metrics.nodes.labels("down").set(len(snapshot.nodes) - up)
        metrics.topics.set(len(snapshot.topics))
        metrics.channels.set(len(snapshot.channels))

    async def discover(self) -> None:
        """Query the registries every DISCOVERY_S seconds."""
        while True:
            with contextlib.suppress(RedisError, OSError):  # logged by poll(); the last addresses are used
                self.directory.set_registries(store.lookupd_in_force(await self.redis.get(store.LOOKUPD())))
            try:
                await self.directory.refresh(self.client, now=time.monotonic())
            except Exception:
                logger.exception("discovery failed")
            await asyncio.sleep(DISCOVERY_S)

    def _sweep(self, now: Seconds) -> None:
        """Collect reference cycles every SWEEP_S seconds, between two polls."""
        if now >= self._sweep_due:
            gc.collect()
            self._sweep_due = now + SWEEP_S

    async def run(self, stop: asyncio.Event) -> None:
        """Poll once a second until ``stop`` is set. A slow poll delays the next; missed polls are skipped."""
        discovery = asyncio.create_task(self.discover())
        counting = asyncio.create_task(self.damaged_files.run())
        try:
            due = time.monotonic()
            while not stop.is_set():
                metrics.poll_lateness_seconds.observe(max(0.0, time.monotonic() - due))
                await self.poll()
                self._sweep(time.monotonic())
                due = max(due + POLL_INTERVAL_S, time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - time.monotonic())):
                        await stop.wait()
        finally:
            discovery.cancel()
            counting.cancel()
            await self.pollers.stop()
            self.archiver.take(self.views)
            await self.archiver.finish()
            await self.lives.finish()
            self.lives.take(self.client, self.views)
            await self.lives.finish()
            await self.listeners.finish()
            with contextlib.suppress(RedisError, OSError):
                await store.release_collector(self.redis, self.holder)


async def collect(stop: asyncio.Event) -> None:
    """Run a collector for the current cluster until ``stop`` is set."""
    archive = current.archive()
    async with (
        node_client.client() as client,
        store.connect_async() as redis,
    ):
        collector = Collector(
            client=client,
            redis=redis,
            directory=Directory(lookupd=current.lookupd_http_addresses(), nsqd=current.nsqd_http_addresses()),
            archiver=Archiver(lambda: ArchiveWriter(archive)),
            damaged_files=DamagedFilesWatch(archive),
            lives=LifeReader(lambda: HourlyWriter(lives_path(archive), "at")),
            listeners=[import_string(name)() for name in settings.COLLECTOR_LISTENERS],
        )
        logger.info(
            "collecting",
            extra={
                "lookupd": ",".join(current.lookupd_http_addresses()),
                "nsqd": ",".join(current.nsqd_http_addresses()),
                "archive": archive,
            },
        )
        await collector.run(stop)


async def collect_until_signalled() -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    await collect(stop)
    logger.info("stopped")


def run(cluster: str) -> int:
    """Run the collector of a cluster until SIGINT or SIGTERM. Django must be set up. Returns the exit status.

    Raises NoSuchCluster.
    """
    current.set_for_process(cluster)
    # A poll creates and frees a hundred thousand objects without cycles. Automatic collections would add a third to its
    # cost, so cycles are collected between polls, and objects from the start are excluded.
    gc.freeze()
    gc.disable()
    metrics.push_by_otlp("nsq-collector", metrics.collector_text)
    uvloop.run(collect_until_signalled())
    return 0
