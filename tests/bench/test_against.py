"""``python -m bench.against`` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.process import Process
from tests.harness.waiting import wait_until

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
    """One that cannot start ends the command with its checkout and its last line of output."""
    broken = checkout(tmp_path / "broken")
    (broken / "brokerd").unlink()
    (broken / "brokerd").mkdir()
    (broken / "brokerd" / "__init__.py").touch()
    (broken / "brokerd" / "__main__.py").write_text('raise SystemExit("this is the other one")')
    done = against(str(broken), "pub", "--starts=1", "--rounds=1")
    assert done.returncode == 1
    assert done.stderr == f"bench.against: brokerd of {broken} did not start: this is the other one\n"


def test_a_wrong_argument_is_refused_in_one_line(tmp_path: Path) -> None:
    """With the status of a usage error."""
    other = str(checkout(tmp_path / "other"))
    for arguments, says in (
        ([], "the following arguments are required: DIR"),
        (["/nowhere/at/all"], "/nowhere/at/all is not a directory"),
        ([str(tmp_path)], f"{tmp_path} has no .venv/bin/python; run make setup there"),
        ([other, "pubb"], "no work called 'pubb'; there are pub, pub1, pub64, sub, http, mpub"),
        ([other, "--rounds=0", "pub"], "argument --rounds: '0' is not a whole number above 0"),
        ([other, "--data-path=/nowhere/at/all"], "--data-path /nowhere/at/all is not a directory"),
    ):
        done = against(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bench.against: {says}\n")


def test_a_full_disk_below_the_output_is_reported_in_one_line(tmp_path: Path) -> None:
    """Also a reader of the output that has exited, such as head. Works may stand after options."""
    command = [sys.executable, "-m", "bench.against", str(checkout(tmp_path / "other")), "--starts=1", "--rounds=1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*command, "pub"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=150, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "bench.against: No space left on device\n")


@pytest.mark.parametrize(
    ("number", "status", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_it_and_leaves_nothing(tmp_path: Path, number: int, status: int, says: str) -> None:
    """The brokers are stopped, their data paths are removed, and one line has the reason."""
    data_path = tmp_path / "data"
    data_path.mkdir()
    command = [sys.executable, "-m", "bench.against", str(checkout(tmp_path / "other")), f"--data-path={data_path}"]
    with Process(command) as running:

        def stores_messages() -> bool:
            assert running.is_running, running.output
            return len(list(data_path.glob("*/topics/*"))) == 3

        wait_until(stores_messages, "all three brokers store messages")
        started = psutil.Process(running.process.pid).children(recursive=True)
        running.signal(number)
        assert running.wait_for_exit() == status
        assert running.log == [f"bench.against: {says}"]
    assert list(data_path.iterdir()) == []
    gone, alive = psutil.wait_procs(started, timeout=30)
    assert (len(gone), alive) == (len(started), [])
