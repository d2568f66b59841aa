"""``python -m bench.soak`` as a process, for a few seconds instead of ten minutes."""

from __future__ import annotations

import subprocess
import sys


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.soak", *arguments],
        capture_output=True, text=True, timeout=170, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_senseless_duration_is_refused_in_one_line() -> None:
    """With the status of a usage error."""
    done = soak("--minutes=0")
    assert done.returncode == 2
    assert "argument --minutes: '0' is not a number of minutes between 0 and 1440" in done.stderr


def test_nothing_acknowledged_is_lost_while_brokers_are_killed_paused_and_moved() -> None:
    """Afterwards every consumer's RDY is evenly distributed again."""
    done = soak("--minutes=0.2")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count(" 0 of them lost") == 2
    assert done.stdout.endswith("RDY is in balance\n")
