"""The tests of what changed since ``main``: ``python -m tests.harness.changed`` prints their paths.

A changed file below a folder of ``TESTS`` selects that folder's tests. If it is code, it also selects the tests of the
folders that import its package; for ``nsqwire``, these are almost all. A changed test file selects itself, a changed
helper the tests of its folder; one of ``tests/harness``, which all tests use, selects none. Test files that take longer
than ``MAX_S`` are selected only if they changed themselves; ``make test`` runs them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.harness.scheduling import recorded_seconds

ROOT = Path(__file__).resolve().parents[2]
MAX_S = 10.0
TESTS = {
    "nsqwire/": ("tests/nsqwire",),
    "nsqdaemon/": ("tests/nsqdaemon",),
    "nsqcluster/": ("tests/nsqcluster", "tests/aionsq"),
    "nsqcommand/": ("tests/command",),
    "brokerd/": ("tests/brokerd", "tests/durability", "tests/failures", "tests/mirror"),
    "lookup/": ("tests/lookup", "tests/failures"),
    "aionsq/": ("tests/aionsq",),
    "analytics/": ("tests/analytics",),
    "integrations/nsqtasks/": ("tests/nsqtasks",),
    "integrations/pytest_nsq/": ("tests/pytest_nsq",),
    "integrations/": ("tests/nsqkombu",),
    "bench/": ("tests/bench",),
    "platform/nsqplatform/reports/": ("tests/reports",),
    "platform/nsqplatform/console/nsq/": ("tests/command",),
    "platform/": ("tests/platform",),
}
"""Folders and their tests. For a path, the first folder that contains it applies."""
PACKAGES = {
    "lookup": "nsqlookup",
    "analytics": "nsqanalytics",
    "integrations": "nsqkombu",
    "platform": "nsqplatform",
}
"""Packages of folders that have another name."""


def changed_files(base: str) -> list[str]:
    """Return the paths that changed since this branch left ``base``, including uncommitted and new files."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    [start] = git("merge-base", base, "HEAD")
    return sorted({*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")})


def tests_below(path: str) -> tuple[str, ...]:
    """Return the folders of the tests of one product file."""
    return next((tests for folder, tests in TESTS.items() if path.startswith(folder)), ())


def importers(folder: str) -> Iterator[str]:
    """Yield the product files outside of a top-level folder that import its package."""
    imports = re.compile(rf"^\s*(?:from|import) {PACKAGES.get(folder, folder)}\b", re.MULTILINE)
    for other in sorted({name.partition("/")[0] for name in TESTS} - {folder}):
        for path in (ROOT / other).rglob("*.py"):
            if imports.search(path.read_text()):
                yield str(path.relative_to(ROOT))


def tests_of(changed: Iterable[str]) -> list[str]:
    """Return the test files to run for the changed paths, sorted."""
    chosen: set[str] = set()
    folders: set[str] = set()
    libraries: set[str] = set()
    for path in changed:
        if path.startswith("tests/") and path.endswith(".py"):
            if Path(path).name.startswith("test_"):
                chosen.add(path)
            else:
                folders.add(str(Path(path).parent))
        else:
            folders.update(tests_below(path))
            if path.endswith((".py", ".pyx")):
                libraries.add(path.partition("/")[0])
    for library in libraries:
        for importer in importers(library):
            folders.update(tests_below(importer))
    seconds = recorded_seconds()
    for folder in folders - {"tests/harness", "tests"}:
        found = (str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("test_*.py"))
        chosen.update(path for path in found if seconds.get(path, 0.0) <= MAX_S and "node_modules" not in path)
    return sorted(path for path in chosen if (ROOT / path).exists())


if __name__ == "__main__":
    print(*tests_of(changed_files(sys.argv[1] if len(sys.argv) > 1 else "main")), sep="\n")
