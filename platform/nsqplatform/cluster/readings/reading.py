"""The readings of one node, with their figures as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nsqcluster import ChannelStats, ClientStats
from nsqcluster.stats import Drain, MirrorStats
from nsqplatform.cluster.readings.matrix import FigureMatrix, Floats
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.stats import PolledStats
from nsqwire.figures import collected, of_scope
from nsqwire.units import Seconds

QUANTILES = (0.5, 0.99)
"""The quantiles of latency that snapshots have."""
TOPIC_REPORTED, CHANNEL_REPORTED = collected("topic"), collected("channel")
TOPIC_COLUMNS = TOPIC_REPORTED
CHANNEL_COLUMNS = [*CHANNEL_REPORTED, *(figure for figure in of_scope("channel") if figure.name == "finished")]
TOPIC_FIGURES = [figure.name for figure in TOPIC_COLUMNS]
CHANNEL_FIGURES = [figure.name for figure in CHANNEL_COLUMNS]
"""The columns of the matrices. ``finished`` counts the messages that consumers finished. Go's nsqd does not report it:
of its channels, it counts all that left, those received less those that are waiting, in flight or deferred."""


class Reading:
    """A node's response, its time, and its figures by name."""

    def __init__(self, stats: PolledStats, *, read_at: Seconds, taken_at_s: float) -> None:
        """``read_at`` is in seconds on the monotonic clock, ``taken_at_s`` in Unix seconds."""
        self.stats = stats
        self.read_at = read_at
        self.taken_at_s = taken_at_s

    def precompute(self) -> None:
        """Compute what every poll needs, while other nodes' responses are awaited."""
        _ = self.topics, self.channels, self.own_percentiles_ms

    @cached_property
    def channel_stats(self) -> list[ChannelStats]:
        """All channels, grouped by topic."""
        return [*chain.from_iterable(topic.channels for topic in self.stats.topics)]

    @cached_property
    def topics(self) -> FigureMatrix[str]:
        topics = self.stats.topics
        return FigureMatrix([topic.topic_name for topic in topics], topics, TOPIC_REPORTED)

    @cached_property
    def has_histogram(self) -> NDArray[np.bool_]:
        """For each channel, whether the node counts what is finished, emptied and rewound. Go's nsqd does not."""
        return np.fromiter(
            (channel.latency_histogram is not None for channel in self.channel_stats), bool, len(self.channel_stats)
        )

    @cached_property
    def channels(self) -> FigureMatrix[tuple[str, str]]:
        keys = [(topic.topic_name, channel.channel_name) for topic in self.stats.topics for channel in topic.channels]
        figures = FigureMatrix(keys, self.channel_stats, CHANNEL_REPORTED)
        received, *left = (
            figures.numbers[:, CHANNEL_FIGURES.index(name)]
            for name in ("message_count", "depth", "in_flight_count", "deferred_count")
        )
        finished = received - sum(left)
        finished[self.has_histogram] = self.stats.histograms.totals
        figures.numbers = np.column_stack([figures.numbers, finished])
        return figures

    @cached_property
    def own_percentiles_ms(self) -> Floats:
        """For each channel without a histogram, the percentiles that the node reports, at each of QUANTILES; NaN for
        none."""
        percentiles: Floats = np.full((len(self.channel_stats), len(QUANTILES)), np.nan)
        places, quantiles, values = [], [], []
        for place, channel in enumerate(self.channel_stats):
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
        return () if place is None else self.channel_stats[place].clients


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
    def drain(self) -> Drain | None:
        """Its drain, as of its latest reading; None while it is down."""
        return self.latest.stats.drain if self.latest is not None and self.error is None else None

    @property
    def mirror(self) -> MirrorStats | None:
        """Its pair, as of its latest reading; None while it is down."""
        return self.latest.stats.mirror if self.latest is not None and self.error is None else None

    @property
    def base(self) -> Reading | None:
        """The earlier reading for rates, if it is of the same process and the node is up."""
        if self.error is not None or self.latest is None or self.earlier is None:
            return None
        return self.earlier if self.earlier.stats.boot == self.latest.stats.boot else None

    @property
    def elapsed_s(self) -> float | None:
        base = self.base
        return None if base is None or self.latest is None else self.latest.read_at - base.read_at
