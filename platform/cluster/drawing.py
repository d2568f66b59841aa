"""The cluster's picture from the latest reading of each node. It reads no clock and asks nobody."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from cluster.figures import Key
from cluster.latency import QUANTILES, LatencyWindow
from cluster.layout import Layout, Source
from cluster.picture import Picture
from cluster.ranges import ranges
from cluster.rates import rounded
from cluster.reading import CHANNEL_FIGURES, TOPIC_FIGURES, NodeView, Reading
from cluster.rows import Columns, NodeRow
from cluster.sums import Share, Sums, told
from cluster.table import SHARES, Table, keys_of

TOPIC_COUNTERS = tuple(map(TOPIC_FIGURES.index, ("message_count", "message_bytes")))
CHANNEL_COUNTERS = tuple(map(CHANNEL_FIGURES.index, ("message_count", "finished", "requeue_count", "timeout_count")))
"""Those figures of which rates are taken."""


class Drawing:
    """Draws one picture after the other, and remembers from one to the next what seldom changes: who holds what."""

    def __init__(self, latencies: LatencyWindow) -> None:
        self._latencies = latencies
        self._topics: Layout[str] = Layout([], ())
        self._channels: Layout[tuple[str, str]] = Layout([], ())
        self._names: Columns = {}
        self._channel_keys: Sequence[str] = ()

    def draw(
        self, views: Sequence[NodeView], registered: Mapping[str, Sequence[str]], *, version: int, taken_at_ms: int
    ) -> Picture:
        """``registered`` are the topics, with their channels, that registries know."""
        views = sorted(views, key=lambda view: (view.node.hostname, view.node.id))
        answered = [(view, view.latest) for view in views if view.latest]
        topic_shares = [topic_share(view, latest) for view, latest in answered]
        channel_shares = [channel_share(view, latest) for view, latest in answered]
        produced = {name for share in topic_shares for name in share.figures.keys}
        idle = {name: held for name, held in registered.items() if name not in produced}
        self._topics = followed(self._topics, topic_shares, [*idle])
        layout = followed(
            self._channels, channel_shares, [(name, channel) for name, held in idle.items() for channel in held]
        )
        if layout is not self._channels:
            self._channels = layout
            self._names = {"topic": [topic for topic, _ in layout.keys], "name": [name for _, name in layout.keys]}
            self._channel_keys = keys_of("channels", self._names)
        topics = Sums(self._topics, topic_shares, len(TOPIC_FIGURES), len(TOPIC_COUNTERS))
        channels = Sums(self._channels, channel_shares, len(CHANNEL_FIGURES), len(CHANNEL_COUNTERS))
        by_node = {one.node: (one, other) for one, other in zip(topic_shares, channel_shares, strict=True)}
        return Picture(
            version,
            taken_at_ms,
            {
                "nodes": node_table([node_row(view, *by_node.get(view.node.id, (None, None))) for view in views]),
                "topics": self._topic_table(topics, channels),
                "channels": self._channel_table(channels, answered),
            },
        )

    def _topic_table(self, topics: Sums[str], channels: Sums[tuple[str, str]]) -> Table:
        if not self._topics.keys:
            return Table("topics", {})
        place = {name: number for number, name in enumerate(self._topics.keys)}
        of_topic = np.array([place[topic] for topic, _ in self._channels.keys], np.int64)
        held = np.zeros((len(place), 3), np.int64)
        np.add.at(held[:, 0], of_topic, 1)
        for column, name in enumerate(("client_count", "in_flight_count"), 1):
            np.add.at(held[:, column], of_topic, channels.numbers[:, CHANNEL_FIGURES.index(name)])
        channel_count, client_count, in_flight_count = held.T.tolist()
        own = dict(zip(TOPIC_FIGURES, topics.own_numbers.T.tolist(), strict=True))
        columns = {
            "name": self._topics.keys,
            "paused": topics.paused.tolist(),
            **dict(zip(TOPIC_FIGURES, topics.numbers.T.tolist(), strict=True)),
            "channel_count": channel_count,
            "client_count": client_count,
            "in_flight_count": in_flight_count,
            "publish_rate": topics.rates_told(0),
            "byte_rate": topics.rates_told(1),
            "oldest_age_ms": topics.ages_ms,
            "nodes": self._topics.shares(
                [
                    topics.own_paused.tolist(),
                    own["depth"],
                    own["message_count"],
                    told(rounded(topics.own_rates[:, 0])),
                ]
            ),
        }
        return Table("topics", columns, self._topics.keys)

    def _channel_table(self, channels: Sums[tuple[str, str]], answered: Sequence[tuple[NodeView, Reading]]) -> Table:
        layout = self._channels
        if not layout.keys:
            return Table("channels", {})
        self._latencies.settle()
        merged_ms = self._latencies.percentiles_ms(layout.keys)
        own_ms = channels.gathered(
            [
                latest.own_percentiles_ms if view.error is None else np.full((len(latest.held), len(QUANTILES)), np.nan)
                for view, latest in answered
            ],
            np.zeros((0, len(QUANTILES))),
        )
        numbers = dict(zip(CHANNEL_FIGURES, channels.numbers.T.tolist(), strict=True))
        own = dict(zip(CHANNEL_FIGURES, channels.own_numbers.T.tolist(), strict=True))
        columns = {
            **self._names,
            "paused": channels.paused.tolist(),
            **{name: numbers[name] for name in CHANNEL_FIGURES if name != "finished"},
            "publish_rate": channels.rates_told(0),
            "finish_rate": channels.rates_told(1),
            "requeue_rate": channels.rates_told(2),
            "timeout_rate": channels.rates_told(3),
            "oldest_age_ms": channels.ages_ms,
            "p50_ms": told(merged_ms[:, 0]),
            "p99_ms": told(merged_ms[:, 1]),
            "p50_range_ms": ranges(layout, own_ms[:, 0], merged_ms[:, 0]),
            "p99_range_ms": ranges(layout, own_ms[:, 1], merged_ms[:, 1]),
            "nodes": layout.shares([channels.own_paused.tolist(), *(own[name] for name in SHARES["channels"][2:])]),
        }
        return Table("channels", columns, self._channel_keys)


def followed(layout: Layout[Key], shares: Sequence[Share[Key]], also: Collection[Key]) -> Layout[Key]:
    """The layout of these: the same, if they hold what it was made of."""
    sources: list[Source[Key]] = [(share.node, share.figures.keys) for share in shares]
    return layout if layout.fits(sources, also) else Layout(sources, also)


def topic_share(view: NodeView, latest: Reading) -> Share[str]:
    before = view.base.topics if view.base else None
    # A topic that appeared since the earlier reading rose from zero.
    return Share(view.node.id, latest.topics, before, view.elapsed, TOPIC_COUNTERS, new_from_zero=True)


def channel_share(view: NodeView, latest: Reading) -> Share[tuple[str, str]]:
    before = view.base.channels if view.base else None
    # A new channel is given its topic's backlog at once, which is no rate.
    return Share(view.node.id, latest.channels, before, view.elapsed, CHANNEL_COUNTERS, new_from_zero=False)


def node_row(view: NodeView, topics: Share[str] | None, channels: Share[tuple[str, str]] | None) -> NodeRow:
    """What is known of a node, and of what it holds together."""
    node, stats = view.node, view.latest.stats if view.latest else None
    row: NodeRow = {
        "id": node.id,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": stats.version if stats else node.version,
        "state": "up" if view.error is None else "down",
        "error": view.error,
        "health": stats.health if stats else "",
        "start_time": stats.start_time if stats else 0,
        "topic_count": 0,
        "channel_count": 0,
        "client_count": 0,
        "depth": 0,
        "lost_message_count": stats.lost_message_count if stats else 0,
        "publish_rate": None,
        "finish_rate": None,
    }
    if topics is not None and channels is not None:
        row["topic_count"], row["channel_count"] = len(topics.figures.keys), len(channels.figures.keys)
        row["client_count"] = int(channels.figures.numbers[:, CHANNEL_FIGURES.index("client_count")].sum())
        row["depth"] = int(topics.figures.numbers[:, 0].sum() + channels.figures.numbers[:, 0].sum())
        if view.base is not None:  # from zero, once it has been seen twice
            row["publish_rate"] = round(float(np.nansum(topics.rates[:, 0])), 2)
            row["finish_rate"] = round(float(np.nansum(channels.rates[:, 1])), 2)
    return row


def node_table(rows: Sequence[NodeRow]) -> Table:
    columns: Columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}  # type: ignore[literal-required]
    return Table("nodes", columns)
