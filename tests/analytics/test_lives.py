"""The report on sampled messages: what happened to them, by channel and client, computed by Spark from an archive."""

from __future__ import annotations

import io
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nsqanalytics.archive import ArchiveWriter, HourlyWriter
from nsqanalytics.compaction import compact
from nsqanalytics.job_list import JOBS
from nsqanalytics.life_events import EVENT_SCHEMA, lives_path
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.run import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Row = dict[str, Any]


class Events:
    """Events of one node, in the order of their numbers."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, message_id: str, event: str, ms: float, channel: str | None = None, **more: Any) -> None:
        """Add an event ``ms`` after noon."""
        of = {"client_id": None, "reason": None, "attempts": 0, "topic": "orders"} | more
        self.rows.append(
            of
            | {
                "at": NOON + timedelta(milliseconds=ms),
                "node": "n:4151",
                "boot_id": "b",
                "number": len(self.rows),
                "channel": channel,
                "message_id": message_id,
                "event": event,
            }
        )

    def write(self, root: Path, rows: list[Row] | None = None) -> None:
        table = pa.Table.from_pylist(self.rows if rows is None else rows, schema=EVENT_SCHEMA)
        HourlyWriter(lives_path(str(root)), "at").write_table(table)


@pytest.fixture
def report(spark, tmp_path: Path) -> Callable[..., list[Row]]:
    """The rows of the report, until an hour after noon."""

    def rows(root: Path, **given: str) -> list[Row]:
        output = tmp_path / f"result-{random.randrange(1 << 40)}"
        job = JOBS["lives"]
        parameters = job.checked({"until": (NOON + timedelta(hours=1)).isoformat(), "period": "2h"} | given)
        job.run(spark, Locations(str(root), str(output)), parameters, NOON, Progress(io.StringIO()))
        found = Result(output)
        return [dict(zip(found.names, row, strict=True)) for row in found.page(0, 1000)]

    return rows


def test_each_channel_has_its_times_attempts_and_clients(report, tmp_path: Path) -> None:
    """From the publish to the first delivery and to the finish; what a client did is its own."""
    events = Events()
    events.add("1", "published", 0)
    events.add("1", "delivered", 10, "billing", client_id="a", attempts=1)
    events.add("1", "requeued", 30, "billing", client_id="a", attempts=1, delay_ms=50)
    events.add("1", "delivered", 80, "billing", client_id="b", attempts=2)
    events.add("1", "finished", 100, "billing", client_id="b", attempts=2)
    events.add("2", "published", 0)
    events.add("2", "delivered", 20, "billing", client_id="a", attempts=1)
    events.add("2", "finished", 26, "billing", client_id="a", attempts=1)
    events.add("2", "delivered", 1, "audit", client_id="c", attempts=1)
    events.add("2", "timed_out", 60_001, "audit", client_id="c", attempts=1)
    events.add("2", "dead", 60_001, "audit", attempts=1, reason="attempts")
    events.add("3", "delivered", 5, "audit", client_id="c", attempts=1)  # published before the period
    events.write(tmp_path)
    events.write(tmp_path, events.rows[3:7])  # read again by another collector

    shown = (
        "channel", "client_id", "message_count", "finished_count", "delivery_count", "requeue_count", "timeout_count",
        "died_count", "delivered_p50_ms", "delivered_max_ms", "finished_p50_ms", "finished_max_ms", "handled_max_ms",
        "attempts_mean", "attempts_max",
    )  # fmt: skip
    assert [tuple(row[name] for name in shown) for row in report(tmp_path)] == [
        ("audit", None, 1, 0, 1, 0, 1, 1, 1.0, 1.0, None, None, None, None, None),
        ("audit", "c", 1, 0, 1, 0, 1, 0, 1.0, 1.0, None, None, None, None, None),
        ("billing", None, 2, 2, 3, 1, 0, 0, 15.0, 20.0, 63.0, 100.0, 20.0, 1.5, 2),
        ("billing", "a", 2, 1, 2, 1, 0, 0, 15.0, 20.0, 26.0, 26.0, 6.0, 1.0, 1),
        ("billing", "b", 1, 1, 1, 0, 0, 0, 80.0, 80.0, 100.0, 100.0, 20.0, 2.0, 2),
    ]
    assert [row["channel"] for row in report(tmp_path, channel="audit")] == ["audit", "audit"]
    assert report(tmp_path, topic="other") == []


def test_the_figures_are_those_of_an_independent_computation(report, tmp_path: Path) -> None:
    """For random lives, before and after compaction."""
    rng, events = random.Random(7), Events()
    first: dict[str, list[float]] = defaultdict(list)
    last: dict[str, list[float]] = defaultdict(list)
    attempts: dict[str, list[int]] = defaultdict(list)
    for number in range(60):
        published = rng.uniform(0, 1_000_000)
        events.add(f"{number}", "published", published)
        for channel in rng.sample(["x", "y", "z"], k=rng.randint(1, 3)):
            at, tries = published, rng.randint(1, 4)
            for attempt in range(1, tries + 1):
                at += rng.uniform(1, 500)
                events.add(f"{number}", "delivered", at, channel, client_id="w", attempts=attempt)
                if attempt == 1:
                    first[channel].append(at - published)
                at += rng.uniform(1, 500)
                what = "finished" if attempt == tries else "requeued"
                events.add(f"{number}", what, at, channel, client_id="w", attempts=attempt)
            last[channel].append(at - published)
            attempts[channel].append(tries)
    for start in range(0, len(events.rows), 50):
        events.write(tmp_path, events.rows[start : start + 60])  # neighbouring files have some events in common
    expected = [
        (
            channel,
            len(last[channel]),
            pytest.approx(statistics.median(first[channel]), abs=0.01),
            pytest.approx(max(first[channel]), abs=0.01),
            pytest.approx(statistics.median(last[channel]), abs=0.01),
            pytest.approx(max(last[channel]), abs=0.01),
            pytest.approx(statistics.mean(attempts[channel])),
            max(attempts[channel]),
            sum(attempts[channel]),
        )
        for channel in sorted(last)
    ]
    shown = (
        "channel", "message_count", "delivered_p50_ms", "delivered_max_ms", "finished_p50_ms", "finished_max_ms",
        "attempts_mean", "attempts_max", "delivery_count",
    )  # fmt: skip

    def computed() -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in shown) for row in report(tmp_path) if row["client_id"] is None]

    assert computed() == expected
    assert [row[1] for row in compact(str(tmp_path), timedelta(minutes=1), datetime.now(UTC))] == ["lives compacted"]
    assert computed() == expected


def test_a_period_without_events_has_an_empty_result(tmp_path: Path) -> None:
    """Spark is not started for it, and nothing is to be read."""
    ArchiveWriter(str(tmp_path))
    job, place = JOBS["lives"], Locations(str(tmp_path), str(tmp_path / "result"))
    parameters = job.checked({"until": NOON.isoformat()})
    out = io.StringIO()

    def no_session(size: Callable[[], int]) -> Any:
        raise AssertionError("Spark is not needed")

    assert run(job, place, parameters, Progress(out), no_session)
    assert Result(tmp_path / "result").total == 0
    assert '"rows":0' in out.getvalue().replace(" ", "")
    assert job.bytes_read(place, parameters, NOON) == 0
