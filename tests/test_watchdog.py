"""The time limit of tests: a test that does not end cannot stop the run of all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
from tests.harness.scheduling import FileScheduling
from tests.harness.watchdog import Watchdog


def pytest_configure(config):
    config.pluginmanager.register(Watchdog(grace_s=1))


def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log)
"""
STUBBORN = """
import time

import pytest


@pytest.mark.timeout(1)
def test_catches_the_timeout():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass


@pytest.fixture
def endless():
    yield
    time.sleep(60)


@pytest.mark.timeout(1)
def test_does_not_end_after_its_failure(endless):
    time.sleep(60)


def test_is_fine():
    pass
"""


def test_a_test_that_does_not_end_fails_by_name_and_the_others_run(tmp_path: Path) -> None:
    """It caught the exception of its time limit, or a fixture does not end; the log says where it was."""
    (tmp_path / "test_stubborn.py").write_text(STUBBORN)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "-c", "/dev/null", "--numprocesses", "2"]
    ran = subprocess.run(
        [*command, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=120,
        check=False,
    )
    output = ran.stdout + ran.stderr
    for name in ("test_catches_the_timeout", "test_does_not_end_after_its_failure"):
        assert f"crashed while running 'test_stubborn.py::{name}'" in output
    assert "in endless" in output, "where the second one was"
    assert "1 passed" in output
