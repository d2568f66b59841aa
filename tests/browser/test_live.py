"""Live updates of pages."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.attention import attention_item
from tests.browser.held import Held
from tests.harness.waiting import wait_until


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def figure(page, name, title):
    """The text of a column in a row."""
    titles = [heading.rstrip("▾▴").strip() for heading in page.get_by_role("columnheader").all_inner_texts()]
    return row(page, name).get_by_role("cell").nth(titles.index(title))


def test_the_topics_page_changes_without_a_reload(live, stack):
    """A new topic appears in the open list, and its depth grows with its messages."""
    page = live("/topics")
    page.evaluate("window.notReloaded = true")
    stack.publish("arrivals", 3)
    expect(row(page, "arrivals")).to_be_visible()
    depth = figure(page, "arrivals", "Depth")
    expect(depth).to_have_text("3")
    stack.publish("arrivals", 4)
    expect(depth).to_have_text("7")
    stack.command("/topic/delete", topic="arrivals")
    # Deleted on the broker only, so the registry still lists it.
    expect(row(page, "arrivals")).to_contain_text("inactive")
    assert page.evaluate("window.notReloaded") is True


def test_the_overview_shows_backlogs(live, stack):
    """A backlog is first among the largest, and a channel without consumers is listed."""
    stack.publish("parcels")
    stack.command("/channel/create", topic="parcels", channel="depot")
    stack.publish("parcels", 2000)
    page = live("/")
    largest = page.get_by_role("region", name="Largest backlog")
    expect(largest.get_by_role("listitem").first).to_contain_text("parcels")
    expect(attention_item(page, "parcels / depot")).to_contain_text("no clients")


def test_all_that_needs_attention_is_listed_after_a_click(live, stack, axe):
    """The first few items leave room for charts; the button shows the rest, and hides it again."""
    for number in range(9):
        stack.publish(f"neglected.{number}")
        stack.command("/channel/create", topic=f"neglected.{number}", channel="unread")
    page = live("/")
    region = page.get_by_role("region", name="Needs attention")
    items, button = region.get_by_role("listitem"), region.get_by_role("button", name="Show all")
    expect(button).to_be_visible()
    button.click()
    for number in range(9):
        expect(items.filter(has_text=f"neglected.{number} / unread")).to_be_visible()
    assert axe(page) == []
    region.get_by_role("button", name="Show less").click()
    expect(button).to_be_visible()
    assert items.count() < 9


def test_a_page_requests_constant_data_once(live, stack):
    """Figures continue by themselves; history, messages and graphite's links are requested once."""
    stack.publish("beats")
    stack.command("/channel/create", topic="beats", channel="drum")
    page = live("/topics")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/api/v1/" in request.url else None)
    page.goto("/topics/beats/drum?messages=ready")
    for count in range(1, 6):
        expect(page.locator(".stat").filter(has_text="Depth").locator(".value")).to_have_text(str(count))
        stack.publish("beats")
    for what in ("history", "messages", "graphs"):
        assert len([url for url in asked if f"/api/v1/{what}?" in url]) == 1, asked


def test_a_page_stays_when_the_collector_restarts(live, stack):
    """A new collector lists topics as their nodes answer. Until then, nothing says that one was deleted."""
    stack.publish("lasting")
    stack.command("/channel/create", topic="lasting", channel="first")
    pages = [live("/topics/lasting"), live("/topics/lasting/first")]
    left = []
    for page in pages:
        expect(page.get_by_role("button", name="Delete…")).to_be_visible()
        page.on("framenavigated", lambda frame: left.append(frame.url))
    stack.restart_collector()
    stack.publish("lasting", 6)
    for page in pages:
        expect(page.get_by_label(re.compile("^Numbers of this")).get_by_text("7", exact=True).first).to_be_visible()
    assert left == []


def test_a_paused_page_holds_still_and_catches_up(live, stack):
    """Pausing freezes the figures; resuming shows the current ones."""
    stack.publish("held")
    page = live("/topics")
    expect(row(page, "held")).to_be_visible()
    depth = figure(page, "held", "Depth")
    expect(depth).to_have_text("1")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.get_by_text(re.compile(r"Paused at \d\d:\d\d:\d\d"))).to_be_visible()
    stack.publish("held", 5)
    # When another browser shows the change, this one has had as much time.
    other = live("/topics")
    expect(row(other, "held")).to_be_visible()
    expect(figure(other, "held", "Depth")).to_have_text("6")
    assert depth.inner_text() == "1"
    page.get_by_role("button", name="Resume updates").click()
    expect(depth).to_have_text("6")


def colours(page):
    """The colours of the header's dot, of the text beside it, and of a dot that says that all is well."""
    return page.locator("header .indicator").evaluate(
        """it => {
            const well = document.body.appendChild(document.createElement('i'));
            well.style.backgroundColor = 'var(--ok)';
            const seen = [
                getComputedStyle(it.querySelector('.dot')).backgroundColor,
                getComputedStyle(it.querySelector('.text')).color,
                getComputedStyle(well).backgroundColor,
            ];
            well.remove();
            return seen;
        }"""
    )


def test_the_dot_of_paused_figures_is_not_green(live):
    """It has the colour of the text "Paused at"."""
    page = live("/topics")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.get_by_text(re.compile(r"Paused at \d\d:\d\d:\d\d"))).to_be_visible()
    dot, text, green = colours(page)
    assert dot == text != green


def test_the_depth_of_a_topic_on_a_node_includes_its_channels(live, stack):
    """By node, and on the node's page: Depth counts topic and channels, "In no channel" only the topic's own."""
    stack.command("/topic/create", topic="deep")
    stack.publish("deep", 3)
    stack.command("/channel/create", topic="deep", channel="all")
    wait_until(lambda: stack.channel("deep", "all")["depth"] == 3, "the channel has the topic's messages")
    stack.command("/topic/pause", topic="deep")
    page = live("/topics/deep")
    stack.publish("deep", 4)
    by_node = page.get_by_role("table", name="This topic on each node")
    expect(by_node.get_by_role("columnheader", name="Depth")).to_be_visible()
    node = stack.addresses["--nsqd-http-address"]
    figures = by_node.get_by_role("row").filter(has=page.get_by_role("link", name=node)).get_by_role("cell")
    expect(figures.nth(1)).to_have_text("7")
    expect(figures.nth(2)).to_have_text("4")
    page.goto(f"/nodes/{node.replace(':', '%3A')}")
    here = page.get_by_role("table", name="Topics on this node")
    figures = here.get_by_role("row").filter(has=page.get_by_role("link", name="deep", exact=True)).get_by_role("cell")
    expect(figures.nth(2)).to_have_text("7")
    expect(figures.nth(3)).to_have_text("4")


def test_missing_updates_are_shown_as_stale_until_they_resume(visit):
    """Without updates, the page says since when it is stale, and its dot is not green."""
    visitor = visit("/signin", user="mara")
    muted = {"now": False}

    def between(browser):
        server = browser.connect_to_server()
        server.on_message(lambda message: None if muted["now"] else browser.send(message))

    visitor.page.route_web_socket(re.compile("/ws/cluster"), between)
    visitor.page.goto("/topics")
    expect(visitor.page.get_by_text("Live", exact=True)).to_be_visible()
    muted["now"] = True
    expect(visitor.page.get_by_text(re.compile(r"Stale since \d\d:\d\d:\d\d"))).to_be_visible()
    dot, text, green = colours(visitor.page)
    assert dot == text != green
    expect(visitor.page.get_by_text("its collector does not publish")).to_be_visible()
    muted["now"] = False
    expect(visitor.page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_lost_connection_is_opened_again(visit, stack):
    """The feed reconnects by itself, and shows what happened meanwhile."""
    visitor = visit("/signin", user="mara")
    sockets = []

    def between(browser):
        server = browser.connect_to_server()
        server.on_message(lambda message: browser.send(message))
        sockets.append(browser)

    visitor.page.route_web_socket(re.compile("/ws/cluster"), between)
    visitor.page.goto("/topics")
    expect(visitor.page.get_by_text("Live", exact=True)).to_be_visible()
    sockets[0].close()
    stack.publish("meanwhile")
    expect(row(visitor.page, "meanwhile")).to_be_visible()
    assert len(sockets) >= 2


def test_an_unreachable_feed_says_what_to_check(visit):
    """A page that never receives anything says what to check; once it can connect, it continues by itself."""
    visitor = visit("/signin", user="mara")
    cut = {"now": True}

    def between(browser):
        if cut["now"]:
            browser.close()
        else:
            browser.connect_to_server()

    visitor.page.route_web_socket(re.compile("/ws/cluster"), between)
    visitor.page.goto("/topics")
    expect(visitor.page.get_by_text("The live feed cannot be reached")).to_be_visible()
    cut["now"] = False
    visitor.page.get_by_role("button", name="Try now").click()
    expect(visitor.page.get_by_text("Live", exact=True)).to_be_visible()
    expect(visitor.page.get_by_role("heading", name="Topics", level=1)).to_be_visible()


def test_an_ephemeral_topic_has_an_address_of_its_own(live, stack):
    """The ``#`` of the name is no fragment: a link and a reload both show the topic."""
    stack.command("/topic/create", topic="sparks#ephemeral")
    page = live("/topics")
    row(page, "sparks#ephemeral").get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/topics/sparks%23ephemeral$"))
    page.reload()
    expect(page.get_by_role("heading", name="sparks#ephemeral", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_search_narrows_the_list_and_sorting_orders_it(live, stack):
    """Typing filters the rows; clicking a heading sorts them, largest numbers first."""
    for name, count in (("sort.small", 1), ("sort.large", 30), ("sort.middle", 7)):
        stack.publish(name, count)
    page = live("/topics")
    page.get_by_role("searchbox", name="Search topics").fill("SORT.")
    names = page.get_by_role("rowgroup").nth(1).get_by_role("link")
    expect(names).to_have_text(["sort.large", "sort.middle", "sort.small"])
    page.get_by_role("button", name="Depth").click()
    expect(names).to_have_text(["sort.large", "sort.middle", "sort.small"])
    page.get_by_role("button", name="Depth").click()
    expect(names).to_have_text(["sort.small", "sort.middle", "sort.large"])
    page.get_by_role("searchbox", name="Search topics").fill("nothing like it")
    expect(page.get_by_text("None matches “nothing like it”")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(row(page, "sort.small")).to_be_visible()


def test_the_overview_fits_a_desktop_screen(live, stack):
    """What needs attention, the cluster's charts, what grows and the largest backlogs are visible without scrolling."""
    for number in range(8):
        stack.publish(f"fitting.{number}", 3)
        stack.command("/channel/create", topic=f"fitting.{number}", channel="unread")
    for number in range(5):
        stack.command("/channel/pause", topic=f"fitting.{number}", channel="unread")
    page = live("/topics/fitting.7")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page = live("/")
    expect(page.get_by_role("list", name="Events")).to_contain_text("Paused fitting.7")
    listed = page.get_by_role("region", name="Needs attention")
    expect(listed.get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_role("region", name="Largest backlog").get_by_role("listitem")).to_have_count(5)
    parts = [listed, *page.get_by_role("region", name="Charts").get_by_role("img").all()]
    parts += [page.get_by_role("region", name=name) for name in ("Fastest growing", "Largest backlog")]
    assert len(parts) >= 6

    def below() -> dict[str, float]:
        boxes = {str(part): part.bounding_box() for part in parts}
        ends = {name: box["y"] + box["height"] for name, box in boxes.items() if box is not None}
        return {name: end for name, end in ends.items() if end > 900}

    wait_until(lambda: below() == {}, "everything fits, once all of it is drawn")


def test_a_channel_shows_who_consumes_it(live, stack):
    """A new consumer appears among the clients with its name; one that disconnects is gone."""
    stack.publish("work")
    with stack.consumer("work", "crew", "crew-7") as name:
        page = live("/topics/work/crew")
        clients = page.get_by_role("table", name="Clients")
        expect(clients.get_by_role("row").filter(has_text=name)).to_be_visible()
    expect(page.get_by_text("No consumer is subscribed")).to_be_visible()


def history_of(visitor, topic):
    """The depths that the platform recorded of a topic in the last hour."""
    status, answer = visitor.call("GET", f"history?scope=topic&topic={topic}")
    assert status == 200, answer
    return answer["metrics"].get("depth", [])


def test_a_page_opens_with_the_last_minute_that_the_platform_holds(visit, live, stack):
    """A backlog that grew before the page was opened is found as growing, and has its line, at once and after a look
    at another page."""
    visitor = visit("/")

    def has_grown():
        visitor.page.wait_for_timeout(250)  # the records are seconds apart, and each request for them takes some ms
        stack.publish("swelling", 5)
        return len([depth for depth in history_of(visitor, "swelling") if depth]) >= 3

    wait_until(has_grown, "three records of a growing backlog")
    # From now on it is still, so that a page with figures of its own alone finds nothing that grows.
    page = live("/topics?filter=growing")
    expect(row(page, "swelling")).to_be_visible()
    page.goto("/topics/swelling")
    line = page.get_by_role("img", name="Depth, last two minutes").locator("path.line")
    expect(line).to_have_attribute("d", re.compile(r"(L[^L]+){20}"))


def test_what_is_not_known_yet_is_not_counted_as_none(visit, stack):
    """Until the last minute has been read, the number of growing backlogs is "…"."""
    stack.publish("unhurried")
    visitor = visit("/signin")
    page = visitor.page
    reading = Held(page, "/api/v1/history/recent")
    page.goto("/topics?filter=growing")
    chip = page.get_by_role("button", name="Backlog growing")
    expect(chip).to_have_text("Backlog growing…")
    expect(page.get_by_text("Reading the last minute…")).to_be_visible()
    reading.until().release()
    expect(chip).to_have_text(re.compile(r"^Backlog growing\d+$"))


def test_back_returns_to_the_same_rows(live, stack):
    """Search, order and the scroll position of a list are as they were before one of its rows was opened."""
    for number in range(40):
        stack.command("/topic/create", topic=f"stair.{number:02}")
    page = live("/topics")
    page.get_by_role("searchbox", name="Search topics").fill("stair")
    page.get_by_role("button", name="Topic", exact=True).click()
    box = page.get_by_role("group", name="Topics", exact=True)
    expect(box.get_by_role("row")).to_have_count(41)
    box.evaluate("box => box.scrollTop = 500")
    row(page, "stair.20").get_by_role("link").click()
    expect(page.get_by_role("heading", name="stair.20", level=1)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("searchbox", name="Search topics")).to_have_value("stair")
    expect(page.get_by_role("columnheader", name="Topic")).to_have_attribute("aria-sort", "descending")
    wait_until(lambda: abs(box.evaluate("box => box.scrollTop") - 500) <= 1, "the same rows")
    page.go_forward()
    expect(page.get_by_role("heading", name="stair.20", level=1)).to_be_visible()
    assert page.evaluate("window.scrollY") == 0
