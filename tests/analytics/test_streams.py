"""Streams of readings that are longer than a part of a computation: the figures do not depend on where they are cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

from nsqanalytics.counting import falls, streams
from nsqanalytics.counting.activity import READ
from nsqanalytics.counting.computing import EndsOfPacked, activity_of_ends, added_up, packed
from nsqanalytics.counting.ends import ENDS, Rules
from nsqanalytics.counting.falls import COMPARED
from nsqanalytics.counting.readings import SERIES, Readings
from nsqanalytics.counting.sampling import Sampling
from nsqanalytics.schema import as_table
from nsqanalytics.session import ROWS_PER_BATCH
from tests.analytics.conftest import MIDNIGHT
from tests.analytics.hostile import hostile_archive

MINUTES = timedelta(minutes=1)


def in_batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches(max_chunksize=rows)


def one_table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches))


@pytest.fixture(scope="module")
def samples() -> pa.Table:
    """Twenty archives' samples, shuffled, with the columns that Spark adds."""
    made = [sample for seed in range(20) for sample in hostile_archive(seed, MIDNIGHT + seed * timedelta(days=3))]
    random.Random(3).shuffle(made)
    table = as_table(made)
    channel = pa.compute.fill_null(table["channel"], "")
    table = table.set_column(table.schema.get_field_index("channel"), "channel", channel)
    return table.append_column("is_in_own_hour", [[True] * len(made)]).append_column("file", [["f"] * len(made)])


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_groups_stay_together_and_in_order(rows):
    """Groups of 1 to 40 rows, in batches that end anywhere, and parts of a few bytes or of everything."""
    rng = random.Random(rows)
    names = [name for n in range(60) for name in [f"{n:02}"] * rng.randint(1, 40)]
    table = pa.table({"a": [name[0] for name in names], "b": names, "n": range(len(names))})

    for enough in (1, 500, 10**9):
        parts = list(streams.whole_groups(in_batches(table, rows), ("a", "b"), enough))

        assert pa.concat_tables(parts).combine_chunks() == table
        ends = [(part["b"][0].as_py(), part["b"][-1].as_py()) for part in parts]
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends))
        assert (len(parts) == 1) == (enough == 10**9)


def test_activity_does_not_depend_on_the_sizes_of_batches_and_parts(samples, monkeypatch):
    sampling, rules = Sampling.of(samples), Rules(5 * MINUTES)
    read = samples.select([name if name != "last_at" else "taken_at" for name in READ.names])
    read = read.rename_columns(READ.names).filter(pa.compute.is_valid(read["hist_offset"]))

    def computed(rows: int) -> pa.Table:
        series = [(name, "ascending") for name in SERIES]
        parts = one_table(packed(in_batches(samples, rows))).sort_by(series)
        ends = one_table(EndsOfPacked(sampling, rules)(in_batches(parts, rows)))
        both = pa.concat_tables([ends, read], promote_options="default").sort_by(series[:1] + series[2:])
        found = one_table(activity_of_ends(in_batches(both, rows)))
        assert ends.schema == ENDS
        return one_table(added_up(in_batches(sorted_by_key(found), rows)))

    at_once = computed(100_000)
    monkeypatch.setattr("nsqanalytics.counting.streams.BYTES_AT_ONCE", 1)
    monkeypatch.setattr("nsqanalytics.counting.computing.BYTES_PACKED", 1)
    in_parts = computed(50)

    assert at_once.num_rows > 500
    assert sorted_by_key(in_parts) == sorted_by_key(at_once)


def test_a_batch_of_packed_rows_is_bounded(samples):
    """Spark passes a number of rows to Python, whatever their size; a row may have all readings of a week."""
    one = samples.filter(pa.compute.is_null(samples["hist_offset"])).slice(0, 1)
    at = pa.array([MIDNIGHT + n * timedelta(seconds=10) for n in range(2001)], one.schema.field("taken_at").type)
    long = pa.concat_tables([one] * len(at)).combine_chunks()
    long = long.set_column(long.schema.get_field_index("taken_at"), "taken_at", at)

    rows = one_table(packed(in_batches(long, 700)))

    sizes = pa.compute.binary_length(rows["readings"]).to_pylist()
    assert len(sizes) == 9
    assert max(sizes) * ROWS_PER_BATCH <= 32_000_000
    assert Readings.of_packed(rows)["taken_at"].tolist() == at.cast(pa.int64()).to_pylist()


def test_evidence_about_falls_is_the_same_hour_by_hour(samples):
    """A reading is compared with the last one of its series in any earlier hour of the boot."""
    hour = pa.compute.floor_temporal(samples["taken_at"], unit="hour")
    table = samples.append_column("counter_sum", samples["message_count"]).append_column("hour", hour)
    order = [("node", "ascending"), ("boot_id", "ascending"), ("hour", "ascending")]

    by_hour = one_table(falls.in_hours(in_batches(table.select([*COMPARED, "hour"]).sort_by(order), 40)))
    at_once = falls.evidence(table.select(COMPARED))

    by = [(name, "ascending") for name in (*SERIES, "taken_at")]
    assert at_once.num_rows > 20
    assert by_hour.sort_by(by) == at_once.sort_by(by)


def sorted_by_key(table: pa.Table) -> pa.Table:
    return table.sort_by(
        [(name, "ascending") for name in ("window_start", "node", "topic", "channel")]
    ).combine_chunks()
