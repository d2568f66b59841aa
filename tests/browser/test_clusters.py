"""Two clusters in one platform, each with its own broker and registry: ``nsq up`` with ``NSQ_CLUSTERS``."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.clicks import Clicks
from tests.browser.conftest import PASSWORD, ROOT, Stack, Visitor
from tests.browser.test_reports import SPARK_MS, run_now
from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.daemon import Broker, Registry
from tests.harness.waiting import DEADLINE_S, wait_until

RULE = {
    "name": "Backlog",
    "scope": "channel",
    "metric": "depth",
    "comparison": "above",
    "threshold": 2,
    "hold_s": 0,
    "resolve_after_s": 30,
    "severity": "critical",
    "notifiers": [],
}


class TwoClusters(Stack):
    """A platform with the cluster Vienna of ``nsq up`` itself, and Berlin, whose broker is ``berlin``."""

    def __init__(self, home: Path) -> None:
        self.registry = Registry().launch()
        (home / "berlin").mkdir()
        lookupd = f"--lookupd-tcp-address={self.registry.tcp_address}"
        self.berlin = Broker(home / "berlin", lookupd, "--broadcast-address=127.0.0.1").launch()
        file = home / "clusters.toml"
        lines = ["[default]", 'title = "Vienna"', "[clusters.berlin]", 'title = "Berlin"']
        file.write_text("\n".join([*lines, f"lookupd_http_addresses = {json.dumps([self.registry.http_address])}"]))
        super().__init__(home, NSQ_CLUSTERS=str(file))

    def stop(self) -> None:
        super().stop()
        self.berlin.stop()
        self.registry.stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClusters]:
    if not (ROOT / "frontend" / "dist" / "index.html").exists():
        pytest.skip("the web app is not built: make setup")
    running = TwoClusters(tmp_path_factory.mktemp("two-clusters"))
    with contextlib.ExitStack() as ending:
        ending.callback(running.stop)
        running.wait_ready()
        running.manage("create_account", "ada", "--role", "admin", "--password", PASSWORD)
        running.publish("waltz", 3)
        running.command("/channel/create", topic="waltz", channel="hall")
        running.berlin.post("/topic/create", topic="techno")
        running.berlin.post("/channel/create", topic="techno", channel="cellar")
        running.berlin.post("/mpub", b"1\n2\n3\n4\n5", topic="techno")
        yield running


@pytest.fixture
def open_at(chromium: Browser, two: TwoClusters) -> Iterator[Callable[..., Visitor]]:
    """Opens a page of the platform as an administrator of both clusters."""
    contexts = []

    def visit(path: str, user: str = "ada", width: int = 1440) -> Visitor:
        context = chromium.new_context(base_url=two.site, viewport={"width": width, "height": 900})
        contexts.append(context)
        visitor = Visitor(context)
        answer = context.request.post("/api/v1/session", data={"username": user, "password": PASSWORD})
        assert answer.status == 200, answer.text()
        visitor.page.goto(path)
        return visitor

    yield visit
    for context in contexts:
        context.close()


def is_live(page: Page) -> None:
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def call(page: Page, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call the API with the page's session. Returns status and JSON."""
    script = """async ([method, path, body]) => {
        const me = await (await fetch('/api/v1/me')).json();
        const answer = await fetch(path, {method, body: body && JSON.stringify(body),
            headers: {'Content-Type': 'application/json', 'X-CSRFToken': me.csrf_token}});
        return [answer.status, await answer.text()];
    }"""
    status, text = page.evaluate(script, [method, path, body])
    return status, json.loads(text) if text else None


def test_each_cluster_is_chosen_in_the_header_and_shows_only_its_own(two, open_at):
    """With the keyboard. A message that is published in Berlin is not in Vienna; every link and request stays in the
    cluster, also in a new tab; the title of the window names it; the palette offers the other one."""
    visitor = open_at("/topics")
    page = visitor.page
    is_live(page)
    expect(page.get_by_role("link", name="waltz", exact=True)).to_be_visible()
    expect(page.get_by_text("techno")).to_have_count(0)
    expect(page).to_have_title("Topics · Vienna · NSQ")

    page.get_by_role("button", name="Cluster: Vienna").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Vienna", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url.replace("ws://", "http://")))
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/berlin/")
    is_live(page)
    page.get_by_role("link", name="Topics", exact=True).first.click()
    page.wait_for_url("**/c/berlin/topics")
    expect(page).to_have_title("Topics · Berlin · NSQ")
    expect(page.get_by_text("waltz")).to_have_count(0)
    topic = page.get_by_role("link", name="techno", exact=True)
    with page.context.expect_page() as opened:
        topic.click(modifiers=["Control"])
    opened.value.wait_for_url(f"{two.site}/c/berlin/topics/techno")
    topic.click()
    page.wait_for_url("**/c/berlin/topics/techno")
    expect(page.get_by_role("link", name="cellar", exact=True)).to_be_visible()
    strayed = [url for url in asked if url.startswith(two.site) and "/static/" not in url and "/c/berlin/" not in url]
    assert strayed == []

    page.keyboard.press("Control+k")
    page.keyboard.type("Cluster: Vienna")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{two.site}/")
    is_live(page)
    assert visitor.faults == []


def test_a_second_cluster_is_two_clicks_away(two, open_at):
    """The menu in the header, and the cluster."""
    page = open_at("/").page
    clicks = Clicks(page)
    page.get_by_role("button", name="Cluster: Vienna").click()
    page.get_by_role("link", name="Berlin", exact=True).click()
    page.wait_for_url("**/c/berlin/")
    expect(page.get_by_role("link", name="techno").first).to_be_visible()
    assert clicks.count == 2


def test_an_alert_of_one_cluster_is_not_in_the_other(two, open_at):
    """A rule of Berlin fires for Berlin's channel; Vienna's pages have neither rule nor alert, and no badge."""
    page = open_at("/c/berlin/alerts").page
    is_live(page)
    status, answer = call(page, "POST", "/c/berlin/api/v1/alerts/rules", RULE)
    assert status == 201, answer
    expect(page.get_by_text("techno / cellar").first).to_be_visible()
    assert call(page, "GET", "/api/v1/alerts/rules")[1]["rules"] == []
    vienna = open_at("/alerts").page
    is_live(vienna)
    assert call(vienna, "GET", "/api/v1/alerts?state=firing")[1]["alerts"] == []
    expect(vienna.get_by_text("techno")).to_have_count(0)
    call(page, "DELETE", f"/c/berlin/api/v1/alerts/rules/{answer['id']}")


@pytest.mark.parametrize("width", [390, 500, 721, 900, 1100, 1241, 1300, 1321, 1440])
def test_the_header_says_live_beside_the_clusters(width, open_at):
    """At every width, nothing of the header is outside of the window."""
    page = open_at("/c/berlin/", width=width).page
    is_live(page)
    switcher = page.get_by_role("button", name="Cluster: Berlin")
    expect(switcher).to_be_visible()
    assert pixels_beyond(page) <= 0
    for part in (switcher, page.get_by_text("Live", exact=True), page.get_by_role("button", name="Menu: ada")):
        box = part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, (part, box)


@pytest.mark.parametrize("size", WIDTHS)
def test_pages_of_a_second_cluster_suit_a_screen_reader(size, open_at, axe):
    """A channel with its charts, and the list of clusters in the header; axe finds nothing."""
    page = open_at("/c/berlin/topics/techno/cellar", width=WIDTHS[size]["width"]).page
    is_live(page)
    expect(page.get_by_role("heading", name="cellar", level=1)).to_be_visible()
    expect(page.get_by_role("region", name="Charts").get_by_role("img")).to_have_count(6)
    assert axe(page) == []
    page.get_by_role("button", name="Cluster: Berlin").click()
    expect(page.get_by_role("link", name="Vienna", exact=True)).to_be_visible()
    assert axe(page) == []


def test_a_deletion_of_many_topics_changes_one_cluster(two, open_at):
    """Both have topics with these names. The job runs to its end in Berlin; Vienna keeps its topics, and its pages do
    not show the job."""
    topics = [f"polka.{number}" for number in range(20)]
    for topic in topics:
        two.command("/topic/create", topic=topic)
        two.berlin.post("/topic/create", topic=topic)
    vienna = open_at("/topics?q=polka.").page
    expect(vienna.get_by_role("checkbox", name="Choose all 20")).to_be_visible()
    page = open_at("/c/berlin/topics?q=polka.").page
    page.get_by_role("checkbox", name="Choose all 20").check()
    page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("to confirm").fill("20")
    dialog.get_by_role("button", name="Delete 20 topics").click()
    expect(page.get_by_role("region", name="Jobs").get_by_role("article", name="Delete 20 topics")).to_contain_text(
        "20 done"
    )
    expect(page.get_by_text("None matches “polka.”")).to_be_visible()
    assert [topic for topic in two.berlin.topics() if topic in topics] == []
    assert {*topics} <= {*two.topics()}
    two.publish("polka.7", 5)  # Vienna's page follows its cluster
    expect(vienna.get_by_role("row").filter(has_text="polka.7")).to_contain_text("5")
    expect(vienna.get_by_role("checkbox", name="Choose all 20")).to_be_visible()
    expect(vienna.get_by_role("region", name="Jobs")).to_have_count(0)
    assert call(vienna, "GET", "/api/v1/jobs")[1]["jobs"] == []
    assert [job["done_count"] for job in call(page, "GET", "/c/berlin/api/v1/jobs")[1]["jobs"]] == [20]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_report_of_one_cluster_reads_only_its_archive(two, open_at, axe):
    """Both have the topic. The result counts the messages of Berlin; Vienna lists no run, and has no page of it. Axe
    finds nothing on the page of the finished run."""
    two.command("/topic/create", topic="encore")
    two.berlin.post("/topic/create", topic="encore")
    page = open_at("/c/berlin/topics/encore").page
    expect(page.get_by_label("Numbers of this topic")).to_contain_text("Depth 0")
    two.publish("encore", 3)
    two.berlin.post("/mpub", b"1\n2\n3\n4\n5", topic="encore")
    archive = two.archive.with_name("archive-berlin")

    def archived() -> bool:
        files = archive.glob("samples/[!_]*/**/*.parquet")  # not those that are being written
        rows = [row for file in files for row in pq.read_table(file, columns=["topic", "depth"]).to_pylist()]
        return {"topic": "encore", "depth": 5} in rows

    wait_until(archived, "the collector has written the messages to the archive of Berlin")
    page.goto("/c/berlin/reports?job=throughput&p.period=1h&p.topic=encore")
    expect(page.get_by_label("Topic", exact=True)).to_have_value("encore")
    run_now(page)
    assert page.url.startswith(f"{two.site}/c/berlin/reports/runs/")
    expect(page.get_by_text("succeeded", exact=True)).to_be_visible(timeout=SPARK_MS)
    table = page.get_by_role("table", name="Result")
    rows = table.get_by_role("row").filter(has_text="encore")  # two, if a window ended meanwhile
    expect(rows.first).to_be_visible()
    column = table.get_by_role("columnheader").all_inner_texts().index("Depth last")
    depths = {row.get_by_role("cell").nth(column).inner_text() for row in rows.all()}
    assert "5" in depths
    assert "3" not in depths
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe(page, "color-contrast") == []

    run = page.url.rpartition("/")[2]
    listed = "api/v1/reports/runs?job=throughput"
    vienna = open_at(f"/reports/runs/{run}").page
    expect(vienna.get_by_text("This run cannot be shown")).to_be_visible()
    assert call(vienna, "GET", f"/{listed}")[1]["runs"] == []
    assert [each["id"] for each in call(vienna, "GET", f"/c/berlin/{listed}")[1]["runs"]] == [int(run)]
    assert call(vienna, "GET", f"/api/v1/reports/runs/{run}")[0] == 404


def test_a_token_is_valid_in_the_cluster_that_was_chosen(two, open_at, axe):
    """It is shown once; in the other cluster it is refused, and after it was revoked everywhere."""
    page = open_at("/account").page
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("They cannot exceed those of your role.")
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_role("alert")).to_have_text("Enter a name that describes the token’s purpose.")
    dialog.get_by_label("Name").fill("nightly")
    dialog.get_by_label("Cluster").select_option("Berlin")
    assert axe(page) == []
    dialog.get_by_role("button", name="Create token").click()
    secret = dialog.get_by_label("Token", exact=True)
    expect(secret).to_have_value(re.compile("^nsq_"))
    headers = {"Authorization": f"Bearer {secret.input_value()}"}

    def status(path: str) -> int:
        return httpx.get(f"{two.site}{path}", headers=headers, trust_env=False, timeout=DEADLINE_S).status_code

    assert (status("/c/berlin/api/v1/me"), status("/api/v1/me")) == (200, 403)
    dialog.get_by_role("button", name="Done").click()
    row = page.get_by_role("table", name="Tokens").get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("viewer in berlin")
    row.get_by_role("button", name="Revoke nightly").click()
    expect(row).to_have_count(0)
    assert status("/c/berlin/api/v1/me") == 401


def test_a_person_is_given_a_role_in_one_cluster(two, open_at, axe):
    """In the dialog of the page People. Signed in, the person is led to that cluster, and has no switcher."""
    page = open_at("/people").page
    page.get_by_role("button", name="Invite").click()
    dialog = page.get_by_role("dialog", name="Invite a person")
    dialog.get_by_label("User name").fill("bo")
    dialog.get_by_label("This role applies in every cluster").uncheck()
    dialog.get_by_label("Berlin", exact=True).select_option("operator")
    dialog.get_by_label("Only on topics of Berlin").fill("techno")
    assert axe(page) == []
    dialog.get_by_role("button", name="Invite").click()
    expect(page.get_by_text("berlin: operator of techno")).to_be_visible()
    path = page.get_by_role("dialog").get_by_label("Sign-in link").input_value().removeprefix(two.site)

    other = open_at("/c/berlin/").page
    other.context.clear_cookies()
    other.goto(path)
    other.get_by_role("button", name="Sign in").click()
    other.wait_for_url("**/c/berlin/account")
    other.goto("/c/berlin/topics")
    is_live(other)
    expect(other.get_by_role("link", name="techno", exact=True)).to_be_visible()
    expect(other.get_by_role("button", name="Cluster:")).to_have_count(0)
    other.goto("/topics")
    expect(other.get_by_role("heading", name="No access to Vienna")).to_be_visible()
    other.get_by_role("link", name="Open Berlin").click()
    other.wait_for_url("**/c/berlin/")
