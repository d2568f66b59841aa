"""Publishing, tailing and peeking from the page."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest
from playwright.sync_api import expect

from tests.harness.waiting import wait_until


def bodies(visitor_or_page, topic, channel):
    """The messages of the channel, requested with the page's session."""
    return visitor_or_page.evaluate(
        """async ([topic, channel]) => {
            const query = new URLSearchParams({topic, channel, limit: 100});
            return (await (await fetch('/api/v1/messages?' + query)).json()).messages.map((each) => each.body);
        }""",
        [topic, channel],
    )


def held(page, topic, channel):
    return sorted(b64decode(body) for body in bodies(page, topic, channel))


@pytest.fixture
def letters(stack):
    """A topic with an empty channel."""
    stack.command("/topic/create", topic="letters")
    stack.command("/channel/create", topic="letters", channel="post")
    stack.command("/channel/empty", topic="letters", channel="post")


def test_messages_are_published_from_the_topics_page(live, stack, letters):
    """One message or one per line, validated as JSON on request; the page says how many were sent to each node."""
    page = live("/topics/letters")
    page.get_by_role("button", name="Publish…").click()
    dialog = page.get_by_role("dialog", name="Publish to letters")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("alert")).to_have_text("A message has at least one byte.")
    dialog.get_by_role("tab", name="JSON").click()
    dialog.get_by_label("Message", exact=True).fill('{\n  "a": }')
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("line 2, column 8")
    dialog.get_by_label("One message per line").check()
    dialog.get_by_label("Messages, one a line").fill('{"a": 1}\n[2,\n')
    dialog.get_by_role("button", name="Publish 2 messages").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Message 2: not JSON")
    assert held(page, "letters", "post") == []
    dialog.get_by_label("Messages, one a line").fill('{"a": 1}\n[2]\n')
    dialog.get_by_role("button", name="Publish 2 messages").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("2 messages published to letters")).to_be_visible()
    assert held(page, "letters", "post") == [b"[2]", b'{"a": 1}']


def test_a_file_goes_deferred_to_the_node_that_was_chosen(live, stack, letters):
    """Any bytes; a delay that is invalid or that the node refuses is reported beside its field."""
    node = stack.addresses["--nsqd-http-address"]
    page = live("/topics/letters?publish=on")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="File").click()
    dialog.get_by_label("Files").set_input_files({"name": "a.bin", "mimeType": "x/y", "buffer": bytes(range(256))})
    dialog.get_by_label("Node").select_option(node)
    delay = dialog.get_by_label("Deliver after")
    for given, complaint in (("soon", "A time such as"), ("2h", "longer than this node permits")):
        delay.fill(given)
        dialog.get_by_role("button", name="Publish", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(complaint)
    delay.fill("1h")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text(f"1 message published to letters on {node}")).to_be_visible()
    assert stack.channel("letters", "post")["deferred_count"] == 1
    page.goto("/topics/letters/post?messages=deferred")
    article = page.get_by_role("article")
    expect(article).to_contain_text("due")
    expect(article).to_contain_text("00 01 02 03")


def test_a_tail_shows_filters_and_pauses_and_leaves_nothing_behind(live, stack, letters):
    """Its channel is deleted when the page is left; another channel keeps its messages."""
    page = live("/topics/letters")
    page.get_by_role("button", name="Tail").click()
    tail = page.get_by_role("region", name="Tail")
    expect(tail).to_contain_text("connected to 1 node")
    stack.publish("letters", 3)
    expect(tail.get_by_role("article")).to_have_count(3)
    tail.get_by_label("Only messages with these words").fill("message 1")
    wait_until(
        lambda: stack.publish("letters", 2) or tail.get_by_role("article").count() > 3, "the filter lets one pass"
    )
    tail.get_by_role("button", name="Pause").click()
    expect(tail.get_by_text("paused", exact=True)).to_be_visible()
    shown = tail.get_by_role("article").count()
    stack.publish("letters", 5)
    expect(tail.get_by_role("status")).to_contain_text(re.compile(r"\d+ skipped"))
    assert tail.get_by_role("article").count() == shown
    assert len(stack.topic("letters")["channels"]) == 2
    tail.get_by_role("button", name="Close").click()
    wait_until(lambda: len(stack.topic("letters")["channels"]) == 1, "the tail's channel is gone")


def test_a_tail_asks_before_it_takes_a_topics_backlog(live, stack):
    """A topic without a channel keeps its messages for the first one: nothing is taken without a confirmation."""
    stack.publish("unread", 3)
    page = live("/topics/unread?tail=on")
    tail = page.get_by_role("region", name="Tail")
    expect(tail).to_contain_text("3 waiting messages")
    assert stack.topic("unread")["depth"] == 3
    tail.get_by_role("button", name="Take them and watch").click()
    expect(tail.get_by_role("article")).to_have_count(3)


def test_waiting_messages_are_shown_and_published_again(live, stack, letters):
    """Looking changes nothing; a long body is cut until the rest is requested; a copy is published after a
    confirmation."""
    stack.command("/pub", b'{"order": 17, "items": ["' + b"x" * 3_000 + b'"]}', topic="letters")
    before = stack.channel("letters", "post")
    page = live("/topics/letters/post")
    page.get_by_role("button", name="Messages").click()
    article = page.get_by_role("article")
    expect(article).to_have_count(1)
    expect(article).not_to_contain_text("]")
    page.get_by_role("button", name=re.compile("Show all 3,02\\d bytes")).click()
    expect(article).to_contain_text('"order": 17')
    expect(article).to_contain_text("]")
    page.get_by_label("Show bodies as").select_option("hex")
    expect(article).to_contain_text("7b 22 6f 72 64 65 72")
    assert stack.channel("letters", "post") == before
    article.get_by_role("button", name="Publish again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("All channels of the topic")
    dialog.get_by_role("button", name="Publish again").click()
    expect(page.get_by_text("Published again to letters")).to_be_visible()
    page.get_by_role("button", name="Refresh").click()
    expect(article).to_have_count(2)
    page.get_by_role("tab", name="In flight").click()
    expect(page.get_by_text("Nothing is in flight.")).to_be_visible()
    expect(page).to_have_url(re.compile("messages=in_flight"))


def test_a_viewer_is_offered_no_messages(visit, stack, letters):
    """Bodies can be confidential: by default only operators may read them."""
    visitor = visit("/topics/letters/post?messages=ready", user="viktor")
    page = visitor.page
    expect(page.get_by_role("heading", name="post", level=1)).to_be_visible()
    expect(page.get_by_text("View only")).to_be_visible()
    expect(page.get_by_role("region", name="Messages")).to_have_count(0)
    page.goto("/topics/letters?tail=on&publish=on")
    expect(page.get_by_text("View only")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(Publish…|Tail)$"))).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)
    status, answer = visitor.call("GET", "messages?topic=letters&channel=post")
    assert (status, answer["message"]) == (403, "your role, viewer, may not read messages")


def test_the_palette_leads_to_publishing_watching_and_looking(live, stack, letters):
    """``publish letters``, ``tail letters`` and ``messages letters post``."""
    page = live("/")
    for typed, address in (
        ("publish letters", "/topics/letters?publish=on"),
        ("tail letters", "/topics/letters?tail=on"),
        ("messages letters post", "/topics/letters/post?messages=ready"),
    ):
        page.keyboard.press("Control+k")
        page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill(typed)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(re.escape(address) + "$"))
        if "publish" in typed:
            expect(page.get_by_role("dialog", name="Publish to letters")).to_be_visible()
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_topic_is_tombstoned_on_one_node(live, stack):
    """From the node's page, after its cost was shown and its name typed; the outcome of each server is shown."""
    stack.publish("faded")
    node = stack.addresses["--nsqd-http-address"]
    page = live(f"/nodes/{node.replace(':', '%3A')}")
    page.get_by_role("button", name=f"Tombstone topic faded on {node}").click()
    dialog = page.get_by_role("dialog", name=f"Tombstone faded on {node}")
    cost = dialog.get_by_label("What this does")
    expect(cost).to_contain_text(f"1 message on node {node} is deleted: 1 in no channel.")
    expect(cost).to_contain_text(f"Registries hide {node} from lookups of faded")
    go = dialog.get_by_role("button", name="Tombstone topic")
    expect(go).to_be_disabled()
    dialog.get_by_label("to confirm").fill("faded")
    expect(go).to_have_text("Tombstone topic: 1 message lost")
    go.click()
    expect(dialog).to_contain_text("Done everywhere.")
    expect(dialog.get_by_role("row").filter(has_text=node)).to_contain_text("done")
    wait_until(lambda: stack.topic("faded") is None, "the node has deleted the topic")


@pytest.mark.parametrize("width", [1280, 390])
def test_messages_fit_the_screen_and_are_accessible(live, stack, letters, axe, width):
    """Publish, tail and peek on desktop and phone: nothing wider than the screen, nothing serious for axe."""
    stack.command("/pub", b'{"order": 17}', topic="letters")
    stack.command("/pub", bytes(range(200)), topic="letters")
    for path, there in (
        ("/topics/letters?publish=on", "dialog"),
        ("/topics/letters?tail=on", "region"),
        ("/topics/letters/post?messages=ready", "article"),
    ):
        page = live(path, viewport={"width": width, "height": 844})
        expect(page.get_by_role(there).first).to_be_visible()
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, f"{path} is {beyond} px wider than the screen"
        assert axe(page) == []
