"""The page of a sampled message's life, and the way to it from the messages of a channel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Stack
from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.v2 import V2Client, sized
from tests.harness.waiting import wait_until


@pytest.fixture
def followed(stack: Stack) -> Iterator[str]:
    """A topic ``followed`` with a channel ``post``, of which all messages are sampled."""
    stack.command("/topic/create", topic="followed")
    stack.command("/channel/create", topic="followed", channel="post")
    stack.command("/policy", json.dumps({"sample_lives": 1}).encode(), pattern="followed", channel="*")
    yield "followed"
    stack.command("/policy/delete", pattern="followed", channel="*")
    stack.command("/topic/delete", topic="followed")


def test_a_message_of_a_channel_leads_to_its_life(visit: Any, stack: Stack, followed: str, axe: Any) -> None:
    """Its events in order with the gaps between, by channel, on any width; a consumer is named."""
    stack.publish(followed)
    visitor = visit("/topics/followed/post?messages=ready")
    page = visitor.page
    message = page.get_by_role("article", name=re.compile("^Message "))
    message.get_by_role("button", name=re.compile("^[0-9a-f]{16}$")).click()
    link = message.get_by_role("link", name="Life")
    expect(link).to_be_visible()
    message_id = re.search("message=([0-9a-f]{16})", link.get_attribute("href") or "")
    assert message_id is not None

    host, _, port = stack.addresses["--nsqd-tcp-address"].partition(":")
    with V2Client((host, int(port))) as worker:
        worker.command(b"IDENTIFY\n" + sized(b'{"client_id":"worker-7"}'))
        worker.sub("followed", "post", 1)
        taken, _, _ = worker.message()
        assert taken.decode() == message_id[1]
        worker.send(b"REQ %b 100\n" % taken)
        assert worker.message()[1] == 2
        worker.finish(taken)

    def events() -> list[str]:
        answer = visitor.call("GET", f"messages/{message_id[1]}/life?topic=followed")[1]
        return [each["event"] for each in answer["events"]]

    wait_until(lambda: events()[-1:] == ["finished"], "its life is in the archive")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Life of a message")
    expect(page.get_by_role("textbox", name="Topic")).to_have_value("followed")
    expect(page.get_by_label("Message id")).to_have_value(message_id[1])
    topic = page.get_by_role("region", name="Topic", exact=True).get_by_role("listitem")
    expect(topic).to_have_count(1)
    expect(topic).to_contain_text("published")
    steps = page.get_by_role("region", name="Channel post").get_by_role("listitem")
    expect(steps).to_have_text([
        re.compile(f"{words}.*worker-7 · 127.0.0.1:")
        for words in ("delivered.*attempt 1", "requeued for 100 ms", "delivered.*attempt 2", "finished")
    ])  # fmt: skip
    expect(steps.nth(0)).to_contain_text("+ ")
    expect(page.get_by_role("region", name="Channel post")).to_contain_text(re.compile("finished after .*, 2 attempts"))
    assert axe(page) == []
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) == 0


def test_a_message_is_found_by_its_id(visit: Any, stack: Stack, followed: str, axe: Any) -> None:
    """The page asks for what is missing, and says why nothing is shown."""
    page = visit("/life", user="viktor").page
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_have_text("Enter a topic")
    page.get_by_role("textbox", name="Topic").fill("followed")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_have_text("Enter the id of a message")
    page.get_by_label("Message id").fill("0123456789abcdef")
    page.get_by_label("Since").select_option(label="Last week")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Nothing is recorded of this message")).to_be_visible()
    expect(page).to_have_url(re.compile("message=0123456789abcdef"))
    assert axe(page) == []
    page.get_by_label("Message id").fill("not an id")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("an id is 16 hex digits")).to_be_visible()


@pytest.fixture
def damaged(stack: Stack) -> Iterator[str]:
    """A file of the archive's events that cannot be read; its path there."""
    at = datetime.now(UTC) - timedelta(hours=5)
    place = f"lives/date={at:%Y-%m-%d}/hour={at:%H}/0000-damaged.parquet"
    (stack.archive / place).parent.mkdir(parents=True, exist_ok=True)
    (stack.archive / place).write_bytes(b"this is no Parquet file")
    yield place
    (stack.archive / place).unlink(missing_ok=True)


def test_a_damaged_file_of_the_archive_is_named_and_the_rest_is_shown(visit: Any, damaged: str, axe: Any) -> None:
    page = visit("/life?topic=followed&message=0123456789abcdef").page
    expect(page.get_by_text("1 file of the archive cannot be read")).to_be_visible()
    expect(page.get_by_text(damaged)).to_be_visible()
    expect(page.get_by_text("Nothing is recorded of this message")).to_be_visible()
    assert axe(page) == []
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) == 0
