"""The row for figures over time: ``GET /api/v1/history`` over 30 days of many channels.

The files are in the platform's layout (docs/architecture.md, The history), with random walks as depths and random
rates, which compress worse than a real cluster's. One day and one hour are generated and copied.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import tempfile
import time
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.archive import midnight
from bench.errors import BenchError
from bench.family import family_seconds
from bench.measure import Options, Row
from bench.platform import sign_in
from bench.ports import free_ports
from bench.processes import LoadProcesses
from bench.server import Address, Server, nsqadmin

DAYS, HOURS = 30, 48
CHANNELS_PER_TOPIC = 5
REQUESTS = 20
GAUGES = ("clients", "deferred", "depth", "in_flight", "oldest_age_ms", "p50_ms", "p99_ms")
RATES = (
    *("byte_rate", "death_rate", "drop_rate", "emptied_rate", "finish_rate"),
    *("publish_rate", "requeue_rate", "rewound_rate", "timeout_rate"),
)
DRAWN = (
    "depth,publish_rate,finish_rate,oldest_age_ms,p50_ms,p99_ms,in_flight,deferred,requeue_rate,timeout_rate,"
    "emptied_rate,rewound_rate,death_rate,drop_rate"
)
"""The series that a channel's page requests."""


def history(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure ``nsqadmin`` with 30 days of ``--topics`` channels: one channel's 20 minutes, day and month.

    The files are dropped from the system's cache before the first request of each window, whose time is
    ``first request ms``.
    """
    channels = options.topics
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as home:
        files = write_files(Path(home) / "history", channels)
        [nowhere] = free_ports(1)
        with nsqadmin(home, f"--nsqd-http-address=127.0.0.1:{nowhere}") as server:
            cookie = sign_in(server)
            yesterday = midnight(1)
            three = yesterday + timedelta(hours=3)
            for name, since, until, step in (
                ("yesterday at 03:00", three - timedelta(minutes=10), three + timedelta(minutes=10), {}),
                ("a day", yesterday, yesterday + timedelta(days=1), {}),
                ("30 days", midnight(DAYS), datetime.now(UTC), {}),
                ("30 days, from minutes", midnight(DAYS), datetime.now(UTC), {"step": "1800"}),
            ):
                query = {"from": since.isoformat(), "to": until.isoformat(), "series": DRAWN, **step}
                yield measured(options, server, cookie, name, query, channels, files)


def measured(
    options: Options,
    server: Server,
    cookie: str,
    name: str,
    query: Mapping[str, str],
    channels: int,
    files: Sequence[Path],
) -> Row:
    for file in files:
        forget(file)
    spent, began, taken, size = family_seconds(server.pid), time.perf_counter(), [], 0
    for number in random.Random(0).choices(range(channels), k=REQUESTS):
        sent = time.perf_counter()
        size = len(requested(server.http, cookie, number, query))
        taken.append((time.perf_counter() - sent) * 1e3)
    seconds = time.perf_counter() - began
    return Row(
        name=f"history, {name}",
        what=f"one of {channels:,} channels, {DAYS} days by hour and minute, {HOURS} hours in steps of 10 s",
        twin=options.twin,
        size=0,
        messages=REQUESTS,
        seconds=seconds,
        broker_us=(family_seconds(server.pid) - spent) / REQUESTS * 1e6,
        p50_us=float(np.percentile(taken, 50)) * 1e3,
        p99_us=float(np.percentile(taken, 99)) * 1e3,
        also={
            "first request ms": taken[0],
            "slowest ms": max(taken),
            "answer kB": size / 1000,
            **{
                f"MB in {folder}/": sum(file.stat().st_size for file in files if file.parent.name == folder) / 1e6
                for folder in ("10s", "1m", "1h")
            },
        },
    )


def requested(address: Address, cookie: str, number: int, query: Mapping[str, str]) -> bytes:
    """Return the answer for one channel. Raises BenchError if it is empty."""
    of = dict(zip(("topic", "channel"), names(number), strict=True))
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request(
            "GET", f"/api/v1/history?{urlencode({'scope': 'channel', **of, **query})}", headers={"Cookie": cookie}
        )
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200 or b'"times": []' in body:
        raise BenchError(f"GET history answered {answer.status} {body[:200].decode(errors='replace')}")
    return body


def names(number: int) -> tuple[str, str]:
    return f"topic{number // CHANNELS_PER_TOPIC:04}", f"channel{number:05}"


def write_files(root: Path, channels: int) -> list[Path]:
    """Write the months by hour, the days by minute and the last hours in steps of 10 s."""
    series = sorted(f"channel:{'/'.join(names(number))}" for number in range(channels))
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    days = [root / "1m" / f"{midnight(ago):%Y-%m-%d}.parquet" for ago in range(1, DAYS + 1)]
    hours = [root / "10s" / f"{now - timedelta(hours=ago):%Y-%m-%dT%H}.parquet" for ago in range(HOURS)]
    for paths, steps in ((days, 1440), (hours, 360)):
        write_file(paths[0], series, steps)
        for path in paths[1:]:
            shutil.copyfile(paths[0], path)
    months = {midnight(ago).replace(day=1) for ago in range(DAYS + 1)}
    by_hour = {root / "1h" / f"{month:%Y-%m}.parquet": monthrange(month.year, month.month)[1] * 24 for month in months}
    for path, steps in by_hour.items():
        write_file(path, series, steps)
    return [*by_hour, *days, *hours]


def write_file(path: Path, series: Sequence[str], steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(steps)
    kind = pa.list_(pa.float32(), steps)
    metrics = sorted((*GAUGES, *RATES))
    schema = pa.schema([("series", pa.string()), *((metric, kind) for metric in metrics)])
    rows = max(32, -(-len(series) // 64))
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for begin in range(0, len(series), rows):
            part = series[begin : begin + rows]
            shape = (len(part), steps)
            columns = [
                rng.poisson(60, shape) / 60
                if metric in RATES
                else np.clip(np.cumsum(rng.integers(-3, 4, shape), axis=1) + 500, 0, None)
                for metric in metrics
            ]
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(c.astype(np.float32).reshape(-1)), steps) for c in columns
            ]
            writer.write_table(pa.Table.from_arrays([pa.array(part), *lists], schema=schema))
    add_check(path)


def add_check(path: Path) -> None:
    """Insert the footer's checksum before it. A Parquet file ends with its footer, the footer's length and PAR1."""
    data = path.read_bytes()
    footer_at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    check = b"NSQH" + crc32(data[footer_at:-8]).to_bytes(4, "little")
    path.write_bytes(data[:footer_at] + check + data[footer_at:])


def forget(path: Path) -> None:
    """Drop a file from the system's page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
