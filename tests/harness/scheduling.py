"""Order of the tests and their distribution over processes (``pytest --numprocesses``).

One process runs all tests of a file, so that they share fixtures. The longest files run first, so that all processes
end at about the same time. ``seconds.txt`` contains the measured time of each file; a file that it does not list runs
before all others. One process runs all browser tests, with one platform and one browser for all.

``make seconds`` measures the times again.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SECONDS = Path(__file__).with_name("seconds.txt")
TOGETHER = ("tests/browser/",)
"""Folders whose files share fixtures that take long to set up."""


def scope_of(nodeid: str) -> str:
    """Return the unit of tests that one process runs: the test's file, or its folder if that is in ``TOGETHER``."""
    path = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


def recorded_seconds() -> dict[str, float]:
    """Return the measured time of each file, in seconds, by its path."""
    lines = SECONDS.read_text().splitlines() if SECONDS.exists() else []
    return {path: float(seconds) for seconds, path in (line.split() for line in lines)}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by the time of their scope, longest first. The order within a scope does not change."""
    seconds: dict[str, float] = defaultdict(float)
    for path, taken_s in recorded_seconds().items():
        seconds[scope_of(path)] += taken_s
    items.sort(key=lambda item: (-seconds.get(scope_of(item.nodeid), float("inf")), scope_of(item.nodeid)))


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


class SecondsRecorder:
    """Adds up how long the tests of each file take, and writes ``seconds.txt`` at the end of the session."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        taken = sorted(((seconds, path) for path, seconds in self._seconds.items()), reverse=True)
        SECONDS.write_text("".join(f"{seconds:.0f} {path}\n" for seconds, path in taken))
