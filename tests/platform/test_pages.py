"""The pages, the environment they run in, and what stands in for them when they are not built."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client

from console.environment import Environment, kept_secret

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def built(settings, tmp_path) -> Path:
    """A front end as Vite leaves it."""
    (tmp_path / "index.html").write_text("<!doctype html><title>the app</title>")
    settings.FRONTEND_DIST = tmp_path
    return tmp_path


@pytest.fixture
def viewer(account, redis) -> Client:
    client = Client()
    client.force_login(account("viewer"))
    return client


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders/billing", "/topics/orders%23ephemeral", "/nodes"])
def test_every_page_is_the_app_for_whoever_is_signed_in(path, built, viewer):
    """The app draws the page that the path names."""
    response = viewer.get(path)
    assert response.status_code == 200
    assert b"the app" in response.content
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "no-store" in response["Cache-Control"]


def test_a_stranger_is_sent_to_the_sign_in_page_and_back(built, db):
    """The page asked for is kept, so that signing in leads there."""
    response = Client().get("/topics/orders?sort=depth")
    assert (response.status_code, response["Location"]) == (302, "/signin?next=/topics/orders%3Fsort%3Ddepth")


def test_the_sign_in_page_is_the_app_too_and_brings_the_csrf_cookie(built, db):
    """It needs no session."""
    response = Client().get("/signin")
    assert b"the app" in response.content
    assert response.cookies["csrftoken"].value


def test_a_missing_build_says_which_command_to_run(settings, tmp_path, viewer):
    """Instead of an error page."""
    settings.FRONTEND_DIST = tmp_path / "nowhere"
    response = viewer.get("/")
    assert response.status_code == 503
    assert b"make setup" in response.content


@pytest.mark.parametrize("path", ["/api/v1/nowhere", "/api/", "/api/v2/me"])
def test_an_unknown_endpoint_is_not_a_page(path, viewer):
    """A script that mistyped a path gets an error it can read, whatever it meant to do there."""
    for response in (viewer.get(path), Client(enforce_csrf_checks=True).post(path)):
        assert response.status_code == 404
        assert "/api/v1/docs" in response.json()["message"]


def test_pages_are_not_posted_to(built, viewer):
    """Nothing happens on a page's path but showing it."""
    assert viewer.post("/topics").status_code == 405


def test_the_web_process_serves_what_was_built(web):
    """Assets come with a long life, pages with none, and the API's documentation needs no other site."""
    with httpx.Client(base_url=web.base, trust_env=False) as client:
        assert client.get("/signin").status_code in (200, 503)
        assert client.get("/ping").text == "OK"
        docs = client.get("/api/v1/docs")
        assert docs.status_code == 200
        assert "https://" not in docs.text
        assert client.get("/static/ninja/swagger-ui-bundle.js").status_code == 200
        assert client.get("/static/nowhere.js").status_code == 404
        schema = client.get("/api/v1/openapi.json").json()
        assert {"NodeRow", "TopicRow", "ChannelRow"} <= set(schema["components"]["schemas"])


def test_a_host_that_is_not_ours_is_refused(web):
    """A name pointed at us from elsewhere gets nothing."""
    page = httpx.get(f"{web.base}/signin", headers={"Host": "evil.example"}, trust_env=False)
    assert page.status_code == 400


# ---- the environment


def test_nothing_configured_is_a_laptop(tmp_path):
    """SQLite, Redis and everything kept below the home; the registry where it listens by default."""
    environment = Environment.read({"NSQ_HOME": str(tmp_path)})
    assert environment.database_url == f"sqlite:///{tmp_path}/platform.sqlite3"
    assert environment.redis_url == f"unix://{tmp_path}/redis.sock"
    assert (environment.archive, environment.reports) == (f"{tmp_path}/archive", f"{tmp_path}/reports")
    assert environment.lookupd_http_addresses == ("127.0.0.1:4161",)
    assert environment.nsqd_http_addresses == ()
    assert not environment.debug


def test_given_nodes_leave_the_default_registry_out(tmp_path):
    """Somebody who names nodes and no registry has none."""
    environment = Environment.read({"NSQ_HOME": str(tmp_path), "NSQD_HTTP_ADDRESSES": "a:4151, [::1]:4151,"})
    assert environment.nsqd_http_addresses == ("a:4151", "[::1]:4151")
    assert environment.lookupd_http_addresses == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NSQD_HTTP_ADDRESSES", "nohost"),
        ("NSQD_HTTP_ADDRESSES", "a:4151,b:x"),
        ("NSQLOOKUPD_HTTP_ADDRESSES", "a:0"),
        ("NSQLOOKUPD_HTTP_ADDRESSES", ":4161"),
        ("NSQ_DEBUG", "maybe"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(tmp_path, name, value):
    """With what was wrong in it."""
    with pytest.raises(ValueError, match=name):
        Environment.read({"NSQ_HOME": str(tmp_path), name: value})


def test_the_secret_key_is_drawn_once_and_kept_to_its_owner(tmp_path):
    """Also when several processes start at once, and nobody else may read it."""
    path = tmp_path / "secret_key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: kept_secret(path), range(32)))
    assert keys == {kept_secret(path)}
    assert len(keys.pop()) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret_key"]


def django(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
            "NSQ_HOME": str(tmp_path),
        }
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def postgres(folders: pytest.TempPathFactory, attempts: int = 4) -> Any:
    """A server of its own. Now and then pg_ctl waits in vain for one that is up: that is ended, and another started."""
    pgserver = pytest.importorskip("pgserver", reason="needs the pgserver wheel")
    logging.getLogger("pgserver").setLevel(logging.CRITICAL)  # it still talks when the run's output is closed
    data = folders.mktemp("postgres")
    try:
        return pgserver.get_server(data)
    except subprocess.TimeoutExpired:
        os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
        if attempts == 1:
            raise
    return postgres(folders, attempts - 1)


def test_the_same_platform_runs_on_postgres(tmp_path, tmp_path_factory):
    """The tables are made, the first account too, and no migration is missing."""
    server = postgres(tmp_path_factory)
    try:
        uri = server.get_uri()
        made = django(tmp_path, "migrate", "--no-input", DATABASE_URL=uri)
        assert made.returncode == 0, made.stderr
        checked = django(tmp_path, "makemigrations", "--check", "--dry-run", DATABASE_URL=uri)
        assert checked.returncode == 0, checked.stdout
        first = django(
            tmp_path, "shell", "-c", "from accounts.services import *; print(first_start())", DATABASE_URL=uri
        )
        assert "/signin/" in first.stdout, first.stderr
        tables = server.psql("select username, role from accounts_user")
        assert "admin" in tables
    finally:
        server.cleanup()


def test_sqlite_is_in_wal_mode(tmp_path):
    """Readers do not wait for the one writer."""
    code = "from django.db import connection as c; print('mode', c.cursor().execute('PRAGMA journal_mode').fetchone())"
    shown = django(tmp_path, "shell", "-c", code, DATABASE_URL="")
    assert "mode ('wal',)" in shown.stdout, shown.stderr
