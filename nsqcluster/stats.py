"""Response of nsqd to ``GET /stats?format=json``, Go's and ours.

Go omits keys and writes ``null`` for empty lists; both are accepted. Any other deviation makes the response malformed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Raw, Struct, defstruct, field

from nsqwire.figures import reported
from nsqwire.histogram import MAX_BUCKETS

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""The archive's integer type. A gauge can be negative for a moment if it is read while it changes."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Bucket = Annotated[int, Meta(ge=0, le=MAX_BUCKETS)]
UnixSeconds = Annotated[int, Meta(ge=0, lt=253_402_300_800)]
"""Up to the year 9999, the last that datetime supports."""


class _Answer(Struct, gc=False):
    """Base of the types. Their many instances contain no cycles, so the garbage collector need not track them.

    A field whose name ends in ``_or_null`` can be null in Go's response; the property beside it returns a list.
    """


class Percentile(_Answer, kw_only=True):
    """``value`` is in nanoseconds."""

    quantile: Annotated[float, Meta(ge=0, le=1)]
    value: Annotated[float, Meta(ge=0, lt=float(2**63))]


class Latency(_Answer, kw_only=True):
    """``e2e_processing_latency``: nsqd's own percentiles over its configured window."""

    count: Int64 | None = None
    percentiles_or_null: list[Percentile] | None = field(name="percentiles", default=None)

    @property
    def percentiles(self) -> list[Percentile]:
        """The percentiles; empty if the node answered ``null``."""
        return self.percentiles_or_null or []


class PubCount(_Answer, kw_only=True):
    """Number of messages that a client published to a topic."""

    topic: str = ""
    count: Int64 = 0


class ClientStats(_Answer, kw_only=True):
    """One TCP connection to nsqd. ``sample_rate`` is in percent, 0 for all messages."""

    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    user_agent: str = ""
    state: Int64 = 0
    ready_count: Int64 = 0
    in_flight_count: Int64 = 0
    message_count: Int64 = 0
    finish_count: Int64 = 0
    requeue_count: Int64 = 0
    connect_ts: UnixSeconds = 0
    sample_rate: Int64 = 0
    deflate: bool = False
    snappy: bool = False
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False
    pub_counts: list[PubCount] | None = None
    """Only of a client that published."""
    timeout_count: Int64 | None = None
    """None from a Go node, as the next."""
    oldest_in_flight_age_ns: Int64 | None = None
    """Time since the delivery of its oldest message in flight; None if there is none."""


class LatencyHistogram(_Answer, kw_only=True):
    """Histogram of brokerd (docs/architecture.md). Any other scale is malformed, because it could not be merged."""

    scale: Literal[5]
    zero_count: Count
    offset: Bucket
    counts: Raw
    """List of counts, undecoded: there can be half a million in one response."""


class DeadByReason(_Answer, kw_only=True):
    """Dead messages of a channel by the reason of their death. Reasons that are not known here are ignored."""

    attempts: Int64 = 0
    expired: Int64 = 0
    overflow: Int64 = 0
    operator: Int64 = 0


class _Figures(_Answer, kw_only=True):
    depth: Int64 = 0
    backend_depth: Int64 = 0
    message_count: Int64 = 0
    zone_local_msg_count: Int64 = 0
    region_local_msg_count: Int64 = 0
    global_msg_count: Int64 = 0
    paused: bool = False
    oldest_unfinished_age_ns: Int64 | None = None
    """None from a Go node, and if there are no unfinished messages."""
    e2e_processing_latency: Latency | None = None


def with_figures(base: type[Struct], scope: str) -> type[Struct]:
    """Return a subclass of ``base`` with a field for each figure of ``scope`` that nsqd reports (nsqwire.figures).

    Figures within an object of the response are fields of its type, which is declared here.
    Its subclasses declare a field again if code refers to it, or if its type is narrower.
    """
    fields = [(figure.json_key, Int64, 0) for figure in reported(scope) if "." not in figure.json_key]
    return defstruct(f"{scope}_figures", fields, bases=(base,), kw_only=True)


if TYPE_CHECKING:

    class _ChannelFigures(_Figures): ...

    class _TopicFigures(_Figures): ...

    class _NodeFigures(Struct): ...

else:
    _ChannelFigures, _TopicFigures = with_figures(_Figures, "channel"), with_figures(_Figures, "topic")
    _NodeFigures = with_figures(Struct, "node")


class ChannelStats(_ChannelFigures, kw_only=True):
    """One channel on one node. Counters start at 0 with the process."""

    channel_name: str
    in_flight_count: Int64 = 0
    deferred_count: Int64 = 0
    requeue_count: Int64 = 0
    timeout_count: Int64 = 0
    client_count: Int64 = 0
    dead_count: Int64 = 0
    dead_by_reason: DeadByReason = field(default_factory=DeadByReason)
    clients_or_null: list[ClientStats] | None = field(name="clients", default=None)
    latency_histogram: LatencyHistogram | None = None
    """Cumulative since the process started; None from a Go node."""

    @property
    def clients(self) -> list[ClientStats]:
        """The consumers; empty if the node answered ``null``."""
        return self.clients_or_null or []

    @property
    def stored_count(self) -> int:
        """Number of messages that deleting the channel destroys: waiting, in flight, deferred and dead."""
        return self.depth + self.in_flight_count + self.deferred_count + self.dead_count


class TopicStats(_TopicFigures, kw_only=True):
    """One topic on one node."""

    topic_name: str
    message_bytes: Int64 = 0
    lost_message_count: Count = 0
    sample_lives: Count = 0
    """One in this number of messages is sampled; 0 for none, and from a Go node."""
    channels_or_null: list[ChannelStats] | None = field(name="channels", default=None)

    @property
    def channels(self) -> list[ChannelStats]:
        """The channels; empty if the node answered ``null``."""
        return self.channels_or_null or []


class Drain(Struct):
    """The drain of a node. Times are in seconds; ``ends_within`` is None if its process ends only when it is empty.
    ``messages`` wait, are in flight or are deferred."""

    since: UnixSeconds
    ends_within: Annotated[float, Meta(ge=0, le=2**53)] | None
    takes_publishes: bool
    messages: Count


class MirrorStats(Struct):
    """A mirrored node, as the member that leads it reports. ``since``: Unix seconds at which its term began.

    ``pair`` is the id of the pair, and ``member`` that of the member that leads. ``lag_bytes`` is what the follower has
    still to apply, and ``lag_seconds`` for how long it has applied nothing of it.
    """

    pair: str
    member: str
    epoch: Count
    in_sync: list[str]
    under_replicated: bool
    lag_bytes: Count
    lag_seconds: Annotated[float, Meta(ge=0, le=2**53)]
    since: UnixSeconds


class NodeStats(_NodeFigures, kw_only=True, dict=True):
    """Response of one node. ``boot`` identifies the run of its process; counters start at 0 with it."""

    version: str = ""
    health: str = "OK"
    start_time: UnixSeconds = 0
    topics_or_null: list[TopicStats] | None = field(name="topics")
    producers_or_null: list[ClientStats] | None = field(name="producers", default=None)
    release: str = ""
    """brokerd's release; only with histograms, and empty from a Go node."""
    node_id: Int64 | None = None
    boot_id: str | None = None
    uptime_ns: Count | None = None
    """Age of the process; None from a Go node."""
    previous_boot: Raw = Raw(b"null")  # not Raw | None: msgspec decodes that only from null
    """Last figures of the previous process, undecoded; only with ``previous_boot=true``. ``null`` if there are none."""
    lost_message_count: Count = 0
    lives_end: Count = 0
    """Number of events of sampled messages since the process started; 0 from a Go node."""
    drain: Drain | None = None
    """Only with histograms; None if the node does not drain, and from a Go node."""
    mirror: MirrorStats | None = None
    """Only with histograms; None if the node is not mirrored, and from a Go node."""

    @property
    def topics(self) -> list[TopicStats]:
        """The topics; empty if the node answered ``null``."""
        return self.topics_or_null or []

    @property
    def producers(self) -> list[ClientStats]:
        """The connections that publish; empty if the node answered ``null``."""
        return self.producers_or_null or []

    def channel(self, topic: str, channel: str) -> ChannelStats | None:
        """Return one channel; None if the node does not have it."""
        for each in self.topics:
            if each.topic_name == topic:
                return next((found for found in each.channels if found.channel_name == channel), None)
        return None

    @property
    def boot(self) -> str:
        """Identifies the process: its counters restart with it. Go's nodes have their start time only."""
        return self.boot_id or str(self.start_time)
