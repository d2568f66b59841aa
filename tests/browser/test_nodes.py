"""A cluster of two nodes, one of which stops answering."""

from __future__ import annotations

import re
import signal
import time

import pytest
from playwright.sync_api import expect

from tests.browser.attention import attention_item
from tests.browser.widths import pixels_beyond
from tests.harness.waiting import wait_until

SINCE = re.compile(r"has not answered since \d\d:\d\d:\d\d")


@pytest.fixture(params=[signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "dies"])
def silent(request, live, stack):
    """A node that stops answering while a page is open: the page, the node, the topic. It holds two messages on the
    only channel of its topic, and one of two messages of the topic ``shared``."""
    stack.command("/topic/create", topic="shared")
    stack.command("/channel/create", topic="shared", channel="all")
    stack.publish("shared")
    with stack.second_node() as other:
        topic = f"lonely.{other.http[1]}"  # nodes of earlier tests are remembered with their topics
        for name in (topic, "shared"):
            other.post("/topic/create", topic=name)
            other.post("/channel/create", topic=name, channel="all")
            other.publish(name)
        other.publish(topic)
        page = live(f"/topics/{topic}/all")
        expect(figures(page, "Numbers of this channel")).to_contain_text("Depth 2")
        other.signal(request.param)
        yield page, other, topic


@pytest.fixture(scope="module")
def silent_node(stack):
    """A node that is registered and does not answer."""
    with stack.second_node() as other:
        wait_until(lambda: other.id in stack.registered(), f"{other.id} is registered")
        other.freeze()
        yield other


def figures(page, label):
    return page.get_by_label(label)


def banner(page):
    """What the page says of nodes that do not answer."""
    return page.get_by_role("region", name="Nodes that do not answer")


def test_a_node_that_hangs_is_shown_as_down_and_in_the_outcome(live, stack):
    """The nodes page and the overview show it; the outcome of an action and the log name both nodes."""
    here = stack.addresses["--nsqd-http-address"]
    stack.publish("spread")
    with stack.second_node() as other:
        other.publish("spread")
        page = live("/topics/spread")
        by_node = page.get_by_role("table", name="This topic on each node")
        expect(by_node.get_by_role("link")).to_have_text(sorted([here, other.id]))
        other.freeze()
        page.get_by_role("link", name="Nodes", exact=True).click()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=other.id))
        expect(row).to_contain_text(re.compile(r"brokerd \d"))
        expect(row.get_by_text("down", exact=True)).to_be_visible()
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(attention_item(page, other.id)).to_contain_text("has not answered since")
        page.goto("/topics/spread")
        page.get_by_role("button", name="Pause", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Pause topic").click()
        expect(dialog.get_by_text("Done on some nodes only")).to_be_visible()
        expect(dialog.get_by_role("row").filter(has_text=here)).to_contain_text("done")
        expect(dialog.get_by_role("row").filter(has_text=other.id)).to_contain_text("unreachable")
        assert stack.topic("spread")["paused"] is True
        page.goto("/audit")
        entry = page.get_by_role("list", name="Audit trail").get_by_role("listitem").filter(has_text="spread").first
        expect(entry).to_contain_text("partial")


def test_each_page_says_which_node_is_silent_since_when_and_what_is_old(silent):
    """A channel, its topic, the node, the lists, clients and the counter: none shows old figures as present ones."""
    page, other, topic = silent
    mine = banner(page).locator("p").filter(has_text=other.id)
    expect(mine).to_contain_text(SINCE)
    expect(mine).to_contain_text("Its share of the figures here is from then: depth 2, 0 in flight, 0 clients.")
    expect(page.get_by_text("No consumer is subscribed")).to_have_count(0)
    expect(page.get_by_text("No consumer on the nodes that answer")).to_be_visible()
    expect(page.get_by_text("its consumers are not known")).to_be_visible()
    expect(page.get_by_role("table", name="This channel on each node")).to_contain_text("old figures")
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name=topic).click()
    expect(mine).to_contain_text("depth 2, 0 in flight, 0 clients")
    expect(page.get_by_role("table", name="Channels")).to_contain_text("old figures")
    expect(page.get_by_role("table", name="This topic on each node")).to_contain_text("old figures")
    mine.get_by_role("link", name=other.id).click()
    expect(mine).to_contain_text("All figures on this page are from then.")
    page.get_by_role("link", name="Topics", exact=True).first.click()
    expect(mine).to_contain_text("depth 3, 0 clients")
    page.get_by_role("searchbox", name="Search topics").fill("shared")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="shared", exact=True))
    expect(row).to_contain_text("partly old")
    page.get_by_role("link", name="Clients", exact=True).click()
    expect(mine).to_contain_text("Its clients are not listed.")
    page.goto("/counter")
    expect(mine).to_contain_text("Its messages are counted as of then.")


def test_a_page_that_the_silent_node_does_not_concern_has_recent_figures(silent, stack):
    """No warning about figures that are recent, but the header does not say that all is well."""
    page, other, _ = silent
    expect(banner(page)).to_contain_text(other.id)
    topic = f"elsewhere{time.monotonic_ns()}"  # the brokers are those of the other tests
    stack.publish(topic)
    page.goto(f"/topics/{topic}")
    expect(page.get_by_role("heading", name=topic, level=1)).to_be_visible()
    expect(figures(page, "Numbers of this topic")).to_contain_text("Depth 1")
    expect(banner(page)).to_have_count(0)
    indicator = page.locator("header .indicator")
    expect(indicator.get_by_role("link")).to_have_text(re.compile(r"^\d nodes? down$"))
    # The dot has the colour of the warning, not that of "Live".
    colours = indicator.evaluate(
        "it => [it.querySelector('.dot'), it.querySelector('a')].map((part, at) => "
        "getComputedStyle(part)[at ? 'color' : 'backgroundColor'])"
    )
    assert colours[0] == colours[1]


def test_the_header_shows_all_it_has_at_every_width(silent_node, live):
    """Nothing of it is cut off or beyond the screen, for an administrator, who has the most links: Live, how many
    nodes are down and the menu. The links are in the menu where there is no room for them."""
    page = live("/", user="ada", viewport={"width": 1440, "height": 800})
    link = page.locator("header .indicator").get_by_role("link")
    expect(link).to_have_text(re.compile(r"^\d nodes? down$"))
    links = page.locator("header").get_by_role("link", name="Masks")
    expect(links).to_be_visible()
    has_links = set()
    for width in (*range(1800, 1100, -20), 720, 390, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert pixels_beyond(page) <= 0
        for part in (link, page.get_by_text("Live", exact=True), page.get_by_role("button", name="Menu: ada")):
            expect(part).to_be_in_viewport(ratio=1)
        cut = page.evaluate(
            "[...document.querySelectorAll('header > *, header .right > *, header .indicator > *, header nav a')]"
            ".filter(it => it.scrollWidth > it.clientWidth + 1 && getComputedStyle(it).display !== 'inline')"
            ".map(it => it.textContent)"
        )
        assert (width, cut) == (width, [])
        if links.is_visible():
            has_links.add(width)
    assert has_links == {width for width in range(1800, 1100, -20) if width >= min(has_links)}
    assert 390 not in has_links
    page.get_by_role("button", name="Menu: ada").click()
    expect(page.locator("#menu").get_by_role("link", name="Masks")).to_be_visible()
