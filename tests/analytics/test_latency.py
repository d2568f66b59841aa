"""The latency report, compared with known latencies."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from nsqanalytics.schema import Percentile, Sample
from nsqwire.histogram import RELATIVE_ERROR

pytestmark = pytest.mark.spark

MINUTES = timedelta(minutes=1)
SECONDS = timedelta(seconds=1)
PERMILLES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990, "p999_ms": 999}


def test_percentiles_agree_with_the_raw_latencies_of_a_cluster_with_many_faults(
    make_broker, write, latency_rows, midnight, lognormal, percentile
):
    """One of two nodes restarted half-way, samples are missing, repeated or late: figures within 1.1 %, counts
    equal."""
    rng = random.Random(20260314)
    fast, slow = make_broker("10.0.0.1:4151"), make_broker("10.0.0.2:4151", started_at=midnight + 2 * SECONDS)
    channels = [("orders", "billing"), ("orders", "mail"), ("clicks", "count")]
    batches: list[list[Sample]] = []
    sampled = []
    for step in range(1, 271):
        at = midnight + 10 * step * SECONDS
        for broker, median_ms in ((fast, 3), (slow, 80)):
            for topic, channel in channels:
                for _ in range(rng.randint(5, 25)):
                    finished_at = at - rng.random() * 9.9 * SECONDS
                    broker.finish(topic, channel, lognormal(rng, median_ms), finished_at)
        missing = 100 <= step < 118 or rng.random() < 0.05
        # The readings at the restart, the first and the last are kept: the archive has nothing else of these times.
        if not missing or step in (1, 135, 270):
            sampled.append(at)
            batches += [fast.sample(at), slow.sample(at)]
        if step == 135:
            slow.restart(at + 3 * SECONDS)
    batches += rng.sample(batches, 40)
    rng.shuffle(batches)
    for batch in batches[:200]:
        write(batch)
    write([sample for batch in batches[200:] for sample in batch])

    window = 5 * MINUTES
    rows = latency_rows(window)

    assert {(row["topic"], row["channel"]) for row in rows} == set(channels)
    compared = 0
    for row in rows:
        seen_before = [at for at in sampled if at < row["window_start"]]
        seen_in = [at for at in sampled if row["window_start"] <= at < row["window_start"] + window]
        since = max(seen_before, default=midnight)
        latencies = [
            latency
            for broker in (fast, slow)
            for latency in broker.latencies(row["topic"], row["channel"], since, max(seen_in))
        ]
        assert row["count"] == len(latencies)
        assert (row["node_count"], row["unplaced_count"], row["samples_left_out"]) == (2, 0, 0)
        assert row["sample_count"] == 2 * len(seen_in)
        for name, permille in PERMILLES.items():
            if row[name] is None:
                assert (name, row["count"] < 1000) == ("p999_ms", True)
                continue
            exact_ms = percentile(latencies, permille) / 1e6
            assert row[name] == pytest.approx(exact_ms, rel=0.011), (row, name)
            compared += 1
        assert max(latencies) / 1e6 <= row["max_ms"] * (1 + 1e-9) < max(latencies) / 1e6 * 1.022
    assert compared > 100
    assert sum(row["count"] for row in rows) == sum(len(raw) for broker in (fast, slow) for raw in broker.raw.values())


def test_a_percentile_is_of_all_messages_and_not_the_mean_of_the_nodes(
    make_broker, write, latency_rows, midnight, percentile
):
    """Nine fast nodes do not hide a slow one."""
    rng = random.Random(1)
    brokers = [make_broker(f"10.0.0.{n}:4151") for n in range(10)]
    for broker in brokers:
        slow = broker is brokers[-1]
        for _ in range(200):
            latency = int(rng.uniform(800e6, 900e6) if slow else rng.uniform(90e6, 110e6))
            broker.finish("t", "c", latency, midnight + SECONDS)
        write(broker.sample(midnight + 2 * SECONDS))

    [row] = latency_rows(60 * MINUTES)

    everything = [latency for broker in brokers for _, latency in broker.raw["t", "c"]]
    assert row["p99_ms"] == pytest.approx(percentile(everything, 990) / 1e6, rel=0.011)
    assert row["p99_ms"] > 800
    assert row["error_percent"] == 1.09 > 100 * RELATIVE_ERROR  # rounded up, because it is a bound


def test_counts_from_before_the_first_reading_belong_to_no_window(make_broker, write, latency_rows, midnight):
    """The counts of a broker that ran for days before the first reading are reported, but belong to no window."""
    broker = make_broker(started_at=midnight - timedelta(days=3))
    for _ in range(5000):
        broker.finish("t", "c", 900_000_000, midnight - timedelta(days=1))
    write(broker.sample(midnight + 10 * SECONDS))
    for _ in range(20):
        broker.finish("t", "c", 2_000_000, midnight + 15 * SECONDS)
    write(broker.sample(midnight + 20 * SECONDS))

    [row] = latency_rows(5 * MINUTES)

    assert (row["count"], row["unplaced_count"]) == (20, 5000)
    assert row["p99_ms"] == pytest.approx(2, rel=0.011)


def test_new_channels_of_a_watched_node_count_from_zero(make_broker, write, latency_rows, midnight):
    """New channels and restarted brokers lose no message that they finished before their first reading."""
    broker = make_broker(started_at=midnight - timedelta(days=3))
    broker.finish("t", "old", 1_000_000, midnight)
    write(broker.sample(midnight + 10 * SECONDS))
    for _ in range(7):
        broker.finish("t", "new", 1_000_000, midnight + 15 * SECONDS)
    write(broker.sample(midnight + 20 * SECONDS))
    broker.restart(midnight + 21 * SECONDS)
    for _ in range(5):
        broker.finish("t", "new", 1_000_000, midnight + 25 * SECONDS)
    write(broker.sample(midnight + 30 * SECONDS))

    old, new = sorted(latency_rows(5 * MINUTES), key=lambda row: row["channel"] == "new")

    assert (old["count"], old["unplaced_count"]) == (0, 1)
    assert (new["count"], new["unplaced_count"]) == (12, 0)


def test_a_channel_deleted_and_created_again_counts_from_zero(make_broker, write, latency_rows, midnight):
    """Its counters start again without a restart."""
    broker = make_broker()
    for step in range(1, 7):
        if step == 4:
            broker.delete("t", "c")
        for _ in range(30 if step < 4 else 10):
            broker.finish("t", "c", 5_000_000, midnight + 10 * step * SECONDS)
        write(broker.sample(midnight + 10 * step * SECONDS))

    [row] = latency_rows(5 * MINUTES)

    assert row["count"] == 3 * 30 + 3 * 10


def test_a_clock_set_back_counts_nothing_twice(make_broker, write, latency_rows, midnight):
    """The third reading by its time was the second and is ignored: the total equals the broker's."""
    broker = make_broker()
    for minute in (1, 12, 8, 17):  # by the collector's clock, in true order
        for _ in range(10):
            broker.finish("t", "c", 5_000_000, midnight)
        write(broker.sample(midnight + minute * MINUTES))

    rows = latency_rows(5 * MINUTES)

    counts = {(row["window_start"] - midnight) // MINUTES: row["count"] for row in rows}
    assert counts == {0: 10, 5: 20, 15: 10}


def test_two_collectors_count_nothing_twice(make_broker, write, latency_rows, midnight):
    """Their clocks disagree and their readings interleave; the total equals the broker's."""
    broker = make_broker()
    for step in range(1, 131):
        for _ in range(10):
            broker.finish("t", "c", 5_000_000, midnight + 5 * step * SECONDS)
        skew = timedelta(seconds=0 if step % 2 else -7)
        write(broker.sample(midnight + 5 * step * SECONDS + skew))

    rows = latency_rows(5 * MINUTES)

    assert len(rows) == 3
    assert sum(row["count"] for row in rows) == 1300


def test_messages_finished_during_an_outage_of_the_collector_are_kept_and_marked(
    make_broker, write, latency_rows, midnight
):
    """They are in the window of the next reading, and carried_count says how many may be older than it."""
    broker = make_broker()
    broker.finish("t", "c", 1_000_000, midnight + SECONDS)
    write(broker.sample(midnight + 10 * SECONDS))
    for _ in range(40):
        broker.finish("t", "c", 1_000_000, midnight + 7 * MINUTES)
    write(broker.sample(midnight + 21 * MINUTES))
    for _ in range(3):
        broker.finish("t", "c", 1_000_000, midnight + 22 * MINUTES)
    write(broker.sample(midnight + 23 * MINUTES))

    first, after = latency_rows(5 * MINUTES)

    assert (first["count"], first["carried_count"]) == (1, 0)
    assert after["window_start"] == midnight + 20 * MINUTES
    assert (after["count"], after["carried_count"]) == (43, 40)


def test_go_nodes_are_reported_as_left_out(make_broker, write, latency_rows, midnight):
    """Their percentiles cannot be merged: they change no figure, and a channel that only they have shows none."""
    ours = make_broker("10.0.0.1:4151")
    for _ in range(10):
        ours.finish("t", "c", 1_000_000, midnight + SECONDS)
    theirs = [
        Sample(
            taken_at=midnight + 10 * step * SECONDS,
            node="10.0.0.9:4151",
            boot_id="1700000000",
            topic="t",
            channel=channel,
            message_count=step,
            percentiles=[Percentile(0.99, 700_000_000)],
        )
        for step in range(1, 4)
        for channel in ("c", "only-go")
    ]
    write([*ours.sample(midnight + 10 * SECONDS), *theirs])
    write(theirs)

    mixed, go = latency_rows(60 * MINUTES)

    assert (mixed["count"], mixed["node_count"], mixed["samples_left_out"]) == (10, 1, 3)
    assert mixed["p99_ms"] == pytest.approx(1, rel=0.011)
    assert (go["channel"], go["count"], go["node_count"], go["samples_left_out"]) == ("only-go", 0, 0, 3)
    assert [go[name] for name in (*PERMILLES, "max_ms")] == [None] * 6


def test_p999_is_withheld_until_there_are_enough_messages(make_broker, write, latency_rows, midnight):
    """999 messages have no p99.9, 1,000 have."""
    broker = make_broker()
    for channel, count in (("few", 999), ("many", 1000)):
        for _ in range(count):
            broker.finish("t", channel, 1_000_000, midnight + SECONDS)
    write(broker.sample(midnight + 2 * SECONDS))

    few, many = latency_rows(60 * MINUTES)

    assert few["p999_ms"] is None
    assert many["p999_ms"] == pytest.approx(1, rel=0.011)


def test_a_channel_that_finished_nothing_has_a_row_without_figures(make_broker, write, latency_rows, midnight):
    """A channel without readings has no row."""
    broker = make_broker()
    broker.finish("t", "c", 400, midnight + SECONDS)
    write(broker.sample(midnight + 10 * SECONDS))
    write(broker.sample(midnight + 6 * MINUTES))

    instant, idle = latency_rows(5 * MINUTES)

    assert (instant["count"], instant["p50_ms"], instant["max_ms"]) == (1, 0.0, 0.001)
    assert (idle["count"], idle["p50_ms"], idle["max_ms"], idle["sample_count"]) == (0, None, None, 1)
