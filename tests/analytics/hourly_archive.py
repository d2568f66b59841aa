"""Figures by the hour with known truth, as series and as an archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
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


def write_archive(root: Path, weeks: int, burst: Callable[[int], int]) -> datetime:
    """Write one reading an hour of four channels of ``orders``; return the end of the last hour.

    ``billing`` receives ``messages(hour) + burst(hour)`` and finishes all of them with two consumers; the node restarts
    in the middle and is not read for six hours of the second week. ``ended`` was deleted a day before the end, ``new``
    began two days before the end, and ``stuck`` has a backlog that grows.
    """
    hours = weeks * 168
    count = {"billing": 0, "ended": 0, "new": 0, "stuck": 0}
    restarts = hours // 2
    for hour in range(hours):
        if hour == restarts:
            count = dict.fromkeys(count, 0)
        for channel in count:
            count[channel] += messages(hour) + burst(hour) if channel == "billing" else 600
        if 200 <= hour < 206:
            continue
        since = BEGAN + (restarts * HOUR if hour >= restarts else timedelta(0))

        at = BEGAN + hour * HOUR + timedelta(minutes=59)
        origin = {
            "taken_at": at,
            "node": "10.0.0.1:4151",
            "boot_id": "02" if hour >= restarts else "01",
            "started_at": since,
            "uptime_ns": int((at - since).total_seconds() * 1e9),
            "topic": "orders",
        }
        waits = {"billing": 20, "stuck": count["stuck"] // 3}
        rows = [Sample(**origin, message_count=count["billing"], message_bytes=100 * count["billing"])]
        for channel, received in count.items():
            waiting = waits.get(channel, 0)
            done = received - waiting if channel == "stuck" else received
            figures = {"message_count": received, "depth": waiting, "client_count": 2, "finish_count": done}
            histogram = {"hist_zero_count": done, "hist_offset": 0, "hist_counts": []}
            if (channel != "ended" or hour < hours - 24) and (channel != "new" or hour >= hours - 48):
                rows.append(Sample(**origin, channel=channel, **figures, **histogram))
        folder = root / "samples" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        folder.mkdir(parents=True)
        # Not by the archive's writer, which syncs each of these hundreds of files.
        pq.write_table(as_table(rows), folder / f"3540-{hour:016x}.parquet")
    return BEGAN + hours * HOUR
