"""The path of a message body through the source files, as ``docs/architecture.md`` draws it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
Steps = list[tuple[str, str]]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> list[Steps]:
    """The paths of the first, second and third PUB of a connection to a topic."""
    command = [sys.executable, "-m", "tests.brokerd.body_path", str(tmp_path_factory.mktemp("data"))]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [[(file, function) for file, function in steps] for steps in json.loads(printed)]


@pytest.mark.parametrize("pub", [0, 1, 2])
def test_a_body_crosses_at_most_12_files(walks: list[Steps], pub: int) -> None:
    assert len({file for file, _ in walks[pub]}) <= 12


@pytest.mark.parametrize("pub", [1, 2])
def test_a_body_returns_to_no_file_twice(walks: list[Steps], pub: int) -> None:
    """The first PUB to a topic is excepted: the incremental reader and the session alternate to check its name."""
    visits = Counter(file for file, _ in walks[pub])
    assert max(visits.values()) <= 2, visits


def test_the_path_is_drawn_in_the_architecture(walks: list[Steps]) -> None:
    """The section lists each file and function of the two usual paths, in order."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("### The path of a message body")[2].partition("\n### ")[0]
    for steps in walks[1:]:
        rows = [f"| `{file}` | `{function}` |" for file, function in steps]
        assert "\n".join(rows) in section, "expected in docs/architecture.md:\n" + "\n".join(rows)
