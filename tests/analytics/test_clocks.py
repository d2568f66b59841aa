"""Reports over readings of a collector with a wrong clock."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow.parquet as pq
import pytest

from nsqanalytics.counting.names import Names
from nsqanalytics.counting.of_files import Wanted
from nsqanalytics.schema import Sample, as_table, spark_schema
from nsqanalytics.transforms.activity import evidence
from tests.analytics.test_activity import READERS, read_by
from tests.analytics.test_counting import UNCHECKED, beside_readings_of_another_topic, of_go

pytestmark = pytest.mark.spark

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def set_back(make_broker, midnight):
    """Samples of an hour, of which a random third is missing; after half of it, the collector's clock is set back."""

    def samples(*topics: str, has_uptime: bool, by: timedelta = 5 * MINUTE) -> tuple[list[Sample], int]:
        """Also the total number of finished messages."""
        rng, broker = random.Random(7), make_broker()
        found: list[Sample] = []
        for step in range(1, 361):
            at = midnight + 10 * step * SECOND
            for topic in topics:
                for _ in range(rng.randrange(1, 20)):
                    broker.finish(topic, "c", 2_000_000, at)
            if rng.random() < 0.33 and step < 360:
                continue
            taken_at = at - (by if step > 180 else timedelta(0))
            uptime_ns = (at - midnight) // timedelta(microseconds=1) * 1000 if has_uptime else None
            found += [replace(row, taken_at=taken_at, uptime_ns=uptime_ns) for row in broker.sample(at)]
        return found, sum(histogram.count for histogram in broker.histograms.values())

    return samples


@pytest.mark.parametrize("has_uptime", [True, False])
@pytest.mark.parametrize("topics", [("t",), ("t", "u")])
def test_a_clock_set_back_with_readings_missing_counts_each_message_once(
    set_back, write, latency_rows, has_uptime, topics
):
    """With uptimes and without, of one channel and of several; no count is uncertain if another reading confirms it."""
    samples, finished = set_back(*topics, has_uptime=has_uptime)
    write(samples)

    rows = latency_rows(5 * MINUTE)

    assert sum(row["count"] for row in rows) == finished
    assert all(row["unplaced_count"] == 0 for row in rows)
    is_certain = has_uptime or len(topics) > 1
    assert (sum(row["uncertain_count"] for row in rows) == 0) == is_certain


def test_a_channel_created_again_while_a_clock_is_wrong_counts_from_zero(make_broker, write, latency_rows, midnight):
    """With uptimes the two cases differ, even if no other reading confirms either."""
    broker = make_broker()
    readings: list[tuple[int, datetime]] = [(minute, midnight + minute * MINUTE) for minute in range(1, 7)]
    readings[3] = (4, midnight + 2 * MINUTE + SECOND)
    for minute, taken_at in readings:
        if minute == 6:
            broker.delete("t", "c")
        for _ in range(10):
            broker.finish("t", "c", 2_000_000, taken_at)
        uptime_ns = minute * 60 * 10**9
        write([replace(row, taken_at=taken_at, uptime_ns=uptime_ns) for row in broker.sample(taken_at)])

    rows = latency_rows(60 * MINUTE)

    assert [(row["count"], row["uncertain_count"]) for row in rows] == [(60, 0)]


def test_two_collectors_whose_clocks_disagree_count_nothing_twice(make_broker, write, latency_rows, midnight):
    """Five minutes apart, both archiving: the uptimes put their readings in order."""
    broker = make_broker()
    for step in range(1, 121):
        at = midnight + 10 * step * SECOND
        broker.finish("t", "c", 2_000_000, at)
        taken_at = at + (5 * MINUTE if step % 3 == 0 else timedelta(0))
        write([replace(row, taken_at=taken_at, uptime_ns=10 * step * 10**9) for row in broker.sample(at)])

    rows = latency_rows(60 * MINUTE)

    assert sum(row["count"] for row in rows) == 120


@pytest.mark.usefixtures("session_zone")
def test_falls_are_explained_by_utc_hours_in_any_zone_of_the_session(spark, tmp_path):
    """A channel's total falls at 0:25 and 0:45, in one hour of UTC and two of India: a clock was set back."""
    totals = {20: 100, 25: 50, 40: 101, 45: 51, 50: 102}
    made = [of_go(minute, total, 0) for minute, total in totals.items()]
    pq.write_table(as_table(made), tmp_path / "samples.parquet")
    samples = spark.read.schema(spark_schema()).parquet(str(tmp_path))

    found = evidence(samples, samples.select("node", "boot_id").distinct()).toArrow()

    assert found["is_set_back"].to_pylist() == [True, True]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("others", [*UNCHECKED.values(), [{"topic": None}, {"taken_at": None}]], ids=str)
def test_unchecked_readings_of_other_topics_explain_no_fall(spark, archive, midnight, others, reader):
    folder = archive / f"samples/date={midnight:%Y-%m-%d}/hour=00"
    folder.mkdir(parents=True)
    pq.write_table(beside_readings_of_another_topic(others), folder / "0.parquet")

    [row] = read_by(reader, spark, archive, 5 * MINUTE, Wanted(Names("t"))).collect()

    assert (row["in_count"], row["uncertain_count"]) == (20, 1)
