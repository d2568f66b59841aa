"""What a benchmark measures of a process: every thread of it, on the cores that it was given."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import Cores, pin, processor_seconds

WITH_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
time.sleep(600)
"""


@pytest.fixture
def threaded() -> Iterator[subprocess.Popen[str]]:
    """A process with two threads."""
    process = subprocess.Popen([sys.executable, "-c", WITH_A_THREAD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        process.stdout.readline()
        yield process
        process.kill()


def test_all_threads_of_a_process_run_on_its_cores(threaded: subprocess.Popen[str]) -> None:
    """Also those that it had started before: otherwise a broker would sync on the generators' core."""
    cores = Cores.available().server
    pin(threaded.pid, cores)
    threads = [int(name) for name in os.listdir(f"/proc/{threaded.pid}/task")]
    assert len(threads) == 2
    assert [os.sched_getaffinity(each) for each in threads] == [cores, cores]


def test_processor_time_is_exact() -> None:
    """Clock ticks of 10 ms would be a tenth of a load of 0.1 s."""
    before = time.process_time()
    measured = processor_seconds(os.getpid())
    assert before <= measured <= time.process_time()


def test_a_load_process_that_starts_is_not_interrupted_by_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the terminal. One that was starting then would print a traceback."""
    interrupts_itself = "import os, sys\nif '--multiprocessing-fork' in sys.orig_argv:\n    os.kill(os.getpid(), 2)\n"
    (tmp_path / "sitecustomize.py").write_text(interrupts_itself)
    uses = "import os, bench.processes as p\nwith p.load_processes(p.Cores.available(), 1) as load: load.run(os.getpid)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", uses], capture_output=True, text=True, timeout=150, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
