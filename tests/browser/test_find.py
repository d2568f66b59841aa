"""Searching, filtering, and acting on several rows at once, by pointer and by keyboard."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.widths import WIDTHS
from tests.harness.waiting import wait_until

CHANNELS = 5_000
CLIENTS = 50_000


@pytest.fixture(scope="module")
def shop(stack):
    """Three channels of one topic: ``north`` with 5 messages, ``south`` with 5, ``west`` paused."""
    stack.command("/topic/create", topic="shop")
    for name in ("north", "south", "west"):
        stack.command("/channel/create", topic="shop", channel=name)
    stack.command("/channel/pause", topic="shop", channel="west")
    stack.publish("shop", 5)
    return stack


def names(page):
    return page.get_by_role("table", name="Channels").get_by_role("link")


def test_search_and_filters_are_in_the_address(live, shop):
    """A link shows the same rows to somebody else; the back button removes a filter."""
    page = live("/channels")
    page.get_by_role("searchbox", name="Search channels").fill("shop")
    expect(names(page)).to_have_text(["shop / north", "shop / south", "shop / west"])
    page.get_by_role("button", name="Paused").click()
    expect(names(page)).to_have_text(["shop / west"])
    expect(page).to_have_url(re.compile(r"/channels\?q=shop&filter=paused$"))
    expect(names(live("/channels?q=shop&filter=paused"))).to_have_text(["shop / west"])
    page.go_back()
    expect(names(page)).to_have_count(3)
    expect(page.get_by_role("searchbox")).to_have_value("shop")
    page.get_by_role("button", name="Depth").click()
    expect(page).to_have_url(re.compile("sort=-depth"))
    page.get_by_role("link", name="shop / north").click()
    page.go_back()
    expect(page.get_by_role("columnheader", name="Depth", exact=True)).to_have_attribute("aria-sort", "descending")


def test_an_empty_list_offers_to_clear_the_filter(live, shop):
    """An empty list says why it is empty, and offers to clear the filter."""
    page = live("/channels?q=shop&filter=timeouts")
    expect(page.get_by_text("No matching channels")).to_be_visible()
    page.get_by_role("button", name=re.compile("Show all")).click()
    expect(page.get_by_role("link", name="shop / north")).to_be_visible()


def test_the_palette_leads_anywhere(live, shop):
    """Ctrl K, a few letters, Enter."""
    page = live("/")
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Command palette").get_by_role("combobox")
    expect(box).to_be_focused()
    box.fill("shop north")
    expect(page.get_by_role("option").first).to_contain_text("shop / north")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="north", level=1)).to_be_visible()
    page.keyboard.press("Control+k")
    box.fill("pause shop south")
    expect(page.get_by_role("option").first).to_contain_text("shop / south")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Pause channel shop / south")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    box.fill("nothing of the kind")
    expect(page.get_by_text("Nothing matches “nothing of the kind”.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)


def test_an_open_palette_finds_what_is_created_meanwhile(live, stack):
    """While nothing matches, it is searched again in each new snapshot, without typing."""
    page = live("/")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill("newcomer.late")
    expect(page.get_by_text("Nothing matches “newcomer.late”.")).to_be_visible()
    stack.command("/topic/create", topic="newcomer.late")
    expect(page.get_by_role("option").first).to_contain_text("newcomer.late")


def test_a_viewers_palette_offers_no_actions(live, shop):
    """It has only places."""
    page = live("/topics/shop", user="viktor")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill("delete shop")
    expect(page.get_by_text("Nothing matches")).to_be_visible()


def test_the_keyboard_reaches_everything(live, shop):
    """g c, /, j, k, x, Enter, u and ?; in an input field they type text."""
    page = live("/")
    page.keyboard.type("gc")
    expect(page.get_by_role("heading", name="Channels", level=1)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("shop")
    expect(names(page)).to_have_count(3)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.get_by_role("searchbox").fill("shop")
    page.get_by_role("searchbox").blur()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="shop / south")).to_be_focused()
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="shop / north")).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", name="Choose shop / north")).to_be_checked()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="north", level=1)).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="shop", level=1)).to_be_visible()
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet.get_by_text("Next row")).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)


def test_several_are_emptied_at_once_counted_first(live, stack):
    """The dialog shows the number of messages and requires the number of channels; the audit trail has one entry, which
    lists the channels."""
    for name in ("one", "two", "three"):
        stack.command("/topic/create", topic="sweep")
        stack.command("/channel/create", topic="sweep", channel=name)
    stack.publish("sweep", 7)
    page = live("/channels?q=sweep")
    page.get_by_role("checkbox", name="Choose sweep / one").check()
    page.get_by_role("checkbox", name="Choose sweep / two").check()
    bar = page.get_by_role("toolbar")
    expect(bar).to_contain_text("2 channels chosen")
    bar.get_by_role("button", name="Empty").click()
    dialog = page.get_by_role("dialog")
    cost = dialog.get_by_label("What this does")
    expect(cost).to_contain_text(re.compile(r"^14 messages on node \S+ are deleted: 14 waiting\."))
    expect(cost).to_contain_text("Figures as of")
    go = dialog.get_by_role("button", name="Empty 2 channels")
    expect(go).to_be_disabled()
    dialog.get_by_label("to confirm").fill("3")
    expect(go).to_be_disabled()
    dialog.get_by_label("to confirm").fill("2")
    expect(go).to_have_text("Empty 2 channels: 14 messages lost")
    go.click()
    job = page.get_by_role("article", name="Empty 2 channels")
    expect(job).to_contain_text("2 done")
    depths = {name: stack.channel("sweep", name)["depth"] for name in ("one", "two", "three")}
    assert depths == {"one": 0, "two": 0, "three": 7}
    page.goto("/audit")
    entry = page.get_by_role("list", name="Audit trail").locator("> li").filter(has_text="2 channels, job")
    expect(entry).to_contain_text("mara")
    entry.get_by_text("Each subject").click()
    expect(entry.get_by_role("listitem").filter(has_text="sweep / one")).to_contain_text("done")
    expect(entry.get_by_role("listitem").filter(has_text="sweep / two")).to_contain_text(
        stack.addresses["--nsqd-http-address"]
    )


@pytest.fixture
def barges(stack) -> list[str]:
    """200 topics, more than a job acts on at once."""
    topics = [f"barge.{number}" for number in range(200)]
    for topic in topics:
        stack.command("/topic/create", topic=topic)
    return topics


def test_a_deletion_of_many_continues_without_its_tab(live, stack, barges):
    """Three clicks and the number of topics. A colleague sees the job too; the tab is closed, and a new one shows it,
    until it is dismissed."""
    colleague = live("/nodes", user="viktor")
    page = live("/topics?q=barge")
    expect(page.get_by_role("table", name="Topics").get_by_role("link", name="barge.0")).to_be_visible()
    page.get_by_role("checkbox", name=re.compile("Choose all")).click()
    expect(page.get_by_role("toolbar")).to_contain_text("200 topics chosen")
    page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill("200")
    page.get_by_role("dialog").get_by_role("button", name="Delete 200 topics").click()
    expect(page.get_by_role("article", name="Delete 200 topics")).to_be_visible()
    context = page.context
    page.close()
    expect(colleague.get_by_role("article", name="Delete 200 topics")).to_contain_text("200 done")
    returned = context.new_page()
    returned.goto("/nodes")
    job = returned.get_by_role("article", name="Delete 200 topics")
    expect(job).to_contain_text("By mara")
    assert [topic for topic in barges if stack.topic(topic) is not None] == []
    expect(job).to_have_count(0)  # a success leaves by itself, and stays away
    returned.reload()
    expect(returned.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    expect(job).to_have_count(0)


def test_several_topics_are_deleted_and_a_node_that_hangs_is_named(live, stack, axe):
    """Each topic and node has its own outcome: done, or unreachable. With the open list of failures, the page suits a
    screen reader."""
    for topic in ("rubble.a", "rubble.b"):
        stack.publish(topic)
    with stack.second_node() as second:
        second.publish("rubble.a")
        page = live("/topics?q=rubble")
        both = page.get_by_role("row").filter(has=page.get_by_role("link", name="rubble.a"))
        expect(both.get_by_role("cell").last).to_have_text("2")
        second.freeze()
        page.get_by_role("checkbox", name=re.compile("Choose all")).check()
        page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog")
        cost = dialog.get_by_label("What this does")
        expect(cost).to_contain_text("1 of 2 nodes answers, and only these are counted.")
        expect(cost).to_contain_text(re.compile(rf"{second.id} has not answered since [\d:]+: unknown, 1 message at"))
        expect(cost).to_contain_text("2 messages on node ")
        dialog.get_by_label("to confirm").fill("2")
        dialog.get_by_role("button", name="Delete 2 topics").click()
        job = page.get_by_role("article", name="Delete 2 topics")
        expect(job).to_contain_text("1 done, 1 on some nodes only")
        job.get_by_text("1 failure").click()
        expect(job.get_by_role("listitem")).to_contain_text("rubble.a")
        expect(job.get_by_role("listitem")).to_contain_text(second.id)
        for size in WIDTHS.values():
            page.set_viewport_size(size)
            assert axe(page) == []
        page.emulate_media(color_scheme="dark")
        assert axe(page, "color-contrast") == []
        page.set_viewport_size(WIDTHS["desk"])
        job.get_by_role("button", name="Dismiss").click()
        expect(job).to_have_count(0)
    assert stack.topic("rubble.a") is None
    assert stack.topic("rubble.b") is None


def test_a_viewer_has_no_check_boxes(live, shop):
    """There are no check boxes."""
    page = live("/channels", user="viktor")
    expect(page.get_by_role("link", name="shop / north")).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)


def test_clients_of_the_whole_cluster_are_found(live, stack):
    """By name, on the page of clients and in the palette."""
    stack.command("/topic/create", topic="harbour")
    with stack.consumer("harbour", "pilots", "crew-7"):
        page = live("/clients")
        expect(page.get_by_role("table", name="Clients")).to_contain_text("harbour / pilots")
        page.get_by_role("searchbox").fill("crew-7 harbour")
        expect(page.get_by_role("table", name="Clients").get_by_role("row").nth(1)).to_contain_text("crew-7")
        page.keyboard.press("Control+k")
        page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill("crew-7")
        expect(page.get_by_role("option").filter(has_text="client of harbour / pilots")).to_be_visible()


def test_the_first_clients_are_requested_once_while_the_web_app_loads(live, stack):
    """The page of clients takes the response that the HTML requested: a request of its own would be another one."""
    stack.command("/topic/create", topic="harbour")
    with stack.consumer("harbour", "pilots", "crew-7"):
        page = live("/topics")
        requests = []
        page.on("request", lambda request: requests.append(urlsplit(request.url)))
        page.goto(urljoin(page.url, "/clients"))
        expect(page.get_by_role("table", name="Clients")).to_contain_text("harbour / pilots")
        # The page repeats its query every few seconds, for more clients.
        asked = [each.query for each in requests if each.path == "/api/v1/clients" and "limit=5000" not in each.query]
        assert len(asked) == 1


def columns(rows):
    """Rows as a list for each field, as the platform sends them."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


class Large:
    """The feed of a cluster with 1,000 topics, 5,000 channels and 50,000 clients of one of them."""

    def __init__(self, page):
        self.version = 1
        self.socket = None
        page.route_web_socket(re.compile("/ws/cluster"), self._open)

    def _open(self, socket):
        self.socket = socket
        socket.on_message(self._asked)
        topics = columns([self._topic(n) for n in range(1000)])
        channels = columns([self._channel(n, 0) for n in range(CHANNELS)])
        self._send(type="snapshot", version=1, view={}, nodes={}, topics=topics, channels=channels)

    def _asked(self, text):
        if json.loads(text)["type"] == "watch":
            clients = [self._client(n) for n in range(CLIENTS)]
            self._send(type="clients", topic="t0", channel="c0", clients=clients)

    def _send(self, **message):
        self.socket.send(json.dumps({"taken_at": int(time.time() * 1000), **message}))

    def beat(self, depth):
        """All 5,000 rows change."""
        self.version += 1
        none = {"put": {}, "set": {}, "drop": []}
        rows = [self._channel(n, depth) for n in range(CHANNELS)]
        keys = [f"{row['topic']}/{row['name']}" for row in rows]
        changed = {"keys": keys, "depth": [row["depth"] for row in rows]}
        changes = {"nodes": none, "topics": none, "channels": none | {"set": changed}}
        self._send(type="delta", version=self.version, base=self.version - 1, **changes)

    def _topic(self, n):
        counts = dict.fromkeys(("depth", "backend_depth", "message_count", "message_bytes", "in_flight_count"), 0)
        rates = dict.fromkeys(("publish_rate", "byte_rate", "oldest_age_ms"))
        return {"name": f"t{n}", "paused": False, "channel_count": 5, "client_count": 0, "nodes": []} | counts | rates

    def _channel(self, n, depth):
        counts = (
            "backend_depth",
            "in_flight_count",
            "deferred_count",
            "requeue_count",
            "timeout_count",
            "message_count",
        )
        rates = ("publish_rate", "finish_rate", "requeue_rate", "timeout_rate", "oldest_age_ms", "p50_ms", "p99_ms")
        row = {"topic": f"t{n // 5}", "name": f"c{n % 5}", "paused": False, "depth": depth + n, "client_count": 1}
        return row | dict.fromkeys(counts, 0) | dict.fromkeys(rates) | {"nodes": []}

    def _client(self, n):
        texts = {"node": "n:1", "client_id": f"client-{n}", "hostname": f"client-{n}.example", "user_agent": "x/1"}
        counts = ("state", "ready_count", "in_flight_count", "finish_count", "requeue_count", "sample_rate")
        row = {"remote_address": f"10.0.{n // 250}.{n % 250}:1", "message_count": n, "connected_s": n}
        return texts | row | dict.fromkeys(counts, 1) | dict.fromkeys(("tls", "deflate", "snappy"), False)


def test_five_thousand_channels_scroll_and_follow(visit):
    """Only visible rows are rendered; the last row can be reached; a visible row changes and stays the same element."""
    page = visit("/signin").page
    large = Large(page)
    page.goto("/channels")
    table = page.get_by_role("table", name="Channels")
    expect(table).to_have_attribute("aria-rowcount", str(CHANNELS + 1))
    assert table.get_by_role("row").count() < 150
    box = page.get_by_role("group", name="Channels")
    box.evaluate("box => { box.scrollTop = box.scrollHeight }")
    last = page.get_by_role("link", name="t999 / c4", exact=True)
    expect(last).to_be_visible()
    expect(page.get_by_role("columnheader", name="Depth", exact=True)).to_be_in_viewport()
    last.evaluate("link => { link.seenBefore = true }")
    row = page.get_by_role("row").filter(has=last)
    expect(row).to_contain_text("5.00k")
    large.beat(1_000_000)
    expect(row).to_contain_text("1.00M")
    assert last.evaluate("link => link.seenBefore") is True
    assert table.get_by_role("row").count() < 150
    page.get_by_role("searchbox").fill("t77 c3")
    expect(page.get_by_role("link", name="t77 / c3", exact=True)).to_be_visible()


SCROLL_A_PAGE = """box => new Promise(done => {
    const rows = () => [...box.querySelectorAll('tbody tr[aria-rowindex]')];
    const before = new Map(rows().map(row => [row, row.querySelector('a').textContent]));
    box.scrollTop += 660;
    requestAnimationFrame(() => requestAnimationFrame(() =>
        done(rows().map(row => [before.get(row) ?? null, row.querySelector('a').textContent]))));
})"""
"""Scrolls by twenty rows. Resolves to the channel that each row's element showed before, and the one it shows now."""


def test_a_scrolled_table_reuses_its_rows_but_not_the_one_with_the_focus(visit):
    """Elements of rows that left show the rows that came. A row that stays keeps its element. A focused link that
    leaves is gone: it does not become the link of another channel."""
    page = visit("/signin").page
    Large(page)
    page.goto("/channels")
    first = page.get_by_role("link", name="t0 / c0", exact=True)
    expect(first).to_be_visible()
    first.focus()
    link = first.element_handle()
    box = page.get_by_role("group", name="Channels")

    def reused() -> bool:
        """Not if figures arrived in the same frame."""
        rows = box.evaluate(SCROLL_A_PAGE)
        visible = {now for _, now in rows}
        assert all(before == now for before, now in rows if before in visible)
        return any(before not in (None, now) for before, now in rows)

    wait_until(reused, "an element shows another row")
    wait_until(lambda: box.evaluate(SCROLL_A_PAGE) and first.count() == 0, "the focused row has left")
    assert link.evaluate("link => [link.isConnected, link.textContent]") == [False, "t0 / c0"]
    assert page.evaluate("document.activeElement.closest('tr')") is None


def test_fifty_thousand_clients_of_one_channel_scroll(visit):
    """They are counted, searched and scrolled to the last, and few of them are rendered."""
    page = visit("/signin").page
    Large(page)
    page.goto("/topics/t0/c0")
    table = page.get_by_role("table", name="Clients")
    expect(table).to_have_attribute("aria-rowcount", str(CLIENTS + 1))
    assert table.get_by_role("row").count() < 150
    page.get_by_role("group", name="Clients").evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(table.get_by_text("client-49999.example")).to_be_visible()
    page.get_by_role("searchbox", name="Search clients").fill("client-31415.")
    expect(table.get_by_text("client-31415.example")).to_be_visible()


def test_a_client_id_cannot_pretend_to_be_another(visit, stack):
    """Characters that reverse the text or are invisible are shown as their code points, on both pages of clients."""
    shown = r"pay\u{202E}tnega\u{200B}"
    with stack.consumer("masked", "billing", "pay\u202etnega\u200b"):
        page = visit("/topics/masked/billing").page
        expect(page.get_by_role("group", name="Clients")).to_contain_text(shown)
        page.goto("/clients?q=masked")
        expect(page.get_by_role("group", name="Clients")).to_contain_text(shown)
