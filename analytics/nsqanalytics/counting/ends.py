"""The change of each series between two window ends, from counters that only grow until they start again.

The counts of a window are its last reading minus the last reading before it. This is the sum of all differences in
between, so a missing sample loses no message, and a late or repeated one adds none. A difference across a window's
start belongs to the window of its later reading, and is its ``carried_count``.

Where counters start again:

- A new ``boot_id`` is a new series and counts from zero.
- A reading is compared with readings of its own hour and of the last hour before it in which any node was sampled. A
  series without an earlier reading in these hours is treated as new. A rollup of an hour compares no further back, and
  a report must give the same figures.
- Each reading contains the node's uptime. A reading whose uptime is not above that of all earlier ones was taken while
  a collector's clock was wrong, and is left out; a reading with higher counters contains its messages. In the remaining
  readings, a fall of the counters within a boot is a channel that was deleted and created again: it counts from zero.
- Readings without an uptime (Go nodes', and those of older archives) are ordered by their counters, as
  nsqanalytics/counting/falls.py describes. If counters do not decide, a fall that the next reading confirms
  is a channel created again. It counts in the window of the reading that confirms it, so no window depends on a later
  one. A reading whose fall is not confirmed is misplaced, and is left out. ``uncertain_count`` counts both.
- A channel that was created again and exceeded its old counts between two readings is recognised by a bucket that
  fell.
- Without ``finish_count`` (Go nodes), ``out_count`` is the messages that were received minus the change of those that
  are unfinished. It may be negative, and its sum over windows is exact.
- The first reading of a series contains everything that its process has counted. It is placed in the window if the node
  was being sampled before without this series (so it began within the archive), or if the process started in the same
  window, or at most START_GRACE_US before the reading. Otherwise the finish times of its messages are unknown: they are
  ``unplaced_count``, and the window counts from that reading on.

Messages that a process finished between its last reading and its end are not in the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, TIME, Flags, Floats, Integers, as_table
from nsqanalytics.counting.falls import FINDINGS, Findings
from nsqanalytics.counting.readings import LATER_COUNTERS, SERIES, Readings
from nsqanalytics.counting.runs import Runs
from nsqanalytics.counting.sampling import Contexts, Sampling, covers, hour_of
from nsqanalytics.counting.windows import window_starts

START_GRACE_US = 60_000_000
MAX_OBSERVED_US = 60_000_000
"""A reading's depth counts for the time since the reading before it, but for at most this long."""
AREAS = ("observed_s", "depth_area", "client_area")
_CHANGES = {
    "in_count": "message_count",
    "in_bytes": "message_bytes",
    "requeue_count": "requeue_count",
    "timeout_count": "timeout_count",
    **{name: name for name in LATER_COUNTERS},
}
ENDS = pa.schema(
    [
        *((name, pa.string()) for name in SERIES),
        *((name, TIME) for name in ("window_start", "last_at", "base_at", "carried_since")),
        *((name, pa.int64()) for name in ("sample_count", "left_out_count", "carried_count", "unplaced_count")),
        *((name, pa.int64()) for name in ("uncertain_count", *_CHANGES, "out_count")),
        *((name, pa.float64()) for name in AREAS),
        *((name, pa.int64()) for name in ("depth_max", "depth_last", "dead_last", "oldest_max_ns")),
        *((name, pa.bool_()) for name in ("is_merged", "lacks_count", "is_undecided")),
    ]
)
"""A row per series, window and epoch: gauges, and the change of the counters over the window.

The change is from the reading at ``base_at`` to the one at ``last_at``; ``base_at`` is null if it is from zero.
``carried_since`` is the time since which the messages of ``carried_count`` may have been finished; null if no message
is carried. ``is_merged``: a reading has a histogram. ``lacks_count`` and ``is_undecided`` are true for all rows of a
series that cannot be counted yet, without the total of its histograms, or without EVIDENCE about its falls."""


@dataclass(frozen=True)
class Rules:
    """The windows, cuts and contexts of a computation. ``cuts`` are the ends of a report's period."""

    window: timedelta
    cuts: Sequence[datetime] = ()
    contexts: Contexts | None = None


def ends(readings: Readings, sampling: Sampling, rules: Rules, findings: Findings | None) -> pa.Table:
    """Return ENDS of whole series; with contexts, those of each context's own hour."""
    parts = []
    for own, there in sampling.in_contexts(rules.contexts):
        part = readings if own == NULL else readings.only(covers(there, readings["taken_at"]))
        if part.count:
            found = _ends(_Kept.of(part, there, rules, findings), there)
            if own != NULL:
                # Without evidence, all readings of a series in its own hour may be left out.
                rows = (hour_of(found["window_start"]) == own) | found["is_undecided"]
                found = {name: values[rows] for name, values in found.items()}
            parts.append(_table(found, part))
    return pa.concat_tables(parts) if parts else ENDS.empty_table()


def _table(found: dict[str, Any], readings: Readings) -> pa.Table:
    names = readings.series.take(pa.array(found["of"]))
    return as_table({name: names[name] for name in SERIES} | found, ENDS)


@dataclass(frozen=True)
class _Kept:
    """The readings that count, without repeated and misplaced ones.

    ``epoch`` counts how often a series began within its boot: at first, when it was created again, and after a silence.
    ``observed_us`` is the time for which a reading's gauges count, ``uncertain`` the number of undecided falls
    since the previous kept reading.
    """

    readings: Readings
    seen_since: Integers
    window_start: Integers
    epoch: Integers
    observed_us: Integers
    uncertain: Integers
    is_undecided: Flags

    @classmethod
    def of(cls, readings: Readings, sampling: Sampling, rules: Rules, findings: Findings | None) -> _Kept:
        readings = _in_order(readings)
        series, at, counter_sum = Runs(readings.of), readings["taken_at"], readings["counter_sum"]
        seen_since = sampling.seen_since(at)
        earlier = series.before(at)
        earlier = np.where(earlier >= seen_since, earlier, NULL)
        began = _Beginnings.of(readings, series, seen_since, earlier, findings)
        epoch: Integers = np.cumsum(began.is_again, dtype=np.int64)
        uncertain: Integers = np.cumsum(began.is_uncertain, dtype=np.int64)
        is_kept = np.ones(readings.count, bool)
        if (counter_sum < series.before(counter_sum)).any():
            # Within an epoch, a reading below an earlier one is misplaced.
            is_kept = Runs(readings.of, epoch).highest_before(counter_sum) <= counter_sum
        rows = np.flatnonzero(is_kept)
        kept, so_far = Runs(readings.of[rows]), uncertain[rows]
        # The uncertainty of readings that are left out is counted with the next reading.
        firsts: Integers = uncertain[series.starts] - began.is_uncertain[series.starts]
        since = np.where(kept.is_first, firsts[series.of[rows]], kept.before(so_far))
        return cls(
            readings.only(rows),
            seen_since[rows],
            window_starts(began.counted_at[rows], rules.window, rules.cuts),
            epoch[rows],
            np.where(earlier == NULL, 0, np.minimum(at - earlier, MAX_OBSERVED_US))[rows],
            so_far - since,
            began.is_undecided[rows],
        )


def _in_order(readings: Readings) -> Readings:
    """Return the first reading of each time, without those whose uptime is not above that of all earlier ones."""
    repeated = ~Runs(readings.of, readings["taken_at"]).is_first
    if repeated.any():
        readings = readings.only(~repeated)
    uptime, series = readings["uptime_ns"], Runs(readings.of)
    is_known = uptime != NULL
    if is_known.any() and not (is_known.all() and (uptime > series.before(uptime)).all()):
        newest = series.highest_before(uptime)
        readings = readings.only(~is_known | (uptime > newest))
    return readings


@dataclass(frozen=True)
class _Beginnings:
    """For each reading: ``is_again`` if its series began again with it, ``counted_at``: the time at which it counts,
    ``is_uncertain`` if it is undecided whether the series began again, ``is_undecided`` if that needs evidence, for all
    readings of the series."""

    is_again: Flags
    counted_at: Integers
    is_uncertain: Flags
    is_undecided: Flags

    @classmethod
    def of(
        cls, readings: Readings, series: Runs, seen_since: Integers, earlier: Integers, findings: Findings | None
    ) -> _Beginnings:
        at, counter_sum, uptime = readings["taken_at"], readings["counter_sum"], readings["uptime_ns"]
        none = np.zeros(readings.count, bool)
        before = series.before(counter_sum)
        fell = (earlier != NULL) & (counter_sum < before)
        if not fell.any():
            return cls(earlier == NULL, at, none, none)
        has_uptime = (uptime != NULL) & (series.before(uptime) != NULL)
        needs_evidence = fell & ~has_uptime
        about = dict.fromkeys(FINDINGS, none)
        is_undecided = none
        if needs_evidence.any():
            if findings is None:
                is_undecided = series.any(needs_evidence)[series.of]
            else:
                about = findings.about(readings)
        is_open = needs_evidence & ~about["is_created_again"] & ~about["is_set_back"]
        following, next_at = series.after(counter_sum), series.after(at)
        is_confirmed = is_open & ~series.is_last & (following < before) & (series.after(seen_since) <= at)
        return cls(
            (earlier == NULL) | (fell & (has_uptime | about["is_created_again"])) | is_confirmed,
            np.where(is_confirmed, next_at, at),
            needs_evidence & about["is_unproven"],
            is_undecided,
        )


def _ends(kept: _Kept, sampling: Sampling) -> dict[str, Any]:
    """Return the columns of ENDS, and ``of``, the row of each one's series."""
    readings = kept.readings
    spans = Runs(readings.of, kept.epoch, kept.window_start)
    of, window_start, first_at = (
        values[spans.starts] for values in (readings.of, kept.window_start, readings["taken_at"])
    )
    last_at, epoch = readings["taken_at"][spans.ends], kept.epoch[spans.starts]
    seen_since = kept.seen_since[spans.starts]
    series = Runs(of)
    before_at = series.before(last_at)
    is_seen = (before_at != NULL) & (before_at >= seen_since)
    same = is_seen & (series.before(epoch) == epoch)
    started_at = spans.lowest(readings["started_at"])
    sampled_at = _sampled_before(readings, of, first_at, sampling)
    sampled_at = np.where(sampled_at >= seen_since, sampled_at, NULL)
    just_started = (started_at != NULL) & (started_at >= np.minimum(window_start, first_at - START_GRACE_US))
    is_placed = is_seen | (sampled_at != NULL) | just_started
    since = np.where(same, before_at, np.maximum(started_at, sampled_at))
    is_carried = is_placed & (since != NULL) & (since < window_start)
    counted = _Counters(readings, spans, series, same, is_placed)
    first_finish = spans.lowest(readings["finish_count"])
    carried = first_finish - counted.base("finish_count")
    merged_count = spans.count_of(readings["finish_count"] != NULL)
    lengths, is_topic = spans.lengths(), _is_topic(readings)[of]
    areas = _areas(kept, spans)
    return {
        "of": of,
        "window_start": window_start,
        "last_at": last_at,
        "base_at": np.where(is_placed, np.where(same, before_at, NULL), first_at),
        "carried_since": np.where(is_carried, since, NULL),
        "sample_count": lengths,
        "left_out_count": np.where(is_topic, 0, lengths - merged_count),
        "carried_count": np.where(is_carried & (first_finish != NULL), np.maximum(carried, 0), 0),
        "unplaced_count": np.where(is_placed | (first_finish == NULL), 0, first_finish),
        "uncertain_count": spans.sum(kept.uncertain),
        **{name: counted.change(counter) for name, counter in _CHANGES.items()},
        "out_count": counted.done(),
        **dict(zip(AREAS, areas, strict=True)),
        "depth_max": spans.highest(readings["depth"]),
        "depth_last": readings["depth"][spans.ends],
        "dead_last": readings["dead_count"][spans.ends],
        "oldest_max_ns": spans.highest(readings["oldest_unfinished_age_ns"]),
        "is_merged": merged_count > 0,
        "lacks_count": readings.lacks_count[of],
        "is_undecided": kept.is_undecided[spans.starts],
    }


def _is_topic(readings: Readings) -> Flags:
    return np.array([channel == "" for channel in readings.series["channel"].to_pylist()], bool)


def _sampled_before(readings: Readings, of: Integers, first_at: Integers, sampling: Sampling) -> Integers:
    """Return for each span the last time before its first reading at which its node was sampled, NULL for none."""
    found = np.full(len(of), NULL)
    encoded = readings.series["node"].combine_chunks().dictionary_encode()
    node_of = encoded.indices.to_numpy()[of]
    for n, node in enumerate(encoded.dictionary.to_pylist()):
        rows = np.flatnonzero(node_of == n)
        found[rows] = sampling.before(node, first_at[rows])
    return found


def _areas(kept: _Kept, spans: Runs) -> tuple[Floats, Floats, Floats]:
    observed_s = kept.observed_us / 1e6
    depth, clients = kept.readings["depth"], kept.readings["client_count"]
    # Sums of whole microseconds are exact in any order.
    return (
        spans.sum(kept.observed_us) / 1e6,
        spans.total(observed_s * depth),
        spans.total(observed_s * clients),
    )


@dataclass(frozen=True)
class _Counters:
    """Counters at the ends of spans. They never fall in an epoch: the lowest is the first and the highest the last."""

    readings: Readings
    spans: Runs
    series: Runs
    same: Flags
    is_placed: Flags

    def base(self, counter: str) -> Integers:
        """Return the counter's value before the span: 0 in a new epoch. If the reading before it is of an older archive
        that lacks the counter, this is the first value after it: what was counted before is not of this window."""
        return self._base(self.spans.lowest(self.readings[counter]), self.spans.highest(self.readings[counter]))

    def _base(self, first: Integers, last: Integers) -> Integers:
        before = self.series.before(last)
        return np.where(self.same, np.where(before == NULL, first, before), 0)

    def change(self, counter: str) -> Integers:
        first, last = self.spans.lowest(self.readings[counter]), self.spans.highest(self.readings[counter])
        base = np.where(self.is_placed, self._base(first, last), first)
        return np.where(last == NULL, NULL, np.where(last < base, last, last - base))

    def done(self) -> Integers:
        """Return the change of ``done_count``.

        Without ``finish_count``, it may fall within an epoch, which is no new beginning. If it is negative at first,
        the process began with at least such a backlog.
        """
        of = self.readings["done_count"]
        first, last = of[self.spans.starts], of[self.spans.ends]
        base = np.where(self.same, self.series.before(last), np.minimum(first, 0))
        left = np.where(last == NULL, NULL, last - np.where(self.is_placed, base, first))
        is_counted = self.readings["finish_count"][self.spans.ends] != NULL
        return np.where(is_counted, self.change("done_count"), left)
