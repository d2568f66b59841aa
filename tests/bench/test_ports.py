"""Free ports for servers that are started later."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench import ports
from tests.harness.process import ROOT

ASKING = """
import sys
from bench import ports
ports._FIRST, ports._LAST = int(sys.argv[1]), int(sys.argv[2])
print(*ports.free_ports(20))
"""


def test_no_two_processes_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although nothing listens on it yet."""
    first, last = 20_000, 20_059
    monkeypatch.setattr(ports, "_FIRST", first)
    monkeypatch.setattr(ports, "_LAST", last)
    ours = ports.free_ports(10)
    command = [sys.executable, "-c", ASKING, str(first), str(last)]
    theirs = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len({*theirs}) == 20
    assert not {*map(int, theirs)} & {*ours}
