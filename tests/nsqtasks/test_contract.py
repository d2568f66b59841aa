"""The backend has the contract of Django Tasks, on both databases: ``shop/contract.py`` in the project."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.daemon import Broker
from tests.nsqtasks.conftest import Project

FEWEST_TESTS = 45


def test_the_backend_does_what_django_documents(tmp_path: Path, broker: Broker, database_url: str) -> None:
    """The same tests pass on the framework's own backend; those of the differences follow them."""
    project = Project(tmp_path, broker, database_url)
    done = project.manage("test", "shop", "--pattern=contract.py", "--noinput")
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert ran is not None, done.stderr
    assert int(ran[1]) >= FEWEST_TESTS
    assert re.search(r"^OK$", done.stderr, re.MULTILINE), done.stderr  # "OK (skipped=1)" is not enough


def test_the_migrations_are_those_of_the_model(tmp_path: Path, broker: Broker) -> None:
    project = Project(tmp_path, broker)
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run", "nsqtasks").stdout
