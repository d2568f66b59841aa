"""``python -m bench.failures`` with few rounds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench import failures
from bench.failures import KEPT, Fault, Options, Result


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.failures", *arguments],
        capture_output=True, text=True, timeout=170, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_components_are_counted_and_printed_with_their_seed() -> None:
    """Kills by this process, and damage by the tests that tally it: promise, fault, tries, lost, unexpected, seed."""
    done = run("--component=kills", "--component=corruptions", "--rounds=4", "--seed=12345")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    assert rows[0] == [KEPT, "kill -9 under load", "4", "0", "0", "12345"]
    assert [row[1:] for row in rows[1:]] == [
        [f"damage to {what}", tries, "0", "0", "12345"]
        for what, tries in (("log", "4"), ("state", "1"), ("index and log", "4"), ("headers", "4"))
    ]
    assert "kills, seed 12345" in done.stderr


@pytest.mark.parametrize(("tries", "lost", "unexpected"), [(9, 1, 0), (9, 0, 1), (0, 0, 0)])
def test_a_broken_promise_is_the_exit_status(
    tries: int, lost: int, unexpected: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also a fault that was never caused; the table and the output of the component are printed."""

    def component(options: Options) -> Result:
        return Result([Fault(KEPT, "a fault", tries, lost, unexpected, options.seed)], "the reason")

    monkeypatch.setattr(failures, "COMPONENTS", {"some": component})
    monkeypatch.setattr(sys, "argv", ["failures", "--component=some"])
    with pytest.raises(SystemExit) as ended:
        failures.main()
    assert ended.value.code == 1
    out, err = capfd.readouterr()
    assert "a fault" in out
    assert "the reason" in err


@pytest.mark.parametrize("arguments", [["--rounds=0"], ["--component=nonsense"], ["--seconds=x"]])
def test_senseless_options_are_usage_errors(arguments: list[str]) -> None:
    """With the option in the message."""
    done = run(*arguments)
    assert done.returncode == 2
    assert f"argument {arguments[0].partition('=')[0]}" in done.stderr
