"""Pushes the broker's figures to a statsd daemon, under nsqd's names.

nsqd's lines come first. Channels with dead or dropped messages have three more (:class:`Removed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from brokerd.memory import CollectorPauses, memory_stats
from brokerd.net.portions import in_portions
from brokerd.stats import ChannelStats, StatsQuery, TopicStats, topic_stats
from nsqwire.addresses import parse_host_port
from nsqwire.names import is_ephemeral

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.latency import LatencyStats, RecentLatencies
    from brokerd.settings import BrokerSettings
    from brokerd.topic import Topic

log = logging.getLogger("brokerd")

_TOPICS_AT_ONCE: Final = 50
_QUERY: Final = StatsQuery(include_clients=False)
_QUIET_S: Final = 1.0
"""Time at the end of an interval in which no datagrams are sent, so that those of two pushes never mix."""


def statsd_prefix(settings: BrokerSettings, http_port: int) -> str:
    """The prefix of every name. ``%s`` in it becomes ``broadcast_address:http_port``, with ``_`` for ``.`` and ``:``,
    which statsd does not allow."""
    host_key = f"{settings.broadcast_address}:{http_port}".replace(".", "_").replace(":", "_")
    prefix = settings.statsd_prefix.replace("%s", host_key)
    return prefix if not prefix or prefix.endswith(".") else prefix + "."


class Removed(NamedTuple):
    """A channel's dead messages now, and the numbers that died or were dropped since process start."""

    dead_count: int = 0
    died_count: int = 0
    dropped_count: int = 0


class Statsd:
    """Pushes once per interval. Counters are sent as their increase since the last push, other figures as they are."""

    def __init__(self, broker: Broker, latencies: RecentLatencies, pauses: CollectorPauses, *, http_port: int) -> None:
        """``http_port`` is the one announced to nsqlookupd."""
        self._broker = broker
        self._latencies = latencies
        self._pauses = pauses
        self._settings = broker.settings
        self._prefix = statsd_prefix(broker.settings, http_port)
        self._last: dict[str, TopicStats] = {}
        self._last_removed: dict[str, Removed] = {}
        """By the key of the channel; those that have had dead or dropped messages."""
        self._last_gc_runs = 0

    async def run(self) -> None:
        """Push until cancelled. On cancellation, the remaining datagrams of a push are sent at once."""
        interval = self._settings.statsd_interval.total_seconds()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += interval
            await asyncio.sleep(due - loop.time())
            await self._push(interval - _QUIET_S)

    async def _push(self, spread: float) -> None:
        address = self._settings.statsd_address
        loop = asyncio.get_running_loop()
        try:
            # resolved for each push, because the address of the daemon may change
            transport, _ = await loop.create_datagram_endpoint(_Sink, remote_addr=parse_host_port(address))
        except OSError as error:
            log.error("failed to create UDP socket to statsd(%s): %s", address, error)
            return
        log.info("STATSD: pushing stats to %s", address)
        try:
            datagrams = packed(await self._lines(), self._settings.statsd_udp_packet_size)
            await _send_spread(transport, datagrams, spread)
        finally:
            transport.close()

    async def _lines(self) -> list[bytes]:
        rows: dict[str, TopicStats] = {}
        removed: dict[str, Removed] = {}
        lines: list[bytes] = []
        async for portion in in_portions(sorted(self._broker.topics), _TOPICS_AT_ONCE):
            for name in portion:
                topic = self._broker.topics.get(name)
                if topic is None:  # deleted meanwhile
                    continue
                row = rows[name] = topic_stats(topic, _QUERY, self._latencies)
                if not self._left_out(name):
                    lines += self._topic_lines(topic, row, removed)
        self._last, self._last_removed = rows, removed
        if self._settings.statsd_mem_stats:
            lines += self._memory_lines()
        return lines

    def _left_out(self, name: str) -> bool:
        return self._settings.statsd_exclude_ephemeral and is_ephemeral(name)

    def _topic_lines(self, topic: Topic, row: TopicStats, removed: dict[str, Removed]) -> Iterator[bytes]:
        """``removed`` receives the figures that were sent of dead and dropped messages."""
        key, last = f"topic.{topic.name}.", self._last.get(topic.name)
        yield self._count(f"{key}message_count", row["message_count"] - (last["message_count"] if last else 0))
        yield self._count(f"{key}message_bytes", row["message_bytes"] - (last["message_bytes"] if last else 0))
        yield self._gauge(f"{key}depth", row["depth"])
        yield self._gauge(f"{key}backend_depth", row["backend_depth"])
        yield from self._latency_lines(key, row["e2e_processing_latency"])
        before = {channel["channel_name"]: channel for channel in last["channels"]} if last else {}
        for channel in row["channels"]:
            name = channel["channel_name"]
            if not self._left_out(name):
                channel_key = f"{key}channel.{name}."
                yield from self._channel_lines(channel_key, channel, before.get(name))
                yield from self._removed_lines(channel_key, topic.channels[name], removed)

    def _channel_lines(self, key: str, channel: ChannelStats, last: ChannelStats | None) -> Iterator[bytes]:
        yield self._count(f"{key}message_count", channel["message_count"] - (last["message_count"] if last else 0))
        yield self._gauge(f"{key}depth", channel["depth"])
        yield self._gauge(f"{key}backend_depth", channel["backend_depth"])
        yield self._gauge(f"{key}in_flight_count", channel["in_flight_count"])
        yield self._gauge(f"{key}deferred_count", channel["deferred_count"])
        yield self._count(f"{key}requeue_count", channel["requeue_count"] - (last["requeue_count"] if last else 0))
        yield self._count(f"{key}timeout_count", channel["timeout_count"] - (last["timeout_count"] if last else 0))
        yield self._gauge(f"{key}clients", channel["client_count"])
        yield from self._latency_lines(key, channel["e2e_processing_latency"])

    def _removed_lines(self, key: str, channel: Channel, removed: dict[str, Removed]) -> Iterator[bytes]:
        """The lines of a channel that has or had dead or dropped messages; nsqd has no such lines."""
        now = Removed(len(channel.dead), channel.redelivery.died.total(), channel.limits.dropped.total())
        last = self._last_removed.get(key)
        if last is None and not any(now):
            return
        # They continue at 0, because a statsd daemon repeats the last value of a gauge.
        removed[key], last = now, last or Removed()
        yield self._gauge(f"{key}dead_count", now.dead_count)
        yield self._count(f"{key}died_count", now.died_count - last.died_count)
        yield self._count(f"{key}dropped_count", now.dropped_count - last.dropped_count)

    def _latency_lines(self, key: str, latency: LatencyStats) -> Iterator[bytes]:
        for each in latency["percentiles"] or ():
            yield self._gauge(f"{key}e2e_processing_latency_{each['quantile'] * 100:.0f}", each["value"])

    def _memory_lines(self) -> Iterator[bytes]:
        memory = memory_stats(self._pauses)
        yield self._gauge("mem.heap_objects", memory["heap_objects"])
        yield self._gauge("mem.heap_idle_bytes", memory["heap_idle_bytes"])
        yield self._gauge("mem.heap_in_use_bytes", memory["heap_in_use_bytes"])
        yield self._gauge("mem.heap_released_bytes", memory["heap_released_bytes"])
        yield self._gauge("mem.gc_pause_usec_100", memory["gc_pause_usec_100"])
        yield self._gauge("mem.gc_pause_usec_99", memory["gc_pause_usec_99"])
        yield self._gauge("mem.gc_pause_usec_95", memory["gc_pause_usec_95"])
        yield self._gauge("mem.next_gc_bytes", memory["next_gc_bytes"])
        runs = memory["gc_total_runs"]
        yield self._count("mem.gc_runs", runs - self._last_gc_runs)
        self._last_gc_runs = runs

    def _count(self, name: str, value: int) -> bytes:
        return f"{self._prefix}{name}:{value}|c\n".encode()

    def _gauge(self, name: str, value: int) -> bytes:
        return f"{self._prefix}{name}:{value}|g\n".encode()


def packed(lines: Iterable[bytes], packet_size: int) -> list[bytes]:
    """Pack whole lines, in order, into datagrams of at most ``packet_size`` bytes; a longer line is a datagram of its
    own."""
    datagrams: list[bytes] = []
    waiting = b""
    for line in lines:
        if waiting and len(waiting) + len(line) > packet_size:
            datagrams.append(waiting)
            waiting = b""
        waiting += line
    if waiting:
        datagrams.append(waiting)
    return datagrams


async def _send_spread(transport: asyncio.DatagramTransport, datagrams: list[bytes], seconds: float) -> None:
    """Send the first datagram at once and the others evenly over ``seconds``; on cancellation, the rest at once."""
    pause = seconds / max(1, len(datagrams))
    rest = iter(datagrams)
    try:
        for datagram in rest:
            transport.sendto(datagram)
            await asyncio.sleep(pause)
    except asyncio.CancelledError:
        for datagram in rest:
            transport.sendto(datagram)
        raise


class _Sink(asyncio.DatagramProtocol):
    """Ignores all socket errors: the daemon sends no answers and may be down."""
