"""A broker and a registry for clients that others wrote, and a way to run those: each in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
START_S = 10
DEADLINE_S = 60


@dataclass
class Addresses:
    """Where a server listens."""

    tcp: str
    http: str


def _serve(stack: ExitStack, module: str, *flags: str, log_path: Path) -> Addresses:
    log = stack.enter_context(log_path.open("wb"))
    command = [sys.executable, "-m", module, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", *flags]
    process = stack.enter_context(subprocess.Popen(command, stderr=log))
    stack.callback(process.kill)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = dict(re.findall(r"(TCP|HTTP): listening on (\S+)", log_path.read_text()))
        if len(found) == 2:
            return Addresses(found["TCP"], found["HTTP"])
        time.sleep(0.02)
    raise AssertionError(f"{module} does not listen:\n{log_path.read_text()}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Addresses, Addresses]]:
    """A brokerd registered with a lookup: (broker, registry)."""
    with ExitStack() as stack:
        registry = _serve(stack, "lookup", log_path=tmp_path / "lookup.log")
        broker = _serve(
            stack,
            "brokerd",
            f"--data-path={tmp_path}",
            f"--lookupd-tcp-address={registry.tcp}",
            "--broadcast-address=127.0.0.1",
            log_path=tmp_path / "brokerd.log",
        )
        yield broker, registry


@pytest.fixture
def exchange(cluster: tuple[Addresses, Addresses]) -> Callable[..., dict[str, Any]]:
    """Have ``exchange_<library>.py`` publish and read ``count`` messages; returns what it reports."""
    broker, registry = cluster

    def run(library: str, count: int) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, HERE / f"exchange_{library}.py", broker.tcp, registry.http, str(count)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report

    return run
