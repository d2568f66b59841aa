"""``nsq up`` and its siblings as a user starts them: processes of their own, free ports, a home of their own."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bench.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--nsqd-tcp-address",
    "--nsqd-http-address",
    "--lookupd-tcp-address",
    "--lookupd-http-address",
    "--http-address",
)
PATIENCE = 60.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """A newcomer's: nothing configured but where to keep things."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NSQ_HOME": str(home / "var"), **more}


class Run:
    """A started ``nsq`` subcommand and everything it has printed."""

    def __init__(self, *words: str, env: dict[str, str]) -> None:
        self._output, end = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "nsq", *words], stdout=end, stderr=end, env=env, cwd=env["HOME"]
        )
        os.close(end)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        pending = b""
        while not self._left.is_set():
            readable, _, _ = select.select([self._output], [], [], 0.1)
            if not readable:
                continue
            chunk = os.read(self._output, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            with self._changed:
                self.lines += [line.decode() for line in lines]
                self._changed.notify_all()
        os.close(self._output)
        with self._changed:
            self._changed.notify_all()

    def leave(self) -> None:
        """Read no further, as ``| head`` does."""
        self._left.set()
        self._reader.join()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, *, after: int = 0, seconds: float = PATIENCE) -> re.Match[str]:
        """The first line from number ``after`` on that matches. Fails with all of the output when it does not come."""
        deadline = time.monotonic() + seconds
        with self._changed:
            position = after
            while True:
                for line in self.lines[position:]:
                    if match := re.search(pattern, line):
                        return match
                position = len(self.lines)
                left = deadline - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    pytest.fail(f"no line {pattern!r} in:\n{self.output}")
                self._changed.wait(min(left, 0.5))

    def running(self, name: str, *, after: int = 0) -> int:
        """Wait until the named process runs; its pid."""
        return int(self.wait_for(rf"● {name} +running +pid (\d+)", after=after)[1])

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def ended(self, seconds: float = PATIENCE) -> int:
        """Wait for the end; the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(10)
        return status

    def pids(self) -> list[int]:
        """Every process that it ever started."""
        return [int(match[1]) for line in self.lines if (match := re.search(r"● \S+ +starting +pid (\d+)", line))]

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
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
        """Another link, from the command that prints one."""
        answer = subprocess.run(
            [sys.executable, ROOT / "manage.py", "nsq", "signin-link", "--site", self.site],
            capture_output=True,
            text=True,
            check=True,
            env=environment(self.home),
        )
        return answer.stdout.strip()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """Waits for a condition, with a deadline."""

    def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:g} s"
            time.sleep(0.05)

    return wait


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts ``nsq up`` with more options, in the test's folder unless ``home`` is given; stops it in the end."""
    started: list[Up] = []

    def start(*words: str, home: Path = tmp_path, ports: list[int] | None = None, **env: str) -> Up:
        started.append(Up(home, *words, ports=ports, **env))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One whole platform for the tests of a module, from nothing."""
    platform = Up(tmp_path_factory.mktemp("whole"))
    try:
        platform.wait_for(r"^Ctrl-C stops everything", seconds=120)
        yield platform
    finally:
        platform.clean_up()


@pytest.fixture
def nsq(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a subcommand to its end."""

    def run(*words: str, seconds: float = PATIENCE, **env: str) -> subprocess.CompletedProcess[str]:
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
    """Starts a subcommand that goes on."""
    started: list[Run] = []

    def start(*words: str, **env: str) -> Run:
        started.append(Run(*words, env=environment(tmp_path, **env)))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()
