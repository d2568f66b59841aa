"""The servers under load: ours, the reference's, and the floors, each as a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError
from bench.processes import Cores, anonymous_bytes, pin, processor_seconds, signals_deferred, started_on

START_SECONDS = 150.0
STOP_SECONDS = 60.0
HERE = Path(__file__).resolve().parent.parent

LISTENING = re.compile(r"\b(TCP|HTTP): listening on ([0-9.]+):(\d+)")
Address = tuple[str, int]
HOST = "127.0.0.1"


class Server:
    """A running server process; ``addresses`` maps ``TCP`` and ``HTTP`` to the addresses that it logged."""

    def __init__(
        self,
        command: Sequence[str],
        interfaces: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        program: Path | None = None,
        name: str = "",
        cores: frozenset[int] = frozenset(),
        watched: str = "",
        own_session: bool = False,
    ):
        """Start ``command`` and wait for a ``<interface>: listening on`` line on stderr for each of ``interfaces``.

        Lines that contain ``watched`` are kept for ``wait_for``.
        ``own_session``: start it in a session of its own, whose priority can be set, and which Ctrl-C does not reach.
        ``name`` is for errors.

        ``command`` is the arguments of ``program``, or of this interpreter if that is None. All of the process's
        threads run on ``cores``; an empty set means any. Raises BenchError with the last log line if the process exits,
        or does not listen in time.
        """
        self.name = name or (program.name if program else command[1] if command[0] == "-m" else command[0])
        self.addresses: dict[str, Address] = {}
        self.data_path: Path | None = None
        self.output_tail: deque[str] = deque(maxlen=20)
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
        self._watched = watched
        self._seen: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._listening = threading.Event()
        self._interfaces = frozenset(interfaces)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        process = None
        try:
            with signals_deferred(), started_on(cores):
                process = self.process = subprocess.Popen(
                    [str(program or sys.executable), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=own_session,
                    env={**os.environ, "PYTHONPATH": path, **(environment or {})},
                )
                self._reader.start()
            if interfaces:
                self._listening.wait(START_SECONDS)
        except OSError as error:
            raise BenchError(f"{self.name} cannot be started: {error.strerror}") from None
        except BaseException:  # interrupted: the caller never receives this server and cannot stop it
            if process is not None:
                self.kill()
            raise
        if not self._interfaces <= self.addresses.keys():
            self.kill()
            reason = self.output_tail[-1] if self.output_tail else "no output"
            raise BenchError(f"{self.name} did not start: {reason}")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def tcp(self) -> Address:
        return self.addresses["TCP"]

    @property
    def http(self) -> Address:
        return self.addresses["HTTP"]

    def processor_seconds(self) -> float:
        return processor_seconds(self.pid)

    def anonymous_bytes(self) -> int | None:
        return anonymous_bytes(self.pid)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.process.kill()
        self.process.wait()
        self._reader.join(STOP_SECONDS)

    def stop(self) -> None:
        """Send SIGTERM; raises BenchError if the process does not exit within STOP_SECONDS with status 0."""
        self.process.terminate()
        self.wait("SIGTERM")

    def wait(self, after: str) -> None:
        """Wait for the exit. Raises BenchError if the process does not exit within STOP_SECONDS with status 0."""
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchError(f"{self.name} was still running {STOP_SECONDS:.0f} s after {after}") from None
        self._reader.join(STOP_SECONDS)
        if status != 0:
            raise BenchError(f"{self.name} exited with status {status}: {' / '.join(self.output_tail)}")

    def wait_for(self, text: str, seconds: float) -> float:
        """Wait for a watched line with ``text``; returns when it was read, by ``perf_counter``. Raises BenchError."""

        def found() -> list[float]:
            return [at for at, line in self._seen if text in line]

        with self._news:
            self._news.wait_for(lambda: found() or self.process.poll() is not None, seconds)
            if not (times := found()):
                raise BenchError(f"{self.name} has not logged {text!r}: {' / '.join(self.output_tail)}")
            return times[0]

    def _read_log(self) -> None:
        # Read everything: a server that logs a lot would block on a full pipe.
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.output_tail.append(line.rstrip())
            if self._watched and self._watched in line:
                with self._news:
                    self._seen.append((time.perf_counter(), line))
                    self._news.notify_all()
            if found := LISTENING.search(line):
                self.addresses[found[1]] = (found[2], int(found[3]))
                if self._interfaces <= self.addresses.keys():
                    self._listening.set()
        self._listening.set()
        with self._news:
            self._news.notify_all()


LOOPBACK = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1")
"""Flags of a broker, ours or the reference's, on free ports."""


@contextmanager
def stopped_after(server: Server) -> Iterator[Server]:
    """Stop the server after the block, or kill it after an error. Raises BenchError if it does not stop."""
    try:
        yield server
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()


def start_brokerd(data_path: Path, *flags: str, twin: bool = False) -> Server:
    """Start a brokerd on free loopback ports. ``twin``: use the pure-Python kernel."""
    server = Server(
        ["-m", "brokerd", *LOOPBACK, f"--data-path={data_path}", *flags],
        ["TCP", "HTTP"],
        {"BROKERD_KERNEL": "python"} if twin else None,
        own_session=True,
    )
    server.data_path = data_path
    return server


@contextmanager
def reference(program: Path, cores: Cores, below: Path | None) -> Iterator[Server]:
    """Run the reference's ``nsqd`` or ``nsqlookupd``, on the core that our server uses."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=below) as data_path:
        flags = [*LOOPBACK, f"--data-path={data_path}"] if program.name == "nsqd" else LOOPBACK
        with stopped_after(Server(flags, ["TCP", "HTTP"], program=program, cores=cores.server)) as server:
            yield server


@contextmanager
def brokerd(cores: Cores, below: Path | None, *flags: str, twin: bool = False) -> Iterator[Server]:
    """Run a brokerd with its own data path below ``below`` (default: the system's temporary directory)."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=below) as data_path,
        stopped_after(start_brokerd(Path(data_path), *flags, twin=twin)) as server,
    ):
        pin(server.pid, cores.server)
        yield server


@contextmanager
def nsqadmin(home: Path | str, *flags: str) -> Iterator[Server]:
    """Run ``nsqadmin`` (Redis, collector, one web process) with its files in ``home``. Its users may only view."""
    command = ["-m", "nsqplatform.console.nsqadmin", "--http-address=127.0.0.1:0", "--script-role=viewer", *flags]
    server = Server(command, ["HTTP"], {"NSQ_HOME": str(home)})
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def floor(cores: Cores, *arguments: str) -> Iterator[Server]:
    """Run one of the servers of ``bench.floor``, on the core that brokerd uses."""
    server = Server(["-m", "bench.floor", *arguments], ["TCP"])
    try:
        pin(server.pid, cores.server)
        yield server
    finally:
        server.kill()
