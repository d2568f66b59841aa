"""What a node answers to ``GET /stats?format=json``, ours or Go's, checked before anything believes it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from msgspec import DecodeError, Meta, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from cluster.histograms import Histograms, read_counts
from nsqwire.histogram import MAX_BUCKETS


class Malformed(Exception):
    """An answer that is not what nsqd sends; the text names the key."""


Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""What the archive's columns hold. A gauge may be negative for a moment, counted while it changes."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Bucket = Annotated[int, Meta(ge=0, le=MAX_BUCKETS)]
UnixSeconds = Annotated[int, Meta(ge=0, lt=253_402_300_800)]
"""Up to the year 9999, where Python's own ends."""


class _Answer(Struct, gc=False):
    """Unknown keys are passed over. Without cycles there is nothing for the garbage collector to look for, and of these
    there are tens of thousands a second.
    Where Go says ``null`` for an empty list, the field ends in ``_or_null`` and has a property beside it."""


class Percentile(_Answer, kw_only=True):
    quantile: Annotated[float, Meta(ge=0, le=1)]
    value: Annotated[float, Meta(ge=0, lt=float(2**63))]


class Latency(_Answer, kw_only=True):
    """``e2e_processing_latency``: nsqd's own percentiles, in nanoseconds, over its configured window."""

    count: Int64 | None = None
    percentiles_or_null: list[Percentile] | None = field(name="percentiles", default=None)

    @property
    def percentiles(self) -> list[Percentile]:
        return self.percentiles_or_null or []


class ClientStats(_Answer, kw_only=True):
    client_id: str = ""
    hostname: str = ""
    remote_address: str = ""
    user_agent: str = ""
    state: Int64 = 0
    ready_count: Int64 = 0
    in_flight_count: Int64 = 0
    message_count: Int64 = 0
    finish_count: Int64 = 0
    requeue_count: Int64 = 0
    connect_ts: UnixSeconds = 0
    tls: bool = False
    deflate: bool = False
    snappy: bool = False
    sample_rate: Int64 = 0


class LatencyHistogram(_Answer, kw_only=True):
    """The form that docs/architecture.md gives; one of another scale is refused, since it could not be merged."""

    scale: Literal[5]
    zero_count: Count
    offset: Bucket
    counts: Raw
    """A list of counts, which :attr:`NodeStats.histograms` reads."""


class _Figures(_Answer, kw_only=True):
    depth: Int64
    backend_depth: Int64 = 0
    message_count: Int64
    paused: bool = False
    oldest_unfinished_age_ns: Int64 | None = None
    e2e_processing_latency: Latency | None = None


class ChannelStats(_Figures, kw_only=True):
    channel_name: str
    in_flight_count: Int64 = 0
    deferred_count: Int64 = 0
    requeue_count: Int64 = 0
    timeout_count: Int64 = 0
    client_count: Int64 = 0
    clients_or_null: list[ClientStats] | None = field(name="clients", default=None)
    latency_histogram: LatencyHistogram | None = None
    """Cumulative since the process started; None from a Go node."""

    @property
    def clients(self) -> list[ClientStats]:
        return self.clients_or_null or []


class TopicStats(_Figures, kw_only=True):
    topic_name: str
    message_bytes: Int64 = 0
    channels_or_null: list[ChannelStats] | None = field(name="channels", default=None)

    @property
    def channels(self) -> list[ChannelStats]:
        return self.channels_or_null or []


class NodeStats(Struct, kw_only=True, dict=True):
    """One node's answer. ``boot`` names the life of its process: counters start again with it."""

    version: str
    health: str = "OK"
    start_time: UnixSeconds = 0
    boot_id: str | None = None
    lost_message_count: Count = 0
    topics_or_null: list[TopicStats] | None = field(name="topics", default=None)

    @property
    def topics(self) -> list[TopicStats]:
        return self.topics_or_null or []

    @property
    def boot(self) -> str:
        return self.boot_id or str(self.start_time)

    @cached_property
    def histograms(self) -> Histograms:
        """Raises ValidationError."""
        told = [
            (topic.topic_name, channel.channel_name, channel.latency_histogram)
            for topic in self.topics
            for channel in topic.channels
            if channel.latency_histogram is not None
        ]
        offsets = np.array([histogram.offset for _, _, histogram in told], np.int64)
        try:
            lengths, counts = read_counts([histogram.counts for _, _, histogram in told])
        except ValueError:
            _complain(self.topics)
            raise ValidationError("Counts that no histogram has") from None
        if (offsets + lengths).max(initial=0) > MAX_BUCKETS:
            _complain(self.topics)
        zeros = np.array([histogram.zero_count for _, _, histogram in told], np.int64)
        return Histograms([(topic, channel) for topic, channel, _ in told], zeros, offsets, lengths, counts)


_decoder = Decoder(NodeStats)
_counts = Decoder(list[Annotated[int, Meta(ge=0, lt=2**63 - 1)]])


def _complain(topics: list[TopicStats]) -> None:
    """Raise ValidationError that names the first histogram which is none."""
    for number, topic in enumerate(topics):
        for place, channel in enumerate(topic.channels):
            histogram = channel.latency_histogram
            if histogram is None:
                continue
            where = f"$.topics[{number}].channels[{place}].latency_histogram"
            try:
                counts = _counts.decode(histogram.counts)
            except ValidationError as error:
                problem, _, path = str(error).partition(" - at ")
                raise ValidationError(f"{problem} - at `{where}.counts{path.strip('`').removeprefix('$')}`") from None
            if histogram.offset + len(counts) > MAX_BUCKETS:
                raise ValidationError(
                    f"offset {histogram.offset} and {len(counts)} counts are beyond bucket {MAX_BUCKETS - 1}"
                    f" - at `{where}`"
                )


def parse_stats(body: bytes | bytearray) -> NodeStats:
    """Read the body of a 200. Raises Malformed."""
    try:
        stats = _decoder.decode(body)
        _ = stats.histograms  # read now, so that nobody else meets one that is none
    except ValidationError as error:
        # "Expected `int`, got `str` - at `$.topics[0].depth`" as "topics.0.depth: Expected `int`, got `str`"
        problem, _, path = str(error).partition(" - at ")
        where = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", path.strip("`")).removeprefix("$").removeprefix(".")
        raise Malformed(f"cannot read its /stats: {where + ': ' if where else ''}{problem}") from None
    except DecodeError as error:
        raise Malformed(f"cannot read its /stats: Invalid JSON: {error}") from None
    return stats
