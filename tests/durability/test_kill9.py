"""kill -9 in the middle of everything: what was acknowledged is kept, what was finished stays finished."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.kill9 import kill_again_and_again

ROUNDS = 10


async def test_ten_kills_over_one_data_path_break_no_promise(tmp_path: Path) -> None:
    """PUB, MPUB and DPUB producers against consumers that FIN, REQ and keep silent; then everything is drained."""
    outcome = await kill_again_and_again(tmp_path, ROUNDS, seed=20, publishes=1000)
    ledger = outcome.ledger
    assert ledger.violations == [], f"{len(ledger.violations)} promises broken"
    assert len(ledger.killed_ns) == ROUNDS
    assert ledger.acknowledged_count > ROUNDS * 100
    for what in ("finishes", "requeues", "redeliveries", "deferred deliveries"):
        assert ledger.counts[what] > ROUNDS, f"the rounds hardly tested {what}: {ledger.counts}"


async def test_a_broker_ended_by_sigterm_under_load_breaks_no_promise_either(tmp_path: Path) -> None:
    """It ends with status 0 each time, whatever its clients are doing."""
    outcome = await kill_again_and_again(tmp_path, 3, seed=21, publishes=1000, gently=True)
    assert outcome.ledger.violations == [], f"{len(outcome.ledger.violations)} promises broken"
    assert outcome.ledger.counts["redeliveries"] > 0


def test_the_pure_python_kernel_keeps_the_same_promises(tmp_path: Path) -> None:
    """Three rounds through the script, which says how much it tested."""
    command = [sys.executable, "-m", "bench.kill9", "--rounds=3", "--twin", f"--data-path={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 promises broken" in done.stdout
    assert list(tmp_path.iterdir()) == []
