"""The layout of the source tree: ``platform/`` is a folder of sources and never a package; and its Makefile."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
BIN = Path(sys.executable).parent

# Runs at the end of every Python process that finds it, and writes what `import platform` gives there.
WITNESS = """
import atexit, os
def write():
    import platform
    with open(os.environ["WITNESS"], "w") as file:
        file.write(platform.__file__ or "a folder")
atexit.register(write)
"""

ENTRY_POINTS = {
    "manage.py": [sys.executable, "manage.py", "--version"],
    "manage.py nsq": [sys.executable, "manage.py", "nsq", "--help"],
    "manage.py check": [sys.executable, "manage.py", "check"],
    "python -m brokerd": [sys.executable, "-m", "brokerd", "--version"],
    "python -m nsqlookup": [sys.executable, "-m", "nsqlookup", "--version"],
    "python -m nsqanalytics": [sys.executable, "-m", "nsqanalytics", "--help"],
    "python -m bench": [sys.executable, "-m", "bench", "--help"],
    "python -m nsqplatform.console.nsq": [sys.executable, "-m", "nsqplatform.console.nsq", "--help"],
    "nsq": [BIN / "nsq", "--help"],
    "nsqd": [BIN / "nsqd", "--version"],
    "nsqlookupd": [BIN / "nsqlookupd", "--version"],
    "pytest": [BIN / "pytest", "--version"],
    "celery": [BIN / "celery", "-A", "nsqplatform.console.celery", "report"],
    "daphne": [BIN / "daphne", "--help"],
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_import_platform_is_the_standard_librarys_under_every_entry_point(entry_point, tmp_path):
    """platform/ has the name of a module that many packages import; started from the root, Python must not find it
    first."""
    (tmp_path / "sitecustomize.py").write_text(WITNESS)
    witness = tmp_path / "witness"
    answer = subprocess.run(
        ENTRY_POINTS[entry_point],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "NSQ_HOME": str(tmp_path / "var"),
            "PYTHONPATH": str(tmp_path),
            "WITNESS": str(witness),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert Path(witness.read_text()).resolve() == STANDARD_LIBRARY / "platform.py"


@pytest.mark.parametrize("root", ["platform", "lookup", "analytics"])
def test_a_source_root_is_not_a_package_and_contains_one(root):
    """An ``__init__.py`` in platform/ would make it a package that hides the standard library's module."""
    assert not list((ROOT / root).glob("__init__.py*"))
    assert {path.parent.name for path in (ROOT / root).glob("*/__init__.py")} == {f"nsq{root}"}


def test_the_root_of_integrations_is_not_a_package():
    """Its packages are shipped by the distributions of what they integrate."""
    assert not list((ROOT / "integrations").glob("__init__.py*"))
    assert {path.parent.name for path in (ROOT / "integrations").glob("*/__init__.py")} >= {"nsqtasks", "pytest_nsq"}


def test_import_platform_in_the_tests_is_the_standard_librarys():
    """pytest puts the root and platform/ on sys.path."""
    assert Path(platform.__file__).resolve() == STANDARD_LIBRARY / "platform.py"


def test_tests_are_no_packages():
    """pytest runs with --import-mode=importlib; an ``__init__.py`` would hide the package under test."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_make_unit_fails_for_a_test_that_fails_once_and_names_it(tmp_path):
    """A race that shows in one run of many is a defect: no second run hides it."""
    flaky = tmp_path / "test_flaky.py"
    flaky.write_text(
        "from pathlib import Path\n\n"
        "def test_passes_from_the_second_time_on():\n"
        "    before = Path(__file__).with_suffix('.ran')\n"
        "    ran = before.exists()\n"
        "    before.touch()\n"
        "    assert ran\n"
    )
    made = ["make", "--assume-old=setup", "--assume-old=tests/witnesses/node_modules/.installed", "unit"]
    words = [*made, "JOBS=0", f"PYTEST={flaky} --override-ini=cache_dir={tmp_path / 'cache'}"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))
    }
    answer = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode != 0, answer.stdout
    assert "FAILED" in answer.stdout, answer.stderr
    assert "test_flaky.py::test_passes_from_the_second_time_on" in answer.stdout


def test_make_test_runs_every_check():
    """Lint, types, the front end's checks, and the tests on SQLite and on PostgreSQL."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))
    }
    words = ["make", "--dry-run", "test"]
    planned = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    commands = planned.stdout.splitlines()
    for check in (
        r"/ruff check \.",
        r"/ruff format --check \.",
        r"/lint-imports",
        r"/mypy",
        r"/mypy --config-file platform/mypy.ini",
        r"cd frontend && .*npm.* run check && .*npm.* test",
        r"/pytest --numprocesses \d+ --dist loadfile",
        r"/pytest --numprocesses \d+ .*--ds tests.settings_postgres -m database .*",
    ):
        assert any(re.search(rf"{check}\s*$", command) for command in commands), f"{check} in {planned.stdout}"


def test_only_nsqcluster_sends_requests_to_nsqd_and_nsqlookupd():
    """So their paths, typed responses, TLS and limits are in one package."""
    request = re.compile(r"""\._?(?:get|get_body|get_text|post|stream)\([^"'()]*f?["']/""")
    sources = [file for folder in ("aionsq", "platform", "nsqcommand") for file in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 200
    assert [str(file) for file in sources if request.search(file.read_text())] == []
