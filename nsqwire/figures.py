"""The figures of nodes, topics and channels. Each is declared once, as one entry of FIGURES.

Everything that lists figures is made from this table: what the collector reads, sums and stores, the rows of the API
and the websocket, their deltas and wire order, the web app's types, the last hour, the metrics of alerts, the columns
of the archive and docs/figures.md. To add a figure that nsqd reports, add its entry; see :class:`Figure`.

The table is in nsqwire because both of its users can import it: the platform, and nsqanalytics, which imports no other
package of ours. The names, units and JSON keys of what nsqd reports are part of its protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["cluster", "node", "topic", "channel"]
OverNodes: TypeAlias = Literal["sum", "largest", "merged histograms", "lowest and highest"]
"""How the values of the nodes are combined."""


class Kind(Enum):
    """What a figure measures, and how the values of the nodes are combined."""

    GAUGE = "gauge", "sum"
    """A whole number that can rise and fall."""
    COUNTER = "counter", "sum"
    """A whole number that grows from 0 while the node's process runs."""
    RATE = "rate", "sum"
    """The increase of a counter per second; None until it is known."""
    AGE = "age", "largest"
    """The time since an event; None if there is none."""
    LATENCY = "latency", "merged histograms"
    """A percentile of the latency of the messages finished in the last minute; None if there are none."""
    LATENCY_RANGE = "latency range", "lowest and highest"
    """The lowest and highest such percentile of nodes without a histogram, which cannot be merged: a pair, or None."""

    def __init__(self, title: str, over_nodes: OverNodes) -> None:
        self.title = title
        self.over_nodes = over_nodes

    @property
    def is_whole(self) -> bool:
        """Whether values are whole numbers. They are never null."""
        return self in (Kind.GAUGE, Kind.COUNTER)


GAUGE, COUNTER, RATE, AGE = Kind.GAUGE, Kind.COUNTER, Kind.RATE, Kind.AGE
LATENCY, LATENCY_RANGE = Kind.LATENCY, Kind.LATENCY_RANGE


@dataclass(frozen=True)
class Alert:
    """The alert metric of a figure. ``name`` and ``unit`` are given where they differ from the figure's."""

    title: str
    description: str
    name: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure of one scope.

    A gauge or counter is read from nsqd's ``/stats`` unless ``sum_of`` or ``computed`` is given.
    """

    scope: Scope
    name: str
    kind: Kind
    unit: str
    meaning: str
    key: str = ""
    """Its key in ``/stats``, if that differs from ``name``. A dot leads into an object: ``dead_by_reason.expired``."""
    rate_of: str = ""
    """Of a rate: the counter of the same scope whose increase it measures."""
    sum_of: tuple[str, ...] = ()
    """The figures of smaller scopes that it sums (``channel.depth``), or the scope it counts (``channel``)."""
    computed: bool = False
    """Whether code of the platform computes it from other data."""
    is_collected: bool = True
    """Whether the collector reads it, if nsqd reports it; others are only in nsqadmin's API."""
    ours_only: bool = False
    """Of a rate of channels: whether it is unknown for Go's nsqd, which does not report its counter."""
    in_row: bool = True
    """Whether rows of the API and the websocket have it."""
    in_share: bool = False
    """Whether each node's share of a topic's or channel's row has it too."""
    archived_since: int = 0
    """The archive's schema version that added its column; 0: it is not archived."""
    history: str = ""
    """Its name in the records of the last hour; empty if it is not recorded."""
    alert: Alert | None = None

    @property
    def json_key(self) -> str:
        """Its key in ``/stats``; empty if nsqd does not report it."""
        return (self.key or self.name) if self.kind.is_whole and not self.sum_of and not self.computed else ""

    @property
    def over_time(self) -> Literal["mean", "lowest", "highest"]:
        """How its values in a longer time are combined: for a rate their mean, for other figures the worst value."""
        if self.kind is Kind.RATE:
            return "mean"
        return "lowest" if self.unit == "clients" else "highest"


# fmt: off
# This is the order of columns in rows, shares, the archive and the records of the last hour, which have rates last.
FIGURES: tuple[Figure, ...] = (
    Figure("channel", "depth", GAUGE, "messages", "waiting, in memory and on disk",
           in_share=True, archived_since=1, history="depth",
           alert=Alert("Depth", "Messages that wait for a consumer.")),
    Figure("channel", "backend_depth", GAUGE, "messages", "of those, on disk only", archived_since=1),
    Figure("channel", "in_flight_count", GAUGE, "messages", "sent, not finished",
           in_share=True, archived_since=1, history="in_flight",
           alert=Alert("In flight", "Messages that were sent to consumers and are not finished.")),
    Figure("channel", "deferred_count", GAUGE, "messages", "deferred to a later time",
           in_share=True, archived_since=1, history="deferred",
           alert=Alert("Deferred", "Messages that are deferred to a later time.")),
    Figure("channel", "message_count", COUNTER, "messages", "received", in_share=True, archived_since=1),
    Figure("channel", "client_count", GAUGE, "clients", "connected",
           in_share=True, archived_since=1, history="clients",
           alert=Alert("Consumers", "Connected consumers, on all nodes together.", unit="consumers")),
    Figure("channel", "requeue_count", COUNTER, "messages", "requeued by a consumer", archived_since=1),
    Figure("channel", "timeout_count", COUNTER, "messages", "timed out in flight", archived_since=1),
    Figure("channel", "emptied_count", COUNTER, "messages",
           "removed by operators, unfinished; 0 for Go's nsqd", archived_since=3),
    Figure("channel", "rewound_count", COUNTER, "messages",
           "finished or emptied, and returned by a rewind; 0 for Go's nsqd", archived_since=3),
    Figure("channel", "dead_count", GAUGE, "messages", "dead; 0 for Go's nsqd",
           in_share=True, archived_since=4, history="dead",
           alert=Alert("Dead", "Messages that the channel does not deliver any more, and keeps. Go's nsqd has none.")),
    Figure("channel", "dead_attempts_count", GAUGE, "messages", "of those, after too many failed deliveries",
           key="dead_by_reason.attempts"),
    Figure("channel", "dead_expired_count", GAUGE, "messages", "of those, expired", key="dead_by_reason.expired"),
    Figure("channel", "dead_overflow_count", GAUGE, "messages", "of those, beyond a bound of the channel",
           key="dead_by_reason.overflow"),
    Figure("channel", "dead_operator_count", GAUGE, "messages", "of those, buried by an operator",
           key="dead_by_reason.operator"),
    Figure("channel", "died_count", COUNTER, "messages", "died; 0 for Go's nsqd", archived_since=4),
    Figure("channel", "dropped_count", COUNTER, "messages",
           "dropped by a policy: too old, or too many; 0 for Go's nsqd", archived_since=4),
    Figure("channel", "zone_local_msg_count", COUNTER, "messages", "sent to clients in the node's zone",
           in_row=False, is_collected=False),
    Figure("channel", "region_local_msg_count", COUNTER, "messages", "sent to clients elsewhere in its region",
           in_row=False, is_collected=False),
    Figure("channel", "global_msg_count", COUNTER, "messages", "sent to clients in other regions",
           in_row=False, is_collected=False),
    Figure("channel", "finished", COUNTER, "messages",
           "finished by a consumer; for Go's nsqd received, less those waiting, in flight and deferred",
           computed=True, in_row=False),
    Figure("channel", "publish_rate", RATE, "messages/s", "received", rate_of="message_count", history="publish_rate",
           alert=Alert("Messages in", "Messages that reach the channel, per second.")),
    Figure("channel", "finish_rate", RATE, "messages/s", "finished", rate_of="finished", history="finish_rate",
           alert=Alert("Messages out", "Messages that consumers finish, per second.")),
    Figure("channel", "requeue_rate", RATE, "messages/s", "requeued", rate_of="requeue_count", history="requeue_rate",
           alert=Alert("Requeues", "Messages that consumers requeue, per second.")),
    Figure("channel", "timeout_rate", RATE, "messages/s", "timed out", rate_of="timeout_count", history="timeout_rate",
           alert=Alert("Timeouts", "Messages that time out in flight, per second.")),
    Figure("channel", "emptied_rate", RATE, "messages/s", "removed by operators; unknown for Go's nsqd",
           rate_of="emptied_count", history="emptied_rate", ours_only=True),
    Figure("channel", "rewound_rate", RATE, "messages/s", "returned by a rewind; unknown for Go's nsqd",
           rate_of="rewound_count", history="rewound_rate", ours_only=True),
    Figure("channel", "drop_rate", RATE, "messages/s", "dropped by a policy; unknown for Go's nsqd",
           rate_of="dropped_count", history="drop_rate", ours_only=True,
           alert=Alert("Drops", "Messages per second that a channel drops, because they are too old or too many. Go's "
                       "nsqd drops none.")),
    Figure("channel", "death_rate", RATE, "messages/s", "died; unknown for Go's nsqd", rate_of="died_count",
           history="death_rate", ours_only=True,
           alert=Alert("Deaths", "Messages that die, per second. Go's nsqd has none.")),
    Figure("channel", "oldest_age_ms", AGE, "ms", "age of the oldest message that is not finished",
           computed=True, history="oldest_age_ms",
           alert=Alert("Oldest age", "Age of the oldest message that no consumer has finished. Go's nsqd does not "
                       "report it.", name="oldest_age_s", unit="s")),
    Figure("channel", "p50_ms", LATENCY, "ms", "median latency", computed=True, history="p50_ms"),
    Figure("channel", "p99_ms", LATENCY, "ms", "99th percentile of latency", computed=True, history="p99_ms"),
    Figure("channel", "p50_range_ms", LATENCY_RANGE, "ms", "median latency", computed=True),
    Figure("channel", "p99_range_ms", LATENCY_RANGE, "ms", "99th percentile of latency", computed=True),

    Figure("topic", "depth", GAUGE, "messages", "waiting in the topic itself, in none of its channels",
           in_share=True, archived_since=1),
    Figure("topic", "backend_depth", GAUGE, "messages", "of those, on disk only", archived_since=1),
    Figure("topic", "message_count", COUNTER, "messages", "received", in_share=True, archived_since=1),
    Figure("topic", "message_bytes", COUNTER, "bytes", "received, topics only", archived_since=1),
    Figure("topic", "emptied_count", COUNTER, "messages",
           "removed by emptying the topic itself; 0 for Go's nsqd", archived_since=3),
    Figure("topic", "zone_local_msg_count", COUNTER, "messages", "sent to clients in the node's zone",
           in_row=False, is_collected=False),
    Figure("topic", "region_local_msg_count", COUNTER, "messages", "sent to clients elsewhere in its region",
           in_row=False, is_collected=False),
    Figure("topic", "global_msg_count", COUNTER, "messages", "sent to clients in other regions",
           in_row=False, is_collected=False),
    Figure("topic", "backlog", GAUGE, "messages", "waiting in the topic and in its channels",
           sum_of=("topic.depth", "channel.depth"), in_row=False, history="depth",
           alert=Alert("Depth", "Messages that wait in the topic and in its channels.", name="depth")),
    Figure("topic", "channel_count", GAUGE, "channels", "channels", sum_of=("channel",),
           alert=Alert("Channels", "Channels of the topic. Without any, its messages wait for the first.")),
    Figure("topic", "in_flight_count", GAUGE, "messages", "sent, not finished",
           sum_of=("channel.in_flight_count",), history="in_flight"),
    Figure("topic", "dead_count", GAUGE, "messages", "dead in its channels", sum_of=("channel.dead_count",)),
    Figure("topic", "client_count", GAUGE, "clients", "connected",
           sum_of=("channel.client_count",), archived_since=1, history="clients",
           alert=Alert("Consumers", "Connected consumers, of all channels and nodes together.", unit="consumers")),
    Figure("topic", "publish_rate", RATE, "messages/s", "received",
           rate_of="message_count", in_share=True, history="publish_rate",
           alert=Alert("Messages in", "Messages published per second.")),
    Figure("topic", "byte_rate", RATE, "bytes/s", "received", rate_of="message_bytes", history="byte_rate",
           alert=Alert("Bytes in", "Bytes of messages published per second.")),
    Figure("topic", "finish_rate", RATE, "messages/s", "finished in its channels",
           sum_of=("channel.finish_rate",), in_row=False, history="finish_rate"),
    Figure("topic", "emptied_rate", RATE, "messages/s", "removed by emptying the topic itself",
           rate_of="emptied_count"),
    Figure("topic", "all_emptied_rate", RATE, "messages/s", "removed by operators from the topic and its channels",
           sum_of=("topic.emptied_rate", "channel.emptied_rate"), in_row=False, history="emptied_rate"),
    Figure("topic", "rewound_rate", RATE, "messages/s", "returned by rewinds of its channels",
           sum_of=("channel.rewound_rate",), in_row=False, history="rewound_rate"),
    Figure("topic", "oldest_age_ms", AGE, "ms", "age of the oldest message that is not finished",
           computed=True, history="oldest_age_ms",
           alert=Alert("Oldest age", "Age of the oldest message that a channel has not finished or not received. Go's "
                       "nsqd does not report it.", name="oldest_age_s", unit="s")),

    Figure("node", "topic_count", GAUGE, "topics", "topics", sum_of=("topic",)),
    Figure("node", "channel_count", GAUGE, "channels", "channels", sum_of=("channel",)),
    Figure("node", "lost_message_count", COUNTER, "messages",
           "undelivered messages found damaged or missing; 0 for Go's nsqd",
           alert=Alert("Lost messages", "Undelivered messages that the node found damaged or missing since its process "
                       "started; Go's nsqd does not report it.")),
    Figure("node", "depth", GAUGE, "messages", "waiting in its topics and their channels",
           sum_of=("topic.depth", "channel.depth"), history="depth",
           alert=Alert("Depth", "Messages that wait on the node.")),
    Figure("node", "client_count", GAUGE, "clients", "connected", sum_of=("channel.client_count",), history="clients",
           alert=Alert("Consumers", "Consumers connected to the node.", unit="consumers")),
    Figure("node", "publish_rate", RATE, "messages/s", "received",
           sum_of=("topic.publish_rate",), history="publish_rate",
           alert=Alert("Messages in", "Messages published to the node per second.")),
    Figure("node", "finish_rate", RATE, "messages/s", "finished",
           sum_of=("channel.finish_rate",), history="finish_rate",
           alert=Alert("Messages out", "Messages finished on the node per second.")),

    Figure("cluster", "depth", GAUGE, "messages", "waiting in all topics and channels",
           sum_of=("topic.backlog",), in_row=False, history="depth"),
    Figure("cluster", "in_flight", GAUGE, "messages", "sent, not finished",
           sum_of=("channel.in_flight_count",), in_row=False, history="in_flight"),
    Figure("cluster", "clients", GAUGE, "clients", "connected",
           sum_of=("channel.client_count",), in_row=False, history="clients"),
    Figure("cluster", "publish_rate", RATE, "messages/s", "received",
           sum_of=("topic.publish_rate",), in_row=False, history="publish_rate"),
    Figure("cluster", "finish_rate", RATE, "messages/s", "finished",
           sum_of=("topic.finish_rate",), in_row=False, history="finish_rate"),
    Figure("cluster", "emptied_rate", RATE, "messages/s", "removed by operators from topics and channels",
           sum_of=("topic.all_emptied_rate",), in_row=False, history="emptied_rate"),
    Figure("cluster", "rewound_rate", RATE, "messages/s", "returned by rewinds",
           sum_of=("topic.rewound_rate",), in_row=False, history="rewound_rate"),
)
# fmt: on


def of_scope(scope: str) -> list[Figure]:
    """The figures of one scope, in order."""
    return [figure for figure in FIGURES if figure.scope == scope]


def reported(scope: str) -> list[Figure]:
    """The figures of one scope that nsqd reports in ``/stats``."""
    return [figure for figure in of_scope(scope) if figure.json_key]


def collected(scope: str) -> list[Figure]:
    """The figures of one scope that nsqd reports and the collector reads."""
    return [figure for figure in reported(scope) if figure.is_collected]


def in_rows(scope: str) -> list[Figure]:
    """The figures of one scope that rows of the API and the websocket have."""
    return [figure for figure in of_scope(scope) if figure.in_row]


def in_shares(scope: str) -> list[Figure]:
    """The figures of one scope that each node's share of a topic's or channel's row has."""
    return [figure for figure in of_scope(scope) if figure.in_share]


def recorded(scope: str) -> list[Figure]:
    """The figures of one scope that are recorded for the last hour, in the order of the records: rates come last."""
    return sorted((figure for figure in of_scope(scope) if figure.history), key=lambda figure: figure.kind is RATE)


def archived() -> list[Figure]:
    """One figure for each column of the archive, in order: the channel's of that name, else the topic's."""
    columns: dict[str, Figure] = {}
    for figure in FIGURES:
        if figure.archived_since:
            columns.setdefault(figure.name, figure)
    return [*columns.values()]
