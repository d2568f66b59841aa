"""Dead messages of the cluster: the page of all channels that have some, and the actions on all of them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.harness import web
from tests.harness.waiting import wait_until

PARCELS, BILLS = ("parcels", "depot"), ("bills", "ledger")


class DeadLetters:
    """Channels of the stack's broker, each with its topic, whose messages die."""

    def __init__(self, stack: Any, *channels: tuple[str, str]) -> None:
        self._stack = stack
        self._url = f"http://{stack.addresses['--nsqd-http-address']}"
        for topic, channel in channels:
            stack.command("/topic/create", topic=topic)
            stack.command("/channel/create", topic=topic, channel=channel)

    def bury(self, topic: str, channel: str, count: int) -> None:
        """Publish messages and let them die."""
        self._stack.publish(topic, count)
        query = {"topic": topic, "channel": channel, "limit": 100}

        def ready() -> list[str]:
            listed = web.get(f"{self._url}/channel/peek", params=query).json()["messages"]
            return [each["id"] for each in listed]

        wait_until(lambda: len(ready()) == count, "the messages are in the channel")
        self._stack.command("/channel/bury", "\n".join(ready()).encode(), topic=topic, channel=channel)

    def states(self, topic: str, channel: str) -> tuple[int, int, int]:
        """Number of ready, deferred and dead messages."""
        query = {"format": "json", "include_histograms": "true", "topic": topic}
        (found,) = web.get(f"{self._url}/stats", params=query).json()["topics"]
        (of,) = [each for each in found["channels"] if each["channel_name"] == channel]
        return of["depth"], of["deferred_count"], of["dead_count"]


@pytest.fixture
def letters(stack):
    made = DeadLetters(stack, PARCELS, BILLS)
    yield made
    for topic, _ in (PARCELS, BILLS):
        stack.command("/topic/delete", topic=topic)


def table(page: Page) -> Any:
    return page.get_by_role("table", name="Channels with dead messages")


def test_channels_with_dead_messages_are_listed_while_they_have_some(live, letters, axe):
    """The page says when there are none. A row has the numbers by reason and leads to the messages."""
    page = live("/dead")
    expect(page.get_by_text("No dead messages")).to_be_visible()
    letters.bury(*PARCELS, 3)
    row = table(page).get_by_role("row").filter(has_text="parcels / depot")
    expect(row.get_by_role("cell").nth(2)).to_have_text("3")
    expect(page.get_by_text("3 messages in 1 channel")).to_be_visible()
    letters.bury(*BILLS, 1)
    expect(page.get_by_text("4 messages in 2 channels")).to_be_visible()
    expect(page.get_by_role("button", name="Operator 2")).to_be_visible()
    page.get_by_role("button", name="Attempts 0").click()
    expect(page.get_by_text("No matching channels")).to_be_visible()
    page.get_by_role("button", name="Show all 2").click()
    assert axe(page) == []
    row.get_by_role("link", name="parcels / depot").click()
    panel = page.get_by_role("region", name="Messages")
    expect(panel.get_by_role("tab", name="Dead", selected=True)).to_be_visible()
    expect(panel).to_contain_text("For all 3 dead messages, or some of them:")


def test_dead_messages_of_chosen_channels_are_requeued_at_a_rate(live, letters, axe):
    """The confirmation has the numbers by node and reason; the job says what each node has done."""
    letters.bury(*PARCELS, 3)
    letters.bury(*BILLS, 2)
    page = live("/dead")
    for name in ("parcels / depot", "bills / ledger"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("toolbar").get_by_role("button", name="Requeue…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Requeue dead messages of 2 channels")
    cost = dialog.get_by_label("What this does")
    expect(cost).to_contain_text("5 dead messages of 2 channels on node")
    expect(dialog.get_by_role("row").filter(has_text="parcels / depot")).to_contain_text("3 operator")
    assert axe(page) == []
    dialog.get_by_label("Messages per second").fill("fast")
    dialog.get_by_role("button", name="Requeue 5 messages").click()
    expect(dialog).to_contain_text("A whole number from 1 to 1,000,000, or empty.")
    dialog.get_by_label("Messages per second").fill("1")
    expect(cost).to_contain_text("Each node makes 1 of each channel ready per second, the last after 2.00 s.")
    dialog.get_by_role("button", name="Requeue 5 messages").click()
    job = page.get_by_role("article", name="Requeue 5 dead messages")
    expect(job).to_contain_text("2 requests answered")
    job.get_by_text("By node").click()
    expect(job).to_contain_text("3 dead messages requeued at 1 a second: the last is due at ")
    assert axe(page) == []
    wait_until(lambda: (letters.states(*PARCELS), letters.states(*BILLS)) == ((3, 0, 0), (2, 0, 0)), "all are ready")
    expect(page.get_by_text("No dead messages")).to_be_visible()


def test_dead_messages_are_removed_after_the_channels_name_is_typed(live, letters, axe):
    """From the channel's tab. Messages of another reason stay."""
    letters.bury(*PARCELS, 2)
    page = live("/topics/parcels/depot?messages=dead")
    panel = page.get_by_role("region", name="Messages")
    panel.get_by_role("button", name="Remove…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").select_option("expired")
    expect(dialog).to_contain_text("No dead message matches.")
    expect(dialog.get_by_role("button", name="Nothing to do")).to_be_disabled()
    dialog.get_by_label("Reason").select_option("operator")
    button = dialog.get_by_role("button", name="Remove: 2 messages lost")
    expect(button).to_be_disabled()
    assert axe(page) == []
    dialog.get_by_label("Type depot to confirm").fill("depot")
    button.click()
    job = page.get_by_role("article", name="Remove 2 dead messages")
    expect(job).to_contain_text("1 request answered")
    panel.get_by_role("button", name="Refresh").click()
    expect(panel).to_contain_text("Nothing is dead.")
    assert letters.states(*PARCELS) == (0, 0, 0)


def test_a_deletion_counts_dead_messages_and_emptying_keeps_them(live, letters):
    """In the question before it, and in the tables of topics and channels."""
    letters.bury(*PARCELS, 2)
    page = live("/topics/parcels/depot")
    page.get_by_role("button", name="Delete").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 messages on node")
    expect(dialog).to_contain_text("are deleted: 2 dead.")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Empty").first.click()
    expect(dialog).to_contain_text("2 dead messages stay.")
    dialog.get_by_role("button", name="Cancel").click()


def test_viewers_see_dead_messages_and_no_actions(live, letters):
    letters.bury(*PARCELS, 1)
    page = live("/dead", user="viktor")
    expect(table(page).get_by_role("row").filter(has_text="parcels / depot")).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
