"""The pages, the environment, and the message if the front end is not built."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from django.test import Client

from nsqplatform.console.api import api
from nsqplatform.console.environment import Environment, kept_secret
from nsqplatform.console.mail import MailServer
from nsqplatform.console.pages import PAGES
from tests.harness.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.database

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def built(settings, tmp_path) -> Path:
    """A front end as Vite builds it."""
    (tmp_path / "index.html").write_text("<!doctype html><title>the app</title>")
    settings.FRONTEND_DIST = tmp_path
    return tmp_path


@pytest.fixture
def viewer(account, redis) -> Client:
    client = Client()
    client.force_login(account("viewer"))
    return client


@pytest.mark.parametrize(
    ("address", "requested"),
    [("/clients", ["me", "clients"]), ("/clients?q=a", ["me"]), ("/topics", ["me"])],
)
def test_the_app_requests_what_it_needs_first_while_it_loads(address, requested, built, viewer):
    """A search of clients is the page's own request, because the HTML does not know its order."""
    links = re.findall(r'<link rel="preload" as="fetch" crossorigin href="/api/v1/(\w+)', viewer.get(address).text)
    assert links == requested


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topics/orders/billing",
        "/topics/orders%23ephemeral",
        "/nodes",
        "/nodes/a:1",
        "/counter",
        "/lookup",
    ],
)
def test_every_page_is_the_app_for_signed_in_users(path, built, viewer):
    """The app shows the page of the path."""
    response = viewer.get(path)
    assert response.status_code == 200
    assert b"the app" in response.content
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "no-store" in response["Cache-Control"]


def test_an_anonymous_user_is_sent_to_the_sign_in_page_and_back(built, db):
    """After signing in, the requested page opens."""
    response = Client().get("/topics/orders?sort=depth")
    assert (response.status_code, response["Location"]) == (302, "/signin?next=/topics/orders%3Fsort%3Ddepth")


def test_the_sign_in_page_is_the_app_too_and_brings_the_csrf_cookie(built, db):
    """It needs no session."""
    response = Client().get("/signin")
    assert b"the app" in response.content
    assert response.cookies["csrftoken"].value


def test_a_missing_build_says_which_command_to_run(settings, tmp_path, viewer):
    """Not an error page."""
    settings.FRONTEND_DIST = tmp_path / "nowhere"
    response = viewer.get("/")
    assert response.status_code == 503
    assert b"make setup" in response.content


@pytest.mark.parametrize(
    "path", ["/api/v1/nowhere", "/api/", "/api/v1", "/api/v1/", "/api/v2/me", "/api/v1/views/%0D%0Ax"]
)
def test_an_unknown_endpoint_is_not_a_page(path, viewer):
    """A script with a misspelt path gets an error that it can parse, whatever the method."""
    for response in (viewer.get(path), Client(enforce_csrf_checks=True).post(path)):
        assert response.status_code == 404
        assert "/api/v1/docs" in response.json()["message"]


def test_another_method_is_refused_as_json_on_every_path_of_the_api(viewer):
    """With the methods that the path has, in the message and in ``Allow``."""
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    for path, operations in paths.items():
        there = re.sub(r"{\w+}", "1", path)
        allowed = ", ".join(sorted(method.upper() for method in operations))
        for method in {"get", "post", "put", "patch", "delete", "options"} - operations.keys():
            answer = viewer.generic(method.upper(), there)
            assert (answer.status_code, answer.headers.get("Allow")) == (405, allowed), (method, there)
            assert answer.json() == {"message": f"{method.upper()} is not allowed for {there}; allowed: {allowed}"}


def test_pages_are_not_posted_to(built, viewer):
    """A page's path only shows the page."""
    assert viewer.post("/topics").status_code == 405


def test_the_web_process_serves_the_built_front_end(web):
    """Assets may be cached for long, pages not at all, and the API's documentation needs no other site."""
    with httpx.Client(base_url=web.base, trust_env=False, timeout=DEADLINE_S) as client:
        assert client.get("/signin").status_code in (200, 503)
        assert client.get("/ping").text == "OK"
        docs = client.get("/api/v1/docs")
        assert docs.status_code == 200
        assert "https://" not in docs.text
        assert client.get("/static/ninja/swagger-ui-bundle.js").status_code == 200
        assert client.get("/static/nowhere.js").status_code == 404
        schema = client.get("/api/v1/openapi.json").json()
        assert {"NodeRow", "TopicRow", "ChannelRow"} <= set(schema["components"]["schemas"])


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_the_web_apps_files_are_sent_compressed(web, encoding):
    """Made once, by the build; whoever accepts neither gets them as they are."""
    built = ROOT / "frontend" / "dist"
    script = max((built / "assets").glob("*.js"), key=lambda path: path.stat().st_size)
    with httpx.Client(base_url=web.base, trust_env=False, timeout=DEADLINE_S) as client:
        plain = client.get(f"/static/assets/{script.name}", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers
        assert plain.content == script.read_bytes()
        compressed = client.head(f"/static/assets/{script.name}", headers={"Accept-Encoding": encoding})
    assert compressed.headers["Content-Encoding"] == encoding
    assert "immutable" in compressed.headers["Cache-Control"]
    assert int(compressed.headers["Content-Length"]) < len(plain.content) / 2


def test_the_snapshot_is_sent_compressed(go_cluster, collect, snapshot, web, callers):
    """To scripts that accept it."""
    for number in range(50):
        go_cluster.nodes[0].channel(f"topic-{number}", "archive")
    collect()
    wait_until(lambda: (snapshot() or {}).get("topics"), "a snapshot with the topics")
    with httpx.Client(base_url=web.base, trust_env=False, headers=callers("viewer").as_sent) as client:
        sent = client.get("/api/v1/snapshot", headers={"Accept-Encoding": "gzip"}, timeout=DEADLINE_S)
    assert sent.headers["Content-Encoding"] == "gzip"
    assert len(sent.json()["topics"]) == 50
    assert int(sent.headers["Content-Length"]) < len(sent.content) / 2


def test_a_host_that_is_not_ours_is_refused(web):
    """A request under a foreign host name gets nothing."""
    page = httpx.get(f"{web.base}/signin", headers={"Host": "evil.example"}, trust_env=False, timeout=DEADLINE_S)
    assert page.status_code == 400


# ---- the environment


def test_the_defaults_are_for_one_machine(tmp_path):
    """SQLite, Redis and all files below the home directory; the registry at its default address."""
    environment = Environment.read({"NSQ_HOME": str(tmp_path)})
    assert environment.database_url == f"sqlite:///{tmp_path}/platform.sqlite3"
    assert environment.redis_url == f"unix://{tmp_path}/redis.sock"
    assert (environment.archive, environment.reports) == (f"{tmp_path}/archive", f"{tmp_path}/reports")
    assert environment.lookupd_http_addresses == ("127.0.0.1:4161",)
    assert environment.nsqd_http_addresses == ()
    assert not environment.debug


def test_given_nodes_leave_the_default_registry_out(tmp_path):
    """Nodes without a registry need none."""
    environment = Environment.read({"NSQ_HOME": str(tmp_path), "NSQD_HTTP_ADDRESSES": "a:4151, [::1]:4151,"})
    assert environment.nsqd_http_addresses == ("a:4151", "[::1]:4151")
    assert environment.lookupd_http_addresses == ()


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("", MailServer()),
        ("smtp://mail", MailServer(host="mail", port=25)),
        ("smtps://mail", MailServer(host="mail", port=465, tls=True)),
        (
            "smtp+tls://nsq:p%40ss@mail:2525",
            MailServer(host="mail", port=2525, user="nsq", password="p@ss", start_tls=True),
        ),
    ],
)
def test_a_mail_server_is_named_by_a_url(tmp_path, url, server):
    """The port depends on the kind of TLS, unless it is given."""
    assert Environment.read({"NSQ_HOME": str(tmp_path), "NSQ_EMAIL_URL": url}).mail == server


def test_the_secret_key_is_drawn_once_and_kept_to_its_owner(tmp_path):
    """Also if several processes start at once; only its owner may read it."""
    path = tmp_path / "secret_key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: kept_secret(path), range(32)))
    assert keys == {kept_secret(path)}
    assert len(keys.pop()) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret_key"]


def test_sqlite_is_in_wal_mode(django_command):
    """Readers do not wait for the one writer."""
    code = "from django.db import connection as c; print('mode', c.cursor().execute('PRAGMA journal_mode').fetchone())"
    shown = django_command("shell", "-c", code, DATABASE_URL="")
    assert "mode ('wal',)" in shown.stdout, shown.stderr


def test_every_page_of_the_web_app_is_one_of_the_servers():
    """Otherwise it is shown with a 404, and a script gets NOT_FOUND."""
    routes = (ROOT / "frontend/src/navigation/routes.ts").read_text()
    named = re.findall(r"'(\w+)'", routes.split("const NAMED = [")[1].split("]")[0])
    assert len(named) > 10
    assert [name for name in named if PAGES.fullmatch(f"/{name}") is None] == []
