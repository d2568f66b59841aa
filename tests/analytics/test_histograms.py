"""Histograms of many rows at once, compared with those of a broker."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from nsqanalytics.counting.histograms import TYPE, Histograms, middles_ms, upper_bounds_ms
from nsqanalytics.counting.runs import Runs
from nsqanalytics.counting.sums import TooLarge
from nsqanalytics.tables import PERMILLES
from nsqwire.histogram import FIRST_BUCKET, MAX_BUCKETS, UPPER_BOUNDS, Histogram


def random_histograms(rng: random.Random, count: int) -> list[Histogram]:
    found = []
    for _ in range(count):
        buckets = rng.sample(range(FIRST_BUCKET, MAX_BUCKETS), rng.randrange(1, 200))
        histogram = Histogram(rng.choice([0, 0, rng.randrange(1, 999)]))
        histogram.counts |= {bucket: rng.choice([1, 2, rng.randrange(1, 1 << 40)]) for bucket in buckets}
        found.append(histogram)
    return found


def as_rows(histograms: list[Histogram | None]) -> Histograms:
    dense = [None if histogram is None else histogram.to_json() for histogram in histograms]
    rows = [d and {"zero": d["zero_count"], "offset": d["offset"], "counts": d["counts"]} for d in dense]
    return Histograms.of_column(pa.chunked_array([pa.array(rows[:1], TYPE), pa.array(rows[1:], TYPE)]))


def buckets(row: dict[str, object] | None) -> Counter[int] | None:
    """The values of a row by bucket; -1 for those of at most 1 µs."""
    if row is None:
        return None
    counts = {row["offset"] + n: count for n, count in enumerate(row["counts"])}
    return Counter({bucket: n for bucket, n in ({-1: row["zero"]} | counts).items() if n})


def expected(histogram: Histogram | None) -> Counter[int] | None:
    if histogram is None:
        return None
    return Counter({bucket: n for bucket, n in ({-1: histogram.zero_count} | histogram.counts).items() if n})


def test_percentiles_of_any_histogram_equal_those_of_a_broker():
    """An empty one, one value, only zeros, the highest bucket, counts of a year at full speed."""
    histograms = [Histogram(), Histogram(7), Histogram(0, {MAX_BUCKETS - 1: 1}), Histogram(5, {FIRST_BUCKET: 1 << 44})]
    histograms += random_histograms(random.Random(9), 60)
    rows = as_rows([*histograms])

    *indexes, highest = rows.indexes_at([*PERMILLES.values(), 1000])

    assert rows.count().tolist() == [histogram.count for histogram in histograms]
    found = np.stack([middles_ms(index) for index in indexes], axis=1)
    highest_ms = upper_bounds_ms(highest)
    for n, histogram in enumerate(histograms):
        values = histogram.quantiles([permille / 1000 for permille in PERMILLES.values()])
        assert [None if np.isnan(value) else value for value in found[n]] == [
            None if value is None else pytest.approx(value / 1e6) for value in values
        ]
        assert np.isnan(highest_ms[n]) == (not histogram.count)
        if histogram.counts:
            # A bound is given exactly, not as the whole nanosecond below it.
            assert highest_ms[n] == pytest.approx(UPPER_BOUNDS[max(histogram.counts)] / 1e6, rel=1e-3)


def test_merged_rows_have_the_values_of_all(rng: random.Random):
    """Runs of no histogram, of one, of several, of an empty one; an empty one alone keeps its offset."""
    made = [None, Histogram(), None, *random_histograms(rng, 40), None, Histogram(3)]
    of = np.sort([rng.randrange(20) for _ in made])

    merged = as_rows(made).merged(Runs(of)).column().to_pylist()

    totals: dict[int, Counter[int] | None] = {}
    for run, histogram in zip(of.tolist(), made, strict=True):
        values = expected(histogram)
        totals[run] = totals.get(run) if values is None else (totals.get(run) or Counter()) + values
    assert [buckets(row) for row in merged] == [totals[run] for run in sorted(totals)]


def test_a_difference_is_of_each_bucket_or_all_if_one_fell(rng: random.Random):
    bases = [*random_histograms(rng, 40), None, None]
    readings: list[Histogram | None] = []
    for n, base in enumerate(bases):
        if base is None:
            readings.append(rng.choice([None, Histogram(2)]))
            continue
        [more] = random_histograms(rng, 1)
        grown = Histogram(base.zero_count, base.counts)
        grown.merge(more)
        if n % 4 == 0:  # a bucket fell
            bucket = rng.choice([*base.counts])
            grown.counts[bucket] = base.counts[bucket] - 1
        readings.append(None if n % 7 == 3 else grown)

    found = as_rows(readings).minus(as_rows(bases)).column().to_pylist()

    for n, (reading, base, row) in enumerate(zip(readings, bases, found, strict=True)):
        now, then = expected(reading), expected(base) or Counter()
        if now is not None and all(now[bucket] >= count for bucket, count in then.items()):
            now = now - then
        assert buckets(row) == now, n


def test_rows_are_taken_in_any_order(rng: random.Random):
    made = [None, *random_histograms(rng, 5), Histogram()]
    rows = [3, -1, 0, 6, 3, 1]

    found = as_rows(made).rows(np.array(rows)).column().to_pylist()

    assert [buckets(row) for row in found] == [None if n < 0 else expected(made[n]) for n in rows]


@pytest.fixture
def rng() -> random.Random:
    return random.Random(4)


@pytest.mark.parametrize("count", [3, 20])
def test_sums_above_64_bits_fail_and_do_not_wrap_around(count):
    """Of figures, of buckets and of a histogram's total: sums of 2^62, of which two still do not fit."""
    one = Runs(np.zeros(count, np.int64))
    huge = np.full(count, 2**62)
    histograms = as_rows([Histogram(0, {FIRST_BUCKET: 2**62}) for _ in range(count)])

    with pytest.raises(TooLarge, match="a sum of counts is above 2"):
        one.sum(huge)
    with pytest.raises(TooLarge, match="a sum of counts is above 2"):
        histograms.merged(one)
    with pytest.raises(TooLarge, match="a sum of counts is above 2"):
        as_rows([Histogram(2**62, {FIRST_BUCKET: 2**62})]).count()
    assert Runs(np.arange(count)).sum(huge).tolist() == huge.tolist()
    assert one.sum(np.append(huge[:1], np.zeros(count - 1, np.int64))).tolist() == [2**62]
