"""What a node answers to ``GET /stats?format=json``, ours or Go's, checked before anything believes it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct, ValidationError, field
from msgspec.json import Decoder

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
    counts: Annotated[list[Count], Meta(max_length=MAX_BUCKETS)]

    def __post_init__(self) -> None:
        if self.offset + len(self.counts) > MAX_BUCKETS:
            raise ValueError(f"offset {self.offset} and {len(self.counts)} counts are beyond bucket {MAX_BUCKETS - 1}")


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

    @property
    def finished(self) -> int:
        """Messages that left the channel for good: all it got, less what it still holds."""
        return self.message_count - self.depth - self.in_flight_count - self.deferred_count


class TopicStats(_Figures, kw_only=True):
    topic_name: str
    message_bytes: Int64 = 0
    channels_or_null: list[ChannelStats] | None = field(name="channels", default=None)

    @property
    def channels(self) -> list[ChannelStats]:
        return self.channels_or_null or []


class NodeStats(_Answer, kw_only=True):
    """One node's answer. ``boot`` names the life of its process: counters start again with it."""

    version: str
    health: str = "OK"
    start_time: UnixSeconds = 0
    boot_id: str | None = None
    topics_or_null: list[TopicStats] | None = field(name="topics", default=None)

    @property
    def topics(self) -> list[TopicStats]:
        return self.topics_or_null or []

    @property
    def boot(self) -> str:
        return self.boot_id or str(self.start_time)


_decoder = Decoder(NodeStats)


def parse_stats(body: bytes | bytearray) -> NodeStats:
    """Read the body of a 200. Raises Malformed."""
    try:
        return _decoder.decode(body)
    except ValidationError as error:
        # "Expected `int`, got `str` - at `$.topics[0].depth`" as "topics.0.depth: Expected `int`, got `str`"
        problem, _, path = str(error).partition(" - at ")
        where = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", path.strip("`")).removeprefix("$").removeprefix(".")
        raise Malformed(f"cannot read its /stats: {where + ': ' if where else ''}{problem}") from None
    except DecodeError as error:
        raise Malformed(f"cannot read its /stats: Invalid JSON: {error}") from None
