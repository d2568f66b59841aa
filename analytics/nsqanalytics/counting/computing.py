"""The steps of a computation as functions of streams of Arrow batches, which Spark calls for each of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.counting import activity, falls
from nsqanalytics.counting.columns import as_column, flags, integers
from nsqanalytics.counting.ends import ENDS, Rules, ends
from nsqanalytics.counting.falls import Findings
from nsqanalytics.counting.histograms import Histograms
from nsqanalytics.counting.readings import SERIES, Readings
from nsqanalytics.counting.sampling import Sampling
from nsqanalytics.counting.streams import whole_groups
from nsqanalytics.counting.validation import check

Batches = Iterable[pa.RecordBatch]
BYTES_PACKED = 48_000_000
"""Readings of about as many bytes are packed together: with more, Spark moves fewer rows."""


@dataclass(frozen=True)
class AllAtOnce:
    """SAMPLE rows of all series -> ACTIVITY, in one table: for a small archive.

    The rows have ``is_wanted``, ``is_in_own_hour`` and ``file`` in addition.
    """

    rules: Rules

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        buffered = list(batches)
        if buffered:
            yield from self._activity(pa.Table.from_batches(buffered)).to_batches()

    def _activity(self, samples: pa.Table) -> pa.Table:
        is_wanted = flags(samples["is_wanted"])
        wanted = samples if is_wanted.all() else samples.filter(pa.array(is_wanted))
        check(wanted)
        readings, sampling = Readings.of_samples(wanted), Sampling.of(samples)
        if readings.lacks_count.any():
            samples = with_finish_count(samples)
            wanted = samples.filter(pa.array(is_wanted))
            readings = Readings.of_samples(wanted)
        found = ends(readings, sampling, self.rules, None)
        if flags(found["is_undecided"]).any():
            evidence = falls.evidence(falls.comparable(Readings.of_samples(_named(samples))))
            found = ends(readings, sampling, self.rules, Findings(evidence))
        return activity.added_up(activity.with_histograms(found, _read(wanted)))


def _named(samples: pa.Table) -> pa.Table:
    """Return the rows that name their series."""
    is_named = np.logical_and.reduce([samples[name].is_valid().to_numpy() for name in (*SERIES, "taken_at")])
    return samples if is_named.all() else samples.filter(pa.array(is_named))


def with_finish_count(samples: pa.Table) -> pa.Table:
    """SAMPLE rows of any version -> the same with ``finish_count`` for each histogram."""
    histograms = Histograms.of(samples["hist_zero_count"], samples["hist_offset"], samples["hist_counts"])
    finish_count = integers(samples["finish_count"])
    lacking = ~samples["finish_count"].is_valid().to_numpy() & samples["hist_offset"].is_valid().to_numpy()
    at = samples.schema.get_field_index("finish_count")
    return samples.set_column(
        at, "finish_count", as_column(np.where(lacking, histograms.count(), finish_count), pa.int64())
    )


def _read(samples: pa.Table) -> pa.Table:
    """Return the READ rows of SAMPLE rows."""
    has_histogram = samples["hist_offset"].is_valid().to_numpy() & (samples["channel"].to_numpy() != "")
    rows = samples.select([n if n != "last_at" else "taken_at" for n in activity.READ.names])
    return rows.rename_columns(activity.READ.names).filter(pa.array(has_histogram)).cast(activity.READ)


def packed(batches: Batches) -> Iterator[pa.RecordBatch]:
    """SAMPLE rows with ``is_in_own_hour`` and ``file`` -> PACKED, in no order. Raises InvalidReading."""
    buffered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        buffered.append(batch)
        size += batch.nbytes
        if size >= BYTES_PACKED:
            yield from _packed(buffered)
            buffered, size = [], 0
    yield from _packed(buffered)


def _packed(buffered: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if buffered:
        samples = pa.Table.from_batches(buffered)
        check(samples)
        yield from Readings.of_samples(samples).packed().to_batches()


@dataclass(frozen=True)
class EndsOfPacked:
    """PACKED, sorted by series -> ENDS. ``evidence`` is None if none was looked for."""

    sampling: Sampling
    rules: Rules
    evidence: pa.Table | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        findings = None if self.evidence is None else Findings(self.evidence)
        for table in whole_groups(batches, SERIES):
            yield from ends(Readings.of_packed(table), self.sampling, self.rules, findings).to_batches()


def activity_of_ends(batches: Batches) -> Iterator[pa.RecordBatch]:
    """ENDS and READ, each with the columns of both, sorted by node, topic and channel -> ACTIVITY."""
    for table in whole_groups(batches, activity.KEY[1:]):
        is_end = table["window_start"].is_valid()
        found = table.filter(is_end).select(ENDS.names).cast(ENDS)
        read = table.filter(pc.invert(is_end)).select(activity.READ.names).cast(activity.READ)
        yield from activity.added_up(activity.with_histograms(found, read)).to_batches()


def added_up(batches: Batches) -> Iterator[pa.RecordBatch]:
    """ACTIVITY, sorted by KEY -> ACTIVITY with one row per KEY."""
    for table in whole_groups(batches, activity.KEY):
        yield from activity.added_up(table).to_batches()


def over_nodes(batches: Batches) -> Iterator[pa.RecordBatch]:
    """ACTIVITY, sorted by OF_ALL_NODES -> OVER_NODES."""
    for table in whole_groups(batches, activity.OF_ALL_NODES):
        yield from activity.over_nodes(table).to_batches()
