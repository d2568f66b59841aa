"""A platform to test: Redis, a database, the web process on a free port, and a cluster of nodes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from redis import Redis

from bench.ports import free_port
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from tests.database import url_of
from tests.harness import web as http
from tests.harness.process import ROOT, Process
from tests.harness.redis import running_redis
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.callers import Caller, maker
from tests.platform.go_nsq import GoCluster
from tests.platform.nsqadmin_api import NsqadminApi
from tests.platform.operators import Operator
from tests.platform.our_nsq import OurCluster


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """The bundled Redis, on the socket where the settings expect it."""
    from django.conf import settings

    with running_redis(settings.REDIS_URL, tmp_path_factory.mktemp("redis")) as client:
        yield client


@pytest.fixture
def redis(redis_server: Redis) -> Redis:
    """An empty Redis."""
    redis_server.flushall()
    return redis_server


# ---- a cluster


@pytest.fixture
def go_cluster(settings: Any) -> Iterator[GoCluster]:
    """A Go cluster, which the platform finds through its registry."""
    cluster = GoCluster()
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (cluster.registry.address,)
    settings.NSQD_HTTP_ADDRESSES = ()
    yield cluster
    for upstream in cluster.everything:
        if upstream.hold is not None:
            upstream.hold.set()
        upstream.stop()


@pytest.fixture
def cluster(settings: Any, tmp_path: Path) -> Iterator[OurCluster]:
    """Two brokers and a registry, which the platform is configured with."""
    ours = OurCluster(tmp_path)
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (ours.registry.http_address,)
    settings.NSQD_HTTP_ADDRESSES = ()
    yield ours
    ours.stop()


# ---- the platform's own processes


class Collecting:
    """A collector that runs in a thread of its own."""

    def __init__(self) -> None:
        from nsqplatform.cluster.collector.process import collect

        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        started = threading.Event()

        async def work() -> None:
            self._stop = asyncio.Event()
            started.set()
            await collect(self._stop)

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(work()), daemon=True)
        self._thread.start()
        started.wait(DEADLINE_S)

    def stop(self) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the collector did not stop"
        self._loop.close()


@pytest.fixture
def collect(
    transactional_db: None, redis: Redis, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Collecting]]:
    """Starts collectors of the cluster in the settings, which poll and archive more often than in production, below
    ``tmp_path``/archive.

    They write to the database from threads of their own, which a test's open transaction would hold up.
    """
    from nsqplatform.cluster.collector import archiver, lives, process

    monkeypatch.setattr(archiver, "EVERY_S", 1.0)
    monkeypatch.setattr(lives, "EVERY_S", 0.5)
    monkeypatch.setattr(process, "POLL_INTERVAL_S", 0.25)
    monkeypatch.setattr(process, "DISCOVERY_S", 0.5)
    settings.NSQ_ARCHIVE = str(tmp_path / "archive")
    started: list[Collecting] = []

    def start() -> Collecting:
        started.append(Collecting())
        return started[-1]

    yield start
    for collecting in started:
        if collecting._thread.is_alive():
            collecting.stop()


@pytest.fixture
def snapshot(redis: Redis) -> Callable[[], dict[str, Any] | None]:
    """Reads the collector's snapshot, as rows."""

    def read() -> dict[str, Any] | None:
        kept = redis.get("nsq:snapshot")
        return cast(dict[str, Any], Snapshot.from_json(kept).rows) if kept else None

    return read


LIBRARIES = (
    *("nsqcommand.command", "nsqcluster", "nsqdaemon.http", "nsqkombu.transport"),
    *("django.core.management.commands.migrate", "django.core.handlers.asgi", "django.test.client", "channels.db"),
    *("channels.routing", "celery.app.trace", "celery.bin.worker", "celery.worker.worker", "whitenoise.middleware"),
    *("aiohttp", "httpx", "jsonpath", "numpy", "prometheus_client", "psycopg", "pydantic", "redis.asyncio"),
    "structlog",
)
"""What the platform's processes import before they read their settings; pyarrow would start a thread."""


class Web(Process):
    """The web process, Daphne, on a free port."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        words = ["-m", "nsqplatform.console.nsq", "web", "--http-address", f"127.0.0.1:{self.port}"]
        super().__init__([sys.executable, *words], env=environment, cwd=ROOT, merged=True, imports=LIBRARIES)
        self.start()
        wait_until(self._is_answering, "the web process answers")

    def _is_answering(self) -> bool:
        assert self.is_running, self.output
        try:
            return http.get(f"{self.base}/ping", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def platform_environment(**changes: str) -> dict[str, str]:
    """The environment of a process of the platform. It imports what the tests import, so that it can be forked."""
    return os.environ | {"DJANGO_SETTINGS_MODULE": "nsqplatform.console.settings"} | changes


@pytest.fixture
def django_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Django command with a new home directory; keywords are environment variables."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "django", *words],
            env=platform_environment(NSQ_HOME=str(tmp_path)) | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def start_web(redis: Redis) -> Iterator[Callable[..., Web]]:
    """Starts web processes on the tests' Redis; keywords are environment variables, such as DATABASE_URL."""
    started: list[Web] = []

    def start(**environment: str) -> Web:
        started.append(Web(platform_environment(**environment)))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def start_collector(redis: Redis, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts a collector as a process; keywords are environment variables."""
    started: list[Process] = []

    def start(**environment: str) -> None:
        command = [sys.executable, "-m", "nsqplatform.console.nsq", "collector"]
        environment = platform_environment(NSQ_ARCHIVE=str(tmp_path / "archive"), **environment)
        started.append(Process(command, env=environment, merged=True, imports=LIBRARIES).start())

    yield start
    for process in started:
        assert process.terminate() == 0, process.output
        process.close()


@pytest.fixture(scope="session")
def web_process(redis_server: Redis, django_db_setup: None) -> Iterator[Web]:
    """The web process, on the tests' database and Redis; started once, since each test restores both."""
    from django.conf import settings
    from django.db import connection

    environment = platform_environment(DATABASE_URL=url_of(connection.settings_dict))
    server = Web(environment)
    assert environment["NSQ_HOME"] == str(settings.NSQ.home)
    yield server
    server.stop()


@pytest.fixture
def web(web_process: Web, redis: Redis, transactional_db: None) -> Web:
    """The web process, with an empty database and Redis."""
    return web_process


# ---- people

PASSWORD = "correct horse battery staple"


@pytest.fixture
def account(db: None) -> Callable[..., Any]:
    """Makes an account of a role, named after it by default, with PASSWORD."""
    from nsqplatform.accounts.roles import Role
    from nsqplatform.accounts.services import create_account

    def make(role: str, username: str | None = None) -> Any:
        return create_account(username=username or role, role=Role(role), password=PASSWORD)

    return make


@pytest.fixture
def password() -> str:
    return PASSWORD


@pytest.fixture
def callers(account: Callable[..., Any]) -> Callable[[str], Caller]:
    """Makes a caller with a role, signed in by a session or a token."""
    return maker(account)


class Browser:
    """Calls the API as the web app does: with a session cookie, and the CSRF header on changes."""

    def __init__(self, handler: Any) -> None:
        self.client = handler
        self.csrf = ""

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        if self.csrf:
            headers.setdefault("X-CSRFToken", self.csrf)
        data = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, f"/api/v1/{path}", data=data, content_type="application/json", headers=headers
        )

    def sign_in(self, username: str, password: str = PASSWORD) -> Any:
        response = self.request("POST", "session", {"username": username, "password": password})
        if response.status_code == 200:
            self.csrf = response.json()["csrf_token"]
        return response


@pytest.fixture
def browser(redis: Redis, db: None) -> Callable[[], Browser]:
    """Makes browsers, each with its own cookies and with Django's CSRF checks."""
    from django.test import Client

    return lambda: Browser(Client(enforce_csrf_checks=True))


# ---- jobs


STARTS_WITHIN_S = 180.0
"""A dispatcher starts in seconds, or in minutes on a busy machine."""


@pytest.fixture
def sign_in(browser: Callable[[], Browser], account: Callable[..., Any]) -> Callable[..., Operator]:
    """Signs in a new account of a role, with topic patterns."""

    def make(role: str = "operator", *patterns: str, name: str = "") -> Operator:
        user = account(role, name or role)
        user.topic_patterns = list(patterns)
        user.save()
        opened = browser()
        assert opened.sign_in(user.username).status_code == 200
        return Operator(opened)

    return make


@pytest.fixture
def dispatcher(redis: Redis, settings: Any, tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Starts dispatchers on the test's database, Redis and cluster, and waits until they take tasks."""
    from django.db import connection

    started: list[Process] = []

    def start() -> Process:
        pid_file = tmp_path / f"dispatcher-{len(started)}.pid"
        environment = platform_environment(
            NSQ_PID_FILE=str(pid_file),
            DATABASE_URL=url_of(connection.settings_dict),
            NSQLOOKUPD_HTTP_ADDRESSES=",".join(settings.NSQLOOKUPD_HTTP_ADDRESSES),
        )
        command = [sys.executable, "-m", "nsqplatform.console.nsq", "dispatcher"]
        started.append(Process(command, env=environment, cwd=ROOT, merged=True, imports=LIBRARIES).start())
        wait_until(pid_file.exists, "the dispatcher takes tasks", within_s=STARTS_WITHIN_S)
        return started[-1]

    yield start
    for process in started:
        process.stop()
        assert "raised unexpected" not in process.output, process.output


# ---- nsqadmin's scripts


@pytest.fixture
def nsqadmin_settings(settings: Any) -> Callable[..., None]:
    """Changes settings of nsqadmin's flags."""
    from dataclasses import replace

    def change(**values: Any) -> None:
        settings.NSQADMIN = replace(settings.NSQADMIN, **values)

    return change


@pytest.fixture(autouse=True)
def patient_connections(nsqadmin_settings: Callable[..., None]) -> None:
    """On a loaded machine this process, or a node, may stand still for longer than the defaults of 2 and 5 s."""
    from datetime import timedelta

    nsqadmin_settings(
        http_client_connect_timeout=timedelta(seconds=20), http_client_request_timeout=timedelta(seconds=20)
    )


@pytest.fixture
def short_request_timeout(patient_connections: None, nsqadmin_settings: Callable[..., None]) -> None:
    """For tests in which a node does not answer: they wait for this timeout."""
    from datetime import timedelta

    nsqadmin_settings(http_client_request_timeout=timedelta(seconds=3))


@pytest.fixture
def locked_api(redis: Redis, transactional_db: None) -> Iterator[NsqadminApi]:
    """nsqadmin's endpoints with default settings: callers must sign in."""
    api = NsqadminApi()
    yield api
    api.close()


@pytest.fixture
def api(locked_api: NsqadminApi, nsqadmin_settings: Callable[..., None]) -> NsqadminApi:
    """These endpoints, opened to scripts on this machine by ``--script-role=admin``."""
    nsqadmin_settings(script_role="admin")
    return locked_api
