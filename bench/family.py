"""Processes that a server under test started, and their processor time.

A process may end between two questions about it, and stays a zombie until its parent has asked for its status. Both
count as ended here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

LOWEST_PRIORITY = 19


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


def give_way(pid: int) -> None:
    """Let the processes of other sessions run before a process and its running descendants.

    Linux first shares the processors between sessions, each of which has a priority of its own, if
    ``/proc/sys/kernel/sched_autogroup_enabled`` is 1. Only the sessions that one of these processes leads are changed.
    """
    for process in (psutil.Process(pid), *(process for process, _ in descendants(pid))):
        with suppress(psutil.NoSuchProcess, OSError):
            process.nice(LOWEST_PRIORITY)
            if os.getsid(process.pid) == process.pid:
                Path(f"/proc/{process.pid}/autogroup").write_text(str(LOWEST_PRIORITY))
