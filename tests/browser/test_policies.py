"""Policies on their page, and on the page of a channel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import SecondNode, Stack, Visitor
from tests.harness.waiting import wait_until


@pytest.fixture
def other(stack: Stack) -> Iterator[SecondNode]:
    """A second node of the cluster."""
    with stack.second_node() as node:
        wait_until(lambda: node.id in stack.registered(), "the node is registered")
        yield node


def stored(visitor: Visitor) -> dict[str, tuple[Any, bool]]:
    """The policies that the API lists: values, and whether nodes differ."""
    rows = visitor.call("GET", "policies")[1]["policies"]
    return {f"{row['topic_pattern']} / {row['channel_pattern']}": (row["policy"], row["drift"]) for row in rows}


def close(dialog: Locator) -> None:
    """Wait until the dialog closes, or close it if it shows the outcome of each node: a broker that another test has
    ended counts as unreachable for some minutes."""
    button = dialog.get_by_role("button", name="Close")
    wait_until(lambda: not dialog.is_visible() or button.is_visible(), "the policy is set or deleted")
    if button.is_visible():
        expect(dialog).to_contain_text("Done on some nodes only")
        button.click()


def test_a_policy_is_set_changed_and_deleted(visit: Any, other: SecondNode, axe: Any) -> None:
    """A value that the nodes refuse is named beside its key, in rows and as JSON; the whole works on every node."""
    visitor = visit("/")
    page = visitor.page
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Policies").click()
    expect(page.get_by_text("No policies", exact=True)).to_be_visible()
    page.get_by_role("button", name="New policy").click()
    dialog = page.get_by_role("dialog", name="New policy")
    dialog.get_by_role("button", name="Set policy").click()
    expect(dialog.get_by_role("alert")).to_have_text("Enter a pattern, such as orders*")
    dialog.get_by_label("Topics").fill("orders.*")
    dialog.get_by_label("Channels").fill("billing")
    dialog.get_by_label("Key", exact=True).fill("max_attempts")
    dialog.get_by_label("Value of max_attempts").fill("many")
    dialog.get_by_role("button", name="Add a key").click()
    dialog.get_by_label("Key", exact=True).nth(1).fill("retry_delay")
    dialog.get_by_label("Value of retry_delay").fill("1s..5m")
    dialog.get_by_role("button", name="Set policy").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Must be a whole number from 0 to")
    expect(dialog.get_by_label("Value of max_attempts")).to_have_attribute("aria-invalid", "true")
    assert axe(page) == []
    assert stored(visitor) == {}
    dialog.get_by_label("Value of max_attempts").fill("5")
    dialog.get_by_role("button", name="Set policy").click()
    close(dialog)
    row = page.get_by_role("row").filter(has_text="orders.*")
    expect(row).to_contain_text("max_attempts=5 retry_delay=1s..5m")
    expect(row).to_contain_text("all 2")
    assert stored(visitor) == {"orders.* / billing": ({"max_attempts": 5, "retry_delay": "1s..5m"}, False)}
    assert axe(page) == []

    row.get_by_role("button", name="Edit the policy of orders.* / billing").click()
    dialog = page.get_by_role("dialog", name="Policy of orders.* / billing")
    dialog.get_by_role("tab", name="JSON").click()
    text = dialog.get_by_label("Policy", exact=True)
    assert json.loads(text.input_value()) == {"max_attempts": 5, "retry_delay": "1s..5m"}
    text.fill('{"max_atempts": 3}')
    dialog.get_by_role("button", name="Set policy").click()
    expect(dialog.get_by_role("alert")).to_contain_text("max_atempts: Unknown key")
    text.fill('{"max_attempts": 3}')
    dialog.get_by_role("tab", name="Keys and values").click()
    expect(dialog.get_by_label("Value of max_attempts")).to_have_value("3")
    dialog.get_by_role("button", name="Set policy").click()
    close(dialog)
    expect(page.get_by_role("row").filter(has_text="max_attempts=3")).to_be_visible()

    page.get_by_role("button", name="Delete the policy of orders.* / billing").click()
    dialog = page.get_by_role("dialog", name="Delete the policy of orders.* / billing")
    expect(dialog).to_contain_text("Deletes max_attempts=3 on every node")
    assert axe(page) == []
    dialog.get_by_role("button", name="Delete policy").click()
    close(dialog)
    expect(page.get_by_text("No policies", exact=True)).to_be_visible()
    assert stored(visitor) == {}
    assert [fault for fault in visitor.faults if "422" not in fault] == []


def close_outcome(dialog: Any) -> None:
    """A dialog stays if a node did not answer, as nodes of other tests that are down."""

    def is_closed() -> bool:
        close = dialog.get_by_role("button", name="Close", exact=True)
        if close.count():
            close.click()
        return bool(dialog.count() == 0)

    wait_until(is_closed, "the dialog is closed")


def test_a_policy_that_differs_is_applied_to_all_nodes(visit: Any, stack: Stack, other: SecondNode, axe: Any) -> None:
    """An operator chooses the values of one node; a viewer only compares them."""
    stack.command("/policy", b'{"max_attempts":5}', pattern="drift.*")
    other.post("/policy", b'{"max_attempts":1}', pattern="drift.*")
    other.post("/policy", b'{"max_attempts":2}', pattern="old")
    viewer = visit("/policies", user="viktor").page
    viewer.get_by_role("button", name="Compare: drift.*").click()
    dialog = viewer.get_by_role("dialog", name="Policy of drift.* by node")
    expect(dialog.get_by_role("listitem").filter(has_text="max_attempts=1")).to_contain_text(other.id)
    assert axe(viewer) == []
    expect(viewer.get_by_role("button", name="Apply to all nodes")).to_have_count(0)
    expect(viewer.get_by_role("button", name="Edit")).to_have_count(0)
    expect(viewer.get_by_role("button", name="New policy")).to_have_count(0)

    visitor = visit("/policies")
    page = visitor.page
    expect(page.get_by_role("row").filter(has_text="drift.*")).to_contain_text("differs")
    page.get_by_role("button", name="Apply to all nodes: drift.*").click()
    dialog = page.get_by_role("dialog", name="Policy of drift.* by node")
    dialog.get_by_role("radio", name="max_attempts=1").check()
    assert axe(page) == []
    dialog.get_by_role("button", name="Apply to all nodes").click()
    expect(page.get_by_role("row").filter(has_text="drift.*")).to_contain_text("same")
    close_outcome(dialog)
    page.get_by_role("button", name="Apply to all nodes: old").click()
    dialog = page.get_by_role("dialog", name="Policy of old by node")
    dialog.get_by_role("radio", name="No policy").check()
    dialog.get_by_role("button", name="Delete on all nodes").click()
    expect(page.get_by_role("row").filter(has_text="old")).to_have_count(0)
    assert stored(visitor) == {"drift.* / *": ({"max_attempts": 1}, False)}
    assert visitor.call("DELETE", "policies?topic_pattern=drift.*")[0] == 200
    assert visitor.faults == []


def test_the_page_of_a_channel_shows_the_policy_that_applies(live: Any, stack: Stack, axe: Any) -> None:
    """The most specific one, or that only the nodes' settings apply."""
    stack.command("/topic/create", topic="policied.eu")
    for channel in ("billing", "audit"):
        stack.command("/channel/create", topic="policied.eu", channel=channel)
    stack.command("/policy", b'{"max_attempts":5}', pattern="policied.*", channel="billing")
    page = live("/topics/policied.eu/billing")
    line = page.get_by_role("main").locator("p").filter(has=page.get_by_role("link", name="Policy", exact=True))
    expect(line).to_contain_text("policied.* / billing: max_attempts=5")
    assert axe(page) == []
    page = live("/topics/policied.eu/audit")
    line = page.get_by_role("main").locator("p").filter(has=page.get_by_role("link", name="Policy", exact=True))
    expect(line).to_contain_text("none; the settings of the nodes apply")
    stack.command("/policy/delete", pattern="policied.*", channel="billing")
