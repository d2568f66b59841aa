"""What the commands of the bench do at a mistyped option, and at SIGTERM."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.harness.processes import descendants
from tests.harness.waiting import wait_until

MISTAKES = {
    "analytics": ("--channels=0", "argument --channels: '0' is not a whole number above 0"),
    "clients": ("--batch=many", "argument --batch: 'many' is not a whole number above 0"),
    "failures": ("--rounds=0", "argument --rounds: '0' is not a whole number above 0"),
    "kill9": ("--rounds=-1", "argument --rounds: '-1' is not a whole number above 0"),
    "reports": ("--data-path=/nowhere/at/all", "argument --data-path: '/nowhere/at/all' is not a directory"),
    "soak": ("--data-path=/nowhere/at/all", "argument --data-path: '/nowhere/at/all' is not a directory"),
}


@pytest.mark.parametrize("module", MISTAKES)
def test_a_mistyped_option_is_answered_in_one_line(module: str) -> None:
    """One line on stderr that names the option, and status 2; nothing is started."""
    option, says = MISTAKES[module]
    done = subprocess.run([sys.executable, "-m", f"bench.{module}", option], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bench.{module}: {says}\n")


@pytest.mark.parametrize(("module", "option"), [("kill9", "--rounds=1000"), ("soak", "--minutes=60")])
def test_sigterm_ends_the_command_and_its_servers(module: str, option: str, tmp_path: Path) -> None:
    """Also while the servers start. One line says so, and no process and no data remain."""
    mark = f"test-{uuid4()}"
    command = [sys.executable, "-m", f"bench.{module}", option, f"--data-path={tmp_path}"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "BENCH_TEST": mark})
    try:
        wait_until(lambda: descendants(running.pid, word="brokerd"), "a broker starts")
        running.terminate()
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, errors.splitlines()[-1]) == (143, f"bench.{module}: terminated")
    assert "Traceback" not in errors
    assert marked(mark) == []
    assert list(tmp_path.iterdir()) == []


def marked(mark: str) -> list[int]:
    """The processes with this value of BENCH_TEST in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("BENCH_TEST") == mark:
                found.append(process.pid)
    return found
