"""Regular series, whose windows are summed without ordering them, compared with the same readings in order."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from nsqanalytics.reports.reading import read_samples
from nsqanalytics.schema import Sample

pytestmark = pytest.mark.spark

MINUTES = timedelta(minutes=1)
DAY = timedelta(days=1)


def _reading(rng: random.Random, last: Sample, at: object) -> Sample:
    grown = last.message_count + rng.randrange(50)
    return replace(
        last,
        taken_at=at,
        message_count=grown,
        finish_count=None if last.finish_count is None else last.finish_count + rng.randrange(50),
        requeue_count=last.requeue_count + rng.randrange(3),
        depth=rng.randrange(1000),
        client_count=rng.randrange(5),
        oldest_unfinished_age_ns=rng.choice([None, rng.randrange(10**9)]),
    )


@pytest.fixture
def a_morning(midnight) -> list[Sample]:
    """Seven hours of two nodes and a Go node: gaps, an hour without readings, a restart, a third of it twice."""
    rng = random.Random(4)
    rows: list[Sample] = []
    for node in ("10.0.0.1:4151", "10.0.0.2:4151", "go:4151"):
        first = Sample(taken_at=midnight, node=node, boot_id="01", started_at=midnight, topic="t")
        finish_count = None if node.startswith("go") else 0
        series = [first, *(replace(first, channel=name, finish_count=finish_count) for name in ("c", "d"))]
        for step in range(84):
            at = midnight + 5 * step * MINUTES + timedelta(seconds=rng.randrange(200))
            silent = 24 <= step < 36 or (node == "10.0.0.2:4151" and 40 <= step < 75) or rng.random() < 0.1
            if node == "10.0.0.1:4151" and step == 50:
                series = [replace(row, boot_id="02", started_at=at, message_count=0) for row in series]
            series = [_reading(rng, row, at) for row in series]
            rows += [] if silent else series
    return rows + rng.sample(rows, len(rows) // 3)


@pytest.mark.parametrize("window", [5 * MINUTES, 60 * MINUTES])
def test_windows_summed_unordered_equal_those_of_ordered_readings(spark, write, archive, a_morning, midnight, window):
    """Every figure of every window of every series is equal, and sums of whole numbers are exact."""
    from pyspark.sql import functions as F

    from nsqanalytics.transforms import readings

    write(a_morning)
    samples = read_samples(spark, str(archive), midnight, midnight + DAY)
    plain = readings.plain(samples)
    hours = readings.hours(readings.sampled(samples).withColumn(readings.CONTEXT, F.timestamp_seconds(F.lit(0))))
    summaries = readings.summaries(plain, window)

    def rows(spans):
        return sorted(spans.select(sorted(spans.columns)).collect(), key=str)

    assert readings.irregular(summaries).isEmpty()
    one_by_one, in_order = (
        rows(readings.regular_spans(summaries, hours)),
        rows(readings.ordered_spans(plain, hours, window, None)),
    )
    assert len(one_by_one) > 30
    assert one_by_one == in_order


def test_only_series_that_fell_or_disagree_with_themselves_are_put_in_order(spark, write, archive, a_morning, midnight):
    """A channel created again within a window, one created again between two, and a reading with two different
    values."""
    from nsqanalytics.transforms import readings

    last = max(
        (row for row in a_morning if row.channel == "c" and row.finish_count is not None), key=lambda r: r.taken_at
    )
    later = last.taken_at + MINUTES
    again = replace(last, channel="again", message_count=10, finish_count=10)
    across = replace(again, channel="across", taken_at=midnight + 10 * MINUTES)
    twice = replace(again, channel="twice")
    write(
        [
            *a_morning,
            again,
            replace(again, taken_at=later, message_count=5),
            replace(again, taken_at=later + MINUTES, message_count=90),
            across,
            replace(across, taken_at=midnight + 130 * MINUTES, message_count=5),
            twice,
            replace(twice, message_count=11),
        ]
    )

    summaries = readings.summaries(
        readings.plain(read_samples(spark, str(archive), midnight, midnight + DAY)), 60 * MINUTES
    )

    assert {row["channel"] for row in readings.irregular(summaries).collect()} == {"again", "across", "twice"}
