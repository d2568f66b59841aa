"""Every page on desktop and phone, in both themes, by keyboard, and without data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PATHS = (
    "/",
    "/topics",
    "/topics/gallery",
    "/topics/gallery?tail=on",
    "/topics/gallery/wall",
    "/topics/gallery/wall?messages=ready",
    "/topics/nothing",
    "/channels",
    "/dead",
    "/clients",
    "/nodes",
    "/nodes/{node}",
    "/nodes/nobody",
    "/counter",
    "/lookup",
    "/reports",
    "/reports/runs/999999",
    "/reports/archive",
    "/reports/columns",
    "/alerts",
    "/alerts?tab=history",
    "/alerts?tab=rules",
    "/alerts?tab=silences",
    "/alerts?tab=notifiers",
    "/alerts?alert=999999",
    "/objectives",
    "/objectives/999999",
    "/life",
    "/views/999999",
    "/audit",
    "/account",
    "/people",
    "/masks",
    "/policies",
    "/definitions",
    "/no/such/page",
)


def test_every_page_of_the_web_app_is_looked_at():
    """A page that is added to the web app belongs into PATHS; the sign-in page has a test of its own."""
    routes = (ROOT / "frontend/src/navigation/routes.ts").read_text()
    addresses = re.findall(r"return [`']/([^`';]*)[`'];", routes.split("export function hrefOf")[1].split("\n}\n")[0])
    named = re.findall(r"'(\w+)'", routes.split("const NAMED = [")[1].split("]")[0])
    assert len(addresses) > 5
    patterns = {re.sub(r"\$\{[^}]*\}", "[^/]+", address) for address in addresses} | set(named) - {"signin"}
    shown = [path.partition("?")[0].lstrip("/") for path in PATHS]
    assert sorted(pattern for pattern in patterns if not any(re.fullmatch(pattern, path) for path in shown)) == []


@pytest.fixture
def gallery(stack):
    stack.publish("gallery")
    stack.command("/channel/create", topic="gallery", channel="wall")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_runs_without_an_error_and_suits_a_screen_reader(visit, stack, gallery, axe, width):
    """One heading each, and in both themes nothing wider than the screen and no error in the console. Axe finds
    nothing: names, roles, contrast, order of headings."""
    visitor = visit("/", user="ada", viewport=WIDTHS[width], color_scheme="light")
    page = visitor.page
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    problems = []
    for number, path in enumerate(PATHS):
        # Half of the pages are loaded in each theme, and shown in the other one after it.
        themes = ("light", "dark")[:: 1 if number % 2 else -1]
        page.emulate_media(color_scheme=themes[0])
        page.goto(path.format(node=stack.addresses["--nsqd-http-address"].replace(":", "%3A")))
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        page.wait_for_load_state("networkidle")
        for theme in themes:
            page.emulate_media(color_scheme=theme)
            beyond = pixels_beyond(page)
            if beyond > 0:
                problems.append(f"{path} is {beyond} px wider than the screen, {theme}")
            if theme == themes[0]:
                problems += [f"{path}, {theme}: {fault}" for fault in axe(page)]
            elif width == "desk":  # other rules do not depend on colours, nor contrast on the width
                problems += [f"{path}, {theme}: {fault}" for fault in axe(page, "color-contrast")]
    assert problems == [], "\n".join(problems)
    # The browser itself logs the API's 404 for a run that does not exist.
    assert [fault for fault in visitor.faults if "404" not in fault] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_sign_in_page_suits_a_screen_reader(visit, axe, width):
    """In both themes."""
    page = visit("/signin", user=None, viewport=WIDTHS[width]).page
    expect(page.get_by_label("Password")).to_be_visible()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert axe(page) == []


def test_the_heading_fits_at_every_width(live):
    """With all places of an admin and the longest status, the time since which the figures are stale."""
    page = live("/counter", user="ada")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.get_by_text(re.compile(r"Paused at \d\d:\d\d:\d\d"))).to_be_visible()
    for width in range(360, 1500, 20):
        page.set_viewport_size({"width": width, "height": 800})
        beyond = pixels_beyond(page)
        assert beyond <= 0, f"{beyond} px are beyond a screen of {width}"


def test_the_phones_menu_leads_everywhere(live):
    """At phone width the navigation is behind one button, and closes after a choice."""
    page = live("/", viewport=WIDTHS["phone"])
    for place in ("Topics", "Channels", "Clients", "Nodes", "Alerts", "Reports", "Audit", "Overview"):
        expect(page.get_by_role("link", name=place, exact=True)).to_have_count(0)
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name=place, exact=True).click()
        expect(page.get_by_role("heading", name=place, level=1)).to_be_visible()


def test_the_first_tab_offers_to_skip_the_navigation(live):
    """The first Tab focuses a link to the content."""
    page = live("/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_theme_is_a_choice_that_lasts(live):
    """Dark on a light system, and still dark after a reload; then the system's again."""
    page = live("/", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("dark").check()
    wait_until(lambda: page.evaluate(ground) != light, "the page is dark")
    dark = page.evaluate(ground)
    page.reload()
    assert page.evaluate(ground) == dark, "from the first frame"
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("system").check()
    wait_until(lambda: page.evaluate(ground) == light, "the page is light")


def test_waiting_messages_are_shown_without_consuming_them(live, stack):
    """A channel without consumers offers to list its messages, and finishes none."""
    stack.publish("patient", count=3)
    stack.command("/channel/create", topic="patient", channel="later")
    wait_until(lambda: stack.channel("patient", "later")["depth"] == 3, "the messages are in the channel")
    page = live("/topics/patient/later")
    expect(page.get_by_text("3 messages wait for a consumer.")).to_be_visible()
    page.get_by_role("button", name="Show messages").click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("article")).to_have_count(3)
    expect(page.get_by_role("button", name="Show messages")).to_have_count(0)
    assert stack.channel("patient", "later")["depth"] == 3


def test_a_topic_without_channels_says_what_to_do(live, stack):
    """The page offers a next step that finishes no waiting message."""
    stack.publish("lonely")
    page = live("/topics/lonely")
    expect(page.get_by_text("Its first channel receives all of them")).to_be_visible()
    expect(page.get_by_role("button", name="New channel")).to_be_visible()
    page.goto("/topics/unheard-of")
    expect(page.get_by_text("/pub?topic=unheard-of")).to_be_visible()


def test_times_are_the_viewers(visit, stack):
    """The same entry has different times in Tokyo and in Lima."""
    stack.command("/topic/create", topic="dawn")
    visitor = visit("/audit")
    status, answer = visitor.call("POST", "actions", {"action": "pause", "topic": "dawn"})
    assert status == 200, answer
    read = set()
    for zone in ("Asia/Tokyo", "America/Lima"):
        page = visit("/audit", timezone_id=zone).page
        expect(page.get_by_text(f"Times in {zone}")).to_be_visible()
        entry = page.get_by_role("list", name="Audit trail").get_by_role("listitem").filter(has_text="dawn")
        read.add(entry.locator("time").inner_text())
    assert len(read) == 2
