"""Assignment of processes to cores, and their processor time and memory."""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import ParamSpec, TypeVar

import psutil

_SCHEDULER_CLOCK = 2
"""CPUCLOCK_SCHED of the Linux kernel (``include/linux/posix-timers.h``)."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Cores:
    """The server runs on the first available core, the load generators on the others. A single core is shared."""

    server: frozenset[int]
    load: frozenset[int]

    @classmethod
    def available(cls) -> Cores:
        if not hasattr(os, "sched_getaffinity"):  # macOS has no affinity: the scheduler places the processes
            return cls(frozenset(), frozenset())
        cores = sorted(os.sched_getaffinity(0))
        return cls(frozenset(cores[:1]), frozenset(cores[1:] or cores))


def pin(pid: int, cores: frozenset[int]) -> None:
    """Pin a process, with all its threads, to ``cores``; pid 0 is the calling thread, an empty set means any core."""
    if not cores:
        return
    for thread in (each.id for each in psutil.Process(pid).threads()) if pid else (0,):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)


@contextmanager
def started_on(cores: frozenset[int]) -> Iterator[None]:
    """Processes started in the block run on ``cores`` with all their threads; an empty set means any core."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)  # of this thread alone; a child inherits it
    pin(0, cores)
    try:
        yield
    finally:
        pin(0, frozenset(before))


def processor_seconds(pid: int) -> float:
    """Return user and system time of a process and all its threads so far, in seconds.

    The resolution is 1 ns on Linux, and a clock tick elsewhere.
    """
    if platform.system() == "Linux":
        return time.clock_gettime(~pid << 3 | _SCHEDULER_CLOCK)  # the id that clock_getcpuclockid(3) returns
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def anonymous_bytes(pid: int) -> int | None:
    """Return the anonymous memory of a process in bytes (``RssAnon``); None if the system does not report it."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, including mapped files."""
    return int(psutil.Process(pid).memory_info().rss)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files, for this process and its children, to what the system allows."""
    with suppress(ImportError):  # Windows has no such limit to raise
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # macOS reports "unlimited" and accepts less
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def interrupt_at_sigterm() -> threading.Event:
    """Handle the first SIGTERM as Ctrl-C, after which ``finally`` blocks end servers, and ignore later ones.

    Returns an event that is set if SIGTERM has arrived.
    """
    arrived = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        arrived.set()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # An event loop has a handler of its own for Ctrl-C, which cancels the main task.
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, handle)
    return arrived


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM only after the block, so that it can store a process that it starts."""
    if threading.current_thread() is not threading.main_thread():  # it receives no signals
        yield
        return
    arrived = list[int]()
    handlers = {
        number: signal.signal(number, lambda which, _: arrived.append(which))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for which in arrived:
            signal.raise_signal(which)


class LoadProcesses:
    """Separate processes for the load, so that a generator's work is not measured as the server's."""

    def __init__(self, pool: ProcessPoolExecutor, starter: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._starter = starter

    def start(self, load: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        # In another thread, which signals do not interrupt: a process whose start is interrupted prints a traceback.
        # For the same reason, that thread blocks SIGINT, and so does the process that it starts.
        return self._starter.submit(self._pool.submit, load, *args, **kwargs).result()

    def run(self, load: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.start(load, *args, **kwargs).result()


@contextmanager
def load_processes(cores: Cores, count: int) -> Iterator[LoadProcesses]:
    """Yield ``count`` fresh interpreters, pinned to the load's cores. They end with the block."""
    spawn = multiprocessing.get_context("spawn")  # forked ones would inherit the parent's sockets and buffers
    with (
        ProcessPoolExecutor(count, spawn, initializer=pin, initargs=(0, cores.load)) as pool,
        ThreadPoolExecutor(1, "start load", initializer=_block_sigint) as starter,
    ):
        yield LoadProcesses(pool, starter)


def _block_sigint() -> None:
    """Block SIGINT in this thread and in the processes that it starts. Ctrl-C reaches them too, and the parent ends
    them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
