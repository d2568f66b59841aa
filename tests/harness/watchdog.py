"""Ends the process of a test that continues after its time limit.

pytest-timeout raises an exception in the test, once. That does not end a test whose code catches the exception, or runs
again (Hypothesis repeats what has failed), or does not return from compiled code. The whole run would then end without
a word about the test.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any, Final

import pytest

GRACE_S: Final = 300.0
"""How long a test may continue after its time limit: Hypothesis simplifies a failing example for up to 300 s."""


class Watchdog:
    """A pytest plugin. It prints the stack of each thread and ends the process. pytest-xdist then names the test, and
    runs the rest in a new process."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._limit_s = 0.0
        self._stderr = os.dup((sys.__stderr__ or sys.stderr).fileno())  # before pytest captures it

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        self._limit_s = settings.timeout + self._grace_s
        self._start()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Restart the timer, which a failure stops: the test's fixtures are still to end."""
        if self._limit_s:
            self._start()

    def pytest_runtest_logfinish(self) -> None:
        self._limit_s = 0.0
        faulthandler.cancel_dump_traceback_later()

    def _start(self) -> None:
        faulthandler.dump_traceback_later(self._limit_s, exit=True, file=self._stderr)
