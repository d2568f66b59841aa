"""What a node answers to ``GET /stats?format=json``, ours or Go's, checked before anything believes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from nsqwire.histogram import MAX_BUCKETS


class Malformed(Exception):
    """An answer that is not what nsqd sends; the text names the key."""


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What the archive's columns hold. A gauge may be negative for a moment, counted while it changes."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
Bucket = Annotated[int, Field(ge=0, le=MAX_BUCKETS)]
UnixSeconds = Annotated[int, Field(ge=0, lt=253_402_300_800)]
"""Up to the year 9999, where Python's own ends."""


def _none_as_empty(value: object) -> object:
    return [] if value is None else value


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Percentile(_Answer):
    quantile: Annotated[float, Field(ge=0, le=1)]
    value: Annotated[float, Field(ge=0, lt=2**63)]


class Latency(_Answer):
    """``e2e_processing_latency``: nsqd's own percentiles, in nanoseconds, over its configured window."""

    percentiles: Annotated[list[Percentile], BeforeValidator(_none_as_empty)] = []


class ClientStats(_Answer):
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


class LatencyHistogram(_Answer):
    """The form that docs/architecture.md gives; one of another scale is refused, since it could not be merged."""

    scale: Literal[5]
    zero_count: Count
    offset: Bucket
    counts: Annotated[list[Count], Field(max_length=MAX_BUCKETS)]


class _Figures(_Answer):
    depth: Int64
    backend_depth: Int64 = 0
    message_count: Int64
    paused: bool = False
    oldest_unfinished_age_ns: Int64 | None = None
    e2e_processing_latency: Latency | None = None


class ChannelStats(_Figures):
    channel_name: str
    in_flight_count: Int64 = 0
    deferred_count: Int64 = 0
    requeue_count: Int64 = 0
    timeout_count: Int64 = 0
    client_count: Int64 = 0
    clients: Annotated[list[ClientStats], BeforeValidator(_none_as_empty)] = []
    latency_histogram: LatencyHistogram | None = None
    """Cumulative since the process started; None from a Go node."""

    @property
    def finished(self) -> int:
        """Messages that left the channel for good: all it got, less what it still holds."""
        return self.message_count - self.depth - self.in_flight_count - self.deferred_count


class TopicStats(_Figures):
    topic_name: str
    message_bytes: Int64 = 0
    channels: Annotated[list[ChannelStats], BeforeValidator(_none_as_empty)] = []


class NodeStats(_Answer):
    """One node's answer. ``boot`` names the life of its process: counters start again with it."""

    version: str
    health: str = "OK"
    start_time: UnixSeconds = 0
    boot_id: str | None = None
    topics: Annotated[list[TopicStats], BeforeValidator(_none_as_empty)] = []

    @property
    def boot(self) -> str:
        return self.boot_id or str(self.start_time)


def parse_stats(body: bytes) -> NodeStats:
    """Read the body of a 200. Raises Malformed."""
    try:
        return NodeStats.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Malformed(f"cannot read its /stats: {where + ': ' if where else ''}{first['msg']}") from None
