"""ACTIVITY in plain Python, one reading after another, sharing no code with the Spark transforms.

What it computes is what docs/analytics.md says under "How the figures come about".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from nsqanalytics.schema import Sample

HOUR = timedelta(hours=1)
MAX_HOLD_S = 60.0
START_GRACE = timedelta(seconds=60)
ZERO = -1
"""The bucket of ``hist_zero_count``."""

SeriesKey = tuple[str, str, str, str]
"""node, boot, topic, channel; empty for a topic's own."""
RowKey = tuple[datetime, str, str, str]
"""window_start, node, topic, channel."""
Buckets = Counter[int]


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def windows_of(length: timedelta) -> Callable[[datetime], datetime]:
    """A function from a moment to the start of its window."""
    seconds = int(length.total_seconds())
    return lambda moment: datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)


def progress(reading: Sample) -> int:
    return reading.message_count + (reading.finish_count or 0) + reading.requeue_count + reading.timeout_count


def first_of_a_time(reading: Sample) -> tuple[int, int, int, int]:
    """The lowest of several readings with the same time is used."""
    uptime_ns = -1 if reading.uptime_ns is None else reading.uptime_ns
    return progress(reading), uptime_ns, reading.depth, reading.client_count


def buckets_of(reading: Sample) -> Buckets | None:
    if reading.hist_counts is None:
        return None
    found = Counter({(reading.hist_offset or 0) + n: count for n, count in enumerate(reading.hist_counts)})
    found[ZERO] = reading.hist_zero_count or 0
    return found


def done_count(reading: Sample) -> int:
    if reading.finish_count is not None:
        return reading.finish_count
    if reading.channel is None:
        return 0
    return reading.message_count - reading.depth - reading.in_flight_count - reading.deferred_count


COUNTERS: dict[str, Callable[[Sample], int | None]] = {
    "in_count": lambda r: r.message_count,
    "in_bytes": lambda r: r.message_bytes,
    "out_count": done_count,
    "requeue_count": lambda r: r.requeue_count,
    "timeout_count": lambda r: r.timeout_count,
    "died_count": lambda r: r.died_count if r.channel else None,
    "dropped_count": lambda r: r.dropped_count if r.channel else None,
}


@dataclass
class Row:
    """One row of ACTIVITY. ``out_count`` of a topic is None in the report and 0 here. A counter that no reading has is
    not in ``sums``."""

    sums: Counter[str] = field(default_factory=Counter)
    observed_s: float = 0.0
    depth_area: float = 0.0
    client_area: float = 0.0
    depth_max: int = -(2**63)
    depth_last: int = 0
    dead_last: int | None = None
    oldest_max_ns: int | None = None
    last_at: datetime = datetime(1, 1, 1, tzinfo=UTC)
    carried_since: datetime | None = None
    buckets: Buckets | None = None

    def take_gauges(self, last: Sample) -> None:
        """Take the gauges of the last reading; of several at the same time, as in two boots, the highest."""
        dead = None if last.channel is None else last.dead_count
        if last.taken_at > self.last_at:
            self.last_at, self.depth_last, self.dead_last = last.taken_at, last.depth, dead
        elif last.taken_at == self.last_at:
            self.depth_last = max(self.depth_last, last.depth)
            self.dead_last = max((value for value in (self.dead_last, dead) if value is not None), default=None)

    def take(self, buckets: Buckets | None) -> None:
        if buckets is not None:
            self.buckets = (self.buckets or Counter()) + buckets


@dataclass
class Step:
    """A reading that counts: its window, the time since when its gauges are valid, and the reading to subtract."""

    reading: Sample
    held_s: float
    window_start: datetime
    epoch: int
    uncertain: int
    is_first_ever: bool


class Walker:
    """The archive's readings in memory, to which the rules are applied."""

    def __init__(self, samples: Iterable[Sample], window_of: Callable[[datetime], datetime]) -> None:
        self._window_of = window_of
        self._series: dict[SeriesKey, dict[datetime, Sample]] = defaultdict(dict)
        sample_times: dict[str, set[datetime]] = defaultdict(set)
        for sample in samples:
            sample_times[sample.node].add(sample.taken_at)
            readings = self._series[sample.node, sample.boot_id, sample.topic, sample.channel or ""]
            known = readings.get(sample.taken_at)
            if known is None or first_of_a_time(sample) < first_of_a_time(known):
                readings[sample.taken_at] = sample
        self._previous_sampled_at = {
            (node, later): earlier for node, times in sample_times.items() for earlier, later in pairwise(sorted(times))
        }
        hours = sorted({hour_of(at) for times in sample_times.values() for at in times})
        self._seen_since = {hour: earlier for earlier, hour in zip([*hours[:1], *hours], hours, strict=False)}
        self._judge_falls()

    def seen_since(self, moment: datetime) -> datetime:
        return self._seen_since[hour_of(moment)]

    def rows(self) -> dict[RowKey, Row]:
        rows: dict[RowKey, Row] = defaultdict(Row)
        for key, readings in self._series.items():
            self._count(key, self._steps(key, readings), rows)
        return rows

    # -- falls

    def _judge_falls(self) -> None:
        """Find the decreases that another series explains, and the series that alternate between two times, hour by
        hour."""
        self._rose: set[tuple[str, str, datetime]] = set()
        self._topics_fell: dict[tuple[str, str, datetime], set[str]] = defaultdict(set)
        self._alternating: set[tuple[SeriesKey, datetime]] = set()
        latest: dict[tuple[str, str, datetime], datetime] = {}
        pairs = [
            (key, before, after)
            for key, readings in self._series.items()
            for before, after in pairwise([readings[at] for at in sorted(readings)])
        ]
        for (node, boot, _, _), before, after in pairs:
            at = (node, boot, after.taken_at)
            latest[at] = max(before.taken_at, latest.get(at, before.taken_at))
        for (node, boot, topic, _), before, after in pairs:
            at = (node, boot, after.taken_at)
            if progress(after) < progress(before):
                self._topics_fell[at].add(topic)
            elif progress(after) > progress(before) and before.taken_at == latest[at]:
                self._rose.add(at)
        for key, readings in self._series.items():
            of_hour: dict[datetime, list[Sample]] = defaultdict(list)
            for at in sorted(readings):
                of_hour[hour_of(at)].append(readings[at])
            for hour, ordered in of_hour.items():
                falls = sum(progress(b) < progress(a) for a, b in pairwise(ordered))
                by_count = sorted(ordered, key=lambda r: (progress(r), r.taken_at))
                if falls > sum(b.taken_at < a.taken_at for a, b in pairwise(by_count)):
                    self._alternating.add((key, hour))

    # -- order

    def _in_order(self, readings: dict[datetime, Sample]) -> list[Sample]:
        """Sort by time, without readings whose uptime an earlier reading had reached."""
        kept: list[Sample] = []
        newest = -1
        for at in sorted(readings):
            reading = readings[at]
            if reading.uptime_ns is not None:
                if reading.uptime_ns <= newest:
                    continue
                newest = reading.uptime_ns
            kept.append(reading)
        return kept

    def _steps(self, key: SeriesKey, readings: dict[datetime, Sample]) -> list[Step]:
        ordered = self._in_order(readings)
        steps: list[Step] = []
        epoch = highest = uncertain = 0
        for n, reading in enumerate(ordered):
            at = reading.taken_at
            before = ordered[n - 1] if n and ordered[n - 1].taken_at >= self.seen_since(at) else None
            after = ordered[n + 1] if n + 1 < len(ordered) else None
            window_start, begins, is_unproven = self._window_of(at), before is None, False
            if before is not None and progress(reading) < progress(before):
                if reading.uptime_ns is not None and before.uptime_ns is not None:
                    begins = True
                else:
                    beat = (key[0], key[1], at)
                    is_unproven = beat not in self._rose and len(self._topics_fell[beat]) == 1
                    is_clock = len(self._topics_fell[beat]) > 1 or (key, hour_of(at)) in self._alternating
                    if beat in self._rose:
                        begins = True
                    elif not is_clock and after is not None and self.seen_since(after.taken_at) <= at:
                        begins = progress(after) < progress(before)
                        window_start = self._window_of(after.taken_at) if begins else window_start
            uncertain += is_unproven
            if begins:
                epoch, highest = epoch + 1, 0
            if progress(reading) < highest:
                continue
            highest = progress(reading)
            held_s = 0.0
            if before is not None:
                held_s = min((at - before.taken_at) / timedelta(seconds=1), MAX_HOLD_S)
            is_first_ever = not steps or steps[-1].reading.taken_at < self.seen_since(at)
            steps.append(Step(reading, held_s, window_start, epoch, uncertain, is_first_ever))
            uncertain = 0
        return steps

    # -- figures

    def _count(self, key: SeriesKey, steps: Sequence[Step], rows: dict[RowKey, Row]) -> None:
        node, _, topic, channel = key
        base: list[Step] | None = None
        for first, span in _spans(steps):
            row = rows[first.window_start, node, topic, channel]
            last = span[-1]
            same = base is not None and not first.is_first_ever and base[-1].epoch == first.epoch
            self._add_counts(row, span, base if same else None)
            for step in span:
                reading = step.reading
                row.sums["sample_count"] += 1
                row.sums["left_out_count"] += bool(channel) and reading.finish_count is None
                row.sums["uncertain_count"] += step.uncertain
                row.observed_s += step.held_s
                row.depth_area += step.held_s * reading.depth
                row.client_area += step.held_s * reading.client_count
                row.depth_max = max(row.depth_max, reading.depth)
                if reading.oldest_unfinished_age_ns is not None:
                    row.oldest_max_ns = max(row.oldest_max_ns or 0, reading.oldest_unfinished_age_ns)
            row.take_gauges(last.reading)
            base = span

    def _add_counts(self, row: Row, span: list[Step], base: list[Step] | None) -> None:
        """Add the counters' growth from ``base`` to ``span``; without a base from zero, or from its own first reading
        on.

        The lowest and highest figure of a span stand for the first and the last: they differ where a channel was
        created again and overtook its old total between two readings, which its total does not show.
        """
        first, last = span[0], span[-1]
        reading, at = first.reading, first.reading.taken_at
        previous_sampled_at = self._previous_sampled_at.get((reading.node, at))
        if previous_sampled_at is not None and previous_sampled_at < self.seen_since(at):
            previous_sampled_at = None
        started = reading.started_at
        just_started = started is not None and started >= min(first.window_start, at - START_GRACE)
        if first.is_first_ever and previous_sampled_at is None and not just_started:
            row.sums["unplaced_count"] += min(step.reading.finish_count or 0 for step in span)
            counted_from, lowest = span, min
        else:
            counted_from, lowest = base or [], max
            began = [moment for moment in (started, previous_sampled_at) if moment is not None]
            since = base[-1].reading.taken_at if base is not None else max(began, default=None)
            if since is not None and since < first.window_start:
                row.carried_since = min(since, row.carried_since or since)
                before = max((step.reading.finish_count or 0 for step in base or ()), default=0)
                now = min(step.reading.finish_count or 0 for step in span)
                row.sums["carried_count"] += max(now - before, 0)
        for name, count in COUNTERS.items():
            if name == "out_count" and last.reading.finish_count is None:
                # No counter: received minus the change of the unfinished messages.
                before_first = min(done_count(reading), 0)
                then = (
                    done_count(counted_from[-1 if counted_from is base else 0].reading)
                    if counted_from
                    else before_first
                )
                row.sums[name] += done_count(last.reading) - then
                continue
            known = [value for step in span if (value := count(step.reading)) is not None]
            if not known:
                continue
            now = max(known)
            counted = [value for step in counted_from if (value := count(step.reading)) is not None]
            # A base without the counter is of an older archive: what was counted before is in no window.
            then = lowest(counted) if counted else min(known) if counted_from else 0
            row.sums[name] += now - then if now >= then else now
        now_buckets = buckets_of(last.reading)
        if now_buckets is not None:
            then_buckets = (
                buckets_of((first if counted_from is span else counted_from[-1]).reading) if counted_from else None
            ) or Counter()
            fell = any(count > now_buckets[bucket] for bucket, count in then_buckets.items())
            row.take(now_buckets if fell else now_buckets - then_buckets)


def _spans(steps: Sequence[Step]) -> Iterable[tuple[Step, list[Step]]]:
    """Runs of steps of one window and epoch, each with its first."""
    span: list[Step] = []
    for step in steps:
        if span and (step.window_start, step.epoch) != (span[0].window_start, span[0].epoch):
            yield span[0], span
            span = []
        span.append(step)
    if span:
        yield span[0], span


def walk(samples: Iterable[Sample], length: timedelta) -> dict[RowKey, Row]:
    """ACTIVITY of windows of that length."""
    return dict(Walker(samples, windows_of(length)).rows())


def walk_hours(samples: Iterable[Sample]) -> dict[RowKey, Row]:
    """The rows of each hour, from its own readings and those of the last two hours before it that have any, as a
    rollup has them."""
    of_hour: dict[datetime, list[Sample]] = defaultdict(list)
    for sample in samples:
        of_hour[hour_of(sample.taken_at)].append(sample)
    starts = sorted(of_hour)
    found: dict[RowKey, Row] = {}
    for at, own in enumerate(starts):
        near = [sample for start in starts[max(0, at - 2) : at + 1] for sample in of_hour[start]]
        found |= {key: row for key, row in walk(near, HOUR).items() if key[0] == own}
    return found
