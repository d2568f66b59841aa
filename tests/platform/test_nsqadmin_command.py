"""The command ``nsqadmin``: its flags, errors and end, and graphite's data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from nsqdaemon.settings import markdown
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.nsqadmin.graphite import Graphite
from nsqplatform.nsqadmin.settings import AdminSettings, from_environment
from tests.harness.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]


def nsqadmin(*arguments: str) -> list[Any]:
    return [sys.executable, "-m", "nsqplatform.console.nsqadmin", *arguments]


def environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")}
    return kept | {"NSQ_HOME": str(home), "PYTHONPATH": path}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 1, "FATAL: failed to instantiate nsqadmin - --nsqd-http-address or --lookupd-http-address required"),
        (
            ["--lookupd-http-address=127.0.0.1:1", "--nsqd-http-address=127.0.0.1:2"],
            1,
            "FATAL: failed to instantiate nsqadmin - use --nsqd-http-address or --lookupd-http-address not both",
        ),
        (["-lookupd-http-address=nohost"], 1, "failed to resolve --lookupd-http-address (nohost) - "),
        (["--nsqd-http-address=127.0.0.1:x"], 1, "failed to resolve --nsqd-http-address (127.0.0.1:x) - "),
        (
            ["--nsqd-http-address=127.0.0.1:1", "--allow-config-from-cidr=x"],
            1,
            "failed to parse --allow-config-from-cidr (x) - ",
        ),
        (
            ["--nsqd-http-address=127.0.0.1:1", "--http-client-tls-cert=a"],
            1,
            "--http-client-tls-key must be specified with --http-client-tls-cert",
        ),
        (
            ["--nsqd-http-address=127.0.0.1:1", "--http-client-tls-key=a"],
            1,
            "--http-client-tls-cert must be specified with --http-client-tls-key",
        ),
        (["--nsqd-http-address=127.0.0.1:1", "--http-address=nohost"], 1, "listen (nohost) failed - "),
        (["--config=/nowhere.toml"], 1, "failed to load config file /nowhere.toml - "),
        (["--log-level=loud"], 2, "'loud' is not a log level"),
        (["--bogus"], 2, "flag provided but not defined: -bogus"),
    ],
)
def test_a_failed_start_gives_its_reason_in_one_line(tmp_path, arguments, status, said):
    """With nsqadmin's text and exit status; nothing is left behind."""
    ended = subprocess.run(nsqadmin(*arguments), env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert ended.returncode == status, ended.stderr
    assert said in ended.stderr


def test_its_version(tmp_path):
    ended = subprocess.run(nsqadmin("-version"), env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(r"nsqadmin v1\.3\.0 \(built w/python3\.\d+\.\d+\)\n", ended.stdout)


def test_it_serves_a_cluster_below_its_base_path_and_ends_cleanly(go_cluster, tmp_path):
    """One command starts everything; the flag's list overrides the file's."""
    go_cluster.nodes[0].topic("orders")
    config = tmp_path / "nsqadmin.toml"
    config.write_text('nsqlookupd_http_addresses = ["127.0.0.1:1"]\nbase_path = "nsq/"\nunknown = 1\n')
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            nsqadmin(
                f"--config={config}",
                f"--lookupd-http-address={go_cluster.registry.address}",
                "--http-address=127.0.0.1:0",
                "--script-role=viewer",
            ),
            env=environment(tmp_path / "home"),
            stdout=output,
            stderr=output,
        )
    try:

        def address() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"\[nsqadmin\] \S+ \S+ INFO: HTTP: listening on (\S+)", log.read_text())
            return found and found[1]

        site = f"http://{wait_until(address, 'it listens', within_s=90)}"
        assert "INFO: nsqadmin v1.3.0" in log.read_text()
        link = rf"sign in, once, as admin: {site}/nsq/signin/\S+"
        wait_until(lambda: re.search(link, log.read_text()), "it prints a link to sign in")
        with httpx.Client(trust_env=False, timeout=DEADLINE_S) as client:
            assert client.get(f"{site}/nsq/ping").text == "OK"
            assert client.get(f"{site}/nsq/api/topics").json() == {"topics": ["orders"], "message": ""}
            moved = client.get(f"{site}/nsq/api/topics/")
            assert (moved.status_code, moved.headers["Location"]) == (301, "/nsq/api/topics")
            assert client.get(f"{site}/api/topics").json() == {"message": "NOT_FOUND"}
            page = client.get(f"{site}/nsq/topics")
            assert (page.status_code, page.headers["Location"]) == (302, "/nsq/signin?next=/nsq/topics")
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "HTTP: closing" in log.read_text()


@pytest.mark.parametrize(
    ("given", "base"), [("/", ""), ("", ""), ("nsq", "/nsq"), ("/nsq/", "/nsq"), ("//a/../b/", "/b")]
)
def test_the_base_path_is_cleaned(given, base):
    """It begins with a slash and ends without one."""
    assert AdminSettings(base_path=given).base == base


def test_the_processes_it_starts_get_the_same_settings():
    """Through their environment."""
    settings = AdminSettings(
        admin_user=("alice", "bob"), proxy_graphite=True, statsd_interval=from_environment({}).statsd_interval
    )
    assert from_environment(settings.environment()) == settings


def test_the_docs_list_all_settings():
    """docs/settings-nsqadmin.md contains the table of the declarations; ``make docs`` writes it."""
    assert (ROOT / "docs/settings-nsqadmin.md").read_text().endswith("\n\n" + markdown(AdminSettings))


# ---- graphite


class FakeGraphite:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answer: tuple[int, bytes] = (200, b'[{"datapoints": [[1234.0, 1], [5.0, 2]]}]')
        graphite = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                graphite.asked.append((self.path, dict(self.headers)))
                self.send_response(graphite.answer[0])
                self.send_header("Content-Type", "image/png")
                self.end_headers()
                self.wfile.write(graphite.answer[1])

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://user:secret@127.0.0.1:{self.server.server_address[1]}/graphite"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def graphite(nsqadmin_settings) -> Iterator[FakeGraphite]:
    made = FakeGraphite()
    nsqadmin_settings(graphite_url=made.url, proxy_graphite=True)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.django_db(transaction=True)
def test_a_rate_is_the_first_point_over_an_interval(graphite, api):
    """With two decimals; a missing point is not available, and no failure."""
    assert api.get("/api/graphite?metric=rate&target=x").text == '{"rate":"20.57"}'
    [(path, _)] = graphite.asked
    assert path == "/graphite/render?format=json&from=-120sec&target=x&until=-60sec"
    for points in (b"[]", b'[{"datapoints": [[null, 1]]}]', b'[{"datapoints": [[-1, 1]]}]'):
        graphite.answer = (200, points)
        assert api.get("/api/graphite?metric=rate&target=x").json() == {"rate": "N/A"}
    graphite.answer = (500, b"")
    assert api.get("/api/graphite?metric=rate&target=x").status_code == 502


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "INVALID_ARG_METRIC"),
        ("metric=depth", "INVALID_ARG_METRIC"),
        ("metric=rate", "INVALID_ARG_TARGET"),
        ("a;b", "INVALID_REQUEST"),
    ],
)
def test_a_rate_of_nothing_is_refused(graphite, api, query, code):
    answer = api.get(f"/api/graphite?{query}")
    assert (answer.status_code, answer.json()) == (400, {"message": code})


@pytest.mark.django_db(transaction=True)
def test_render_is_forwarded_with_credentials_and_the_peer(graphite, api):
    """Below graphite's own path; refused to callers who may not look."""
    answer = api.get("/render?target=a&width=1")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/png")
    [(path, headers)] = graphite.asked
    assert path == "/graphite/render?target=a&width=1"
    assert headers["Authorization"].startswith("Basic ")
    assert headers["X-Forwarded-For"] == "127.0.0.1"
    assert api.get("/render", peer="10.0.0.1").status_code == 401


@pytest.mark.django_db(transaction=True)
def test_a_refusal_of_graphite_is_passed_on(graphite, api):
    """It is graphite's, not the platform's, so it is not in the audit trail."""
    graphite.answer = (403, b"<html>Forbidden</html>")
    answer = api.get("/render?target=a")
    assert (answer.status_code, answer.text) == (403, "<html>Forbidden</html>")
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_render_forwards_no_headers_of_ours(graphite, api, browser, account):
    """Neither the session nor other headers of the browser are sent to graphite, and only the content type is
    returned."""
    account("viewer")
    viewer = browser()
    viewer.sign_in("viewer")
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in viewer.client.cookies.items())
    answer = api.get("/render?target=a", Cookie=cookies, Referer="http://localhost/topics", X_Other="1")
    assert answer.status_code == 200
    [(_, headers)] = graphite.asked
    assert not {"cookie", "referer", "x-other", "x-csrftoken"} & {name.lower() for name in headers}
    assert "Server" not in answer.headers


@pytest.mark.django_db(transaction=True)
def test_without_the_proxy_there_is_no_render(api):
    assert api.get("/render?target=a").status_code == 404


def test_targets_are_named_as_nsqd_pushes_them():
    """Prefix, host key and formats come from the flags; names are cleaned as statsd does."""
    plain = Graphite(AdminSettings())
    assert plain.target("depth", topic="a b/c#") == "sumSeries(stats.gauges.nsq.*.topic.a_b-c.depth)"
    assert plain.target("message_count", topic="t", channel="c", node="10.0.0.1:4151") == (
        "sumSeries(stats.counters.nsq.10_0_0_1_4151.topic.t.channel.c.message_count.count)"
    )
    assert [*plain.of_topic("t", None, "2h")] == []


def drawn(of: Iterator[tuple[str, str]]) -> dict[str, tuple[str, dict[str, str]]]:
    """Title, the address without its query, and the query."""
    parts = {title: urlsplit(url) for title, url in of}
    return {title: (url._replace(query="").geturl(), dict(parse_qsl(url.query))) for title, url in parts.items()}


def test_graphs_are_drawn_as_nsqadmin_has_them_drawn():
    """Counters as rates, backlogs in red; graphite draws them, and its credentials are not shown."""
    graphs = drawn(Graphite(AdminSettings(graphite_url="https://u:p@graphite.example/g/")).of_topic("t", None, "12h"))
    assert {address for address, _ in graphs.values()} == {"https://graphite.example/g/render"}
    depth, messages = graphs["Depth"][1], graphs["Messages"][1]
    assert depth["target"] == 'summarize(sumSeries(stats.gauges.nsq.*.topic.t.depth),"60sec","avg")'
    assert messages["target"] == (
        'summarize(scale(sumSeries(stats.counters.nsq.*.topic.t.message_count.count),0.0166667),"60sec","avg")'
    )
    assert (depth["colorList"], messages["colorList"]) == ("red", "blue")
    assert (depth["from"], depth["until"], depth["width"], depth["height"]) == ("-12h", "-1min", "800", "450")


def test_through_the_proxy_graphs_are_below_the_base_path():
    """For browsers that cannot reach graphite."""
    settings = AdminSettings(graphite_url="http://graphite.internal", proxy_graphite=True, base_path="/nsq")
    channel = drawn(Graphite(settings).of_topic("t", "c", "2h"))
    assert {address for address, _ in channel.values()} == {"/nsq/render"}
    assert len(channel) == 7
    node = drawn(Graphite(settings).of_node("10.0.0.1:4151", "2h"))
    assert node["Memory"][1]["target"] == ('summarize(stats.gauges.nsq.10_0_0_1_4151.mem.*_bytes,"60sec","avg")')
    assert "stats.counters.nsq.10_0_0_1_4151.mem.gc_runs.count" in node["GC runs"][1]["target"]


@pytest.mark.django_db(transaction=True)
def test_the_api_contains_the_addresses_of_graphs(locked_api, callers, nsqadmin_settings):
    """Of one subject at a time; empty without graphite; refused to strangers."""
    viewer = callers("viewer").headers
    assert locked_api.get("/api/v1/graphs?topic=t", **viewer).json() == {"graphs": []}
    nsqadmin_settings(graphite_url="http://graphite.example")
    [depth, messages] = locked_api.get("/api/v1/graphs?topic=t", **viewer).json()["graphs"]
    assert (depth["title"], messages["title"]) == ("Depth", "Messages")
    assert depth["url"].startswith("http://graphite.example/render?target=")
    for query in ("", "?topic=t&node=n", "?topic=t&timeframe=soon"):
        assert locked_api.get(f"/api/v1/graphs{query}", **viewer).status_code == 422
    assert locked_api.get("/api/v1/graphs?topic=t").status_code == 401
