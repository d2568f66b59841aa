"""Fixtures: a broker, a Django project on a database of its own, its workers."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.database import url_of
from tests.harness.daemon import Broker
from tests.harness.process import Process
from tests.harness.waiting import DEADLINE_S, wait_until

PROJECT = Path(__file__).parent / "project"


class Project:
    """The project of ``tests/nsqtasks/project``, in processes of their own."""

    def __init__(self, folder: Path, broker: Broker | None, database_url: str = "") -> None:
        self.folder = folder
        self.traces = folder / "traces"
        self.traces.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")},
            "PYTHONUNBUFFERED": "1",
            "DATABASE_URL": database_url or f"sqlite:///{folder / 'db.sqlite3'}?timeout=60",
            "NSQD": "127.0.0.1:4150" if broker is None else broker.tcp_address,
            "NSQD_HTTP": "" if broker is None else broker.http_address,
            "TRACES": str(self.traces),
        }

    @classmethod
    def without_broker(cls, folder: Path) -> Project:
        """For commands that do not connect."""
        return cls(folder, None)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(PROJECT / "manage.py"), *words]

    def manage(self, *words: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of manage.py to its end."""
        done = subprocess.run(
            self.command(*words),
            cwd=PROJECT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def python(self, code: str, **environment: str) -> list[str]:
        """Run code with the tasks and the model imported. Return the lines that it prints."""
        imports = "from shop.tasks import *; from nsqtasks.models import TaskRecord; from django.db.models import *"
        return self.manage("shell", "--no-imports", "-c", f"{imports}\n{code}", **environment).stdout.splitlines()

    def worker(self, *words: str, **environment: str) -> Process:
        return Process(
            self.command("nsq_worker", *words), merged=True, cwd=PROJECT, env={**self.environment, **environment}
        )

    def lines(self) -> list[str]:
        """What the tasks have noted."""
        file = self.traces / "lines"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_line(self, line: str, count: int = 1) -> None:
        wait_until(lambda: self.lines().count(line) >= count, f"{count} times {line!r}")

    def go(self, name: str) -> None:
        """Let the task ``wait_for_file(name)`` end."""
        (self.traces / f"{name}.go").touch()

    def rows(self, query: str) -> list[Any]:
        """Read from the table of tasks, which is ``FROM task`` in the query."""
        query = query.replace(" FROM task", " FROM nsqtasks_taskrecord")
        with closing(sqlite3.connect(self.folder / "db.sqlite3", timeout=DEADLINE_S)) as database:
            return database.execute(query).fetchall()

    def wait_until_successful(self, count: int) -> None:
        query = "SELECT count(*) FROM task WHERE status = 'SUCCESSFUL'"
        wait_until(lambda: self.rows(query) == [(count,)], f"{count} tasks are successful")


def in_flight(broker: Broker, topic: str) -> int:
    """Return the number of messages in flight in all channels of a topic."""
    channels = broker.topics().get(topic, {"channels": []})["channels"]
    return sum(channel["in_flight_count"] for channel in channels)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    data = tmp_path / "nsqd"
    data.mkdir()
    broker = Broker(data, keep_ports=True).launch()
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables, to be copied."""
    folder = tmp_path_factory.mktemp("migrated")
    Project.without_broker(folder).manage("migrate", "--verbosity=0")
    return folder / "db.sqlite3"


@pytest.fixture
def make_project(tmp_path: Path, migrated: Path) -> Callable[[Broker], Project]:
    """``make_project(broker)``: the project on a database of its own."""

    def make(broker: Broker) -> Project:
        shutil.copy(migrated, tmp_path / "db.sqlite3")
        return Project(tmp_path, broker)

    return make


@pytest.fixture
def project(make_project: Callable[[Broker], Project], broker: Broker) -> Project:
    return make_project(broker)


@pytest.fixture
def start(project: Project) -> Iterator[Callable[..., Process]]:
    """``start(*words, **environment)``: a worker that consumes, ended after the test."""
    with ExitStack() as stack:

        def start(*words: str, **environment: str) -> Process:
            worker = project.worker(*words, **environment)
            stack.enter_context(worker)
            worker.wait_for_log("worker .* runs tasks of")
            return worker

        yield start


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'db.sqlite3'}"
        return
    yield request.getfixturevalue("postgresql_url")


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[Any]:
    import dj_database_url

    from tests.postgres import start_postgres

    server, end = start_postgres()
    yield url_of(dj_database_url.parse(server.get_uri()))
    end()
