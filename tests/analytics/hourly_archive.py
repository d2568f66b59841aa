"""Figures by the hour with known truth, as series and as an archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nsqanalytics.schema import Sample, as_table

Values = NDArray[np.float64]
HOUR = timedelta(hours=1)
BEGAN = datetime(2026, 3, 2, tzinfo=UTC)
"""A Monday."""


def with_known_truth(seed: int, hours: int, kind: int) -> Values:
    """Return a figure of a day's and, for all kinds but 0, a week's shape, with autocorrelated noise.

    Kind 2 also grows by a tenth a week, and the noise of kind 3 is in proportion to the figure.
    """
    rng = np.random.default_rng(seed)
    at = np.arange(hours)
    size = rng.uniform(20, 200)
    waves = np.sin(2 * np.pi * (at + rng.integers(24)) / 24) + 0.4 * np.sin(4 * np.pi * (at + rng.integers(24)) / 24)
    figure = size * rng.uniform(1.5, 3) + size * waves
    if kind > 0:
        figure = figure * (1 - 0.4 * ((at // 24) % 7 >= 5))
    if kind == 2:
        figure = figure * (1 + 0.1 * at / 168)
    kept = rng.uniform(0, 0.9)
    shocks = rng.normal(size=hours) * size * rng.uniform(0.05, 0.3) * np.sqrt(1 - kept**2)
    noise = np.zeros(hours)
    for hour in range(1, hours):
        noise[hour] = kept * noise[hour - 1] + shocks[hour]
    if kind == 3:
        noise = noise * figure / figure.mean()
    return np.maximum(figure + noise, 0.0)


def messages(hour: int) -> int:
    """Return the messages that the archive's busiest channel receives in an hour: a day's shape, less at weekends."""
    rng = np.random.default_rng(hour)
    share = 0.5 if (hour // 24) % 7 >= 5 else 1.0
    return int(share * (3000 + 2000 * np.sin(2 * np.pi * hour / 24)) + rng.normal() * 60)


CHANNELS = ("billing", "ended", "new", "stuck")
SAMPLED = 72
"""The last hours of the archive: they have samples. The earlier ones have rollups, which are faster to read."""


def received(channel: str, hour: int, burst: Callable[[int], int]) -> int:
    """Return the messages that a channel receives in an hour."""
    return messages(hour) + burst(hour) if channel == "billing" else 600


def exists(channel: str, hour: int, hours: int) -> bool:
    """``ended`` is deleted a day before the end, ``new`` created two days before it."""
    return hour < hours - 24 if channel == "ended" else channel != "new" or hour >= hours - 48


def write_archive(root: Path, hours: int, burst: Callable[[int], int]) -> datetime:
    """Write four channels of the topic ``orders``; return the end of the last hour.

    ``billing`` receives ``messages(hour) + burst(hour)``, and two consumers finish them; six hours of the second week
    are missing. ``ended`` and ``new`` exist for a part of the time. The backlog of ``stuck`` grows by 200 an hour. Each
    hour has a minute of observed time. The node restarts in the middle of the sampled hours.
    """
    for hour in range(hours - SAMPLED):
        if not 200 <= hour < 206:
            _write_rollup(root, hour, hours, burst)
    for boot, first in enumerate((hours - SAMPLED, hours - SAMPLED // 2)):
        count = dict.fromkeys(CHANNELS, 0)
        for hour in range(first, first + SAMPLED // 2):
            count = {channel: count[channel] + received(channel, hour, burst) for channel in CHANNELS}
            _write_samples(root, hour, hours, count, boot, BEGAN + first * HOUR)
    return BEGAN + hours * HOUR


def _write_rollup(root: Path, hour: int, hours: int, burst: Callable[[int], int]) -> None:
    at = BEGAN + hour * HOUR
    rows: list[dict[str, object]] = []
    for channel in ("", *(name for name in CHANNELS if exists(name, hour, hours))):
        came = received(channel or "billing", hour, burst)
        depth = 200 * (hour + 1) if channel == "stuck" else 20 if channel == "billing" else 0
        done = came - 200 if channel == "stuck" else came
        key = {"window_start": at, "last_at": at + HOUR / 2, "node": "10.0.0.1:4151", "topic": "orders"}
        counts = {"in_count": came, "in_bytes": 0 if channel else 100 * came, "out_count": done if channel else 0}
        others = {"sample_count": 1, "requeue_count": 0, "timeout_count": 0, "depth_max": depth, "depth_last": depth}
        areas = {"observed_s": 60.0, "depth_area": 60.0 * depth, "client_area": 120.0}
        rows.append(key | {"channel": channel} | counts | others | areas)
    folder = root / "rollups" / "hourly" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{hour:016x}.parquet")


def write_past_weeks(root: Path, until: datetime, depths: Mapping[tuple[str, str], tuple[int, float]]) -> list[Path]:
    """Write the rollups of the hours before ``until``, and return their files: by topic and channel, for how many hours
    it exists, and its mean depth, from which every other hour differs by a tenth."""
    written = []
    last = until.replace(minute=0, second=0, microsecond=0)
    for back in range(1, 1 + max(hours for hours, _ in depths.values())):
        at = last - back * HOUR
        rows = []
        for (topic, channel), (hours, depth) in depths.items():
            if back <= hours:
                mean = depth * (1.0 if back % 2 else 1.1)
                key = {"window_start": at, "last_at": at + HOUR / 2, "node": "10.0.0.1:4151"}
                counts = dict.fromkeys(("in_count", "out_count", "requeue_count", "timeout_count"), 0)
                areas = {"observed_s": 3600.0, "depth_area": 3600.0 * mean, "client_area": 3600.0}
                rows.append(key | {"topic": topic, "channel": channel} | counts | areas)
        folder = root / "rollups" / "hourly" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{back:016x}.parquet")
        pq.write_table(pa.Table.from_pylist(rows), written[-1])
    return written


def _write_samples(root: Path, hour: int, hours: int, count: dict[str, int], boot: int, started_at: datetime) -> None:
    at = BEGAN + hour * HOUR + timedelta(minutes=59)
    origin: dict[str, Any] = {
        "taken_at": at,
        "node": "10.0.0.1:4151",
        "boot_id": f"{boot:02}",
        "started_at": started_at,
        "uptime_ns": int((at - started_at).total_seconds() * 1e9),
        "topic": "orders",
    }
    rows = [Sample(**origin, message_count=count["billing"], message_bytes=100 * count["billing"])]
    for channel, came in count.items():
        if exists(channel, hour, hours):
            depth = 200 * (hour + 1) if channel == "stuck" else 20 if channel == "billing" else 0
            done = came * 2 // 3 if channel == "stuck" else came
            figures = {"message_count": came, "depth": depth, "client_count": 2, "finish_count": done}
            histogram: dict[str, Any] = {"hist_zero_count": done, "hist_offset": 0, "hist_counts": []}
            rows.append(Sample(**origin, channel=channel, **figures, **histogram))
    folder = root / "samples" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
    folder.mkdir(parents=True)
    pq.write_table(as_table(rows), folder / f"5900-{hour:016x}.parquet")
