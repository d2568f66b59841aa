"""Handing readings to an archive that may be slow, away, or picky; without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

import pytest

from analytics.schema import Sample
from cluster.archiving import KEPT_BATCHES, Archiving
from cluster.node import Node
from cluster.snapshot import NodeView, Reading
from cluster.stats import parse_stats


class Shelf:
    """An archive in memory: ``errors`` are raised by the next writes, ``gate`` holds them up."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.errors: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()

    def write(self, samples: Sequence[Sample]) -> None:
        assert self.gate.wait(30)
        if self.errors:
            raise self.errors.pop(0)
        self.written += [sample.depth for sample in samples]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def archiving(shelf) -> Archiving:
    return Archiving(lambda: shelf)


def reading(depth: int) -> list[NodeView]:
    """A node's reading number ``depth``, with one topic of that depth."""
    topic = {"topic_name": "t", "depth": depth, "message_count": 0}
    stats = parse_stats(json.dumps({"version": "1", "boot_id": "b", "topics": [topic]}).encode())
    latest = Reading(stats, read_at=float(depth), taken_at=1_700_000_000.0 + depth)
    return [NodeView(node=Node(id="n:1", address="n:1"), error=None, latest=latest)]


async def test_a_batch_is_taken_every_ten_seconds_and_no_reading_twice(archiving, shelf):
    """A node that has not answered since adds nothing."""
    for second in range(25):
        archiving.beat(reading(second), now=100.0 + second)
        await archiving.finish()
    archiving.take(reading(20))
    await archiving.finish()
    assert shelf.written == [0, 10, 20]


async def test_what_could_not_be_written_is_written_later_in_order(archiving, shelf, caplog):
    """One line in the log for the whole outage, and one for its end."""
    shelf.errors = [OSError("no space left"), OSError("no space left")]
    for depth in (1, 2, 3):
        archiving.take(reading(depth))
        await archiving.finish()
    assert shelf.written == [1, 2, 3]
    logged = [record.message for record in caplog.records]
    assert logged.count("cannot write to the archive; will keep trying") == 1
    assert logged.count("the archive can be written again") == 1


async def test_a_batch_that_does_not_fit_holds_up_no_other(archiving, shelf, caplog):
    """It is given up, and the log says why."""
    shelf.errors = [ValueError("column depth: out of range")]
    for depth in (1, 2):
        archiving.take(reading(depth))
        await archiving.finish()
    assert shelf.written == [2]
    assert "do not fit the archive" in caplog.text


async def test_a_slow_disk_delays_no_beat_and_fills_no_memory(archiving, shelf, caplog):
    """Beats go on beside the writing; beyond five minutes' worth, the oldest samples are given up."""
    shelf.gate.clear()
    for depth in range(KEPT_BATCHES + 5):
        archiving.take(reading(depth))
        await asyncio.sleep(0)
    shelf.gate.set()
    await archiving.finish()
    # The first was being written all the time; of those that waited, the oldest went.
    assert shelf.written == [0, *range(5, KEPT_BATCHES + 5)]
    assert "samples given up" in caplog.text
