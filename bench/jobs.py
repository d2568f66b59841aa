"""The row for bulk actions: a job of the platform deletes many topics, beside the same requests sent to the broker."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.family import descendants, family_seconds
from bench.measure import Options, Row, ask_all
from bench.ports import free_ports
from bench.processes import LoadProcesses
from bench.server import HERE, STOP_SECONDS, Address

CHANNELS_PER_TOPIC = 3
CONNECTIONS = 8
"""Connections of the requests that are sent to the broker without the platform."""
READY_SECONDS = 120.0
POLL_SECONDS = 0.25
MANAGE = (sys.executable, str(HERE / "manage.py"))
PARTS = ("brokerd", "dispatcher", "web")


class Platform(NamedTuple):
    """A running ``nsq up``: the broker's and the web app's HTTP addresses, and an operator's token."""

    pid: int
    broker: Address
    web: Address
    token: str

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request to the platform's API. Raises BenchError for an answer that is not 2xx."""
        connection = http.client.HTTPConnection(*self.web, timeout=STOP_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise BenchError(f"{method} {path} answered {answer.status} {text}")
        return json.loads(text)


def jobs(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Delete ``--topics`` topics of three channels with one message each: by a job, and by requests to the broker.

    Both happen ``--rounds`` times in turn, on the same broker, each with new topics.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as home, running(home) as platform:
        direct, by_job = [], []
        seconds = dict.fromkeys(PARTS, 0.0)
        for number in range(options.rounds):
            direct.append(delete_directly(platform, create(platform, options.topics, f"direct{number}")))
            names = create(platform, options.topics, f"job{number}")
            wait_until_known(platform, names)
            before = parts_seconds(platform)
            by_job.append(delete_by_job(platform, names))
            seconds = {part: seconds[part] + spent - before[part] for part, spent in parts_seconds(platform).items()}
    count = options.topics * options.rounds
    took, floor = median(by_job), median(direct)
    yield Row(
        name="jobs, delete",
        what=f"{options.topics:,} topics × {CHANNELS_PER_TOPIC} channels with a message, by one job",
        twin=options.twin,
        size=0,
        messages=options.topics,
        seconds=took,
        broker_us=seconds["brokerd"] / count * 1e6,
        floor_per_second=options.topics / floor,
        also={f"{part}, processor ms per topic": seconds[part] / count * 1e3 for part in PARTS if part != "brokerd"},
    )


@contextmanager
def running(home: str) -> Iterator[Platform]:
    """Run broker, registry, Redis, collector, web app and dispatcher with their files in ``home``."""
    flags = ("nsqd-tcp", "nsqd-http", "lookupd-tcp", "lookupd-http", "http")
    ports = dict(zip(flags, free_ports(len(flags)), strict=True))
    environment = {**os.environ, "NSQ_HOME": str(Path(home) / "var")}
    addresses = [f"--{flag}-address=127.0.0.1:{port}" for flag, port in ports.items()]
    process = subprocess.Popen(
        [*MANAGE, "nsq", "up", "--without=worker,beat", *addresses],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        wait_until_ready(process, ("127.0.0.1", ports["http"]))
        manage("create_account", "bench", "--role", "operator", "--password", "not-kept-1", environment=environment)
        token = manage("create_token", "bench", "bench", environment=environment)
        yield Platform(process.pid, ("127.0.0.1", ports["nsqd-http"]), ("127.0.0.1", ports["http"]), token)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def manage(*words: str, environment: Mapping[str, str]) -> str:
    """Run ``manage.py`` to its end; return its output. Raises BenchError with its last line of errors."""
    done = subprocess.run([*MANAGE, *words], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"manage.py {words[0]}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return done.stdout.strip()


def wait_until_ready(process: subprocess.Popen[bytes], web: Address) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"nsq up ended with status {process.returncode}")
        with suppress(BenchError, OSError):
            ask_all(web, "GET", ["/ping"])
            return
        time.sleep(0.2)
    raise BenchError(f"the platform did not answer within {READY_SECONDS:.0f} s")


def create(platform: Platform, count: int, prefix: str) -> list[str]:
    """Create topics of three channels with one message each, and return their names."""
    names = [f"{prefix}.{number:05}" for number in range(count)]
    paths = [f"/topic/create?topic={name}" for name in names]
    paths += [
        f"/channel/create?topic={name}&channel=channel{number}"
        for name in names
        for number in range(CHANNELS_PER_TOPIC)
    ]
    ask_all(platform.broker, "POST", paths)
    publish(platform.broker, names)
    return names


def publish(broker: Address, topics: Sequence[str]) -> None:
    connection = http.client.HTTPConnection(*broker, timeout=STOP_SECONDS)
    for topic in topics:
        connection.request("POST", f"/pub?topic={topic}", b"a message")
        answer = connection.getresponse()
        if answer.read() != b"OK":
            raise BenchError(f"POST /pub answered {answer.status}")
    connection.close()


def delete_directly(platform: Platform, topics: Sequence[str]) -> float:
    """Delete the topics on several connections; return the seconds."""
    parts = [[f"/topic/delete?topic={topic}" for topic in topics[start::CONNECTIONS]] for start in range(CONNECTIONS)]
    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda paths: ask_all(platform.broker, "POST", paths), parts))
    return time.perf_counter() - begun


def wait_until_known(platform: Platform, topics: Sequence[str]) -> None:
    """Wait until the registry and the platform know the last topic, which is registered last."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if topics[-1] in (platform.request("GET", "/api/topics")["topics"] or []):
            return
        time.sleep(0.5)
    raise BenchError(f"the platform did not know of {len(topics)} topics within {READY_SECONDS:.0f} s")


def delete_by_job(platform: Platform, topics: Sequence[str]) -> float:
    """Delete the topics by one job; return the seconds from the request to the job's ``finished_at``."""
    begun = time.time()
    body = {"kind": "delete", "subjects": [{"topic": topic} for topic in topics]}
    number = platform.request("POST", "/api/v1/jobs", body)["id"]
    while True:
        job = platform.request("GET", f"/api/v1/jobs/{number}")
        if job["finished_at"] is not None:
            break
        time.sleep(POLL_SECONDS)
    if job["done_count"] != len(topics):
        raise BenchError(f"the job deleted {job['done_count']} of {len(topics)} topics: {job['message']}")
    return float(job["finished_at"] / 1000 - begun)


def parts_seconds(platform: Platform) -> dict[str, float]:
    """The processor seconds of each part of the platform so far."""
    found: dict[str, int] = {}
    for child, words in descendants(platform.pid):
        for part in PARTS:
            if part in words or re.search(rf"-m {part}\b", " ".join(words)):
                found.setdefault(part, child.pid)
    if missing := set(PARTS) - found.keys():
        raise BenchError(f"nsq up runs no {', '.join(sorted(missing))}")
    return {part: family_seconds(pid) for part, pid in found.items()}
