"""A broker, connections to it, and Celery workers as processes. The broker is brokerd, and also Go's nsqd if
NSQ_REFERENCE names the directory of its program."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

import nsqkombu  # noqa: F401
from tests.harness.daemon import Broker
from tests.harness.process import ROOT, Process
from tests.harness.waiting import DEADLINE_S
from tests.nsqkombu.applications import make_app

REFERENCE = os.environ.get("NSQ_REFERENCE", "")


class GoNsqd(Broker):
    """Go's nsqd. It has neither the extensions of brokerd nor its promises."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        interpreter_and_module = 3
        self.command = [f"{REFERENCE}/nsqd", *self.command[interpreter_and_module:]]


@pytest.fixture(scope="module", params=["ours", "go"] if REFERENCE else ["ours"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that keeps its ports over a restart."""
    kind = {"ours": Broker, "go": GoNsqd}[request.param]
    with kind(tmp_path_factory.mktemp("broker"), keep_ports=True) as broker:
        broker.wait_until_ready()
        yield broker


@pytest.fixture
def brokerd(broker: Broker) -> Broker:
    """The broker, for tests of what Go's nsqd cannot do; these are skipped on it."""
    if isinstance(broker, GoNsqd):
        pytest.skip("Go's nsqd shows no messages, and loses those in memory when it is killed")
    return broker


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., Connection]]:
    """``connect(**options)``: a connection with these transport options."""
    with ExitStack() as stack:

        def connection(**options: Any) -> Connection:
            return stack.enter_context(Connection(f"nsq://{broker.tcp_address}", transport_options=options))

        yield connection


@pytest.fixture
def connection(connect: Callable[..., Connection]) -> Connection:
    return connect()


def drain(connection: Connection, condition: Callable[[], object]) -> None:
    """Deliver messages until ``condition`` is true."""
    while not condition():
        connection.drain_events(timeout=DEADLINE_S)


def nothing_within(connection: Connection, seconds: float = 0.3) -> None:
    """Assert that no message is delivered. A message that is late is not noticed: for what must never come."""
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=seconds)


class Workers:
    """Celery workers of one broker, and the record of what they ran."""

    def __init__(self, broker: Broker, folder: Path, **options: Any) -> None:
        self.runs_folder = folder / "runs"
        results = folder / "results"
        self.runs_folder.mkdir(parents=True)
        results.mkdir()
        self._environment = {
            **os.environ,
            "BROKER": f"nsq://{broker.tcp_address}",
            "BACKEND": f"file://{results}",
            "OPTIONS": json.dumps(options),
            "RUNS": str(self.runs_folder),
            "PYTHONUNBUFFERED": "1",
        }
        self.app = make_app(self._environment["BROKER"], self._environment["BACKEND"], options)
        self._started: list[Process] = []

    def start(self, name: str, *flags: str) -> Process:
        """Start a worker of two processes, and wait until it consumes."""
        command = [sys.executable, "-m", "celery", "-A", "tests.nsqkombu.applications:worker_app", "worker"]
        words = ["--concurrency=2", "--loglevel=INFO", f"--hostname={name}@localhost", *flags]
        worker = Process([*command, *words], merged=True, env=self._environment, cwd=ROOT).start()
        self._started.append(worker)
        worker.wait_for_log(r"@localhost ready\.", within_s=2 * DEADLINE_S)
        return worker

    def runs(self) -> Counter[str]:
        """How often each task ran, by the name that it recorded."""
        return Counter(path.name.partition(".")[0] for path in self.runs_folder.iterdir())

    def close(self) -> None:
        self.app.close()
        for worker in self._started:
            worker.stop()


@pytest.fixture(scope="module")
def start_workers(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Workers]]:
    """``start_workers(**options)``: workers with these transport options, and results of their own."""
    with ExitStack() as stack:

        def start(**options: Any) -> Workers:
            workers = Workers(broker, tmp_path_factory.mktemp("celery"), **options)
            stack.callback(workers.close)
            return workers

        yield start
