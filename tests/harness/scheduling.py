"""Order of the tests and their distribution over processes (``pytest --numprocesses``).

One process runs all tests of a file, so that they share fixtures. The longest files run first, so that all processes
end at about the same time. ``seconds.txt`` contains the measured time of each file; a file that it does not list runs
before all others. The browser tests are divided between two processes, each with one platform and one browser. So are
the report tests, each with one Spark session. Otherwise they would end long after everything else.

``make seconds`` measures the times again.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SECONDS = Path(__file__).with_name("seconds.txt")
TOGETHER = {"tests/browser/": 2, "tests/analytics/": 2}
"""Folders whose files share fixtures that take long to set up, and the number of processes for each folder."""
APART = ("tests/analytics/test_runner.py",)
"""Long files of these folders that do not use these fixtures."""


def scope_of(nodeid: str) -> str:
    """Return the unit of tests that one process runs: the test's file, or a part of its folder if that is in
    ``TOGETHER``, such as ``tests/browser/ 1``."""
    path = nodeid.partition("::")[0]
    folder = folder_of(path)
    return f"{folder} {part_of(path, folder)}" if folder else path


def folder_of(path: str) -> str:
    """Return the folder in ``TOGETHER`` that contains the file; empty if there is none."""
    together = () if path in APART else TOGETHER
    return next((folder for folder in together if path.startswith(folder)), "")


def part_of(path: str, folder: str) -> int:
    """Return the number of the folder's part that contains the file. A file without a measured time is in the first."""
    return parts(folder).get(path, 0)


@cache
def parts(folder: str) -> dict[str, int]:
    """Divide the folder's files into parts that take about the same time: the longest files first, each to the part
    that has the least so far."""
    taken_s = [0.0] * TOGETHER[folder]
    found = {}
    for path, seconds in sorted(recorded_seconds().items(), key=lambda each: (-each[1], each[0])):
        if folder_of(path) == folder:
            found[path] = taken_s.index(min(taken_s))
            taken_s[found[path]] += seconds
    return found


def recorded_seconds() -> dict[str, float]:
    """Return the measured time of each file, in seconds, by its path."""
    lines = SECONDS.read_text().splitlines() if SECONDS.exists() else []
    return {path: float(seconds) for seconds, path in (line.split() for line in lines)}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by the time of their file or folder, longest first, so that the parts of a folder are neighbours: a
    process that runs several of them keeps their fixtures. The order within a scope does not change."""
    seconds: dict[str, float] = defaultdict(float)
    for path, taken_s in recorded_seconds().items():
        seconds[folder_of(path) or path] += taken_s

    def order(item: pytest.Item) -> tuple[float, str]:
        path = item.nodeid.partition("::")[0]
        return -seconds.get(folder_of(path) or path, float("inf")), scope_of(item.nodeid)

    items.sort(key=order)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, in the order in which they were collected, and no test twice."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Give the tests of a process that has ended to others, but not the one in which it ended: pytest-xdist would
        run it again and again. Returns that test."""
        units = self.assigned_work[node].values()
        ended_in = next(((unit, test) for unit in units for test, is_done in unit.items() if not is_done), None)
        if ended_in is not None:
            unit, test = ended_in
            unit[test] = True
        super().remove_node(node)
        return None if ended_in is None else str(test)


class SecondsRecorder:
    """Adds up how long the tests of each file take, and writes ``seconds.txt`` at the end of the session."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        taken = sorted(((seconds, path) for path, seconds in self._seconds.items()), reverse=True)
        SECONDS.write_text("".join(f"{seconds:.0f} {path}\n" for seconds, path in taken))
