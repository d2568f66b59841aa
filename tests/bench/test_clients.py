"""``python -m bench.clients`` as a process."""

from __future__ import annotations

import json
import subprocess
import sys


def clients(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.clients", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, stdin=subprocess.DEVNULL)


def test_every_client_does_every_work_against_one_broker() -> None:
    """aionsq, pynsq and gnsq publish, consume and ping; only ping has latencies."""
    done = clients("--seconds=0.2", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {(each["work"], each["client"]) for each in figures} == {
        (work, client) for work in ("pub", "mpub", "sub", "ping") for client in ("aionsq", "pynsq", "gnsq")
    }
    assert all(each["per_second"] > 0 for each in figures)
    assert all((each["p50_us"] is not None) == (each["work"] == "ping") for each in figures)
    assert all(each["times_baseline"] == 1 for each in figures if each["client"] == "pynsq")


def test_an_unknown_client_or_work_is_refused_with_the_names_there_are() -> None:
    """In one line, with the status of a usage error."""
    for arguments, says in ((["--clients=nsqjs"], "no client called 'nsqjs'"), (["pubb"], "no work called 'pubb'")):
        done = clients(*arguments)
        assert (done.returncode, says in done.stderr) == (2, True)
