"""Writing readings to an archive that may be slow, unavailable, or strict about its columns; without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from nsqplatform.cluster.collector.archiver import KEPT_BATCHES, Archiver
from nsqplatform.cluster.collector.samples import samples_of
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqplatform.cluster.readings.stats import parse_stats


class Shelf:
    """An archive in memory: the next writes raise ``errors``, and wait for ``gate``."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.errors: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()

    def write_table(self, samples: pa.Table) -> None:
        assert self.gate.wait(30)
        if self.errors:
            raise self.errors.pop(0)
        self.written += samples["depth"].to_pylist()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def archiver(shelf) -> Archiver:
    return Archiver(lambda: shelf)


def reading(depth: int) -> list[NodeView]:
    """A node's reading number ``depth``, with one topic of that depth."""
    topic = {"topic_name": "t", "depth": depth, "message_count": 0}
    stats = parse_stats(json.dumps({"version": "1", "boot_id": "b", "topics": [topic]}).encode())
    latest = Reading(stats, read_at=float(depth), taken_at_s=1_700_000_000.0 + depth)
    return [NodeView(node=Node(id="n:1", address="n:1"), error=None, latest=latest)]


async def test_a_batch_is_taken_every_ten_seconds_and_no_reading_twice(archiver, shelf):
    """A node that has not answered since adds nothing."""
    for second in range(25):
        archiver.add(reading(second), now=100.0 + second)
        await archiver.finish()
    archiver.take(reading(20))
    await archiver.finish()
    assert shelf.written == [0, 10, 20]


async def test_unwritten_batches_are_written_later_in_order(archiver, shelf, caplog):
    """The outage and its end have one line each in the log."""
    shelf.errors = [OSError("no space left"), OSError("no space left")]
    for depth in (1, 2, 3):
        archiver.take(reading(depth))
        await archiver.finish()
    assert shelf.written == [1, 2, 3]
    logged = [record.message for record in caplog.records]
    assert logged.count("cannot write to the archive; retrying") == 1
    assert logged.count("the archive can be written again") == 1


async def test_an_invalid_batch_delays_no_other(archiver, shelf, caplog):
    """It is dropped, and the reason logged."""
    shelf.errors = [ValueError("column depth: out of range")]
    for depth in (1, 2):
        archiver.take(reading(depth))
        await archiver.finish()
    assert shelf.written == [2]
    assert "do not match the archive's schema" in caplog.text


async def test_a_slow_disk_delays_no_poll_and_fills_no_memory(archiver, shelf, caplog):
    """Polls go on during the write; beyond five minutes' worth, the oldest samples are dropped."""
    shelf.gate.clear()
    for depth in range(KEPT_BATCHES + 5):
        archiver.take(reading(depth))
        await asyncio.sleep(0)
    shelf.gate.set()
    await archiver.finish()
    # The first was being written all the time; the oldest of the waiting ones were dropped.
    assert shelf.written == [0, *range(5, KEPT_BATCHES + 5)]
    assert "samples dropped" in caplog.text


# ---- what a batch holds


def rows_of(*topics: dict[str, Any], **node: Any) -> list[dict[str, Any]]:
    answer = {"version": "1", "start_time": 1_600_000_000, "topics": list(topics)} | node
    stats = parse_stats(json.dumps(answer).encode())
    return samples_of("n:1", Reading(stats, read_at=0.0, taken_at_s=1_700_000_000.5)).to_pylist()


def histogram(*counts: int, offset: int = 640, zero_count: int = 0) -> dict[str, Any]:
    return {"scale": 5, "zero_count": zero_count, "offset": offset, "counts": list(counts)}


def test_the_channel_of_a_tail_is_not_archived():
    """Neither its row nor its share of its topic's figures: it is the platform's own, and no consumer. Similar names of
    consumers are archived."""

    def channel(name: str) -> dict[str, Any]:
        figures = {"depth": 2, "in_flight_count": 3, "client_count": 1, "message_count": 90}
        return {"channel_name": name, "latency_histogram": histogram(3, 1)} | figures

    names = ["tail-0a1b2c3d#ephemeral", "tail-0a1b2c3d", "tail#ephemeral", "tail123456#ephemeral"]
    [topic, *channels] = rows_of({"topic_name": "t", "channels": [channel(name) for name in names]}, boot_id="b1")
    assert [row["channel"] for row in channels] == names[1:]
    assert [row["hist_counts"] for row in channels] == [[3, 1]] * 3
    assert (topic["channel"], topic["client_count"]) == (None, 3)
    assert rows_of({"topic_name": "t", "channels": [channel(names[0])]}, boot_id="b1")[0]["client_count"] == 0


def test_a_node_of_ours_is_archived_with_its_histograms():
    """A row for each topic, then one for each channel; missing figures are null, or zero for counters."""
    channels = [
        {"channel_name": "busy", "depth": 4, "backend_depth": 1, "in_flight_count": 2, "deferred_count": 3}
        | {"message_count": 90, "requeue_count": 5, "timeout_count": 6, "client_count": 7, "emptied_count": 10}
        | {"dead_count": 11, "died_count": 12, "dropped_count": 13, "dead_by_reason": {"attempts": 11}}
        | {"oldest_unfinished_age_ns": 8, "latency_histogram": histogram(3, 0, 70, zero_count=2)},
        {"channel_name": "new", "depth": 0, "message_count": 0, "client_count": 1, "latency_histogram": histogram()},
    ]
    topic = {"topic_name": "t", "depth": 9, "backend_depth": 8, "message_count": 99, "message_bytes": 999}
    [of_topic, busy, new] = rows_of(topic | {"channels": channels}, boot_id="b1", uptime_ns=77)
    same = {"node": "n:1", "boot_id": "b1", "uptime_ns": 77, "topic": "t", "percentiles": None}
    same |= {
        "taken_at": datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
        "started_at": datetime(2020, 9, 13, 12, 26, 40, 0, UTC),
    }
    nothing = dict.fromkeys(
        ("hist_zero_count", "hist_offset", "hist_counts", "finish_count", "oldest_unfinished_age_ns")
    )
    zero = dict.fromkeys(
        ("depth", "backend_depth", "in_flight_count", "deferred_count", "client_count", "message_count")
        + ("message_bytes", "requeue_count", "timeout_count", "emptied_count", "rewound_count")
        + ("dead_count", "died_count", "dropped_count"),
        0,
    )
    figures = {"depth": 9, "backend_depth": 8, "message_count": 99, "message_bytes": 999, "client_count": 8}
    assert of_topic == same | zero | nothing | {"channel": None} | figures
    figures = {"depth": 4, "backend_depth": 1, "in_flight_count": 2, "deferred_count": 3, "client_count": 7}
    figures |= {"message_count": 90, "requeue_count": 5, "timeout_count": 6, "oldest_unfinished_age_ns": 8}
    figures |= {"emptied_count": 10, "dead_count": 11, "died_count": 12, "dropped_count": 13}
    counted = {"hist_zero_count": 2, "hist_offset": 640, "hist_counts": [3, 0, 70], "finish_count": 75}
    assert busy == same | zero | {"channel": "busy"} | figures | counted
    counted = {"hist_zero_count": 0, "hist_offset": 640, "hist_counts": [], "finish_count": 0}
    assert new == same | zero | nothing | {"channel": "new", "client_count": 1} | counted


def test_a_go_node_is_archived_with_its_reported_percentiles():
    """Of the topic and of channels; null without any. Its boot is identified by its start time."""

    def latency(*values: float) -> dict[str, Any]:
        percentiles = [{"quantile": q, "value": value} for q, value in zip((0.99, 0.5), values, strict=False)]
        return {"e2e_processing_latency": {"count": 1, "percentiles": percentiles}}

    channels = [
        {"channel_name": name, "depth": 0, "message_count": 0} | percentiles
        for name, percentiles in (("a", latency(7e6, 2e6)), ("b", {}), ("c", latency(5.5)))
    ]
    rows = rows_of({"topic_name": "t", "depth": 0, "message_count": 0, "channels": channels} | latency(9e6))
    assert [row["percentiles"] for row in rows] == [
        [{"quantile": 0.99, "value_ns": 9_000_000}],
        [{"quantile": 0.99, "value_ns": 7_000_000}, {"quantile": 0.5, "value_ns": 2_000_000}],
        None,
        [{"quantile": 0.99, "value_ns": 5}],
    ]
    assert {row["boot_id"] for row in rows} == {"1600000000"}
    assert {row["hist_counts"] is None for row in rows} == {True}
    assert {row["uptime_ns"] for row in rows} == {None}


def test_a_node_without_topics_adds_nothing():
    """The other nodes are archived."""
    assert rows_of(boot_id="b") == []


# ---- what ends


def view(boot: str, depth: int, *, ended: Reading | None = None, node: str = "n:1") -> NodeView:
    latest = reading_of(boot, depth)
    return NodeView(node=Node(id=node, address=node), error=None, latest=latest, previous_boot=ended)


def reading_of(boot: str, depth: int) -> Reading:
    topic = {"topic_name": "t", "depth": depth, "message_count": 0}
    stats = parse_stats(json.dumps({"version": "1", "boot_id": boot, "topics": [topic]}).encode())
    return Reading(stats, read_at=float(depth), taken_at_s=1_700_000_000.0 + depth)


async def test_the_last_reading_of_a_process_is_archived_when_the_next_one_answers(archiver, shelf):
    """It is read every second and archived every ten: a restart loses at most the last second."""
    for second, boot in ((0, "a"), (1, "a"), (4, "a"), (5, "b"), (6, "b"), (11, "b")):
        archiver.add([view(boot, second)], now=100.0 + second)
        await archiver.finish()
    assert sorted(shelf.written) == [0, 4, 11]


async def test_the_last_figures_of_a_process_replace_its_last_reading(archiver, shelf):
    """They are later than any reading of it."""
    archiver.add([view("a", 1)], now=101.0)
    archiver.add([view("b", 5, ended=reading_of("a", 3))], now=105.0)
    archiver.add([view("b", 12, ended=reading_of("a", 3))], now=112.0)
    await archiver.finish()
    assert sorted(shelf.written) == [1, 3, 12]


async def test_the_last_reading_of_a_node_that_is_gone_is_archived(archiver, shelf):
    """It was deregistered, or removed from the settings."""
    archiver.add([view("a", 1), view("x", 2, node="m:1")], now=101.0)
    archiver.add([view("a", 3), view("x", 4, node="m:1")], now=103.0)
    archiver.add([view("a", 5)], now=105.0)
    archiver.add([view("a", 11)], now=111.0)
    await archiver.finish()
    assert sorted(shelf.written) == [1, 2, 4, 11]
