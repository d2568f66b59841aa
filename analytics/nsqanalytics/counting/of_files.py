"""ACTIVITY computed from the files of the archive, which each task of Spark's reads itself.

A task has some consecutive hours, or all, and all series or a part of them. It holds the figures of a few hours, or of
all, and the required histograms in memory. Reading the figures again for each part of the series is cheap if the
parts are few: figures are a small part of the files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.counting import activity, falls
from nsqanalytics.counting.activity import READ
from nsqanalytics.counting.columns import NULL, Flags, Integers, integers
from nsqanalytics.counting.ends import Rules, ends
from nsqanalytics.counting.falls import Findings
from nsqanalytics.counting.names import ANY_NAME, Names
from nsqanalytics.counting.readings import SERIES, Readings
from nsqanalytics.counting.sample_files import HourOfSamples, SampleFiles
from nsqanalytics.counting.sampling import Contexts, Sampling
from nsqanalytics.counting.validation import check

ROWS_AT_ONCE = 500_000
"""Most readings that are computed together, about 500 MB. One hour with the hours before it may have more."""


@dataclass(frozen=True)
class Wanted:
    """The readings that are counted: those of these topics and this channel (empty: any), taken before ``until``."""

    topics: Names = ANY_NAME
    channel: str = ""
    until: datetime | None = None


@dataclass(frozen=True)
class Share:
    """What one task computes: ``contexts`` as in Rules, and part ``part`` of ``parts`` of the series."""

    contexts: Contexts | None = None
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class OfFiles:
    """Indexes into ``shares`` -> the ACTIVITY of these shares."""

    files: SampleFiles
    rules: Rules
    wanted: Wanted
    shares: Sequence[Share]
    rows_at_once: int = ROWS_AT_ONCE

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in self._activity(self.shares[number]):
                    yield from table.to_batches()

    def _activity(self, share: Share) -> Iterator[pa.Table]:
        if share.contexts is None:
            yield self._of_hours(self._read(sorted(self.files.hours), share), None, finds_evidence=True)
            return
        read: dict[datetime, _Hour] = {}
        together: list[tuple[datetime, Sequence[datetime]]] = []
        for context in share.contexts:
            wanted = {start for _, hours in [*together, context] for start in hours}
            read |= {hour.start: hour for hour in self._read(sorted(wanted - {*read}), share)}
            if together and sum(read[start].rows.num_rows for start in wanted) > self.rows_at_once:
                yield self._of_contexts(read, together)
                together = []
                read = {start: hour for start, hour in read.items() if start in context[1]}
            together.append(context)
        yield self._of_contexts(read, together)

    def _of_contexts(self, read: dict[datetime, _Hour], contexts: Contexts) -> pa.Table:
        hours = [read[start] for start in sorted({start for _, hours in contexts for start in hours})]
        try:
            return self._of_hours(hours, contexts, finds_evidence=len(contexts) == 1)
        except _Undecided:
            # Only the hours of a context are evidence, so that its figures are the same in every run.
            return pa.concat_tables([self._of_contexts(read, [context]) for context in contexts])

    def _read(self, starts: Iterable[datetime], share: Share) -> list[_Hour]:
        return [_Hour.of(self.files.read(start), self.wanted, share) for start in starts]

    def _of_hours(self, hours: Sequence[_Hour], contexts: Contexts | None, *, finds_evidence: bool) -> pa.Table:
        rules = replace(self.rules, contexts=contexts)
        sampling = Sampling.of_all([hour.sampling for hour in hours])
        readings = Readings.of_samples(_together(hours))
        if readings.lacks_count.any():
            hours = [hour.with_finish_count() for hour in hours]
            readings = Readings.of_samples(_together(hours))
        found = ends(readings, sampling, rules, None)
        if pc.any(found["is_undecided"]).as_py():
            if not finds_evidence:
                raise _Undecided
            found = ends(readings, sampling, rules, Findings(self._evidence(hours)))
        needed = _needed(found)
        read = pa.concat_tables([hour.histograms(needed) for hour in hours])
        return activity.added_up(activity.with_histograms(found, read))

    def _evidence(self, hours: Sequence[_Hour]) -> pa.Table:
        """Return EVIDENCE about the readings of all series, also of those that are not wanted or in another part."""
        every = (self.files.read(hour.start).with_finish_count() for hour in hours)
        compared = ((int(each.start.timestamp()) * 1_000_000, _comparable(each, self.wanted)) for each in every)
        return falls.of_hours(compared)


class _Undecided(Exception):
    """Whether counters began again needs evidence."""


@dataclass(frozen=True)
class _Hour:
    """The readings of an hour that a task counts, and the sampling of all its nodes."""

    counted: HourOfSamples
    sampling: Sampling

    @property
    def start(self) -> datetime:
        return self.counted.start

    @property
    def rows(self) -> pa.Table:
        return self.counted.rows

    @classmethod
    def of(cls, read: HourOfSamples, wanted: Wanted, share: Share) -> _Hour:
        """Raises InvalidReading if one of the readings that are counted is invalid."""
        there = _before(read.rows, wanted.until)
        rows = there.filter(pa.array(_is_counted(there, wanted, share)))
        check(rows)
        return cls(replace(read, rows=rows), Sampling.of(there))

    def with_finish_count(self) -> _Hour:
        return replace(self, counted=self.counted.with_finish_count())

    def histograms(self, needed: Integers) -> pa.Table:
        """Return READ of the readings of channels that were taken at one of these times and have a histogram."""
        is_channel = pc.not_equal(self.rows["channel"].cast(pa.string()), "").to_numpy()
        is_needed = np.isin(integers(self.rows["taken_at"]), needed)
        rows = np.flatnonzero(is_channel & is_needed & self.rows["hist_offset"].is_valid().to_numpy())
        some = self.rows.take(pa.array(rows)).rename_columns({"taken_at": "last_at"})
        counts = self.counted.histograms(rows)[2]
        return pa.table([some[n] if n != "hist_counts" else counts for n in READ.names], names=READ.names).cast(READ)


def _together(hours: Sequence[_Hour]) -> pa.Table:
    return pa.concat_tables([hour.rows for hour in hours]).unify_dictionaries()


def _before(rows: pa.Table, until: datetime | None) -> pa.Table:
    """Return the rows taken before ``until``, and those in another hour's folder, so that ``check`` reports them."""
    if until is None:
        return rows
    is_before = pc.less(rows["taken_at"], pa.scalar(until, rows["taken_at"].type))
    return rows.filter(pc.or_(pc.fill_null(is_before, False), pc.invert(rows["is_in_own_hour"])))


def _is_counted(rows: pa.Table, wanted: Wanted, share: Share) -> Flags:
    found = np.ones(rows.num_rows, bool)
    if not wanted.topics.is_any:
        found &= _by_name(rows["topic"], lambda name: name is not None and wanted.topics.contain(name)) == 1
    if wanted.channel:
        found &= _by_name(rows["channel"], lambda name: name == wanted.channel) == 1
    if share.parts > 1:
        topic, channel = (_by_name(rows[each], _number) for each in ("topic", "channel"))
        found &= (topic + channel) % share.parts == share.part
    return found


def _by_name(column: pa.ChunkedArray, of: Callable[[str | None], int]) -> Integers:
    """Return a number for each row by its text, which is computed once per distinct text."""
    encoded = column.combine_chunks()
    numbers = np.array([*(of(name) for name in encoded.dictionary.to_pylist()), of(None)], np.int64)
    found: Integers = numbers[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
    return found


def _number(name: str | None) -> int:
    return zlib.crc32((name or "").encode())


def _comparable(hour: HourOfSamples, wanted: Wanted) -> pa.Table:
    """Return the columns COMPARED of the rows that name their series."""
    rows = _before(hour.rows, wanted.until)
    is_named = np.logical_and.reduce([rows[name].is_valid().to_numpy() for name in (*SERIES, "taken_at")])
    return falls.comparable(Readings.of_samples(rows.filter(pa.array(is_named))))


def _needed(found: pa.Table) -> Integers:
    """Return the times of the readings whose histograms the ENDS need."""
    merged = found.filter(found["is_merged"])
    times = np.unique(np.concatenate([integers(merged[name]) for name in ("last_at", "base_at")]))
    found_times: Integers = times[times != NULL]
    return found_times
