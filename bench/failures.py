"""``python -m bench.failures``: the failure suite of one node in its long form, and a table of its results.

Each component causes faults many times and checks what the broker promises (docs/faults.md). The exit status is 1 if a
promise was broken. The tests in ``tests/durability`` and ``tests/failures`` run the same faults in their short form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.command_line import Parser, errors_in_one_line, positive_count
from bench.errors import BenchError
from bench.kill9 import kill_repeatedly

ROOT = Path(__file__).resolve().parents[1]
SHOWN_LINES = 60
"""Lines of a failed component's output that are printed."""


class Fault(NamedTuple):
    """A fault that was caused ``tries`` times. ``lost`` counts tries that lost something; for kills, lost messages."""

    promise: str
    fault: str
    tries: int
    lost: int
    unexpected: int
    seed: int | None

    @property
    def is_good(self) -> bool:
        return self.tries > 0 and not self.lost and not self.unexpected


class Result(NamedTuple):
    """The faults of a component, and its output if a promise was broken."""

    faults: list[Fault]
    output: str = ""


@dataclass(frozen=True)
class Options:
    """How much to do: ``rounds`` of each fault, and ``seconds`` of fuzzing."""

    rounds: int
    seconds: float
    seed: int


KEPT = "acknowledged messages are kept"
PROMISES = {
    "power loss": "what was synced is kept, nothing else is served",
    "damage": "only what was hit is lost, and counted",
    "fuzz": "the process goes on, others are served",
    "connections": "all are served",
}
"""What is promised, by the beginning of a fault's name in the tally."""
DISK_TESTS = ["tests/failures/test_disk.py", "tests/failures/test_event_loop.py"]


def kills(options: Options) -> Result:
    """kill -9 under load, again and again over one data path."""
    data_path = Path(tempfile.mkdtemp(prefix="failures-"))
    ledger = asyncio.run(kill_repeatedly(data_path, options.rounds, options.seed)).ledger
    lost = sum("never" in violation for violation in ledger.violations)
    unexpected = len(ledger.violations) - lost
    if ledger.violations:
        return Result(
            [Fault(KEPT, "kill -9 under load", options.rounds, lost, unexpected, options.seed)],
            "\n".join([f"the data path is kept: {data_path}", *ledger.violations[:SHOWN_LINES]]),
        )
    shutil.rmtree(data_path)
    return Result([Fault(KEPT, "kill -9 under load", options.rounds, 0, 0, options.seed)])


def power_losses(options: Options) -> Result:
    """Data paths as a power loss at any instant may leave them."""
    more = {"POWER_LOSSES": str(options.rounds), "POWER_LOSS_SEED": str(options.seed)}
    return tallied(["tests/durability/test_power_loss.py", "-k", "sync_every or another_value"], more)


def corruptions(options: Options) -> Result:
    """Flipped bits, zeroed pages, cut, missing, swapped and outdated files."""
    more = {"CORRUPTIONS": str(options.rounds), "CORRUPTION_SEED": str(options.seed)}
    return tallied(["tests/durability/test_corruptions.py"], more)


def fuzzing(options: Options) -> Result:
    """Anything that is sent to the five HTTP and TCP ports, while a bystander is served."""
    more = {"FUZZ_SECONDS": str(options.seconds / 5), "FUZZ_SEED": str(options.seed)}
    return tallied(["tests/failures/test_fuzz.py", "tests/failures/test_fuzz_platform.py"], more)


def disk(options: Options) -> Result:
    """A disk that hangs, fails or is read-only. Each test is one try, whatever the rounds."""
    return tested("publishers get an error, consumers go on", "disk hangs or fails", DISK_TESTS, {})


def process(options: Options) -> Result:
    """Pauses, and limits of memory and descriptors, with five busy topics for each round. Each test is one try."""
    more = {"BUSY_TOPICS": str(max(1000, 5 * options.rounds))}
    return tested(KEPT, "pauses and limits of the process", ["tests/failures/test_process.py"], more)


def connections(options: Options) -> Result:
    """Consumers of one channel, ten times as many as the rounds."""
    return tallied(["tests/failures/test_crowd.py"], {"CROWD": str(10 * options.rounds)})


COMPONENTS: Mapping[str, Callable[[Options], Result]] = {
    "kills": kills,
    "power-loss": power_losses,
    "corruptions": corruptions,
    "disk": disk,
    "process": process,
    "connections": connections,
    "fuzz": fuzzing,
}


def tallied(tests: list[str], more: Mapping[str, str]) -> Result:
    """Run tests that record their faults (``tests/failures/tally.py``)."""
    with tempfile.TemporaryDirectory(prefix="failures-") as folder:
        tally = Path(folder, "tally")
        done = run_pytest(tests, {**more, "FAILURES_TALLY": str(tally)})
        lines = tally.read_text().splitlines() if tally.exists() else []
    entries = [json.loads(line) for line in lines]
    faults = [Fault(promise=promise_of(entry["fault"]), **entry) for entry in entries]
    if done.returncode and all(fault.is_good for fault in faults):
        raise BenchError(f"{tests[0]} failed:\n{tail(done.stdout)}")
    return Result(faults, tail(done.stdout) if done.returncode else "")


def promise_of(fault: str) -> str:
    return next(promise for begin, promise in PROMISES.items() if fault.startswith(begin))


def tested(promise: str, fault: str, tests: list[str], more: Mapping[str, str]) -> Result:
    """Run tests of which each causes its fault once."""
    done = run_pytest(tests, more)
    marks = [line.split() for line in done.stdout.splitlines() if line.startswith(("PASSED ", "FAILED ", "ERROR "))]
    failed = sum(mark[0] != "PASSED" for mark in marks)
    return Result([Fault(promise, fault, len(marks), 0, failed, None)], tail(done.stdout) if done.returncode else "")


def run_pytest(tests: list[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--show-capture=no", "-p", "no:cacheprovider", *tests]
    pipe = subprocess.PIPE
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = running.communicate()
    except KeyboardInterrupt:
        running.send_signal(signal.SIGINT)  # so that it ends the servers of its tests
        running.communicate()
        raise
    if running.returncode not in (0, 1):
        raise BenchError(f"{tests[0]} could not be run:\n{tail(output + errors)}")
    return subprocess.CompletedProcess(command, running.returncode, output, errors)


def tail(output: str) -> str:
    return "\n".join(output.splitlines()[-SHOWN_LINES:])


def table(faults: list[Fault]) -> Table:
    grid = Table()
    for heading in ("promise", "fault"):
        grid.add_column(heading)
    for heading in ("tries", "lost", "unexpected", "seed"):
        grid.add_column(heading, justify="right")
    for each in faults:
        numbers = (f"{number:,}" for number in (each.tries, each.lost, each.unexpected))
        grid.add_row(each.promise, each.fault, *numbers, "" if each.seed is None else str(each.seed))
    return grid


def arguments() -> argparse.Namespace:
    parser = Parser(prog="python -m bench.failures", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--component", action="append", choices=COMPONENTS, help="component to run; may be repeated (default: all)"
    )
    parser.add_argument("--rounds", type=positive_count, default=1000, help="tries of each fault (default 1,000)")
    parser.add_argument("--seconds", type=positive_count, default=3600, help="seconds of fuzzing (default 3,600)")
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run; its timing cannot be repeated")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    options = Options(given.rounds, given.seconds, seed)
    faults = list[Fault]()
    progress = Console(stderr=True)
    with errors_in_one_line("bench.failures"):
        try:
            for name in given.component or COMPONENTS:
                progress.print(f"{name}, seed {seed}", highlight=False)
                result = COMPONENTS[name](options)
                faults += result.faults
                if result.output:
                    progress.print(result.output, markup=False, highlight=False)
        except (BenchError, OSError) as error:
            raise BenchError(f"{error} (seed {seed})") from error
        finally:
            if faults:
                Console(width=None if sys.stdout.isatty() else 130).print(table(faults))
    if not all(fault.is_good for fault in faults):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
