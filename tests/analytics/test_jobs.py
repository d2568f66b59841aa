"""Throughput, objectives, capacity and compare, on archives small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.of_files import Wanted
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import Sample
from nsqanalytics.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

MINUTES = timedelta(minutes=1)
SECONDS = timedelta(seconds=1)
HOURS = timedelta(hours=1)


@pytest.fixture
def activity_rows(spark, archive, midnight) -> Callable[[timedelta], DataFrame]:
    """ACTIVITY of the whole archive, by window."""
    month = Span(midnight, midnight + timedelta(days=30))

    def rows(window: timedelta) -> DataFrame:
        return Rollups(str(archive)).activity(spark, month, Rules(window), Wanted())

    return rows


@pytest.fixture
def reading(midnight) -> Callable[..., Sample]:
    """One channel's counters, of a broker that started at midnight."""

    def make(at: datetime, **fields: Any) -> Sample:
        values: dict[str, Any] = {"hist_zero_count": fields.get("finish_count", 0), "hist_offset": 0, "hist_counts": []}
        values |= {"node": "10.0.0.1:4151", "topic": "t", "channel": "c", "finish_count": 0} | fields
        return Sample(taken_at=at, boot_id="01", started_at=midnight, **values)

    return make


def as_dicts(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows.collect()]


def test_rates_depth_and_the_time_to_drain(activity_rows, write, reading, midnight):
    """Ten messages in and twenty out per second, from a depth of 1,000: after 50 s, 100 s are left."""
    from nsqanalytics.transforms.throughput import throughput

    write(
        [
            reading(
                midnight + 10 * step * SECONDS,
                message_count=1000 + 100 * step,
                finish_count=200 * step,
                depth=1000 - 100 * step,
                requeue_count=4 * step,
                timeout_count=step,
                oldest_unfinished_age_ns=step * 10**9,
            )
            for step in range(6)
        ]
    )

    [row] = as_dicts(throughput(activity_rows(5 * MINUTES), 5 * MINUTES))

    assert (row["in_count"], row["out_count"], row["observed_s"]) == (1500, 1000, 50.0)
    assert (row["out_rate"], row["depth_max"], row["depth_last"]) == (20.0, 1000, 500)
    assert row["depth_area"] == 10 * (900 + 800 + 700 + 600 + 500)
    assert row["depth_mean"] == 700.0
    assert row["drain_s"] is None  # the first 1,000 are included: 30 in, 20 out per second
    assert row["requeue_percent"] == pytest.approx(100 * 20 / 1025)
    assert row["timeout_percent"] == pytest.approx(100 * 5 / 1025)
    assert row["oldest_max_ms"] == 5000.0


def test_a_backlog_that_shrinks_has_a_time_to_drain(activity_rows, write, reading, midnight):
    """In the second window: 10 per second in, 20 out, 400 left: 40 s. Without a backlog: 0 s."""
    from nsqanalytics.transforms.throughput import throughput

    write(
        [
            reading(
                midnight + 5 * MINUTES + 10 * step * SECONDS,
                message_count=1000 + 100 * step,
                finish_count=200 * (step + 1),
                depth=max(0, 1000 - 100 * step),
            )
            for step in range(-1, 7)
        ]
    )

    rows = sorted(as_dicts(throughput(activity_rows(5 * MINUTES), 5 * MINUTES)), key=lambda row: row["window_start"])

    assert (rows[1]["in_rate"], rows[1]["out_rate"], rows[1]["depth_last"]) == (10.0, 20.0, 400)
    assert rows[1]["drain_s"] == 40.0


def test_rates_of_two_nodes_add_up_and_a_topic_has_its_own_row(activity_rows, write, reading, midnight):
    """Two nodes with one channel of the topic, each taking 5 per second."""
    from nsqanalytics.transforms.throughput import throughput

    write(
        [
            reading(midnight + 10 * step * SECONDS, node=node, message_count=50 * step, finish_count=50 * step, depth=7)
            for node in ("a:1", "b:1")
            for step in range(4)
        ]
        + [
            Sample(
                taken_at=midnight + 10 * step * SECONDS,
                node="a:1",
                boot_id="01",
                started_at=midnight,
                topic="t",
                message_count=50 * step,
                message_bytes=500 * step,
            )
            for step in range(4)
        ]
    )

    rows = {row["channel"]: row for row in as_dicts(throughput(activity_rows(5 * MINUTES), 5 * MINUTES))}

    assert (rows["c"]["in_rate"], rows["c"]["out_rate"], rows["c"]["depth_mean"]) == (10.0, 10.0, 14.0)
    assert rows["c"]["node_count"] == 2
    assert (rows[None]["in_rate"], rows[None]["byte_rate"], rows[None]["out_count"]) == (5.0, 50.0, None)


def test_a_go_node_has_rates_too(activity_rows, write, midnight):
    """Without a histogram, the finished messages are those that came in less those still there."""
    from nsqanalytics.transforms.throughput import throughput

    write(
        [
            Sample(
                taken_at=midnight + 10 * step * SECONDS,
                node="go:1",
                boot_id="1773446400",
                started_at=midnight,
                topic="t",
                channel="c",
                message_count=100 * step,
                depth=10 * step,
                in_flight_count=5 * step,
            )
            for step in range(3)
        ]
    )

    [row] = as_dicts(throughput(activity_rows(5 * MINUTES), 5 * MINUTES))

    assert (row["in_count"], row["out_count"]) == (200, 170)


@pytest.fixture
def a_month(midnight) -> Span:
    """A period that contains all of these archives."""
    return Span(midnight, midnight + timedelta(days=30))


@pytest.mark.usefixtures("session_zone")
def test_objectives_count_messages_budget_and_the_worst(activity_rows, write, reading, midnight, a_month):
    """Twenty windows with equally many messages, two of which miss; one in ten may: the budget is used exactly
    twice."""
    from nsqanalytics.transforms.objectives import objectives

    depths = [5] * 20
    depths[7], depths[12] = 500, 101
    write(
        [
            reading(midnight + (5 * n + 1) * MINUTES, depth=depth, message_count=1000 * (n + 1))
            for n, depth in enumerate(depths)
        ]
    )

    rows = as_dicts(
        objectives(
            activity_rows(5 * MINUTES),
            a_month,
            percentile="p99_ms",
            latency_ms=100.0,
            backlog=100.0,
            objective_percent=95.0,
        )
    )

    assert {(row["span"], row["objective"]) for row in rows} == {("day", "backlog"), ("period", "backlog")}
    for row in rows:
        assert (row["window_count"], row["windows_held_count"], row["windows_held_percent"]) == (20, 18, 90.0)
        assert (row["message_count"], row["held_count"], row["missed_count"]) == (20_000, 18_000, 2_000)
        assert row["held_percent"] == 90.0
        assert row["budget_burnt_percent"] == pytest.approx(200)
        assert (row["worst_value"], row["unit"]) == (500.0, "messages")
        assert row["worst_window_start"].timestamp() == (midnight + 35 * MINUTES).timestamp()
        assert row["span_start"].timestamp() == midnight.timestamp()
        until = midnight + timedelta(days=1) if row["span"] == "day" else a_month.until
        assert row["covered_until"].timestamp() == until.timestamp()


def test_a_slow_message_at_night_uses_the_budget_of_one_message(activity_rows, write, make_broker, midnight, a_month):
    """Eleven hours with one slow message and one with a thousand fast ones: eleven of 1,011 messages missed the
    target."""
    from nsqanalytics.transforms.objectives import objectives

    broker = make_broker()
    for hour in range(12):
        for _ in range(1000 if hour == 11 else 1):
            broker.finish("t", "c", 1_000_000 if hour == 11 else 9_000_000_000, midnight)
        write(broker.sample(midnight + hour * HOURS + MINUTES))

    rows = as_dicts(
        objectives(
            activity_rows(HOURS), a_month, percentile="p99_ms", latency_ms=1000.0, backlog=1e6, objective_percent=90.0
        )
    )

    assert {row["span"] for row in rows if row["objective"] == "latency"} == {"day", "period"}
    for row in (row for row in rows if row["objective"] == "latency"):
        assert (row["message_count"], row["missed_count"]) == (1011, 11)
        assert row["budget_burnt_percent"] == pytest.approx(100 * 11 / 101.1)
        assert row["windows_held_percent"] == pytest.approx(100 / 12)


def test_an_unconsumed_backlog_is_weighted_by_its_messages(activity_rows, write, reading, midnight, a_month):
    """Nobody consumes 20,000 messages for three windows: they miss the target three times."""
    from nsqanalytics.transforms.objectives import objectives

    write([reading(midnight + (5 * n + 1) * MINUTES, depth=20_000, message_count=20_000) for n in range(3)])

    rows = as_dicts(
        objectives(
            activity_rows(5 * MINUTES),
            a_month,
            percentile="p99_ms",
            latency_ms=100.0,
            backlog=10_000.0,
            objective_percent=99.0,
        )
    )

    assert [(row["message_count"], row["held_percent"]) for row in rows] == [(60_000, 0.0)] * 2


def test_capacity_finds_growth_the_busiest_hour_and_the_consumers_for_it(
    activity_rows, write, reading, midnight, a_month
):
    """Rates rise by 24 per second and day; two consumers finish all; the last hour is the busiest."""
    from nsqanalytics.transforms.capacity import capacity

    samples, count = [], 0
    for hour in range(72):
        for step in range(60):
            count += (100 + hour) * 60
            at = midnight + hour * HOURS + (step + 0.5) * MINUTES
            samples.append(reading(at, message_count=count, finish_count=count, client_count=2))
    write(samples)

    [row] = as_dicts(capacity(activity_rows(HOURS), a_month, horizon=timedelta(days=10), utilisation_percent=50.0))

    assert row["hour_count"] == 72
    assert row["busiest_in_rate"] == pytest.approx(171, rel=0.01)
    assert row["busiest_hour"].timestamp() == (midnight + 71 * HOURS).timestamp()
    assert row["service_rate"] == pytest.approx(164 / 2, rel=0.01)  # one hour in ten is above it
    assert row["consumers_needed"] == 5
    reason = "the last reading is 648 hours old; a forecast needs one of the last 48 hours"
    assert (row["method"], row["reason"]) == ("straight line", reason)
    assert row["growth_percent_per_day"] == pytest.approx(100 * 24 / row["in_rate"], rel=0.03)
    assert row["in_rate_at_horizon"] == pytest.approx(row["in_rate"] + 240, rel=0.03)
    assert row["consumers_mean"] == pytest.approx(2)


def test_a_burst_in_the_part_of_an_hour_that_a_report_has_is_not_the_busiest_hour(
    activity_rows, write, reading, midnight
):
    """The period ends a minute into its third hour: the busiest is the second, except for a channel that exists only in
    that minute."""
    from nsqanalytics.transforms.capacity import capacity

    end = midnight + 2 * HOURS + MINUTES
    counts = {midnight: 0, midnight + HOURS - MINUTES: 1000, midnight + 2 * HOURS - MINUTES: 3000, end - SECONDS: 9000}
    write([reading(at, message_count=count) for at, count in counts.items()])
    write([reading(end - n * SECONDS, channel="new", message_count=60 - 10 * n) for n in (5, 1)])

    rows = as_dicts(capacity(activity_rows(HOURS), Span(midnight, end), horizon=HOURS, utilisation_percent=50.0))

    busiest = {row["channel"]: row["busiest_hour"].timestamp() for row in rows}
    assert busiest == {"c": (midnight + HOURS).timestamp(), "new": (midnight + 2 * HOURS).timestamp()}
    assert {row["channel"]: row["in_count"] for row in rows}["c"] == 9000


@pytest.fixture
def compared(activity_rows, midnight) -> Callable[[], list[dict[str, Any]]]:
    """The second hour compared with the first, highest score first."""
    from nsqanalytics.transforms.activity import as_one_window
    from nsqanalytics.transforms.compare import compare

    def rows() -> list[dict[str, Any]]:
        hours = activity_rows(HOURS)
        first = as_one_window(hours.where(hours["window_start"] < midnight + HOURS), midnight)
        second = as_one_window(hours.where(hours["window_start"] >= midnight + HOURS), midnight)
        return sorted(as_dicts(compare(second, first, 1000)), key=lambda row: -row["score"])

    return rows


def test_compare_sorts_by_the_number_of_affected_messages(compared, write, reading, midnight):
    """One channel doubled, one stayed the same, and a new one has half again as many messages as the doubled one
    gained."""
    samples = []
    for step in range(720):
        at = midnight + 10 * step * SECONDS
        second = max(0, step - 360)
        for channel, count in (("same", 10 * step), ("doubled", 10 * step + 10 * second)):
            samples.append(reading(at, channel=channel, message_count=count, finish_count=count))
        if step > 360:
            samples.append(reading(at, channel="new", message_count=30 * second, finish_count=30 * second))
    write(samples)

    rows = compared()

    found = {(row["channel"], row["figure"]): row for row in rows}
    assert found["doubled", "in_rate"]["change_percent"] == pytest.approx(100, abs=1)
    assert found["same", "in_rate"]["change_percent"] == pytest.approx(0, abs=1)
    assert (found["new", "in_rate"]["state"], found["new", "in_rate"]["before"]) == ("new", None)
    assert [row["channel"] for row in rows if row["figure"] == "in_rate"] == ["new", "doubled", "same"]
    assert found["new", "in_rate"]["score"] == found["new", "in_rate"]["message_count"] == 30 * 359
    assert found["doubled", "in_rate"]["score"] == pytest.approx(3600, rel=0.01)


def test_compare_puts_a_busy_channel_before_an_idle_one_that_changed_more(compared, write, make_broker, midnight):
    """Ten thousand messages that are a fifth slower come before three that are a thousand times slower."""
    broker = make_broker()
    for hour, (busy_ms, idle_ms) in enumerate(((10, 1), (12, 1000))):
        for _ in range(10_000):
            broker.finish("t", "busy", busy_ms * 1_000_000, midnight)
        for _ in range(3):
            broker.finish("t", "idle", idle_ms * 1_000_000, midnight)
        write(broker.sample(midnight + hour * HOURS + MINUTES))

    rows = [row for row in compared() if row["figure"] in ("p50_ms", "p99_ms")]

    assert [row["channel"] for row in rows] == ["busy", "busy", "idle", "idle"]
    assert rows[0]["score"] == pytest.approx(10_000 * (1 - 10 / 12), rel=0.1)
    assert rows[-1]["score"] == pytest.approx(3, rel=0.01)


def test_requeues_weigh_the_messages_that_came_back(compared, write, reading, midnight):
    """Of 100,000 messages, ten were requeued, and none before: a change for ten."""
    write(
        [
            reading(midnight + MINUTES),
            reading(midnight + HOURS - MINUTES, message_count=100_000, finish_count=100_000),
            reading(midnight + HOURS + MINUTES, message_count=200_000, finish_count=200_000, requeue_count=10),
        ]
    )

    [row] = [row for row in compared() if row["figure"] == "requeue_percent"]

    assert (row["score"], row["message_count"], row["before"]) == (10, 10, 0)


@pytest.mark.parametrize("name", ["throughput", "objectives", "capacity", "forecast", "dead", "compare"])
def test_each_job_writes_the_columns_it_declares(spark, archive, write, make_broker, midnight, tmp_path, name):
    """Names, types and units of the result are the declared ones, and so the API's."""
    import io

    from nsqanalytics.job_list import JOBS
    from nsqanalytics.locations import Locations
    from nsqanalytics.progress import Progress
    from nsqanalytics.results import Result

    broker = make_broker()
    for step in range(1, 5):
        broker.finish("t", "c", 5_000_000, midnight + step * MINUTES)
        write(broker.sample(midnight + step * MINUTES))
    job = JOBS[name]
    parameters = job.checked({"until": "2026-03-14T01:00Z"})

    rows = job.run(
        spark, Locations(str(archive), str(tmp_path / "result")), parameters, midnight, Progress(io.StringIO())
    )

    result = Result(tmp_path / "result")
    assert rows == result.total > 0
    assert [(c.name, c.type, c.unit) for c in result.columns] == [(f.name, f.type, f.unit) for f in job.figures]
