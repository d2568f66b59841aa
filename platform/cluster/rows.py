"""The rows of the live picture, in the snapshot, in deltas and in the API alike (docs/architecture.md, Rows).

Counts are summed over nodes; rates are per second over the last beat, None until two readings of one process exist.
A node that is down keeps its last numbers in the sums and adds nothing to the rates.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

# pydantic, which draws the OpenAPI schema from these, asks for this one below Python 3.12.
from typing_extensions import TypedDict


class NodeRow(TypedDict):
    id: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    state: Literal["up", "down"]
    error: str | None
    health: str
    start_time: int
    topic_count: int
    channel_count: int
    client_count: int
    depth: int
    """Of its topics and their channels together."""
    lost_message_count: int
    """Undelivered messages that the node found damaged or missing since its process started; 0 for Go's nsqd."""
    publish_rate: float | None
    finish_rate: float | None


class TopicNode(TypedDict):
    node: str
    paused: bool
    depth: int
    message_count: int
    publish_rate: float | None


class TopicRow(TypedDict):
    name: str
    paused: bool
    """On any node."""
    depth: int
    """The topic's own backlog: what no channel has been given yet."""
    backend_depth: int
    message_count: int
    message_bytes: int
    channel_count: int
    client_count: int
    in_flight_count: int
    publish_rate: float | None
    byte_rate: float | None
    oldest_age_ms: float | None
    nodes: list[TopicNode]
    """Empty for a topic that only registries know."""


class ChannelNode(TypedDict):
    node: str
    paused: bool
    depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    client_count: int


class ChannelRow(TypedDict):
    topic: str
    name: str
    paused: bool
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int
    publish_rate: float | None
    finish_rate: float | None
    requeue_rate: float | None
    timeout_rate: float | None
    oldest_age_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    p50_range_ms: list[float] | None
    p99_range_ms: list[float] | None
    """Lowest and highest, where some nodes tell percentiles of their own and no histogram; else None."""
    nodes: list[ChannelNode]


class Snapshot(TypedDict):
    version: int
    taken_at: int
    """Unix milliseconds."""
    nodes: list[NodeRow]
    topics: list[TopicRow]
    channels: list[ChannelRow]


Columns: TypeAlias = dict[str, list[Any]]
"""Rows as one list per field, all equally long; ``nodes`` holds each node's values without their names."""


# "set" is a word of Python's, so these are not written as classes.
class Changes(TypedDict):
    put: Columns
    set: Columns
    drop: list[str]


"""``put`` are whole rows, new or in place of those with the same key. ``set`` are the ``keys`` of rows of which numbers
changed and the columns of these numbers; a column in which nothing changed is left out. ``drop`` are keys."""


class Delta(TypedDict):
    """What turns the picture of version ``base`` into that of ``version``."""

    type: Literal["delta"]
    version: int
    base: int
    taken_at: int
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
    connected_s: int
    tls: bool
    deflate: bool
    snappy: bool
    sample_rate: int


class Clients(TypedDict):
    type: Literal["clients"]
    topic: str
    channel: str
    clients: list[ClientRow]
