"""The counter, and the part of the Nodes page for registries and topics that only they know."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.harness import web
from tests.harness.waiting import wait_until


def shown(page) -> int:
    """The counter's number."""
    text = page.get_by_role("region", name="Messages processed").locator(".digits").inner_text()
    return int(text.replace(",", ""))


@pytest.fixture
def register(stack):
    """Register a topic that no broker has."""

    def make(path: str, **names: str) -> None:
        address = stack.addresses["--lookupd-http-address"]
        web.post(f"http://{address}{path}", params=names, trust_env=False).raise_for_status()

    return make


def test_the_counter_counts_the_messages_that_channels_receive(live, stack):
    """It shows the sum over all channels and changes without a reload; another channel counts too."""
    stack.command("/topic/create", topic="counted")
    stack.command("/channel/create", topic="counted", channel="one")
    page = live("/counter")
    page.evaluate("window.notReloaded = true")
    before = wait_until(lambda: page.get_by_text("messages processed by").count() and [shown(page)], "a number")[0]
    stack.publish("counted", 250)
    wait_until(lambda: shown(page) >= before + 250, "250 more")
    stack.command("/channel/create", topic="counted", channel="two")
    stack.publish("counted", 100)
    wait_until(lambda: shown(page) >= before + 450, "each of two channels was given 100 more")
    expect(page.get_by_text("Waiting", exact=True)).to_be_visible()
    assert page.evaluate("window.notReloaded") is True


def test_topics_without_a_broker_are_listed_and_can_be_deleted(live, stack, register):
    """A topic with its channels, once it is registered. After its name was typed it is deleted, and the page stays."""
    page = live("/nodes")
    register("/topic/create", topic="ghost.ship")
    register("/channel/create", topic="ghost.ship", channel="crew")
    inactive = page.get_by_role("region", name="Inactive topics")
    expect(inactive.get_by_role("link", name="ghost.ship", exact=True)).to_be_visible()
    expect(inactive.get_by_role("button", name="Delete channel crew of topic ghost.ship")).to_be_visible()
    inactive.get_by_role("button", name="Delete topic ghost.ship").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete topic")).to_be_disabled()
    dialog.get_by_label("to confirm").fill("ghost.ship")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("status", name="News")).to_contain_text("Topic ghost.ship was deleted.")
    expect(page).to_have_url(re.compile("/nodes$"))
    expect(inactive.get_by_text("ghost.ship")).to_have_count(0)
    address = stack.addresses["--lookupd-http-address"]
    assert "ghost.ship" not in web.get(f"http://{address}/topics", trust_env=False).json()["topics"]


def test_a_topic_that_comes_to_a_broker_is_no_longer_inactive(live, stack, register):
    """The first message creates it on the broker."""
    register("/topic/create", topic="launched")
    page = live("/nodes")
    inactive = page.get_by_role("region", name="Inactive topics")
    expect(inactive.get_by_role("link", name="launched", exact=True)).to_be_visible()
    stack.publish("launched")
    expect(inactive.get_by_role("link", name="launched", exact=True)).to_have_count(0)


def test_a_topic_and_a_channel_are_created_ahead_of_their_producer(live, stack):
    """The registry has them at once; an invalid name is refused beside the field, without a request."""
    page = live("/nodes")
    form = page.get_by_role("region", name="Create a topic or channel")
    form.get_by_label("Topic name").fill("two words")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("alert")).to_be_visible()
    expect(form.get_by_label("Topic name")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("Topic name").fill("ahead")
    form.get_by_label("Channel name").fill("readers")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("status")).to_have_text("Channel readers of topic ahead was created.")
    address = stack.addresses["--lookupd-http-address"]
    assert web.get(f"http://{address}/channels", params={"topic": "ahead"}, trust_env=False).json() == {
        "channels": ["readers"]
    }
    inactive = page.get_by_role("region", name="Inactive topics")
    expect(inactive.get_by_role("link", name=re.compile("^ahead$"))).to_be_visible()


def test_a_viewer_looks_and_changes_nothing(live, register):
    """There are no forms and no delete buttons."""
    register("/topic/create", topic="untouched")
    page = live("/nodes", user="viktor")
    inactive = page.get_by_role("region", name="Inactive topics")
    expect(inactive.get_by_role("link", name="untouched", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Delete"))).to_have_count(0)
    expect(page.get_by_role("button", name="Create")).to_have_count(0)


def test_the_navigation_is_grouped_and_leads_to_the_counter_and_the_registries(live, stack):
    """The counter is a part of the overview, the registries are one of the nodes; a search box shows its key."""
    page = live("/", user="ada")
    main = page.get_by_role("navigation", name="Main")
    groups = {
        name: main.get_by_role("group", name=name).get_by_role("link").all_inner_texts()
        for name in ("Cluster", "Monitoring", "Administration")
    }
    assert groups == {
        "Cluster": ["Overview", "Topics", "Channels", "Dead letters", "Clients", "Nodes"],
        "Monitoring": ["Alerts", "Reports"],
        "Administration": ["Audit", "People", "Policies", "Masks", "Definitions"],
    }
    search = page.get_by_role("button", name="Search Ctrl K")
    expect(search).to_be_visible()
    search.click()
    expect(page.get_by_role("dialog", name="Command palette")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Counter").click()
    expect(page.get_by_role("region", name="Messages processed")).to_be_visible()
    expect(page.get_by_role("heading", name="Counter", level=1)).to_be_visible()
    expect(main.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="All figures").click()
    expect(page.get_by_label("Cluster totals")).to_be_visible()
    main.get_by_role("link", name="Nodes").click()
    registries = page.get_by_role("table", name="Registries").get_by_role("row")
    expect(registries.filter(has_text=stack.addresses["--lookupd-http-address"])).to_contain_text("up")
    page.goto("/lookup")  # the address of earlier versions
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
