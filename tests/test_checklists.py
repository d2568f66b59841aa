"""The tests and deviations that the checklists in docs/ name exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
CHECKLISTS = sorted((ROOT / "docs").glob("*-checklist.md"))
FAULTS = ROOT / "docs" / "faults.md"
HOMES = {"nsqd": "brokerd", "nsqlookupd": "lookup"}
REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")
DEVIATION = re.compile(r"\*differs\*: (?:`` (.+?) ``|`([^`]+)`)")


def rows(page: Path) -> list[tuple[str, str]]:
    """(point, shown by) of each row of the page's tables."""
    cells = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return [(point, shown) for point, shown in cells if point != "point"]


def home_of(page: Path) -> Path:
    """The folder of tests that a page names without it: pages have the names of NSQ's daemons."""
    return TESTS / HOMES.get(page.name.removesuffix("-checklist.md"), "")


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_"))


@pytest.mark.parametrize("page", [*CHECKLISTS, FAULTS], ids=lambda page: page.name)
def test_every_test_that_a_checklist_names_is_there(page: Path) -> None:
    """A renamed or removed test must be renamed or replaced in the list too."""
    missing = []
    for file, name in REFERENCE.findall(page.read_text()):
        path = next((base / file for base in (home_of(page), TESTS) if (base / file).is_file()), None)
        if path is None or name not in names_in(path):
            missing.append(f"{file}::{name}")
    assert missing == []


@pytest.mark.parametrize("page", CHECKLISTS, ids=lambda page: page.name)
def test_every_deviation_that_a_checklist_names_is_explained(page: Path) -> None:
    """By a row of docs/compatibility.md that begins with the same words."""
    listed = {line.strip("| ").split(" | ")[0] for line in (ROOT / "docs/compatibility.md").read_text().splitlines()}
    named = {quoted or plain for quoted, plain in DEVIATION.findall(page.read_text())}
    assert named - listed == set()
    assert named or "*differs*" not in page.read_text()


@pytest.mark.parametrize("page", CHECKLISTS, ids=lambda page: page.name)
def test_no_row_of_a_checklist_is_empty(page: Path) -> None:
    """Each point has a test, or a deviation that explains why there is none."""
    assert rows(page)
    unshown = [point for point, shown in rows(page) if not REFERENCE.search(shown) and not DEVIATION.search(shown)]
    assert unshown == []


def test_there_is_a_checklist_for_broker_and_registry() -> None:
    """Without them the tests above would check nothing."""
    assert {"nsqd-checklist.md", "nsqlookupd-checklist.md"} <= {page.name for page in CHECKLISTS}


def test_there_is_a_checklist_for_the_client() -> None:
    """As for the broker."""
    assert "client-checklist.md" in [page.name for page in CHECKLISTS]
