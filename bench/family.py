"""Processes that a server under test started, and their processor time.

A process may end between two questions about it, and stays a zombie until its parent has asked for its status. Both
count as ended here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bench.errors import BenchError

LOWEST_NICE = 19
AUTOGROUP_TRIES = 50


def descendants(pid: int) -> list[tuple[psutil.Process, list[str]]]:
    """The running processes below ``pid``, each with the words of its command line."""
    found: list[tuple[psutil.Process, list[str]]] = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found.append((process, process.cmdline()))
    return found


def family_seconds(pid: int) -> float:
    """The processor time of a process and all its running descendants. Raises psutil.NoSuchProcess if it has ended."""
    family = [psutil.Process(pid), *(process for process, _ in descendants(pid))]
    seconds = 0.0
    for number, process in enumerate(family):
        try:
            seconds += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            if number == 0:
                raise
    return seconds


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants. Does nothing if it has ended."""
    with suppress(psutil.NoSuchProcess):
        for process in (psutil.Process(pid), *(process for process, _ in descendants(pid))):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def lower_priority(pid: int) -> None:
    """Give a process and its running descendants the lowest priority.

    If ``/proc/sys/kernel/sched_autogroup_enabled`` is 1, Linux first divides processor time between sessions. The
    priority of each session that one of these processes leads is lowered too.
    """
    for process in (psutil.Process(pid), *(process for process, _ in descendants(pid))):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for thread in process.threads():
                os.setpriority(os.PRIO_PROCESS, thread.id, LOWEST_NICE)
            group = Path(f"/proc/{process.pid}/autogroup")
            if os.getsid(process.pid) == process.pid and group.exists():
                _lower_session(group)


def _lower_session(group: Path) -> None:
    """Without CAP_SYS_ADMIN, the system allows one change in a tenth of a second, and refuses others with EAGAIN."""
    for _ in range(AUTOGROUP_TRIES):
        try:
            group.write_text(str(LOWEST_NICE))
            return
        except BlockingIOError:
            time.sleep(0.1)
    raise BenchError(f"the priority cannot be set: {group}")
