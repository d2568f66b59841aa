"""A latency run with a result, as its job would have written it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from nsqanalytics.results import replace_table
from nsqanalytics.tables import LATENCY
from nsqwire.histogram import Histogram

BEGAN = datetime(2026, 3, 14, tzinfo=UTC)
HOURS = 24
HOSTILE = "<img src=x onerror=\"alert(1)\"> & 'co'"
"""A name that no broker accepts, but that a Parquet file of an archive may contain."""


def latency_run(reports: str, **values: Any) -> Any:
    """A run over a day of three channels in windows of an hour.

    `shipping` had a slow hour; the topic of the third channel has a hostile name.
    """
    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun

    rows = []
    for hour in range(HOURS):
        start = BEGAN + timedelta(hours=hour)
        for topic, channel, ms in (
            ("orders", "billing", 20),
            ("orders", "shipping", 800 if hour == 9 else 40),
            (HOSTILE, "c", 5),
        ):
            rows.append(_row(start, topic, channel, ms))
    parameters = {"window": "1h", "period": "1d", "compared_with": "period"}
    of = {"job": "latency", "state": "succeeded", "rows": len(rows), "finished_at": now(), "requested_by": "ana"}
    run = ReportRun.objects.create(**of | {"parameters": parameters} | values)
    day = timedelta(days=1)
    covered = {"covered_since": BEGAN, "covered_until": BEGAN + day, "before_since": BEGAN - day, "before_until": BEGAN}
    replace_table(rows, LATENCY, f"{reports}/{run.pk}", covered)
    return run


def _row(start: datetime, topic: str, channel: str, ms: int) -> tuple[Any, ...]:
    histogram = Histogram()
    for n in range(100):
        histogram.record(int(ms * 1e6 * (0.5 + n / 100)))
    dense = histogram.to_json()
    names = ("p50_ms", "p90_ms", "p95_ms", "p99_ms")
    quantiles = [value / 1e6 for value in histogram.quantiles([0.5, 0.9, 0.95, 0.99]) if value is not None]
    found: dict[str, Any] = dict(zip(names, quantiles, strict=True)) | {
        "window_start": start,
        "topic": topic,
        "channel": channel,
        "count": 100,
        "max_ms": 1.5 * ms,
        "p99_before_ms": 20.0,
        "p99_change_percent": 100 * (quantiles[3] / 20 - 1),
        "histogram": {"zero": 0, "offset": dense["offset"], "counts": dense["counts"]},
        "error_percent": 1.09,
        "covered_since": start,
        "covered_until": start + timedelta(hours=1),
    }
    return tuple(found.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY)
