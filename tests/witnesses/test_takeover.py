"""Client libraries, unmodified, live through takeovers of a mirrored pair, and lose nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdServer
from tests.harness.pair import Pair
from tests.harness.process import ROOT, Process
from tests.harness.waiting import wait_until
from tests.witnesses.conftest import interpreter

LIBRARIES = ("aionsq", "gnsq", "nsqjs", "pynsq")
MESSAGES = 50
"""So many more are exchanged before and after each takeover."""


class Witness:
    """A running ``takeover_`` script, whose output goes to a file."""

    def __init__(self, library: str, pair: Pair, directory: Path) -> None:
        self.library = library
        self._printed = directory / library
        addresses = [member.tcp_address for member in pair.members]
        program = interpreter(library, "takeover")
        self.process = Process(
            [*program, f"from-{library}", *addresses],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=self._printed.open("wb"),
        )

    def lines(self, what: str) -> list[str]:
        """What follows ``what`` in the lines that begin with it."""
        return [
            line.removeprefix(what + " ")
            for line in self._printed.read_text(errors="replace").split("\n")[:-1]
            if line.startswith(what + " ")
        ]

    def wait_for_more(self) -> None:
        """Wait until more messages were acknowledged and received."""
        began = {what: len(self.lines(what)) for what in ("acknowledged", "received")}
        try:
            wait_until(
                lambda: all(len(self.lines(what)) >= count + MESSAGES for what, count in began.items()),
                f"{self.library} goes on",
            )
        except AssertionError:
            print(self.library, began, {what: len(self.lines(what)) for what in began}, self.process.output[-4000:])
            raise

    def end(self) -> None:
        """Let it publish no more, and wait until it has ended."""
        self.process.process.stdin.close()
        assert self.process.wait_for_exit() == 0, self.process.output[-4000:]


def wait_for_more(witnesses: list[Witness]) -> None:
    """Wait until each has exchanged more messages."""
    for witness in witnesses:
        witness.wait_for_more()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        etcd = EtcdServer(tmp_path)
        stack.callback(etcd.stop)
        (tmp_path / "pair").mkdir()
        pair = Pair(tmp_path / "pair", etcd, lease="6s")
        stack.callback(pair.close)
        pair.start()
        yield pair


def test_each_library_goes_on_after_a_kill_and_after_a_hand_over(pair: Pair, tmp_path: Path) -> None:
    """Publishers see errors, of which nothing is asserted, and publish the next message; see docs/mirroring.md."""
    with ExitStack() as stack:
        witnesses = [Witness(library, pair, tmp_path) for library in LIBRARIES]
        for witness in witnesses:
            stack.enter_context(witness.process)
        wait_for_more(witnesses)
        for how in (signal.SIGKILL, signal.SIGTERM):
            pair.lose_primary(how, meanwhile=lambda: wait_for_more(witnesses))
        for witness in witnesses:
            wait_until(
                lambda witness=witness: set(witness.lines("acknowledged")) <= set(witness.lines("received")),
                f"{witness.library} receives all that was acknowledged",
            )
            witness.end()
            print(witness.library, Counter(witness.lines("failed")))
