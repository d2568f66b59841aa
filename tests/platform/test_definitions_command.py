"""``nsq definitions`` as a process. It executes the statements of the API, which test_definitions.py tests."""

from __future__ import annotations

import getpass
import stat
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from nsqplatform.accounts.models import AuditEntry
from tests.database import url_of
from tests.harness import command
from tests.platform.conftest import LIBRARIES, platform_environment
from tests.platform.test_definitions import FILE, emptied

pytestmark = pytest.mark.django_db


@pytest.fixture
def nsq(redis: Any, transactional_db: None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``manage.py nsq definitions`` on the tests' database."""
    emptied()
    database = url_of(connection.settings_dict)

    def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        environment = platform_environment(DATABASE_URL=database, NSQLOOKUPD_HTTP_ADDRESSES="")
        return command.nsq("definitions", *words, env=environment, text=text, imports=LIBRARIES)

    return run


def test_the_command_checks_applies_and_exports_a_file(nsq: Any, tmp_path: Path) -> None:
    """``check`` exits with 3 while something would change; the audit trail names the user of the system."""
    file = tmp_path / "nsq.toml"
    file.write_text(FILE)
    checked = nsq("check", str(file))
    assert (checked.returncode, checked.stderr) == (3, "")
    assert checked.stdout.splitlines()[0].startswith("+ notifiers pager: url – → https://hooks.example.com/…")
    assert checked.stdout.splitlines()[-1] == "9 to create, 0 to change, 0 to remove, 0 unchanged, 0 not in the file"
    applied = nsq("apply", "-", text=FILE)
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.splitlines()[-1] == "9 created, 0 unchanged, 0 not in the file"
    assert nsq("check", str(file)).returncode == 0
    entry = AuditEntry.objects.get(action="import definitions")
    assert (entry.user, entry.via) == (getpass.getuser(), "command line")

    file.write_text(FILE.replace("1000.0", "2000.0").replace("4711", "4712"))
    changed = nsq("check", str(file), "--prune").stdout
    assert "~ rules Backlog: threshold 1000.0 → 2000.0\n" in changed
    assert "4711" not in changed
    file.chmod(0o644)
    assert nsq("export", str(file), "--secrets").returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # it has the key of a webhook
    assert tomllib.loads(file.read_text()) == tomllib.loads(FILE) | {"topics": []}
    assert tomllib.loads(nsq("export", "--only", "rules").stdout).keys() == {"version", "rules"}


@pytest.mark.parametrize(
    ("words", "text", "error"),
    [
        (["check", "-"], "version = 2", "nsq definitions: -: version: this platform reads definitions of version 1\n"),
        (["apply", "/no/such"], "", "nsq definitions: [Errno 2] No such file or directory: '/no/such'\n"),
    ],
)
def test_the_command_fails_in_one_line(nsq: Any, words: list[str], text: str, error: str) -> None:
    answer = nsq(*words, text=text)
    assert (answer.returncode, answer.stderr, answer.stdout) == (1, error, "")


SECTIONS = "topics, policies, notifiers, objectives, rules, silences, schedules, masks, views, people"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["check"], "nsq definitions check: the following arguments are required: FILE\n"),
        (
            ["export", "--only", "rules,nodes"],
            f"nsq definitions: --only: there is no section 'nodes'; there are {SECTIONS}\n",
        ),
        (["export", "--only", " ,"], f"nsq definitions: --only: ',' names no section; there are {SECTIONS}\n"),
        (
            ["--cluster", "nowhere", "export"],
            "nsq definitions: --cluster: there is no cluster 'nowhere'; NSQ_CLUSTERS declares default\n",
        ),
    ],
)
def test_an_invalid_command_line_is_no_difference(nsq: Any, words: list[str], error: str) -> None:
    """Its status is 2, as everywhere; 3 says that something would change."""
    answer = nsq(*words)
    assert (answer.returncode, answer.stderr, answer.stdout) == (2, error, "")
