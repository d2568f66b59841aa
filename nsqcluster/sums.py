"""Figures of topics and channels over all nodes, and of nodes over their topics, as nsqwire.figures declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

from nsqcluster.stats import ChannelStats, NodeStats, TopicStats
from nsqwire.figures import Kind, OverNodes, Scope, of_scope, reported

COMBINE: Final[dict[OverNodes, Callable[[Iterable[int]], int]]] = {
    "sum": sum,
    "largest": lambda values: max(values, default=0),
}


def client_count(channel: ChannelStats) -> int:
    """Return the number of the channel's clients; nsqd before 1.0.1 sends only the list of them."""
    return channel.client_count or len(channel.clients)


def _ways(scope: Scope) -> dict[str, tuple[Callable[[Any], int], Callable[[Iterable[int]], int]]]:
    """How to read each reported figure of a topic or channel, and how to combine the values. Figures within objects of
    the response are left out."""
    return {
        figure.json_key: (
            client_count if figure.json_key == "client_count" else attrgetter(figure.json_key),
            COMBINE[figure.kind.over_nodes],
        )
        for figure in reported(scope)
        if "." not in figure.json_key
    }


_WAYS: Final = {TopicStats: _ways("topic"), ChannelStats: _ways("channel")}
_SUMS_OF_NODE: Final = {figure.name: figure.sum_of for figure in of_scope("node") if figure.sum_of}


def over_nodes(kind: type[TopicStats | ChannelStats], key: str, shares: Sequence[TopicStats | ChannelStats]) -> int:
    """Return a reported figure of a topic or channel over its nodes."""
    read, combine = _WAYS[kind][key]
    return combine(map(read, shares))


def topic_over_nodes(name: str, shares: Sequence[TopicStats]) -> TopicStats:
    """Return one topic over its nodes: reported figures, age and ``paused``, without channels and percentiles."""
    figures = {key: over_nodes(TopicStats, key, shares) for key in _WAYS[TopicStats]}
    return TopicStats(
        topic_name=name,
        paused=any(share.paused for share in shares),
        oldest_unfinished_age_ns=_age(shares),
        **figures,  # type: ignore[arg-type]  # only whole numbers
    )


def channel_over_nodes(name: str, shares: Sequence[ChannelStats]) -> ChannelStats:
    """Return one channel over its nodes: reported figures, age and ``paused``, without clients and percentiles."""
    figures = {key: over_nodes(ChannelStats, key, shares) for key in _WAYS[ChannelStats]}
    return ChannelStats(
        channel_name=name,
        paused=any(share.paused for share in shares),
        oldest_unfinished_age_ns=_age(shares),
        **figures,  # type: ignore[arg-type]
    )


def over_topics(name: str, stats: NodeStats) -> int:
    """Return a figure of a node that counts its topics or channels, or sums their figures."""
    total = 0
    for each in _SUMS_OF_NODE[name]:
        scope, _, key = each.partition(".")
        kind = TopicStats if scope == "topic" else ChannelStats
        parts: list[TopicStats] | list[ChannelStats] = stats.topics
        if scope == "channel":
            parts = [channel for topic in stats.topics for channel in topic.channels]
        total += sum(map(_WAYS[kind][key][0], parts)) if key else len(parts)
    return total


def _age(shares: Sequence[TopicStats] | Sequence[ChannelStats]) -> int | None:
    ages = [share.oldest_unfinished_age_ns for share in shares]
    known = [age for age in ages if age is not None]
    return COMBINE[Kind.AGE.over_nodes](known) if known else None
