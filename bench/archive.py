"""Generates an archive like a collector's: days of samples of many channels, computed by numpy in seconds.

Counters follow a daily curve, latencies are log-normal with a tail, histograms are cumulative. There is one file per
hour, sorted by time, as written by ``python -m nsqanalytics run compact``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BUCKETS = 120
FIRST_BUCKET = 640
HOUR_S = 3600
WEIGHTS, DRAWS = 16, 256
"""Number of different channel loads, and of different sample intervals drawn for each load and hour."""
_TIME = pa.timestamp("us", tz="UTC")
_SHAPE = np.exp(-0.5 * ((np.arange(BUCKETS) - 40) / 18.0) ** 2)


def write_day(root: Path, day: datetime, channels: int, every_s: int, seed: int = 0) -> int:
    """Write one UTC day of samples below ``root``; return the number of rows."""
    rng = np.random.default_rng(seed + day.toordinal())
    steps = HOUR_S // every_s
    finished, received = np.zeros((channels, BUCKETS), np.int64), np.zeros(channels, np.int64)
    weights = rng.integers(0, WEIGHTS, channels)
    rows = 0
    for hour in range(24):
        load = 1 + 0.6 * np.sin((hour - 8) / 24 * 2 * np.pi)
        means = np.linspace(0.3, 3.0, WEIGHTS)[:, None, None] * load * _SHAPE * (every_s / 40)
        drawn = rng.poisson(np.broadcast_to(means, (WEIGHTS, DRAWS, BUCKETS))).astype(np.int64)
        counts = drawn[weights, rng.integers(0, DRAWS, (steps, channels))]
        counts[0] += finished
        np.cumsum(counts, axis=0, out=counts)
        finished = counts[-1].copy()
        waiting = rng.poisson(20, (steps, channels))
        # The number of received messages must not decrease when the backlog shrinks.
        arrived = np.maximum.accumulate(np.vstack([received[None], counts.sum(axis=2) + waiting]), axis=0)[1:]
        received = arrived[-1]
        rows += _write_hour(root, day + timedelta(hours=hour), day, counts, arrived.reshape(-1), every_s)
    return rows


def _write_hour(
    root: Path, hour: datetime, day: datetime, counts: np.ndarray, received: np.ndarray, every_s: int
) -> int:
    steps, channels, _ = counts.shape
    total = channels * steps
    finish = counts.sum(axis=2).reshape(-1)
    depth = received - finish
    start = int(hour.timestamp() * 1_000_000)
    taken_at = np.repeat(start + np.arange(steps, dtype=np.int64) * every_s * 1_000_000 + 1_500_000, channels)
    names = np.tile(np.arange(channels, dtype=np.int32), steps)

    def texts(values: list[str], index: np.ndarray) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(values)).cast(pa.string())

    def longs(values: np.ndarray | int) -> pa.Array:
        return pa.array(np.broadcast_to(np.int64(values) if isinstance(values, int) else values, total))

    one = np.zeros(total, np.int32)
    offsets = pa.array(np.arange(total + 1, dtype=np.int64).astype(np.int32) * BUCKETS)
    columns = {
        "taken_at": pa.array(taken_at).cast(_TIME),
        "node": texts(["10.0.0.1:4151"], one),
        "boot_id": texts([f"{day.toordinal():016x}"], one),
        "started_at": pa.array(np.full(total, int(day.timestamp() * 1e6))).cast(_TIME),
        "topic": texts([f"topic{n // 5:04}" for n in range(channels)], names),
        "channel": texts([f"channel{n:05}" for n in range(channels)], names),
        "depth": longs(depth),
        "backend_depth": longs(0),
        "in_flight_count": longs(1),
        "deferred_count": longs(0),
        "client_count": longs(4),
        "message_count": longs(received),
        "message_bytes": longs(0),
        "requeue_count": longs(finish // 100),
        "timeout_count": longs(finish // 500),
        "finish_count": longs(finish),
        "oldest_unfinished_age_ns": longs(depth * 1_000_000),
        "hist_zero_count": longs(0),
        "hist_offset": pa.array(np.full(total, FIRST_BUCKET, np.int32)),
        "hist_counts": pa.ListArray.from_arrays(offsets, pa.array(counts.reshape(-1))),
        "percentiles": pa.nulls(total, pa.list_(pa.struct([("quantile", pa.float64()), ("value_ns", pa.int64())]))),
    }
    folder = root / "samples" / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {b"nsq.sample.version": b"2"}
    table = pa.table(columns).replace_schema_metadata(metadata)
    # Compaction's own.
    layout = {"compression": "zstd", "row_group_size": 1 << 14, "write_page_index": True, "write_page_checksum": True}
    pq.write_table(table, folder / "compact-0000000000000000.parquet", **layout)
    return total


def midnight(days_ago: int) -> datetime:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days_ago)
