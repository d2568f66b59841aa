"""The thread for operations on files, and how long the event loop waits for it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from brokerd.disk_thread import DiskStalled, DiskThread
from brokerd.journal.journal import JOURNAL_BYTES, Journal
from brokerd.journal.recovery import recover
from brokerd.journal.state import NodeState
from brokerd.log.batch import BodyBatch
from brokerd.log.log import FIRST_SEGMENT_BYTES, Log
from tests.harness.waiting import DEADLINE_S

ID_HEAD = b"000000"
SHORT_S = 0.1
"""Longer than nothing: only operations that wait for the gate may be given so little."""


class Loop:
    """A thread that waits as the event loop does: what ``call_soon`` was given runs in ``turn``."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[Callable[[], None]]()
        self.stalls = list[str]()
        self.resumed = 0
        self.disk = DiskThread()

    def start(self, patience_s: float = DEADLINE_S) -> None:
        self.disk.start(
            patience_s,
            call_soon=self._calls.put,
            stalled=lambda error: self.stalls.append(str(error)),
            resumed=self._resume,
        )

    @contextmanager
    def impatience(self) -> Iterator[None]:
        """Wait for a short time only during the block, whose operations do not end."""
        patience_s, self.disk.wait_s = self.disk.wait_s, SHORT_S
        yield
        self.disk.wait_s = patience_s

    def _resume(self) -> None:
        self.resumed += 1

    def turn(self) -> None:
        """Wait for the next call, and make it."""
        self._calls.get(timeout=DEADLINE_S)()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.disk.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Operations wait for it. It is open at the end, so that the thread ends."""
    gate = threading.Event()
    yield gate
    gate.set()


def never(_: object) -> None:
    raise AssertionError("the operation was not late")


def test_results_and_errors_are_those_of_the_operation(loop: Loop) -> None:
    """ETIMEDOUT, which is Python's TimeoutError, is an error of the operation and no stall."""
    loop.start()

    def fail() -> None:
        raise OSError(errno.ETIMEDOUT, "timed out")

    assert loop.disk.run(threading.get_ident, never) != threading.get_ident()
    with pytest.raises(TimeoutError, match="timed out"):
        loop.disk.run(fail, never)
    with pytest.raises(TimeoutError, match="timed out"):
        loop.disk.run_at_last(fail)
    assert not loop.stalls


@pytest.mark.parametrize("patience_s", [None, 0])
def test_without_a_limit_the_caller_runs_the_operations(patience_s: float | None, loop: Loop) -> None:
    if patience_s is not None:
        loop.start(patience_s)
    assert loop.disk.run(threading.get_ident, never) == threading.get_ident()


def test_an_operation_that_takes_too_long_ends_by_itself(loop: Loop, gate: threading.Event) -> None:
    """Others are refused or postponed until it has; then they are made in order."""
    loop.start()
    done = list[str]()

    def create() -> str:
        gate.wait()
        done.append("created")
        return "a file"

    late = list[str]()
    with loop.impatience(), pytest.raises(DiskStalled, match=r"has not completed an operation within 0\.1 s"):
        loop.disk.run(create, late.append)
    with pytest.raises(DiskStalled):
        loop.disk.run(create, never)
    loop.disk.run_at_last(lambda: done.append("deleted"))
    assert (done, late, len(loop.stalls)) == ([], [], 1)
    gate.set()
    loop.turn()
    assert late == ["a file"]
    assert loop.disk.stall is not None
    loop.turn()
    assert done == ["created", "deleted"]
    assert (loop.disk.stall, loop.resumed) == (None, 1)
    assert loop.disk.run(lambda: 1, never) == 1


def test_an_operation_that_fails_late_is_logged(
    loop: Loop, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    loop.start()

    def fail() -> None:
        gate.wait()
        raise OSError(errno.EIO, "Input/output error")

    with loop.impatience(), pytest.raises(DiskStalled):
        loop.disk.run(fail, never)
    gate.set()
    loop.turn()
    assert "an operation that the disk delayed has failed: [Errno 5] Input/output error" in caplog.text
    assert loop.disk.stall is None


def answered(loop: Loop, gate: threading.Event) -> None:
    """Let the disk answer, and wait until nothing is pending."""
    gate.set()
    while loop.disk.stall is not None:
        loop.turn()


@pytest.fixture
def slow(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations wait for the gate."""
    allocate = os.posix_fallocate

    def slow_allocation(*args: int) -> None:
        gate.wait()
        allocate(*args)

    monkeypatch.setattr(os, "posix_fallocate", slow_allocation)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("nbytes", [1, FIRST_SEGMENT_BYTES])
def test_a_late_segment_is_used_if_the_next_batch_fits(
    nbytes: int, loop: Loop, gate: threading.Event, tmp_path: Path
) -> None:
    """Otherwise a larger one replaces it. Until then the one before it takes no message, however small."""
    loop.start()
    log = Log(tmp_path, disk=loop.disk)
    gate.set()
    log.append(BodyBatch([bytes(FIRST_SEGMENT_BYTES // 2)], ID_HEAD, 1))
    gate.clear()
    with loop.impatience(), pytest.raises(DiskStalled):
        log.append(BodyBatch([bytes(FIRST_SEGMENT_BYTES // 2)], ID_HEAD, 2))
    with pytest.raises(DiskStalled):
        log.append(BodyBatch([b"x"], ID_HEAD, 3))
    answered(loop, gate)
    log.append(BodyBatch([bytes(4 * nbytes)], ID_HEAD, 4))
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == [f"{0:020d}.log", f"{1:020d}.log"]
    log.close()
    again, notes = Log.recover(tmp_path, ID_HEAD)
    assert (again.next_seq, again.gaps(), notes) == (2, [], [])
    again.close()


@pytest.mark.usefixtures("slow")
def test_a_late_segment_of_a_stopped_process_is_no_damage(loop: Loop, gate: threading.Event, tmp_path: Path) -> None:
    loop.start()
    log = Log(tmp_path, disk=loop.disk)
    with loop.impatience(), pytest.raises(DiskStalled):
        log.append(BodyBatch([b"x"], ID_HEAD, 1))
    answered(loop, gate)
    log.close()
    again, notes = Log.recover(tmp_path, ID_HEAD)
    assert (again.next_seq, notes) == (0, [])
    again.close()


def test_a_journal_goes_on_without_its_next_generation(loop: Loop, gate: threading.Event, tmp_path: Path) -> None:
    """It fails as if the disk were full, once it has no room; what was created too late is used then."""
    failures = list[OSError]()
    journal = Journal(
        tmp_path,
        recover(tmp_path),
        lambda: NodeState(),
        failures.append,
        call_soon=lambda run: None,
        call_later=lambda delay, run: None,
        disk=loop.disk,
    )
    loop.start()
    with loop.impatience():
        loop.disk.run_at_last(gate.wait)
    assert loop.disk.stall is not None
    with pytest.raises(DiskStalled):
        journal.require(2 * JOURNAL_BYTES)
    assert isinstance(failures[0], DiskStalled)
    answered(loop, gate)
    before = journal.end.generation
    journal.require(2 * JOURNAL_BYTES)
    assert journal.end.generation == before + 1
    journal.close()
