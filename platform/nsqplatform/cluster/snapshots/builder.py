"""Builds the snapshot of the cluster from the latest reading of each node. It has no clock and no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.matrix import FigureMatrix, Floats, Ints, Key
from nsqplatform.cluster.readings.reading import (
    CHANNEL_COLUMNS,
    CHANNEL_FIGURES,
    QUANTILES,
    TOPIC_COLUMNS,
    TOPIC_FIGURES,
    NodeView,
    Reading,
)
from nsqplatform.cluster.snapshots.latency import LatencyWindow
from nsqplatform.cluster.snapshots.layout import Layout, Source
from nsqplatform.cluster.snapshots.percentile_ranges import ranges
from nsqplatform.cluster.snapshots.rates import rounded
from nsqplatform.cluster.snapshots.rows import Columns, DrainState, MirrorState, NodeText
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.sums import Share, Sums, none_for_nan
from nsqplatform.cluster.snapshots.table import Table, keys_of
from nsqwire.errors import DRAINED
from nsqwire.figures import Figure, in_rows, in_shares, of_scope
from nsqwire.units import Milliseconds

TOPIC_RATES = [figure.name for figure in of_scope("topic") if figure.rate_of]
CHANNEL_RATES = [figure.name for figure in of_scope("channel") if figure.rate_of]
OURS_ONLY = [figure.name for figure in of_scope("channel") if figure.ours_only]
TOPIC_COUNTERS = [TOPIC_FIGURES.index(figure.rate_of) for figure in of_scope("topic") if figure.rate_of]
CHANNEL_COUNTERS = [CHANNEL_FIGURES.index(figure.rate_of) for figure in of_scope("channel") if figure.rate_of]
"""The columns of the counters of these rates."""
TOPIC_ROW, CHANNEL_ROW, NODE_ROW = in_rows("topic"), in_rows("channel"), in_rows("node")
TOPIC_SHARE, CHANNEL_SHARE = in_shares("topic"), in_shares("channel")

TopicShare = Share[str]
ChannelShare = Share[tuple[str, str]]


class SnapshotBuilder:
    """Builds one snapshot after the other. It remembers the layouts, which change only when names do."""

    def __init__(self, latencies: LatencyWindow) -> None:
        self._latencies = latencies
        self._topics: Layout[str] = Layout([], ())
        self._channels: Layout[tuple[str, str]] = Layout([], ())
        self._names: Columns = {}
        self._channel_keys: Sequence[str] = ()
        self._read_before: Mapping[str, Milliseconds] = {}

    def continue_from(self, snapshot: Snapshot, read_before: Mapping[str, Milliseconds]) -> None:
        """Take over from another collector, whose last snapshot this is: nodes that do not answer have been down since
        its last reading of them. ``read_before``: the time of that, in Unix milliseconds, by node; also of nodes that
        are not in the snapshot, because they had neither answered nor failed since the start of that collector."""
        self._read_before = dict(read_before) | {
            row["id"]: read_at
            for row in snapshot.nodes.rows
            if (read_at := row["down_since"] if row["state"] == "down" else snapshot.taken_at_ms) is not None
        }

    def read_at(self, node: str, latest: Reading | None) -> Milliseconds | None:
        """When a node was last read, by this collector or one before it, in Unix milliseconds."""
        before = self._read_before.get(node)
        return max(round(latest.taken_at_s * 1000), before or 0) if latest else before

    def build(
        self,
        views: Sequence[NodeView],
        registered: Mapping[str, Sequence[str]],
        *,
        version: int,
        taken_at_ms: int,
        emptied: Collection[tuple[str, str]] = (),
    ) -> Snapshot:
        """Build the snapshot of these nodes. ``registered``: topics that registries list without a node, with their
        channels. ``emptied``: topic and channel of those that the platform may have emptied since the last snapshot."""
        views = sorted(views, key=lambda view: (view.node.hostname, view.node.id))
        answered = [(view, view.latest) for view in views if view.latest]
        topic_shares = [topic_share(view, latest) for view, latest in answered]
        channel_shares = [channel_share(view, latest, emptied) for view, latest in answered]
        produced = {name for share in topic_shares for name in share.figures.keys}
        idle = {name: names for name, names in registered.items() if name not in produced}
        self._topics = layout_of(self._topics, topic_shares, [*idle])
        layout = layout_of(
            self._channels, channel_shares, [(name, channel) for name, names in idle.items() for channel in names]
        )
        if layout is not self._channels:
            self._channels = layout
            self._names = {"topic": [topic for topic, _ in layout.keys], "name": [name for _, name in layout.keys]}
            self._channel_keys = keys_of("channels", self._names)
        topics = Sums(self._topics, topic_shares, TOPIC_COLUMNS, len(TOPIC_COUNTERS))
        channels = Sums(self._channels, channel_shares, CHANNEL_COLUMNS, len(CHANNEL_COUNTERS))
        read_at = {view.node.id: self.read_at(view.node.id, view.latest) for view in views}
        by_node = {one.node: (one, other) for one, other in zip(topic_shares, channel_shares, strict=True)}
        return Snapshot(
            version,
            taken_at_ms,
            {
                "nodes": node_table(views, by_node, read_at),
                "topics": self._topic_table(topics, channels),
                "channels": self._channel_table(channels, answered),
            },
        )

    def _topic_table(self, topics: Sums[str], channels: Sums[tuple[str, str]]) -> Table:
        names = self._topics.keys
        if not names:
            return Table("topics", {})
        place = {name: number for number, name in enumerate(names)}
        of_topic = np.array([place[topic] for topic, _ in self._channels.keys], np.int64)
        columns: Columns = {"name": names, "paused": topics.paused.tolist()}
        for figure in TOPIC_ROW:
            if figure.sum_of:
                columns[figure.name] = sum_by_topic(figure, topics, channels, of_topic).tolist()
            elif figure.rate_of:
                columns[figure.name] = topics.rates_column(TOPIC_RATES.index(figure.name))
            elif figure.json_key:
                columns[figure.name] = topics.numbers[:, TOPIC_FIGURES.index(figure.name)].tolist()
        columns["oldest_age_ms"] = topics.ages_ms
        columns["nodes"] = self._topics.shares(share_columns(topics, TOPIC_SHARE, TOPIC_FIGURES, TOPIC_RATES))
        return Table("topics", columns, names)

    def _channel_table(self, channels: Sums[tuple[str, str]], answered: Sequence[tuple[NodeView, Reading]]) -> Table:
        layout = self._channels
        if not layout.keys:
            return Table("channels", {})
        columns: Columns = {**self._names, "paused": channels.paused.tolist()}
        for figure in CHANNEL_ROW:
            if figure.rate_of:
                columns[figure.name] = channels.rates_column(CHANNEL_RATES.index(figure.name))
            elif figure.json_key:
                columns[figure.name] = channels.numbers[:, CHANNEL_FIGURES.index(figure.name)].tolist()
        columns["oldest_age_ms"] = channels.ages_ms
        columns |= self._latency_columns(channels, answered)
        columns["nodes"] = layout.shares(share_columns(channels, CHANNEL_SHARE, CHANNEL_FIGURES, CHANNEL_RATES))
        return Table("channels", columns, self._channel_keys)

    def _latency_columns(
        self, channels: Sums[tuple[str, str]], answered: Sequence[tuple[NodeView, Reading]]
    ) -> Columns:
        """The percentiles over all nodes, and the ranges of those that cannot be merged."""
        self._latencies.compute_percentiles()
        merged_ms = self._latencies.percentiles_ms(self._channels.keys)
        own_ms = channels.gathered(
            [
                latest.own_percentiles_ms
                if view.error is None
                else np.full((len(latest.channel_stats), len(QUANTILES)), np.nan)
                for view, latest in answered
            ],
            np.zeros((0, len(QUANTILES))),
        )
        return {
            "p50_ms": none_for_nan(merged_ms[:, 0]),
            "p99_ms": none_for_nan(merged_ms[:, 1]),
            "p50_range_ms": ranges(self._channels, own_ms[:, 0], merged_ms[:, 0]),
            "p99_range_ms": ranges(self._channels, own_ms[:, 1], merged_ms[:, 1]),
        }


def sum_by_topic(figure: Figure, topics: Sums[str], channels: Sums[tuple[str, str]], of_topic: Ints) -> Ints:
    """The sum of ``figure.sum_of`` for each topic. ``of_topic``: the place of each channel's topic."""
    sums = np.zeros(len(topics.numbers), np.int64)
    for each in figure.sum_of:
        scope, _, name = each.partition(".")
        if scope == "topic":
            sums += topics.numbers[:, TOPIC_FIGURES.index(name)]
        else:
            np.add.at(sums, of_topic, channels.numbers[:, CHANNEL_FIGURES.index(name)] if name else 1)
    return sums


def share_columns(
    sums: Sums[Key], figures: Sequence[Figure], columns: Sequence[str], rates: Sequence[str]
) -> list[list[Any]]:
    """The columns of the nodes' shares, after the node's id. ``columns`` and ``rates`` are those of ``sums``."""
    return [
        sums.own_paused.tolist(),
        *(
            none_for_nan(rounded(sums.own_rates[:, rates.index(figure.name)]))
            if figure.rate_of
            else sums.own_numbers[:, columns.index(figure.name)].tolist()
            for figure in figures
        ),
    ]


def layout_of(layout: Layout[Key], shares: Sequence[Share[Key]], also: Collection[Key]) -> Layout[Key]:
    """The layout of these keys: the same object if they have not changed."""
    sources: list[Source[Key]] = [(share.node, share.figures.keys) for share in shares]
    return layout if layout.fits(sources, also) else Layout(sources, also)


def topic_share(view: NodeView, latest: Reading) -> Share[str]:
    before = view.base.topics if view.base else None
    # The counters of a topic that appeared since the earlier reading started at zero.
    return Share(view.node.id, latest.topics, before, view.elapsed_s, TOPIC_COUNTERS, new_from_zero=True)


def channel_share(view: NodeView, latest: Reading, emptied: Collection[tuple[str, str]]) -> Share[tuple[str, str]]:
    before = view.base.channels if view.base else None
    # A new channel receives its topic's backlog at once; that increase is not a rate.
    share = Share(view.node.id, latest.channels, before, view.elapsed_s, CHANNEL_COUNTERS, new_from_zero=False)
    if before is not None and not latest.has_histogram.all():
        drop_unknown_rates(share, before, latest.has_histogram, emptied)
    return share


def drop_unknown_rates(
    share: ChannelShare,
    before: FigureMatrix[tuple[str, str]],
    is_counted: NDArray[np.bool_],
    emptied: Collection[tuple[str, str]],
) -> None:
    """Set rates that Go's nsqd does not report to NaN. ``is_counted``: whether the node counts what is finished.

    Where it does not, ``finished`` counts all messages that left, so its rate is unknown if they may have been emptied:
    of a channel in ``emptied``, and of one without a consumer who could have finished them.
    """
    keys, rates = share.figures.keys, share.rates
    for name in OURS_ONLY:
        rates[~is_counted, CHANNEL_RATES.index(name)] = np.nan
    finish_rates = rates[:, CHANNEL_RATES.index("finish_rate")]
    clients = CHANNEL_FIGURES.index("client_count")
    had_no_client = (before.numbers_of(keys)[0][:, clients] == 0) & (share.figures.numbers[:, clients] == 0)
    is_emptied = np.fromiter((key in emptied for key in keys), bool, len(keys))
    finish_rates[~is_counted & (is_emptied | (had_no_client & (finish_rates > 0)))] = np.nan


def node_table(
    views: Sequence[NodeView],
    shares: Mapping[str, tuple[TopicShare, ChannelShare]],
    read_at: Mapping[str, Milliseconds | None],
) -> Table:
    """The rows of all nodes. By node id, ``shares`` has the shares of topics and channels of each node that has
    answered, and ``read_at`` when it was last read, in Unix milliseconds."""
    if not views:
        return Table("nodes", {})
    texts = [node_text(view, read_at[view.node.id]) for view in views]
    columns: Columns = {name: [text[name] for text in texts] for name in texts[0]}  # type: ignore[literal-required]
    for figure in NODE_ROW:
        columns[figure.name] = [node_value(figure, view, shares.get(view.node.id)) for view in views]
    return Table("nodes", columns)


def node_text(view: NodeView, read_at: Milliseconds | None) -> NodeText:
    node, stats = view.node, view.latest.stats if view.latest else None
    return {
        "id": node.id,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": stats.version if stats else node.version,
        "release": stats.release if stats else "",
        "state": "up" if view.error is None else "down",
        "error": view.error,
        "down_since": None if view.error is None else read_at,
        "health": disk_health(stats.health) if stats else "",
        "start_time": stats.start_time if stats else 0,
        "drain": drain_state(view),
        "mirror": mirror_state(view),
    }


def disk_health(health: str) -> str:
    """A node's health without that it is being drained, which has a column of its own."""
    return "OK" if health.startswith(f"NOK - {DRAINED}") else health


def drain_state(view: NodeView) -> DrainState | None:
    drain, latest = view.drain, view.latest
    if drain is None or latest is None:
        return None
    return {
        "since": drain.since * 1000,
        "ends_at": None if drain.ends_within is None else round((latest.taken_at_s + drain.ends_within) * 1000),
        "takes_publishes": drain.takes_publishes,
        "messages": drain.messages,
    }


def mirror_state(view: NodeView) -> MirrorState | None:
    mirror = view.mirror
    if mirror is None:
        return None
    return {
        "pair": mirror.pair,
        "member": mirror.member,
        "epoch": mirror.epoch,
        "since": mirror.since * 1000,
        "in_sync": mirror.in_sync,
        "under_replicated": mirror.under_replicated,
        "lag_bytes": mirror.lag_bytes,
        "lag_ms": round(mirror.lag_seconds * 1000),
    }


def node_value(figure: Figure, view: NodeView, shares: tuple[TopicShare, ChannelShare] | None) -> float | None:
    """The value of one figure of one node. Rates are None until the node has been polled twice."""
    if figure.json_key:
        return getattr(view.latest.stats, figure.json_key) if view.latest else 0
    if figure.kind.is_whole:
        return sum(node_sum(each, shares) for each in figure.sum_of) if shares else 0
    if shares is None or view.base is None:
        return None
    return round(float(sum(np.nansum(rates_of(each, shares)) for each in figure.sum_of)), 2)


def node_sum(name: str, shares: tuple[TopicShare, ChannelShare]) -> int:
    """A node's sum of a figure, such as ``topic.depth`` over its topics; for ``topic``, the number of its topics."""
    scope, _, column = name.partition(".")
    matrix, columns = (shares[0].figures, TOPIC_FIGURES) if scope == "topic" else (shares[1].figures, CHANNEL_FIGURES)
    return int(matrix.numbers[:, columns.index(column)].sum()) if column else len(matrix.keys)


def rates_of(name: str, shares: tuple[TopicShare, ChannelShare]) -> Floats:
    """A node's rates for a name such as ``topic.publish_rate``: one for each of its topics."""
    scope, _, column = name.partition(".")
    rates, columns = (shares[0].rates, TOPIC_RATES) if scope == "topic" else (shares[1].rates, CHANNEL_RATES)
    return rates[:, columns.index(column)]
