"""Results with more rows than a page, through the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.database

MIDNIGHT = datetime(2026, 3, 14, tzinfo=UTC)
WINDOWS = 5_000
CHANNELS = ("billing", "search", "shipping")


@pytest.fixture
def run_id(caller, tmp_path: Path) -> int:
    """A latency run of 15,000 rows: three channels in windows of five minutes, the oldest first."""
    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun

    run = ReportRun.objects.create(job="latency", state="succeeded", finished_at=now(), rows=WINDOWS * len(CHANNELS))
    windows = [MIDNIGHT + timedelta(minutes=5 * n) for n in range(WINDOWS) for _ in CHANNELS]
    rows = len(windows)
    table = pa.table(
        {
            "window_start": pa.array(windows, pa.timestamp("us", tz="UTC")),
            "topic": ["orders"] * rows,
            "channel": list(CHANNELS) * WINDOWS,
            "count": pa.array(range(rows), pa.int64()),
            "p99_ms": [float(n % 100) for n in range(rows - 1)] + [4_000.0],
        }
    )
    folder = tmp_path / "reports" / str(run.pk)
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet")
    return int(run.pk)


def test_any_row_of_a_large_result_is_found_by_filters_order_and_page(caller, run_id: int):
    """Rows after the first ten thousand are found too: the newest windows are a page, and the answer has both
    totals."""
    viewer = caller("viewer")

    def rows(**asked: Any) -> Any:
        status, answer = viewer("GET", f"reports/runs/{run_id}/result?{urlencode(asked)}")
        assert status == 200, answer
        return answer

    def ms(at: datetime) -> int:
        return int(at.timestamp() * 1000)

    newest = ms(MIDNIGHT + timedelta(minutes=5 * (WINDOWS - 1)))
    answer = rows(sort="-window_start", limit=2, channel="billing")
    assert (answer["total"], answer["matching"]) == (15_000, 5_000)
    assert [row[:3] for row in answer["rows"]] == [
        [newest, "orders", "billing"],
        [newest - 300_000, "orders", "billing"],
    ]
    assert rows(offset=14_999)["rows"][0][:3] == [newest, "orders", "shipping"]
    hour = rows(since=ms(MIDNIGHT), until=ms(MIDNIGHT + timedelta(hours=1)), words="SEARCH ord", columns="count")
    assert (hour["matching"], [row[0] for row in hour["rows"]]) == (12, [3 * n + 1 for n in range(12)])
    assert rows(channel="")["matching"] == 0
    assert rows(sort="-p99_ms", limit=1, columns="channel,p99_ms")["rows"] == [["shipping", 4_000.0]]


def test_a_chart_is_of_all_rows_in_as_many_points_as_it_asks_for(caller, run_id: int):
    """The last point includes the newest window's peak, whatever the number of windows."""
    viewer = caller("viewer")
    asked = {"topic": "orders", "channel": "shipping", "figures": "p99_ms,count", "points": 100}

    status, answer = viewer("GET", f"reports/runs/{run_id}/result/series?{urlencode(asked)}")

    assert (status, answer["window_count"]) == (200, WINDOWS)
    assert len(answer["points"]) <= 100
    assert max(point[1] for point in answer["points"]) == answer["points"][-1][1] == 4_000
    assert sum(point[2] for point in answer["points"]) == sum(range(2, 15_000, 3))
    twice = viewer("GET", f"reports/runs/{run_id}/result/series?channel={CHANNELS[0]}&figures=count,count&points=7")
    assert twice[0] == 200
    assert all(point[1] == point[2] for point in twice[1]["points"])
    groups = viewer("GET", f"reports/runs/{run_id}/result/groups")[1]["groups"]
    assert sorted(group["channel"] for group in groups) == sorted(CHANNELS)


@pytest.mark.parametrize(
    ("path", "status", "complaint"),
    [
        ("result?sort=p98_ms", 422, "sort: there is no column 'p98_ms'; there are window_start, topic"),
        ("result?columns=p98_ms", 422, "columns: there is no column 'p98_ms'; "),
        ("result?since=1e30", 422, "since"),
        (f"result?since={10**30}", 422, "since: Input should be less than"),
        ("result/series?figures=channel", 422, "figures: 'channel' has no sum, mean or maximum"),
        ("result/series?figures=p99_ms&points=0", 422, "points"),
        ("result/calendar?objective=latency", 422, "calendar: there is no column 'span'"),
        ("result/calendar?objective=joy", 422, "objective"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(caller, run_id: int, path: str, status: int, complaint: str):
    answer = caller("viewer")("GET", f"reports/runs/{run_id}/{path}")
    assert (answer[0], answer[1]["message"][: len(complaint)]) == (status, complaint)
    assert caller("operator")("GET", f"reports/runs/{run_id + 1}/result/groups")[0] == 404
