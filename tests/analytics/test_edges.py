"""Reports whose period begins or ends within a window, compared with reports in plain Python."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import BadParameter
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import Sample
from nsqanalytics.span import Span
from nsqwire.histogram import Histogram
from tests.analytics.plain_reports import Parts, close, floor, parts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BEGAN = datetime(2026, 3, 14, tzinfo=UTC)
SECONDS, MINUTES, HOURS, DAYS = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
WINDOWS = {"5m": 5 * MINUTES, "1h": HOURS, "1d": DAYS}
Report = Callable[..., tuple[Result, list[dict[str, Any]]]]


class Channel:
    """One channel's counters on one node."""

    def __init__(self, node: str, channel: str, rng: random.Random) -> None:
        self.rng = rng
        self.histogram = Histogram()
        self.sample = Sample(
            taken_at=BEGAN, node=node, boot_id="01", started_at=BEGAN, topic="t", channel=channel, finish_count=0
        )

    def begin_again(self, **fields: Any) -> None:
        self.histogram = Histogram()
        counters = ("message_count", "requeue_count", "timeout_count", "finish_count", "died_count", "dropped_count")
        zero = dict.fromkeys(counters, 0)
        self.sample = replace(self.sample, **(zero | fields))

    def next(self, at: datetime, busy: int = 1) -> Sample:
        """Its reading at ``at``, after some more messages."""
        rng, last = self.rng, self.sample
        finished = rng.randrange(6) * busy
        for _ in range(finished):
            self.histogram.record(int(1e6 * rng.lognormvariate(3, 1.5)))
        dense = self.histogram.to_json()
        self.sample = replace(
            last,
            taken_at=at,
            depth=rng.randrange(50) * busy,
            client_count=rng.randrange(4),
            message_count=last.message_count + finished + rng.randrange(3),
            finish_count=self.histogram.count,
            requeue_count=last.requeue_count + rng.randrange(2),
            timeout_count=last.timeout_count + (rng.random() < 0.1),
            dead_count=rng.randrange(9),
            died_count=(last.died_count or 0) + rng.randrange(3),
            dropped_count=(last.dropped_count or 0) + rng.randrange(2),
            oldest_unfinished_age_ns=rng.choice([None, rng.randrange(10**10)]),
            hist_zero_count=dense["zero_count"],
            hist_offset=dense["offset"],
            hist_counts=dense["counts"],
        )
        return self.sample


def two_days() -> list[Sample]:
    """Two nodes with two channels, read about every four minutes in one hour of three and less often in the others,
    with a restart and gaps."""
    rng = random.Random(12)
    samples: list[Sample] = []
    for node in ("10.0.0.1:4151", "10.0.0.2:4151"):
        channels = [Channel(node, name, rng) for name in ("busy", "quiet")]
        for step in range(2 * 24 * 15):
            at = BEGAN + 4 * step * MINUTES + timedelta(microseconds=rng.randrange(200_000_000))
            if node == "10.0.0.1:4151" and step == 400:
                for channel in channels:
                    channel.begin_again(boot_id="02", started_at=at - 3 * SECONDS)
            read = [channel.next(at, 20 if channel is channels[0] else 1) for channel in channels]
            is_often = step // 15 % 3 == 2
            if (is_often or step % 4 == 0) and not 300 <= step < 309 and rng.random() > 0.05:
                total = sum(sample.message_count for sample in read)
                samples += [replace(read[0], channel=None, message_count=total, **NO_HISTOGRAM), *read]
    return samples


NO_HISTOGRAM: dict[str, Any] = {"finish_count": None, "hist_zero_count": None, "hist_offset": None, "hist_counts": None}


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[[Path], Report]:
    """Runs a job on an archive, in this process; returns its result and rows, with aware times."""

    def on(archive: Path) -> Report:
        def run(name: str, **given: str) -> tuple[Result, list[dict[str, Any]]]:
            output = tmp_path / f"result-{random.randrange(1 << 40)}"
            job = JOBS[name]
            spark.catalog.clearCache()
            job.run(spark, Locations(str(archive), str(output)), job.checked(given), BEGAN, Progress(io.StringIO()))
            result = Result(output)
            return result, [as_row(result, row) for row in result.page(0, 100_000)]

        return run

    return on


def as_row(result: Result, cells: list[Any]) -> dict[str, Any]:
    row = {column.name: cell for column, cell in zip(result.columns, cells, strict=True)}
    times = [column.name for column in result.columns if column.type == "timestamp" and row[column.name] is not None]
    return row | {name: datetime.fromtimestamp(row[name] / 1000, UTC) for name in times}


@pytest.mark.parametrize("window", ["5m", "1h"])
def test_a_report_of_one_node_has_that_nodes_part(run, tmp_path, window):
    """The parts of two nodes add up to the report of both; the period before is that node's, too."""
    ArchiveWriter(str(tmp_path)).write(two_days())
    report = run(tmp_path)
    given = {"until": "2026-03-15T12:00Z", "period": "6h", "window": window, "compared_with": "period"}
    nodes = ("10.0.0.1:4151", "10.0.0.2:4151")
    key = ("window_start", "topic", "channel")

    def counted(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
        return {tuple(row[part] for part in key): row["count"] for row in rows}

    whole = counted(report("latency", **given)[1])
    rows_of = [report("latency", **given, node=node)[1] for node in nodes]
    parts_of = [counted(rows) for rows in rows_of]
    assert sum(whole.values()) > 0
    assert whole == {at: sum(part.get(at, 0) for part in parts_of) for at in whole}
    assert all(sum(part.values()) > 0 for part in parts_of)
    assert {row["node_count"] for rows in rows_of for row in rows} == {1}
    before = [row["depth_max_before"] for row in report("throughput", **given, node=nodes[0])[1]]
    both = [row["depth_max_before"] for row in report("throughput", **given)[1]]
    assert sum(filter(None, before)) < sum(filter(None, both))


# -- earlier defects


def steady(archive: Path, *, since: datetime, until: datetime, burst_at: datetime) -> None:
    """A message per second, finished within 10 ms; and at ``burst_at`` ten minutes with a hundred slow ones per
    second."""
    channel = Histogram()
    samples = []
    for step in range(int((until - since) / MINUTES)):
        at = since + (step + 1) * MINUTES - SECONDS
        is_burst = burst_at <= at < burst_at + 10 * MINUTES
        channel.record(900_000_000 if is_burst else 10_000_000, 6000 if is_burst else 60)
        dense = channel.to_json()
        samples.append(
            Sample(
                taken_at=at,
                node="10.0.0.1:4151",
                boot_id="01",
                started_at=since,
                topic="t",
                channel="c",
                message_count=channel.count,
                finish_count=channel.count,
                hist_zero_count=dense["zero_count"],
                hist_offset=dense["offset"],
                hist_counts=dense["counts"],
            )
        )
    ArchiveWriter(str(archive)).write(samples)


def test_a_burst_after_the_end_of_the_earlier_period_is_not_compared_with(run, archive):
    """Both periods have the same message per second: there is no change, whatever happened between them."""
    until = BEGAN + 11 * HOURS + 37 * MINUTES
    steady(archive, since=BEGAN + 7 * HOURS, until=until, burst_at=until - 2 * HOURS + MINUTES)

    result, found = run(archive)("compare", until=until.isoformat(), period="90m", before="2h")

    changes = {row["figure"]: row["change_percent"] for row in found}
    assert changes["in_rate"] == pytest.approx(0)
    assert changes["p50_ms"] == pytest.approx(0)
    covered = {name: datetime.fromtimestamp(at / 1000, UTC) for name, at in result.covered.items()}
    assert covered == {
        "covered_since": until - 90 * MINUTES,
        "covered_until": until,
        "before_since": until - 210 * MINUTES,
        "before_until": until - 2 * HOURS,
    }
    assert {name: found[0][name] for name in covered} == covered


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory, only_spark: SparkSession) -> dict[bool, Path]:
    """Two archives with a burst at 11:40: one without rollups, one whose hours are rolled up."""
    found = {}
    for rolled_up in (False, True):
        folder = found[rolled_up] = tmp_path_factory.mktemp("burst") / "archive"
        burst_at = BEGAN + 11 * HOURS + 40 * MINUTES
        steady(folder, since=BEGAN + 9 * HOURS, until=BEGAN + 13 * HOURS, burst_at=burst_at)
        if rolled_up:
            job, place = JOBS["rollup"], Locations(str(folder), str(folder.parent / "done"))
            given = job.checked({"until": "2026-03-15T00:00Z", "period": "2d"})
            job.run(only_spark, place, given, BEGAN, Progress(io.StringIO()))
            assert all(hour.rollup for hour in Rollups(str(folder)).hours.values())
    return found


@pytest.mark.parametrize("rolled_up", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_report_ends_where_its_period_ends(run, bursts, window, rolled_up):
    """With a period until 11:37, the burst of 11:40 is not counted, and the last window ends at 11:37."""
    until = BEGAN + 11 * HOURS + 37 * MINUTES

    _, found = run(bursts[rolled_up])("latency", until=until.isoformat(), period="2h", window=window)

    assert sum(row["count"] for row in found) == 2 * 3600
    last = max(found, key=lambda row: row["window_start"])
    assert last["window_start"] == floor(until - SECONDS, WINDOWS[window])
    assert (min(row["covered_since"] for row in found), last["covered_until"]) == (until - 2 * HOURS, until)
    assert sum((row["covered_until"] - row["covered_since"] for row in found), timedelta()) == 2 * HOURS


def test_a_comparison_of_periods_that_overlap_is_refused_by_name():
    with pytest.raises(BadParameter, match=r"before: 12h is less than the period of 1d.* at least 1d fits"):
        JOBS["compare"].checked({"before": "12h", "period": "24h"})
    JOBS["compare"].checked({"before": "24h", "period": "24h"})


def test_an_hour_whose_samples_are_gone_counts_as_a_whole_or_not_at_all(archive):
    """Its rollup cannot be divided: a period that begins or ends within it counts only whole hours."""
    ArchiveWriter(str(archive)).write([Sample(taken_at=BEGAN + 5 * HOURS, node="n", boot_id="01", topic="t")])
    for hour in ("02", "03"):
        rollup = archive / f"rollups/hourly/date=2026-03-14/hour={hour}/{'-'.join(['0' * 16] * 3)}.parquet"
        rollup.parent.mkdir(parents=True)
        rollup.write_bytes(b"PAR1" * 3)  # as long as the shortest Parquet file: a shorter one is none
    since, until = BEGAN + 2 * HOURS + 20 * MINUTES, BEGAN + 5 * HOURS + 40 * MINUTES
    rollups = Rollups(str(archive))

    assert rollups.countable(Span(since, until)) == Span(BEGAN + 3 * HOURS, until)
    assert rollups.countable(Span(BEGAN, since)) == Span(BEGAN, BEGAN + 2 * HOURS)
    assert rollups.countable(Span(BEGAN + 2 * HOURS, BEGAN + 3 * HOURS)).until == BEGAN + 3 * HOURS
    within = rollups.countable(Span(since, since + MINUTES))
    assert within.since == within.until


# -- every report, whatever its period


class Archive:
    """A path and its contents, which are too long for hypothesis to print."""

    def __init__(self, folder: Path, samples: list[Sample]) -> None:
        self.folder = folder
        self.samples = samples


@pytest.fixture(scope="session")
def an_archive(tmp_path_factory: pytest.TempPathFactory, only_spark: SparkSession) -> Archive:
    """Two days, of which some hours and a whole day are rolled up."""
    folder = tmp_path_factory.mktemp("archive")
    samples = two_days()
    ArchiveWriter(str(folder)).write(random.Random(3).sample(samples, len(samples)))
    for until, period in (("2026-03-15T00:00Z", "24h"), ("2026-03-15T17:00Z", "5h")):
        job = JOBS["rollup"]
        place = Locations(str(folder), str(folder.parent / "done"))
        job.run(only_spark, place, job.checked({"until": until, "period": period}), BEGAN, Progress(io.StringIO()))
    return Archive(folder, samples)


SPARINGLY = settings(
    max_examples=8,
    deadline=None,
    # Each example takes up to three Spark jobs, so failing ones are not shrunk.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MOMENTS = st.one_of(
    st.integers(0, 47).map(lambda n: n * HOURS),
    st.integers(0, 48 * 12 - 1).map(lambda n: n * 5 * MINUTES),
    st.integers(0, 48 * 3600 * 10**6).map(lambda n: timedelta(microseconds=n)),
).map(lambda offset: BEGAN + offset)


@st.composite
def spans(draw: st.DrawFn) -> tuple[datetime, datetime]:
    """Periods of a second or more that begin and end on an hour, between two windows, or anywhere."""
    first, second = sorted((draw(MOMENTS), draw(MOMENTS)))
    return first, max(second, first + SECONDS)


def the_same(found: dict[str, Any], expected: dict[str, Any], names: tuple[str, ...], about: object) -> None:
    wrong = {n: (found[n], expected[n]) for n in names if not close(found[n], expected[n])}
    assert not wrong, (about, wrong)


REPORTS = ["latency", "throughput", "objectives"]
LATENCY = (
    *("count", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms"),
    *("carried_count", "unplaced_count", "sample_count"),
)
THROUGHPUT = (
    *("in_count", "out_count", "in_rate", "out_rate", "depth_mean", "depth_max", "depth_last"),
    *("requeue_count", "timeout_count", "requeue_percent", "timeout_percent", "node_count", "sample_count"),
    *("died_count", "dropped_count", "dead_last"),
)


def as_parameters(since: datetime, until: datetime) -> dict[str, str]:
    return {"until": until.isoformat(), "period": f"{(until - since) / timedelta(microseconds=1):.0f}us"}


@settings(SPARINGLY)
@given(span=spans(), window=st.sampled_from(sorted(WINDOWS)), name=st.sampled_from(REPORTS))
def test_every_window_of_every_report_is_that_of_the_readings_in_its_period(run, an_archive, span, window, name):
    """For any period, the figures equal those of an independent computation, from samples and from rollups."""
    since, until = span
    own = parts(an_archive.samples, since, until, WINDOWS[window])

    result, found = run(an_archive.folder)(name, window=window, **as_parameters(since, until))

    assert result.covered == dict(zip(("covered_since", "covered_until"), as_ms(*span), strict=True))
    if name == "objectives":
        check_objectives(found, own, since, until)
        return
    expected = {key: row for key, row in rows(own).items() if name == "throughput" or key[2]}
    by_key = {(row["window_start"], row["topic"], row["channel"] or ""): row for row in found}
    assert by_key.keys() == expected.keys()
    for key, row in by_key.items():
        the_same(row, expected[key], LATENCY if name == "latency" else THROUGHPUT, (span, key))
        end = min(key[0] + WINDOWS[window], until)
        assert as_ms(row["covered_since"], row["covered_until"]) == as_ms(max(key[0], since), end)


def as_ms(*moments: datetime) -> list[int]:
    """Convert to whole milliseconds, as results are read."""
    return [(moment - BEGAN) // timedelta(milliseconds=1) + int(BEGAN.timestamp()) * 1000 for moment in moments]


def check_objectives(found: list[dict[str, Any]], own: Parts, since: datetime, until: datetime) -> None:
    """Each window meets or misses the target, weighted by its messages; days and the period are sums of windows."""
    expected: dict[tuple[str, datetime, str, str], list[tuple[float, float, int]]] = {}
    for (start, _, channel), row in rows(own, minimum_count=1).items():
        waiting = max(row["in_count"], (row["out_count"] or 0) + row["depth_last"])
        for objective, value, target, messages in (
            ("latency", row["p99_ms"], 1000.0, row["count"]),
            ("backlog", row["depth_max"], 10_000.0, waiting),
        ):
            if channel and value is not None:
                for key in (("day", floor(start, DAYS)), ("period", since)):
                    expected.setdefault((*key, channel, objective), []).append((value, target, messages))
    assert {(row["span"], *as_ms(row["span_start"]), row["channel"], row["objective"]) for row in found} == {
        (span, *as_ms(start), channel, objective) for span, start, channel, objective in expected
    }
    by_key = {(row["span"], *as_ms(row["span_start"]), row["channel"], row["objective"]): row for row in found}
    for (span, start, channel, objective), windows in expected.items():
        row = by_key[span, *as_ms(start), channel, objective]
        messages = sum(m for _, _, m in windows)
        missed = sum(m for value, target, m in windows if value > target)
        assert (row["message_count"], row["missed_count"]) == (messages, missed)
        assert (row["window_count"], row["windows_held_count"]) == (len(windows), sum(v <= t for v, t, _ in windows))
        assert close(row["held_percent"], 100 * (messages - missed) / messages if messages else None)
        assert close(row["budget_burnt_percent"], 100 * missed / (messages * 0.01) if missed else 0.0)
        assert close(row["worst_value"], max(value for value, _, _ in windows))
        end = until if span == "period" else min(start + DAYS, until)
        assert as_ms(row["covered_since"], row["covered_until"]) == as_ms(max(start, since), end)


@settings(SPARINGLY, max_examples=3)
@given(span=spans())
def test_capacity_and_comparison_are_of_their_periods(run, an_archive, span):
    """Messages are those of the period; the busiest hour is a whole one; both periods have the same length."""
    since, until = span
    hours = {key: row for key, row in rows(parts(an_archive.samples, since, until, HOURS)).items() if key[2]}

    found = run(an_archive.folder)("capacity", **as_parameters(since, until))[1]

    assert {row["channel"] for row in found} == {channel for _, _, channel in hours}
    for row in found:
        mine = {start: figures for (start, _, channel), figures in hours.items() if channel == row["channel"]}
        whole = {start: figures for start, figures in mine.items() if since <= start and start + HOURS <= until}
        rates = [figures["in_rate"] for figures in (whole or mine).values() if figures["in_rate"] is not None]
        assert (row["hour_count"], row["in_count"]) == (len(mine), sum(f["in_count"] for f in mine.values()))
        assert close(row["busiest_in_rate"], max(rates, default=None))

    shorter = min(until - since, 20 * HOURS)
    before = max(shorter, 90 * MINUTES)
    given = as_parameters(until - shorter, until) | {"before": f"{before / timedelta(microseconds=1):.0f}us"}
    found = run(an_archive.folder)("compare", **given)[1]
    for name, end in (("now", until), ("before", until - before)):
        one = parts(an_archive.samples, end - shorter, end, HOURS)
        expected = whole_period(one)
        for row in found:
            assert close(row[name], expected.get(row["channel"], {}).get(row["figure"])), (span, name, row)


def whole_period(hourly: Parts) -> dict[str, dict[str, Any]]:
    """Channel -> the figures over all its hours as one window."""
    together: Parts = {}
    for (_, node, topic, channel), part in hourly.items():
        key = (BEGAN, node, topic, channel)
        if key not in together:
            together[key] = part
            continue
        whole = together[key]
        whole.sums.update(part.sums)
        whole.buckets.update(part.buckets)
        whole.observed_s += part.observed_s
        whole.depth_area += part.depth_area
        whole.client_area += part.client_area
        whole.depth_max = max(whole.depth_max, part.depth_max)
        whole.last = max(whole.last, part.last)
    return {channel: figures for (_, _, channel), figures in rows(together).items() if channel}
