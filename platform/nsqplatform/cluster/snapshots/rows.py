"""The rows of snapshots, deltas and the API (docs/architecture.md, Rows).

Counts are summed over nodes; rates are per second over the last poll, None until there are two readings of one process.
A node that is down keeps its last numbers in the sums and adds nothing to the rates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_type_hints

# pydantic makes the OpenAPI schema from these, and needs this one below Python 3.12.
from typing_extensions import TypedDict

from nsqwire.figures import Figure, Kind, in_rows, in_shares
from nsqwire.units import Milliseconds, WholeSeconds


class DrainState(TypedDict):
    """The drain of a node, as of its last reading. Times are in Unix milliseconds."""

    since: Milliseconds
    ends_at: Milliseconds | None
    """When its process ends although messages are left; None: only when it is empty."""
    takes_publishes: bool
    messages: int
    """Those left: waiting, in flight or deferred."""


class MirrorState(TypedDict):
    """The pair that a node is, as of its last reading."""

    pair: str
    """Id of the pair."""
    member: str
    """The member that leads."""
    epoch: int
    """Number of its term."""
    since: Milliseconds
    """Unix milliseconds at which the term began."""
    in_sync: list[str]
    """The members that have everything that was acknowledged."""
    under_replicated: bool
    """Whether the member that leads is alone."""
    lag_bytes: int
    """What the follower has still to apply."""
    lag_ms: Milliseconds
    """For how long the follower has applied nothing of it."""


class NodeText(TypedDict):
    """The fields of a node's row that are not figures."""

    id: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    release: str
    """brokerd's release; empty if the node runs Go's nsqd, or has not answered."""
    state: Literal["up", "down"]
    error: str | None
    down_since: Milliseconds | None
    """Unix milliseconds of its last reading, by this or an earlier collector. None while it is up, and if it has never
    answered."""
    health: str
    start_time: WholeSeconds
    """Unix seconds; 0, as all of its figures, until this collector has read it."""
    drain: DrainState | None
    """None if it does not drain, while it is down, and of a Go node."""
    mirror: MirrorState | None
    """None if it is not mirrored, while it is down, and of a Go node."""


class TopicText(TypedDict):
    name: str
    paused: bool
    """Whether any node paused it."""


class ChannelText(TypedDict):
    topic: str
    name: str
    paused: bool


class ShareText(TypedDict):
    """One node's share of a topic or channel."""

    node: str
    paused: bool


def type_of(figure: Figure) -> Any:
    """The type of its values in a row."""
    if figure.kind is Kind.LATENCY_RANGE:
        return list[float] | None
    return int if figure.kind.is_whole else float | None


def _with_figures(name: str, text: Any, figures: Iterable[Figure], **more: Any) -> Any:
    """A TypedDict of the fields of ``text``, ``figures`` and ``more``, in this order."""
    fields = {**get_type_hints(text), **{each.name: type_of(each) for each in figures}, **more}
    return TypedDict(name, fields)  # type: ignore[operator]  # known at run time only


# A type checker sees the text fields. The figures are read through their declarations, and by name from Table.
if TYPE_CHECKING:

    class NodeRow(NodeText): ...

    class TopicNode(ShareText): ...

    class ChannelNode(ShareText): ...

    class TopicRow(TopicText):
        nodes: list[TopicNode]

    class ChannelRow(ChannelText):
        nodes: list[ChannelNode]

else:
    NodeRow = _with_figures("NodeRow", NodeText, in_rows("node"))
    TopicNode = _with_figures("TopicNode", ShareText, in_shares("topic"))
    ChannelNode = _with_figures("ChannelNode", ShareText, in_shares("channel"))
    TopicRow = _with_figures("TopicRow", TopicText, in_rows("topic"), nodes=list[TopicNode])
    ChannelRow = _with_figures("ChannelRow", ChannelText, in_rows("channel"), nodes=list[ChannelNode])


class SnapshotRows(TypedDict):
    version: int
    taken_at: Milliseconds
    """Unix milliseconds."""
    nodes: list[NodeRow]
    topics: list[TopicRow]
    channels: list[ChannelRow]


Columns: TypeAlias = dict[str, list[Any]]
"""Rows as one list per field, all of the same length; ``nodes`` contains the values of each share without names."""


class Changes(TypedDict):
    put: Columns
    set: Columns
    drop: list[str]


"""``put`` has whole rows, which are new or replace those with the same key. ``set`` has the ``keys`` of the rows in
which figures changed, and the columns of these figures; a column without changes is left out. ``drop`` has keys."""


class Delta(TypedDict):
    """Turns the snapshot of version ``base`` into that of ``version``."""

    type: Literal["delta"]
    version: int
    base: int
    taken_at: Milliseconds
    nodes: Changes
    topics: Changes
    channels: Changes


class ClientRow(TypedDict):
    """One consumer of a watched channel, on one node."""

    node: str
    client_id: str
    hostname: str
    remote_address: str
    user_agent: str
    state: int
    ready_count: int
    in_flight_count: int
    message_count: int
    finish_count: int
    requeue_count: int
    timeout_count: int | None
    """None from a Go node."""
    oldest_in_flight_ms: float | None
    """Time since the delivery of its oldest message in flight. None without one, and from a Go node."""
    connected_s: int
    tls: bool
    deflate: bool
    snappy: bool
    sample_rate: int


class WatchedClient(ClientRow):
    """A consumer with its figures of the last seconds (cluster.clients.rates). Unknown ones are None."""

    finish_rate: float | None
    """Messages per second, as the next two."""
    requeue_rate: float | None
    timeout_rate: float | None
    message_ms: float | None
    """Time that a message is in flight, on average."""
    slow: str
    """Why it is slow compared with the channel's other clients; empty if it is not."""


class ViewFields(TypedDict, total=False):
    """The part of a snapshot: everything, or all nodes and one topic, or all nodes and one node's topics."""

    topic: str
    node: str


class SnapshotMessage(TypedDict):
    """A whole snapshot. Its columns contain the fields of the rows."""

    type: Literal["snapshot"]
    version: int
    taken_at: Milliseconds
    view: ViewFields
    nodes: Columns
    topics: Columns
    channels: Columns


class RestMessage(TypedDict):
    """The whole snapshot for a browser whose view is a part of it: the columns of a ``SnapshotMessage``."""

    type: Literal["rest"]
    version: int
    taken_at: Milliseconds
    view: ViewFields
    nodes: Columns
    topics: Columns
    channels: Columns


class Clients(TypedDict):
    type: Literal["clients"]
    topic: str
    channel: str
    clients: list[WatchedClient]
