"""The readings of one node, with their figures as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from nsqcluster import ChannelStats, ClientStats
from nsqplatform.cluster.readings.matrix import FigureMatrix, Floats
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.stats import PolledStats
from nsqwire.figures import reported

QUANTILES = (0.5, 0.99)
"""The quantiles of latency that snapshots have."""
NODE_REPORTED, TOPIC_REPORTED, CHANNEL_REPORTED = (reported(scope) for scope in ("node", "topic", "channel"))
TOPIC_FIGURES = [figure.name for figure in TOPIC_REPORTED]
CHANNEL_FIGURES = [*(figure.name for figure in CHANNEL_REPORTED), "finished"]
"""The columns of the matrices. ``finished`` counts the messages that left the channel: those it received, less those
that are waiting, in flight or deferred."""


class Reading:
    """A node's response, its time, and its figures by name."""

    def __init__(self, stats: PolledStats, *, read_at: float, taken_at: float) -> None:
        """``read_at`` is in seconds on the monotonic clock, ``taken_at`` in unix seconds."""
        self.stats = stats
        self.read_at = read_at
        self.taken_at = taken_at

    def work_out(self) -> None:
        """Compute what every poll needs, while other nodes' responses are awaited."""
        _ = self.topics, self.channels, self.own_percentiles_ms

    @cached_property
    def held(self) -> list[ChannelStats]:
        """All channels, grouped by topic."""
        return [*chain.from_iterable(topic.channels for topic in self.stats.topics)]

    @cached_property
    def topics(self) -> FigureMatrix[str]:
        topics = self.stats.topics
        return FigureMatrix([topic.topic_name for topic in topics], topics, TOPIC_REPORTED)

    @cached_property
    def channels(self) -> FigureMatrix[tuple[str, str]]:
        keys = [(topic.topic_name, channel.channel_name) for topic in self.stats.topics for channel in topic.channels]
        figures = FigureMatrix(keys, self.held, CHANNEL_REPORTED)
        received, *left = (
            figures.numbers[:, CHANNEL_FIGURES.index(name)]
            for name in ("message_count", "depth", "in_flight_count", "deferred_count")
        )
        figures.numbers = np.column_stack([figures.numbers, received - sum(left)])
        return figures

    @cached_property
    def own_percentiles_ms(self) -> Floats:
        """For each channel without a histogram, the percentiles that the node reports, at each of QUANTILES; NaN for
        none."""
        percentiles: Floats = np.full((len(self.held), len(QUANTILES)), np.nan)
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
            percentiles[np.array(places, np.int64)[which], number] = np.array(values)[which] / 1e6
        return percentiles

    def clients_of(self, topic: str, channel: str) -> Sequence[ClientStats]:
        place = self.channels.places.get((topic, channel))
        return () if place is None else self.held[place].clients


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The state of one node. ``error`` is None while it is up; ``latest`` is None if it never answered."""

    node: Node
    error: str | None
    latest: Reading | None = None
    earlier: Reading | None = None
    """The reading before ``latest``."""
    previous_boot: Reading | None = None
    """The last figures of the process before that of ``latest``, if it was polled."""

    @property
    def base(self) -> Reading | None:
        """The earlier reading for rates, if it is of the same process and the node is up."""
        if self.error is not None or self.latest is None or self.earlier is None:
            return None
        return self.earlier if self.earlier.stats.boot == self.latest.stats.boot else None

    @property
    def elapsed(self) -> float | None:
        base = self.base
        return None if base is None or self.latest is None else self.latest.read_at - base.read_at
