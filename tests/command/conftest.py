"""``nsq up`` and other subcommands, started as by a user: as processes, on free ports, with a new home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bench.ports import free_port, free_ports
from tests.harness.process import ROOT, Process
from tests.harness.waiting import DEADLINE_S

FLAGS = (
    "--nsqd-tcp-address",
    "--nsqd-http-address",
    "--lookupd-tcp-address",
    "--lookupd-http-address",
    "--http-address",
)


def environment(home: Path, **more: str) -> dict[str, str]:
    """A new user's environment: only the location of the home is configured."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NSQ_HOME": str(home / "var"), **more}


class Run(Process):
    """A started ``nsq`` subcommand and its output."""

    def __init__(self, *words: str, env: dict[str, str]) -> None:
        super().__init__([sys.executable, ROOT / "manage.py", "nsq", *words], env=env, cwd=env["HOME"], merged=True)
        self.start()

    def running(self, name: str, *, after: int = 0) -> int:
        """Wait until the named process runs; its pid."""
        return int(self.wait_for_log(rf"● {name} +running +pid (\d+)", after=after)[1])

    def pids(self) -> list[int]:
        """The process ids of all processes that it started."""
        return [int(match[1]) for line in self.log if (match := re.search(r"● \S+ +starting +pid (\d+)", line))]

    def clean_up(self) -> None:
        self.stop()
        for pid in self.pids():
            if psutil.pid_exists(pid):
                psutil.Process(pid).kill()


class Up(Run):
    """``nsq up`` on free ports; ``addresses`` by flag."""

    def __init__(self, home: Path, *words: str, ports: list[int] | None = None, **env: str) -> None:
        self.home = home
        self.ports = ports or free_ports(len(FLAGS))
        self.addresses = {flag: f"127.0.0.1:{port}" for flag, port in zip(FLAGS, self.ports, strict=True)}
        chosen = [word for flag in FLAGS for word in (flag, self.addresses[flag])]
        super().__init__("up", *chosen, *words, env=environment(home, **env))

    @property
    def site(self) -> str:
        return f"http://{self.addresses['--http-address']}"

    @property
    def nsqd(self) -> str:
        return f"http://{self.addresses['--nsqd-http-address']}"

    def signin_link(self) -> str:
        """Another link, printed by the command for it."""
        answer = subprocess.run(
            [sys.executable, ROOT / "manage.py", "nsq", "signin-link", "--site", self.site],
            capture_output=True,
            text=True,
            check=True,
            env=environment(self.home),
        )
        return answer.stdout.strip()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts ``nsq up`` with more options, in the test's folder unless ``home`` is given; stops it at the end."""
    started: list[Up] = []

    def start(*words: str, home: Path = tmp_path, ports: list[int] | None = None, **env: str) -> Up:
        started.append(Up(home, *words, ports=ports, **env))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture
def up_from_base(tmp_path: Path) -> Iterator[Callable[..., tuple[Run, int]]]:
    """Starts ``nsq up --port-base N`` with more options, for a base whose ports are free; returns it with the base."""
    started: list[Run] = []

    def start(*words: str) -> tuple[Run, int]:
        for _ in range(20):
            base = free_port()  # the others may be in use: then up ends, and says so
            started.append(Run("up", "--port-base", str(base), *words, env=environment(tmp_path)))
            try:
                started[-1].wait_for_log("^Ctrl-C stops everything")
            except AssertionError:
                if " is in use by " not in started[-1].output:
                    raise
                continue
            return started[-1], base
        raise AssertionError("no free ports in 20 attempts")

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture(scope="module")
def _platforms() -> Iterator[list[Up]]:
    """The whole platforms of a module's tests, of which the last may run."""
    started: list[Up] = []
    yield started
    for each in started:
        each.clean_up()


@pytest.fixture
def whole(_platforms: list[Up], tmp_path_factory: pytest.TempPathFactory) -> Up:
    """One platform for the tests of a module, started in an empty folder; another one after a test that ended it."""
    if not _platforms or not _platforms[-1].is_running:
        _platforms.append(Up(tmp_path_factory.mktemp("whole")))
        _platforms[-1].wait_for_log(r"^Ctrl-C stops everything", within_s=150)
    return _platforms[-1]


@pytest.fixture
def nsq(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a subcommand to its end."""

    def run(*words: str, seconds: float = DEADLINE_S, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "nsq", *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment(tmp_path, **env),
            cwd=tmp_path,
            check=False,
        )

    return run


@pytest.fixture
def start_nsq(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a subcommand without waiting for its end."""
    started: list[Run] = []

    def start(*words: str, **env: str) -> Run:
        started.append(Run(*words, env=environment(tmp_path, **env)))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()
