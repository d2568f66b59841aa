"""Handing readings to the archive without ever holding up a beat."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from analytics.schema import Percentile, Sample
from cluster.snapshot import NodeView, Reading
from cluster.stats import ChannelStats, TopicStats

logger = logging.getLogger(__name__)

EVERY_S = 10.0
KEPT_BATCHES = 30
"""While the archive cannot be written, so many batches wait (five minutes' worth); older ones are given up."""


class Writer(Protocol):
    def write(self, samples: Sequence[Sample]) -> None: ...


class Archiving:
    """Takes a batch every EVERY_S seconds; writes in a worker thread, one batch at a time, oldest first."""

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._waiting: deque[list[Sample]] = deque()
        self._archived: dict[str, float] = {}
        self._due = 0.0
        self._work: asyncio.Task[None] | None = None
        self._failing = False

    def beat(self, views: Sequence[NodeView], *, now: float) -> None:
        """Take each node's newest reading, if it is time to. ``now`` is in seconds, monotonic."""
        if now < self._due:
            return
        self._due = now + EVERY_S
        self.take(views)

    def take(self, views: Sequence[NodeView]) -> None:
        """Queue the readings that no batch holds yet, and start writing."""
        batch: list[Sample] = []
        for view in views:
            reading = view.latest
            if reading is not None and self._archived.get(view.node.id) != reading.read_at:
                self._archived[view.node.id] = reading.read_at
                batch.extend(samples_of(view.node.id, reading))
        if batch:
            self._waiting.append(batch)
        if len(self._waiting) > KEPT_BATCHES:
            lost = self._waiting.popleft()
            logger.error("samples given up: the archive cannot be written", extra={"samples": len(lost)})
        if self._waiting and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._write_waiting())

    async def finish(self) -> None:
        """Wait until what was taken is written, or has failed."""
        if self._work is not None:
            await self._work

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            try:
                await asyncio.to_thread(self._write, batch)
            except ValueError:  # trying again would not make it fit
                logger.exception("samples given up: they do not fit the archive", extra={"samples": len(batch)})
            except Exception as error:  # whatever the disk has to say
                self._waiting.appendleft(batch)
                if not self._failing:
                    logger.exception("cannot write to the archive; will keep trying", exc_info=error)
                self._failing = True
                return
            else:
                if self._failing:
                    logger.info("the archive can be written again")
                self._failing = False

    def _write(self, batch: list[Sample]) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.write(batch)


def samples_of(node: str, reading: Reading) -> Iterator[Sample]:
    """One row per topic and one per channel."""
    for topic in reading.stats.topics:
        yield topic_sample(node, reading, topic)
        for channel in topic.channels:
            yield channel_sample(node, reading, topic, channel)


def topic_sample(node: str, reading: Reading, topic: TopicStats) -> Sample:
    return Sample(
        taken_at=datetime.fromtimestamp(reading.taken_at, UTC),
        node=node,
        boot_id=reading.stats.boot,
        started_at=datetime.fromtimestamp(reading.stats.start_time, UTC),
        topic=topic.topic_name,
        depth=topic.depth,
        backend_depth=topic.backend_depth,
        client_count=sum(channel.client_count for channel in topic.channels),
        message_count=topic.message_count,
        message_bytes=topic.message_bytes,
        oldest_unfinished_age_ns=topic.oldest_unfinished_age_ns,
        percentiles=percentiles(topic) if reading.stats.boot_id is None else None,
    )


def channel_sample(node: str, reading: Reading, topic: TopicStats, channel: ChannelStats) -> Sample:
    histogram = channel.latency_histogram
    return Sample(
        taken_at=datetime.fromtimestamp(reading.taken_at, UTC),
        node=node,
        boot_id=reading.stats.boot,
        started_at=datetime.fromtimestamp(reading.stats.start_time, UTC),
        topic=topic.topic_name,
        channel=channel.channel_name,
        depth=channel.depth,
        backend_depth=channel.backend_depth,
        in_flight_count=channel.in_flight_count,
        deferred_count=channel.deferred_count,
        client_count=channel.client_count,
        message_count=channel.message_count,
        requeue_count=channel.requeue_count,
        timeout_count=channel.timeout_count,
        finish_count=histogram.zero_count + sum(histogram.counts) if histogram else None,
        oldest_unfinished_age_ns=channel.oldest_unfinished_age_ns,
        hist_zero_count=histogram.zero_count if histogram else None,
        hist_offset=histogram.offset if histogram else None,
        hist_counts=histogram.counts if histogram else None,
        percentiles=percentiles(channel) if histogram is None else None,
    )


def percentiles(figures: TopicStats | ChannelStats) -> list[Percentile] | None:
    """nsqd's own, where it is configured to keep any."""
    latency = figures.e2e_processing_latency
    if latency is None or not latency.percentiles:
        return None
    return [Percentile(entry.quantile, int(entry.value)) for entry in latency.percentiles]
