"""Processes that tests fork behave as started ones."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.fork_server import ForkedProcess, ForkServer, can_fork, run, server
from tests.harness.waiting import DEADLINE_S, wait_until

MODULES = ("json",)
PROBE = """
import json, os, resource, sys
import helper
print(json.dumps({
    "pid": os.getpid(), "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path[0], "cwd": os.getcwd(),
    "env": dict(os.environ), "umask": os.umask(0), "limit": resource.getrlimit(resource.RLIMIT_FSIZE),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1], "helper": helper.WHERE,
}))
"""


def forked(*words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, *map(str, words)], modules=MODULES, timeout=DEADLINE_S, **more)


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """A script that prints what a process can know of its start."""
    (tmp_path / "helper.py").write_text("WHERE = 'here'\n")
    (tmp_path / "probe.py").write_text(PROBE)
    return tmp_path / "probe.py"


@pytest.mark.parametrize("kind", ["script", "module", "program"])
def test_a_fork_has_what_a_started_process_has(tmp_path: Path, probe: Path, kind: str) -> None:
    """Arguments, folder, environment, umask, limits and descriptors; not the id of a process."""
    program = PROBE.replace("__file__", "None")
    start = {"script": [str(probe)], "module": ["-m", "probe"], "program": ["-c", program]}[kind]
    words = [*start, "--flag", "ä"]
    env = {**os.environ, "ONE": "1"}
    umask, limits = os.umask(0o27), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, limits[1]))
    try:
        command = [sys.executable, *words]
        plain = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        answer = forked(*words, env=env, cwd=tmp_path)
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (answer.returncode, answer.stderr) == (0, "")
    started, seen = (json.loads(each.stdout) for each in (plain, answer))
    assert started.pop("pid") != seen.pop("pid")
    # An interpreter that starts in the C locale adds LC_CTYPE.
    for each in (started, seen):
        each["env"].pop("LC_CTYPE", None)
    assert seen == started


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import signal; signal.raise_signal(signal.SIGINT)", -2, "KeyboardInterrupt\n"),
        ("import atexit, sys; atexit.register(print, 'end', file=sys.stderr)", 0, "end\n"),
        ("import sys, threading; threading.Timer(0.01, print, ['late'], {'file': sys.stderr}).start()", 0, "late\n"),
    ],
)
def test_a_fork_ends_as_a_started_process_does(tmp_path: Path, program: str, status: int, error: str) -> None:
    """Its exit status, also of signals; what it has registered for its end; its threads."""
    script = tmp_path / "script.py"
    script.write_text(program)
    ended = forked(script)
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout) == (status, "")
    assert ended.stderr.endswith(error)
    assert plain.stderr.endswith(error)


def test_a_fork_shows_its_command_line_and_gets_signals(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ready', flush=True)\ninput()\n")
    command = [sys.executable, str(script), "--word"]
    child = ForkedProcess(command, modules=MODULES, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        assert child.stdout.readline() == b"ready\n"
        assert psutil.Process(child.pid).cmdline() == command
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.terminate()
        assert child.wait(DEADLINE_S) == child.poll() == child.returncode == -signal.SIGTERM
        child.kill()  # of a process that has ended: nothing happens


def test_a_fork_can_reconfigure_a_stream_that_is_a_pipe(tmp_path: Path) -> None:
    """Its server's streams are files, which can seek."""
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.stdout.reconfigure(errors='backslashreplace')\nprint('\\udcff', end='')\n")
    child = ForkedProcess([sys.executable, str(script)], modules=MODULES, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.read() == b"\\udcff"
    assert child.wait(DEADLINE_S) == 0


def test_forks_are_separate(tmp_path: Path) -> None:
    """What one changes in a module, the next does not see, and each has random numbers of its own."""
    script = tmp_path / "script.py"
    script.write_text("import json, random\nprint(getattr(json, 'seen', 0), random.random())\njson.seen = 1\n")
    answers = [forked(script).stdout.split() for _ in range(3)]
    assert [seen for seen, _ in answers] == ["0"] * 3
    assert len({number for _, number in answers}) == 3


def test_a_server_that_has_ended_is_reported(tmp_path: Path) -> None:
    """No test waits for it."""
    ended = ForkServer(MODULES)
    ended._process.kill()
    ended._process.wait()
    with pytest.raises(AssertionError, match="the fork server has ended, with status -9"):
        ended.start({}, [])


def test_no_fork_with_what_only_a_start_can_have() -> None:
    """Other options of Popen, interpreter flags, and variables that are read at the start."""
    plain = [sys.executable, "-m", "json"]
    assert can_fork(plain, None, {"stdin": subprocess.DEVNULL})
    assert not can_fork(["/bin/sh", "-m"], None, {})
    assert not can_fork([sys.executable, "-u", "-m", "json"], None, {})
    assert not can_fork(plain, None, {"preexec_fn": os.getpid})
    assert not can_fork(plain, {**os.environ, "PYTHONIOENCODING": "latin-1"}, {})
    assert not can_fork(plain, {**os.environ, "BROKERD_KERNEL": "python"}, {})
    assert not can_fork(plain, {**os.environ, "PYTHONPATH": "/tmp"}, {})  # it may have a sitecustomize


def test_a_fork_that_is_not_asked_for_its_status_ends_with_the_server() -> None:
    """The server of an ended pytest process goes away, and leaves no zombies."""
    own = ForkServer(MODULES)
    process = psutil.Process(own._process.pid)
    own.close()
    wait_until(lambda: not process.is_running(), "the server has ended")
    assert server(MODULES)._process.poll() is None
