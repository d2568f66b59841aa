"""``python -m bench.against`` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def against(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.against", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, stdin=subprocess.DEVNULL, cwd=ROOT)


def checkout(directory: Path, packages: Path = ROOT) -> Path:
    """A checkout whose virtual environment is this test's, with the packages of another."""
    (directory / ".venv" / "bin").mkdir(parents=True)
    python = directory / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for package in ("brokerd", "nsqdaemon", "nsqwire", "nsqcluster"):
        (directory / package).symlink_to(packages / package)
    return directory


def test_every_work_is_compared_with_the_broker_of_another_checkout(tmp_path: Path) -> None:
    """Each has both processor times, the ratio of each start, and the noise."""
    done = against(str(checkout(tmp_path / "other")), "--starts=2", "--rounds=1", "--json")
    assert done.returncode == 0, done.stderr
    comparisons = json.loads(done.stdout)
    assert [each["work"] for each in comparisons] == ["pub", "pub1", "pub64", "sub", "http", "mpub"]
    for each in comparisons:
        assert each["ours_us"] > 0
        assert each["theirs_us"] > 0
        assert len(each["ratios"]) == 2
        assert min(each["ratios"]) <= each["ratio"] <= max(each["ratios"])
        assert each["noise"] >= 0


def test_the_other_checkout_s_broker_is_what_runs(tmp_path: Path) -> None:
    """One that cannot start ends the command with its last words."""
    broken = checkout(tmp_path / "broken")
    (broken / "brokerd").unlink()
    (broken / "brokerd").mkdir()
    (broken / "brokerd" / "__init__.py").touch()
    (broken / "brokerd" / "__main__.py").write_text('raise SystemExit("this is the other one")')
    done = against(str(broken), "pub", "--starts=1", "--rounds=1")
    assert done.returncode == 1
    assert "this is the other one" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_argument_is_refused_in_one_line(tmp_path: Path) -> None:
    """With the status of a usage error."""
    other = str(checkout(tmp_path / "other"))
    for arguments, says in (
        (["/nowhere/at/all"], "/nowhere/at/all has no .venv/bin/python; run make setup there"),
        ([other, "pubb"], "no work called 'pubb'"),
        ([other, "--rounds=0"], "--starts and --rounds must be at least 1"),
        ([other, "--data-path=/nowhere/at/all"], "--data-path /nowhere/at/all is not a directory"),
    ):
        done = against(*arguments)
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr
