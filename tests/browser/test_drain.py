"""The drain of a node: begun and cancelled on its page, and shown on others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.attention import attention_item
from tests.browser.conftest import SecondNode, Stack
from tests.harness.waiting import wait_until


@pytest.fixture
def node(stack: Stack) -> Iterator[SecondNode]:
    """A node with two messages on a channel without clients."""
    with stack.second_node() as other:
        other.post("/topic/create", topic="drained")
        other.post("/channel/create", topic="drained", channel="all")
        for _ in range(2):
            other.publish("drained")
        wait_until(lambda: other.id in stack.registered(), "the node is registered")
        yield other


def open_node(live: Any, node: SecondNode, **who: Any) -> Page:
    page: Page = live(f"/nodes/{node.id}", **who)
    expect(page.get_by_label("Numbers of this node")).to_contain_text("Depth 2")
    return page


def row_of(page: Page, node: SecondNode) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=node.id))


def test_an_operator_drains_a_node_and_cancels_the_drain(live: Any, stack: Stack, node: SecondNode, axe: Any) -> None:
    """The dialog says what will happen, the page how far it is; the audit trail has both."""
    page = open_node(live, node)
    page.get_by_role("button", name="Drain…").click()
    dialog = page.get_by_role("dialog", name=f"Drain node {node.id}")
    cost = dialog.get_by_role("group", name="What this does")
    expect(cost).to_contain_text("Its process ends when its 2 messages are finished, at the latest at ")
    expect(cost).to_contain_text("It leaves the registries at once: clients that look it up do not find it")
    expect(cost).to_contain_text("It refuses publishes")
    expect(cost).to_contain_text("2 messages are paused or have no client: what is left at the deadline stays")
    assert axe(page) == []
    dialog.get_by_label("Ends at the latest after").select_option("No limit: only when it is empty")
    dialog.get_by_label("Take publishes meanwhile").check()
    expect(cost).to_contain_text("It takes publishes until then.")
    expect(cost).to_contain_text("the process does not end before they are finished or deleted.")
    assert node.get("/drain")["drain"] is None
    dialog.get_by_role("button", name="Drain node").click()
    expect(page.get_by_text(f"Node {node.id} drains: 2 messages are left.")).to_be_visible()
    expect(page.get_by_text("Draining: 2 messages are left")).to_be_visible()
    expect(page.get_by_role("button", name="Drain…")).to_have_count(0)
    state = node.get("/drain")["drain"]
    assert (state["ends_within"], state["takes_publishes"]) == (None, True)
    assert node.id not in stack.registered()
    assert axe(page) == []
    node.publish("drained")
    expect(page.get_by_text("Draining: 3 messages are left")).to_be_visible()

    page.get_by_role("button", name="Cancel the drain").click()
    expect(page.get_by_text(f"Node {node.id} takes messages again.")).to_be_visible()
    expect(page.get_by_role("button", name="Drain…")).to_be_visible()
    wait_until(lambda: node.id in stack.registered(), "the node is registered again")
    page.goto("/audit")
    trail = page.get_by_role("list", name="Audit trail").get_by_role("listitem").filter(has_text=node.id)
    expect(trail.first).to_contain_text("cancel drain")
    expect(trail.nth(1)).to_contain_text("no timeout; takes publishes")


def test_other_pages_show_that_a_node_drains_until_its_process_has_ended(live: Any, node: SecondNode, axe: Any) -> None:
    """Nodes and the overview, to viewers too, who have no buttons. It is not unhealthy; afterwards it is down."""
    page = live("/nodes", user="viktor")
    expect(row_of(page, node)).to_contain_text("up")
    node.post("/drain", timeout="0")
    expect(row_of(page, node)).to_contain_text("draining 2 messages left")
    assert axe(page) == []
    page.get_by_role("searchbox").fill(f"draining {node.id}")
    page.get_by_role("link", name=node.id).click()
    expect(page.get_by_text("Draining: 2 messages are left")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("NOK")
    for name in ("Drain…", "Cancel the drain"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("link", name="Overview", exact=True).click()
    item = attention_item(page, node.id)
    expect(item).to_contain_text("draining")
    expect(item).to_contain_text("2 messages are left")
    expect(item).not_to_contain_text("unhealthy")
    page.get_by_role("link", name="Nodes", exact=True).click()
    node.post("/channel/empty", topic="drained", channel="all")
    expect(row_of(page, node).get_by_text("down", exact=True)).to_be_visible()
    assert node.wait_for_exit() == 0
