"""A check of the mark ``database``: ``pytest -p tests.harness.statements tests/platform tests/reports``.

Tests with the mark run on every database, and together must execute every statement of the platform. The plugin records
each SQL statement that the platform executes in the test process, without its values, and the function that executes
it. It lists the statements that no marked test executes, and fails the run if there are any. It does not record
statements of other processes that tests start.
"""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

import pytest

PLATFORM = "/platform/nsqplatform/"
UNRELATED = ("SAVEPOINT", "RELEASE", "ROLLBACK", "PRAGMA", "BEGIN")

Statement = tuple[str, str]


class Statements:
    """Records the statements of tests with and without the mark ``database``."""

    def __init__(self) -> None:
        self._marked: set[Statement] = set()
        self._others: dict[Statement, str] = {}
        self._item: pytest.Item | None = None

    def record(self, sql: str) -> None:
        """Called by the cursor: the frame above the caller is Django's."""
        function = executed_by(sys._getframe(2))
        if self._item is None or function is None or sql.startswith(UNRELATED):
            return
        statement = (function, without_values(sql))
        if self._item.get_closest_marker("database"):
            self._marked.add(statement)
        else:
            self._others.setdefault(statement, self._item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("statements")
        terminalreporter.line(f"{len(self._marked)} statements are executed by tests marked `database`")
        for (function, sql), nodeid in sorted(self.missing().items()):
            terminalreporter.line(f"not by them: {function} in {nodeid}: {sql}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missing():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def missing(self) -> dict[Statement, str]:
        """Return the statements that only tests without the mark execute, each with the first such test."""
        return {statement: nodeid for statement, nodeid in self._others.items() if statement not in self._marked}


def executed_by(frame: FrameType | None) -> str | None:
    """Return ``module.py:function`` of the platform's innermost frame; None if there is none, as in migrations."""
    while frame is not None:
        path = frame.f_code.co_filename
        if PLATFORM in path:
            return f"{path.partition(PLATFORM)[2]}:{frame.f_code.co_name}"
        frame = frame.f_back
    return None


def without_values(sql: str) -> str:
    """Return ``sql`` without the values after VALUES and in IN (…)."""
    return re.sub(r"VALUES .*", "VALUES …", re.sub(r"IN \([^()]*\)", "IN (…)", sql), flags=re.DOTALL)


def pytest_configure(config: pytest.Config) -> None:
    from django.db.backends.utils import CursorWrapper

    statements = Statements()
    config.pluginmanager.register(statements)
    for name in ("execute", "executemany"):
        setattr(CursorWrapper, name, recording(getattr(CursorWrapper, name), statements))


def recording(execute: Any, statements: Statements) -> Any:
    def wrapper(self: Any, sql: Any, *arguments: Any, **options: Any) -> Any:
        statements.record(str(sql))
        return execute(self, sql, *arguments, **options)

    return wrapper
