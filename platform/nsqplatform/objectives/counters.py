"""The counters of one node's channels at one time, which objectives are counted from: those of a reading, live or from
the archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from nsqplatform.cluster.readings.matrix import Ints
from nsqplatform.cluster.readings.reading import CHANNEL_FIGURES, Reading
from nsqwire.histogram import ZERO_THRESHOLD_NS, bucket_of
from nsqwire.units import Seconds

Key = tuple[str, str]
"""Topic and channel."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counters:
    """A node's counters. All arrays are in the order of ``keys``, the channels with a histogram."""

    node: str
    boot: str
    started_at: Seconds
    taken_at: Seconds
    """Both are Unix seconds."""
    keys: Sequence[Key]
    zeros: Ints
    offsets: Ints
    lengths: Ints
    buckets: Ints
    """The buckets of all histograms, concatenated."""
    failures: Ints
    """Requeues and timeouts."""
    uncounted: Sequence[Key] = ()
    """The channels without a histogram: those of Go's nsqd."""

    @cached_property
    def finished(self) -> Ints:
        """The finished messages of each channel."""
        return self._up_to(self.lengths)

    def finished_within(self, limit_ns: int) -> Ints:
        """The messages of each channel that were finished within the limit, which is the bound of a bucket."""
        if limit_ns <= ZERO_THRESHOLD_NS:
            return self.zeros
        return self._up_to(np.clip(bucket_of(limit_ns) + 1 - self.offsets, 0, self.lengths))

    @cached_property
    def places(self) -> dict[Key, int]:
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def _starts(self) -> Ints:
        return np.asarray(np.cumsum(self.lengths) - self.lengths, np.int64)

    @cached_property
    def _sums(self) -> Ints:
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.buckets)])

    def _up_to(self, counts: Ints) -> Ints:
        """The zeros and the first ``counts`` buckets of each channel."""
        return np.asarray(self.zeros + self._sums[self._starts + counts] - self._sums[self._starts], np.int64)


def of_reading(node: str, reading: Reading) -> Counters:
    """The counters of a node's reading."""
    stats, channels, has = reading.stats, reading.channels, reading.has_histogram
    histograms = stats.histograms
    requeues, timeouts = (CHANNEL_FIGURES.index(name) for name in ("requeue_count", "timeout_count"))
    failures = channels.numbers[:, requeues] + channels.numbers[:, timeouts]
    return Counters(
        node=node,
        boot=stats.boot,
        started_at=float(stats.start_time),
        taken_at=reading.taken_at_s,
        keys=histograms.keys,
        zeros=histograms.zeros,
        offsets=histograms.offsets,
        lengths=histograms.lengths,
        buckets=histograms.counts,
        failures=np.asarray(failures[has], np.int64),
        uncounted=[key for key, counted in zip(channels.keys, has.tolist(), strict=True) if not counted],
    )


def of_samples(samples: pa.Table) -> Iterator[Counters]:
    """The counters of the archive's rows (nsqanalytics.schema), one for each node, boot and time, oldest first."""
    groups: dict[tuple[Any, str, str], list[dict[str, Any]]] = {}
    for row in samples.to_pylist():
        groups.setdefault((row["taken_at"], row["node"], row["boot_id"]), []).append(row)
    for taken_at, node, boot in sorted(groups):
        rows = groups[taken_at, node, boot]
        channels = [row for row in rows if row["channel"] is not None]
        own = [row for row in channels if row["hist_offset"] is not None]
        counts = [row["hist_counts"] or [] for row in own]
        yield Counters(
            node=node,
            boot=boot,
            started_at=rows[0]["started_at"].timestamp() if rows[0]["started_at"] else 0.0,
            taken_at=taken_at.timestamp(),
            keys=[(row["topic"], row["channel"]) for row in own],
            zeros=np.array([row["hist_zero_count"] for row in own], np.int64),
            offsets=np.array([row["hist_offset"] for row in own], np.int64),
            lengths=np.array([len(each) for each in counts], np.int64),
            buckets=np.array([count for each in counts for count in each], np.int64),
            failures=np.array([row["requeue_count"] + row["timeout_count"] for row in own], np.int64),
            uncounted=[(row["topic"], row["channel"]) for row in channels if row["hist_offset"] is None],
        )
