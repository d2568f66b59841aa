"""Which tests `make check` runs for a change."""

from __future__ import annotations

import pytest

from tests.harness import changed as selection
from tests.harness.changed import MAX_S, ROOT
from tests.harness.scheduling import recorded_seconds


def folders_for(path: str) -> set[str]:
    return {"/".join(test.split("/")[:2]) for test in selection.tests_of([path])}


@pytest.mark.parametrize(
    ("changed", "importers"),
    [
        (
            "nsqwire/frame.py",
            {"brokerd", "lookup", "aionsq", "nsqdaemon", "nsqcluster", "analytics", "platform", "reports"},
        ),
        ("nsqdaemon/http/router.py", {"brokerd", "lookup", "aionsq"}),
        ("nsqcluster/client.py", {"aionsq", "platform"}),
        ("brokerd/mirror/leader.py", {"durability", "failures", "mirror"}),
        ("lookup/nsqlookup/registry.py", set()),
    ],
)
def test_a_change_runs_its_tests_and_those_of_its_importers(changed: str, importers: set[str]) -> None:
    """A change of the protocol's code also runs the tests of the daemons, the client and the platform."""
    own = {"tests/" + changed.split("/")[0]}
    found = folders_for(changed)
    assert found >= own | {f"tests/{name}" for name in importers}
    assert importers or found <= {*own, *selection.tests_below(changed)}


@pytest.mark.parametrize(("folder", "tests"), selection.TESTS.items(), ids=selection.TESTS)
def test_a_change_runs_the_tests_of_its_folder(folder: str, tests: tuple[str, ...]) -> None:
    """Not those of a folder around it, which has other tests."""
    assert selection.tests_below(f"{folder}changed.py") == tests


def test_a_change_of_a_document_runs_none() -> None:
    """Nor does one of the front end, whose tests ``make check`` runs itself."""
    assert selection.tests_of(["docs/architecture.md", "frontend/src/main.ts"]) == []


def test_long_test_files_run_only_if_they_changed() -> None:
    """The tests of the change of one file take about two minutes."""
    seconds = recorded_seconds()
    longest = max((path for path in seconds if (ROOT / path).exists()), key=seconds.__getitem__)
    assert seconds[longest] > MAX_S
    assert all(
        seconds.get(path, 0.0) <= MAX_S for path in selection.tests_of(["nsqwire/frame.py", "platform/manage.py"])
    )
    assert selection.tests_of([longest]) == [longest]
