"""What is known of one node: its answers, and their figures as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from cluster.figures import Figures, Floats
from cluster.latency import QUANTILES
from cluster.node import Node
from cluster.stats import ChannelStats, ClientStats, NodeStats

TOPIC_FIGURES = ("depth", "backend_depth", "message_count", "message_bytes")
CHANNEL_FIGURES = (
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
    "finished",
)
COUNTED = CHANNEL_FIGURES[:-1]
"""As the node tells them. ``finished`` are messages that left the channel for good: all it got, less what it still
holds."""


class Reading:
    """A node's answer, when it was read, and its figures by name."""

    def __init__(self, stats: NodeStats, *, read_at: float, taken_at: float) -> None:
        """``read_at`` is in seconds on the monotonic clock, ``taken_at`` in unix seconds."""
        self.stats = stats
        self.read_at = read_at
        self.taken_at = taken_at

    def work_out(self) -> None:
        """What every beat asks of it, while others are still waited for."""
        _ = self.topics, self.channels, self.own_percentiles_ms

    @cached_property
    def held(self) -> list[ChannelStats]:
        """All channels, topic by topic."""
        return [*chain.from_iterable(topic.channels for topic in self.stats.topics)]

    @cached_property
    def topics(self) -> Figures[str]:
        topics = self.stats.topics
        return Figures([topic.topic_name for topic in topics], topics, TOPIC_FIGURES)

    @cached_property
    def channels(self) -> Figures[tuple[str, str]]:
        keys = [(topic.topic_name, channel.channel_name) for topic in self.stats.topics for channel in topic.channels]
        figures = Figures(keys, self.held, COUNTED)
        got, *still = (
            figures.numbers[:, COUNTED.index(name)]
            for name in ("message_count", "depth", "in_flight_count", "deferred_count")
        )
        figures.numbers = np.column_stack([figures.numbers, got - sum(still)])
        return figures

    @cached_property
    def own_percentiles_ms(self) -> Floats:
        """Of each channel without a histogram what the node says itself, at each of QUANTILES; NaN where it says
        nothing."""
        told: Floats = np.full((len(self.held), len(QUANTILES)), np.nan)
        places, quantiles, values = [], [], []
        for place, channel in enumerate(self.held):
            latency = channel.e2e_processing_latency
            if channel.latency_histogram is None and latency is not None and latency.count != 0:
                for each in latency.percentiles:
                    places.append(place)
                    quantiles.append(each.quantile)
                    values.append(each.value)
        for number, quantile in enumerate(QUANTILES):
            which = np.array(quantiles) == quantile
            told[np.array(places, np.int64)[which], number] = np.array(values)[which] / 1e6
        return told

    def clients_of(self, topic: str, channel: str) -> Sequence[ClientStats]:
        place = self.channels.places.get((topic, channel))
        return () if place is None else self.held[place].clients


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """What is known of one node. ``error`` is None while it is up; ``latest`` None if it never answered."""

    node: Node
    error: str | None
    latest: Reading | None = None
    earlier: Reading | None = None
    """The reading before ``latest``."""

    @property
    def base(self) -> Reading | None:
        """What rates are taken from: the earlier reading, if the same process gave it and the node is still up."""
        if self.error is not None or self.latest is None or self.earlier is None:
            return None
        return self.earlier if self.earlier.stats.boot == self.latest.stats.boot else None

    @property
    def elapsed(self) -> float | None:
        base = self.base
        return None if base is None or self.latest is None else self.latest.read_at - base.read_at
