"""One supervised process: it is started, awaited until it is ready, restarted after a crash, and stopped."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psutil

READY_POLL_SECONDS = 0.2
SLOW_START_SECONDS = 30.0
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STEADY_SECONDS = 30.0
"""After a process was ready for this long, its next restart has the shortest delay."""
PERMANENT_ERROR_STATUS = 78
"""Exit status, EX_CONFIG of sysexits.h, of an error that a restart does not end: the process is not restarted."""
FAILURES_TO_SETTLE = 2
"""After this many ends before it was ready, a process is no longer waited for."""
LAST_WORDS_SECONDS = 1.0
MAX_LINE_BYTES = 64 * 1024
"""Output without a newline is split into lines of this many bytes."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What to run, and how.

    ``ready`` returns whether the process is ready; it is called repeatedly and may raise. ``detail`` is shown with its
    state.
    """

    name: str
    command: Sequence[str]
    detail: str
    ready: Callable[[], Awaitable[bool]]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 10.0
    pass_fds: Sequence[int] = ()
    """Open descriptors that the process inherits."""
    umask: int = -1
    """Permissions that the process's new files do not have; -1: as those of this process."""


class Listener(Protocol):
    """Receives a child's output and states; console.nsq.screen.Screen is one."""

    def log(self, name: str, line: str) -> None: ...
    def state(self, name: str, state: str, detail: str) -> None: ...


def _prctl() -> Callable[[int, int], int] | None:
    """Linux's prctl, looked up in advance, because a child should do as little as possible between fork and exec."""
    if not sys.platform.startswith("linux"):
        return None
    prctl: Callable[[int, int], int] = ctypes.CDLL(None, use_errno=True).prctl
    return prctl


PRCTL = _prctl()
PR_SET_PDEATHSIG = 1


class Child:
    """A service's process, across restarts. Call ``start``, await ``settled``, and call ``stop`` once.

    ``running`` is set while the process is ready; ``settled`` once it was ready, has failed for good, or
    has failed twice.
    """

    def __init__(self, service: Service, listener: Listener) -> None:
        self.service = service
        self.running = asyncio.Event()
        self.settled = asyncio.Event()
        self._listener = listener
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False
        self._killed = False

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.service.name}")

    async def stop(self) -> None:
        """Ask the process to end, wait ``stop_seconds``, then kill it with all its descendants."""
        self._stopping = True
        if self._keeper is None:
            return
        process = self._process
        if process is None or process.returncode is not None:
            self._keeper.cancel()  # it waits for a restart, or the process could not be started
            await asyncio.gather(self._keeper, return_exceptions=True)
            return
        asked_at = time.monotonic()
        self._state("stopping", f"pid {process.pid}")
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.service.stop_seconds):
                await asyncio.shield(self._keeper)
        except TimeoutError:
            self.kill()
            await self._keeper
            self._state("stopped", f"killed {self.service.stop_seconds:g} s after SIGTERM")
            return
        ending = "killed" if self._killed else describe_exit(process.returncode)
        self._state("stopped", f"{ending}, {time.monotonic() - asked_at:.1f} s")

    def kill(self) -> None:
        """Kill the process and its descendants now, without a restart. Does nothing if there is none."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._killed = True
        kill_tree(process.pid)

    async def _keep(self) -> None:
        """Run the process and restart it with increasing delays, until ``stop``."""
        backoff = FIRST_BACKOFF_SECONDS
        failures = 0
        while True:
            status: int | None = None
            steady_since: float | BaseException | None = None
            try:
                process = await self._spawn()
            except OSError as error:
                ending = f"could not be started: {error}"
            else:
                self._process = process
                watcher = asyncio.create_task(self._watch(process))
                pump = asyncio.create_task(self._pump(process))
                await process.wait()
                watcher.cancel()
                # Read the last output. A descendant may keep the pipe open and is not awaited.
                await asyncio.wait([pump], timeout=LAST_WORDS_SECONDS)
                pump.cancel()
                (steady_since,) = await asyncio.gather(watcher, return_exceptions=True)
                status = process.returncode
                ending = describe_exit(status)
            self.running.clear()
            if self._stopping:
                return
            if status == PERMANENT_ERROR_STATUS:
                self._state("failed", f"{ending}; a restart would not help, so it is not started again")
                self.settled.set()
                return
            failures += 1
            if failures >= FAILURES_TO_SETTLE:
                self.settled.set()
            if isinstance(steady_since, float) and time.monotonic() - steady_since > STEADY_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            self._state("restarting", f"{ending}; starts again in {backoff:g} s")
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def _spawn(self) -> asyncio.subprocess.Process:
        parent, sigterm = os.getpid(), int(signal.SIGTERM)

        def die_with_parent() -> None:
            if PRCTL is not None:
                PRCTL(PR_SET_PDEATHSIG, sigterm)  # not SIGKILL, so that it can save its data
                if os.getppid() != parent:  # the parent died between the fork and the line above
                    os._exit(1)

        # In its own session: Ctrl-C in the terminal reaches only `up`, which stops the children in order.
        process = await asyncio.create_subprocess_exec(
            *self.service.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **self.service.environment},
            start_new_session=True,
            preexec_fn=die_with_parent,
            pass_fds=self.service.pass_fds,
            umask=self.service.umask,
        )
        self._state("starting", f"pid {process.pid}")
        return process

    async def _watch(self, process: asyncio.subprocess.Process) -> float | None:
        """Call ``ready`` until the process is ready; return the time of the monotonic clock. None if it ends before.

        Its task is cancelled when the process ends, but a client may take that for its own timeout.
        """
        started_at = time.monotonic()
        slow = False
        while True:
            if process.returncode is not None:
                return None
            try:
                if await self.service.ready():
                    break
            except Exception:  # clients raise various errors if the process does not listen yet
                pass
            waited = time.monotonic() - started_at
            if waited > SLOW_START_SECONDS and not slow:
                slow = True
                self._state("starting", f"pid {process.pid}, still does not answer after {waited:.0f} s")
            await asyncio.sleep(READY_POLL_SECONDS)
        ready_at = time.monotonic()
        self._state("running", f"pid {process.pid}, {self.service.detail}, {ready_at - started_at:.1f} s")
        self.running.set()
        self.settled.set()
        return ready_at

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        """Pass the process's output on line by line, until the process closes it."""
        assert process.stdout is not None
        pending = b""
        while chunk := await process.stdout.read(MAX_LINE_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._listener.log(self.service.name, line.decode(errors="replace").rstrip())
            if len(pending) >= MAX_LINE_BYTES:
                self._listener.log(self.service.name, pending.decode(errors="replace"))
                pending = b""
        if pending:
            self._listener.log(self.service.name, pending.decode(errors="replace"))

    def _state(self, state: str, detail: str) -> None:
        self._listener.state(self.service.name, state, detail)


def describe_exit(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"ended by {signal.Signals(-returncode).name}"
    return f"exit {returncode}"


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants. A process group is not enough: a worker's JVM is in another one."""
    try:
        process = psutil.Process(pid)
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
