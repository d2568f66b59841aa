"""Statistics of a polled node: the response to ``/stats`` with its histograms, checked completely."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta, ValidationError
from msgspec.json import Decoder

from nsqcluster import NodeStats, TopicStats
from nsqcluster.decoding import decode, malformed
from nsqplatform.cluster.readings.histograms import Histograms, read_counts
from nsqplatform.cluster.readings.tail_channels import is_tail_channel
from nsqwire.histogram import MAX_BUCKETS


class PolledStats(NodeStats, kw_only=True, dict=True):
    """A response with histograms."""

    version: str

    @cached_property
    def histograms(self) -> Histograms:
        """Histograms of all channels that have one. Raises ValidationError."""
        found = [
            (topic.topic_name, channel.channel_name, channel.latency_histogram)
            for topic in self.topics
            for channel in topic.channels
            if channel.latency_histogram is not None
        ]
        offsets = np.array([histogram.offset for _, _, histogram in found], np.int64)
        try:
            lengths, counts = read_counts([histogram.counts for _, _, histogram in found])
        except ValueError:
            _check_each(self.topics)
            raise ValidationError("Counts that no histogram has") from None
        if (offsets + lengths).max(initial=0) > MAX_BUCKETS:
            _check_each(self.topics)
        zeros = np.array([histogram.zero_count for _, _, histogram in found], np.int64)
        return Histograms([(topic, channel) for topic, channel, _ in found], zeros, offsets, lengths, counts)


_counts = Decoder(list[Annotated[int, Meta(ge=0, lt=2**63 - 1)]])


def _check_each(topics: list[TopicStats]) -> None:
    """Raise ValidationError for the first invalid histogram, with its path."""
    for number, topic in enumerate(topics):
        for place, channel in enumerate(topic.channels):
            histogram = channel.latency_histogram
            if histogram is None:
                continue
            where = f"$.topics[{number}].channels[{place}].latency_histogram"
            try:
                counts = _counts.decode(histogram.counts)
            except ValidationError as error:
                problem, _, path = str(error).partition(" - at ")
                raise ValidationError(f"{problem} - at `{where}.counts{path.strip('`').removeprefix('$')}`") from None
            if histogram.offset + len(counts) > MAX_BUCKETS:
                raise ValidationError(
                    f"offset {histogram.offset} and {len(counts)} counts are beyond bucket {MAX_BUCKETS - 1}"
                    f" - at `{where}`"
                )


def parse_stats(body: bytes) -> PolledStats:
    """Decode statistics, such as those of a node's previous process. Raises nsqcluster's Malformed."""
    return checked(decode(body, PolledStats, "/stats"))


def checked(stats: PolledStats) -> PolledStats:
    """Decode the histograms of a response. Raises nsqcluster's Malformed.

    The channels of tails are removed: they belong to the platform and are nobody's consumers, so no figure, alert or
    report may contain them.
    """
    for topic in stats.topics:
        if any(is_tail_channel(channel.channel_name) for channel in topic.channels):
            topic.channels_or_null = [each for each in topic.channels if not is_tail_channel(each.channel_name)]
    try:
        _ = stats.histograms  # decoded now, so that nothing that uses them can fail
    except ValidationError as error:
        raise malformed("/stats", error) from None
    return stats
