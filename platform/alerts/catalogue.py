"""What a rule can watch: every metric of a channel, a topic and a node, and where the picture has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["channel", "topic", "node"]


class Kind(Enum):
    """How a figure bears with nodes that do not answer."""

    COUNT = "count"
    """A sum over nodes, none of them negative: without a silent node's share it is a lower bound."""
    RATE = "rate"
    """The same; a node that was not seen twice in its present life has no share yet."""
    AGE = "age"
    """The largest over nodes."""
    FLAG = "flag"
    """1 while it holds, else 0; it is watched for being above 0 and for nothing else."""


@dataclass(frozen=True)
class Metric:
    """``field`` is the picture's, where it has one of its own for this; ``unit`` of the values of the API."""

    scope: Scope
    name: str
    title: str
    unit: str
    kind: Kind
    description: str
    field: str = ""

    @property
    def is_flag(self) -> bool:
        return self.kind is Kind.FLAG


_ALL: Iterable[Metric] = (
    Metric("channel", "depth", "Depth", "messages", Kind.COUNT, "Messages that wait for a consumer.", "depth"),
    Metric(
        "channel",
        "oldest_age_s",
        "Oldest age",
        "s",
        Kind.AGE,
        "Age of the oldest message that no consumer has finished; Go's nsqd does not tell it.",
    ),
    Metric(
        "channel",
        "client_count",
        "Consumers",
        "consumers",
        Kind.COUNT,
        "Consumers connected, on all nodes together.",
        "client_count",
    ),
    Metric(
        "channel",
        "in_flight_count",
        "In flight",
        "messages",
        Kind.COUNT,
        "Messages that consumers hold and have not finished.",
        "in_flight_count",
    ),
    Metric(
        "channel",
        "deferred_count",
        "Deferred",
        "messages",
        Kind.COUNT,
        "Messages that wait for their time.",
        "deferred_count",
    ),
    Metric(
        "channel",
        "publish_rate",
        "Messages in",
        "messages/s",
        Kind.RATE,
        "Messages that reach the channel, a second.",
        "publish_rate",
    ),
    Metric(
        "channel",
        "finish_rate",
        "Messages out",
        "messages/s",
        Kind.RATE,
        "Messages that consumers finish, a second.",
        "finish_rate",
    ),
    Metric(
        "channel",
        "timeout_rate",
        "Timeouts",
        "messages/s",
        Kind.RATE,
        "Messages that consumers held for too long, a second.",
        "timeout_rate",
    ),
    Metric(
        "channel",
        "requeue_rate",
        "Requeues",
        "messages/s",
        Kind.RATE,
        "Messages that consumers gave back, a second.",
        "requeue_rate",
    ),
    Metric(
        "topic",
        "depth",
        "Depth",
        "messages",
        Kind.COUNT,
        "Messages that wait in the topic and in its channels.",
    ),
    Metric(
        "topic",
        "oldest_age_s",
        "Oldest age",
        "s",
        Kind.AGE,
        "Age of the oldest message that a channel has not finished or was not given; Go's nsqd does not tell it.",
    ),
    Metric(
        "topic",
        "channel_count",
        "Channels",
        "channels",
        Kind.COUNT,
        "Channels of the topic; without any, its messages wait for the first.",
        "channel_count",
    ),
    Metric(
        "topic",
        "client_count",
        "Consumers",
        "consumers",
        Kind.COUNT,
        "Consumers connected, of all channels and nodes together.",
        "client_count",
    ),
    Metric(
        "topic", "publish_rate", "Messages in", "messages/s", Kind.RATE, "Messages published, a second.", "publish_rate"
    ),
    Metric("topic", "byte_rate", "Bytes in", "bytes/s", Kind.RATE, "Bytes of messages, a second.", "byte_rate"),
    Metric(
        "node",
        "down",
        "Missing",
        "",
        Kind.FLAG,
        "The node does not answer; it counts as missing when registries have forgotten it too, until it answers again.",
    ),
    Metric(
        "node",
        "unhealthy",
        "Unhealthy",
        "",
        Kind.FLAG,
        "The node answers and says that it is not well: its disk takes no more.",
    ),
    Metric(
        "node",
        "lost_message_count",
        "Lost messages",
        "messages",
        Kind.COUNT,
        "Undelivered messages that the node found damaged or missing since its process started; Go's nsqd does not "
        "report it.",
        "lost_message_count",
    ),
    Metric("node", "depth", "Depth", "messages", Kind.COUNT, "Messages that wait on the node.", "depth"),
    Metric(
        "node", "client_count", "Consumers", "consumers", Kind.COUNT, "Consumers connected to the node.", "client_count"
    ),
    Metric(
        "node",
        "publish_rate",
        "Messages in",
        "messages/s",
        Kind.RATE,
        "Messages published to the node, a second.",
        "publish_rate",
    ),
    Metric(
        "node",
        "finish_rate",
        "Messages out",
        "messages/s",
        Kind.RATE,
        "Messages finished on the node, a second.",
        "finish_rate",
    ),
)

METRICS: dict[tuple[str, str], Metric] = {(metric.scope, metric.name): metric for metric in _ALL}
"""By scope and name."""


def names_of(scope: str) -> list[str]:
    return [name for of, name in METRICS if of == scope]
