"""Publishing, tailing and peeking from the page."""

from __future__ import annotations

import json
import re
from base64 import b64decode

import pytest
from playwright.sync_api import expect

from tests.browser.clicks import Clicks
from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.waiting import wait_until
from tests.platform.message_descriptors import ORDER, descriptors, order_body


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
    expect(dialog.get_by_label("Message", exact=True)).to_be_focused()
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


def test_a_file_goes_deferred_with_headers_to_the_node_that_was_chosen(live, stack, letters):
    """Any bytes; a header or delay that is invalid or that the node refuses is reported beside its field."""
    node = stack.addresses["--nsqd-http-address"]
    page = live("/topics/letters?publish=on")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="File").click()
    dialog.get_by_label("Files").set_input_files({"name": "a.bin", "mimeType": "x/y", "buffer": bytes(range(256))})
    dialog.get_by_label("Node").select_option(node)
    headers = dialog.get_by_label("Headers")
    for given, complaint in (("tenant", "Lines such as “tenant: acme”"), ("a b: acme", "Header name 'a b' is not")):
        headers.fill(given)
        dialog.get_by_role("button", name="Publish", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(complaint)
    headers.fill("Tenant: acme")
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
    article = page.get_by_role("main").get_by_role("article")
    article.get_by_role("button", name=re.compile("^[0-9a-f]{16}$")).click()
    expect(article).to_contain_text("due")
    expect(article).to_contain_text("tenant")
    expect(article).to_contain_text("acme")
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
    tail.get_by_role("button", name="Take the messages").click()
    expect(tail.get_by_role("article")).to_have_count(3)


def test_waiting_messages_are_shown_and_published_again(live, stack, letters):
    """Looking changes nothing; a long body is cut until the rest is requested; a copy is published after a
    confirmation."""
    stack.command("/pub", b'{"order": 17, "items": ["' + b"x" * 3_000 + b'"]}', topic="letters")
    before = stack.channel("letters", "post")
    page = live("/topics/letters/post")
    page.get_by_role("button", name="Messages", exact=True).click()
    article = page.get_by_role("main").get_by_role("article")
    expect(article).to_have_count(1)
    expect(article).not_to_contain_text("]")
    article.get_by_role("button", name=re.compile("^[0-9a-f]{16}$")).click()
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


def test_a_message_is_found_by_its_id_and_its_whole_body_downloaded(live, stack, letters):
    """Two clicks lead to the message, a third to the body, however large; the search says how far it came."""
    body = b'{"order": 17, "pad": "' + b"x" * 200_000 + b'"}'
    stack.publish("letters", 30)
    stack.command("/pub", body, topic="letters")
    page = live("/topics/letters/post")
    wanted = page.evaluate(
        """async () => {
            const found = await fetch('/api/v1/messages/search?topic=letters&channel=post&min_size=100000');
            return JSON.parse((await found.text()).split('\\n')[0]).message.id;
        }"""
    )
    clicks = Clicks(page)
    page.reload()
    page.get_by_role("button", name="Messages", exact=True).click()
    form = page.get_by_role("form", name="Search the messages")
    form.get_by_label("ID").fill(wanted)
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_role("main").get_by_role("article")).to_have_count(1)
    expect(page.get_by_text("Searched 31 of 31 messages: 1 match.")).to_be_visible()
    assert clicks.count == 2
    with page.expect_download() as download:
        page.get_by_role("link", name="Download body").click()
    assert download.value.path().read_bytes() == body
    assert clicks.count == 3


def test_bodies_are_searched_and_what_matches_is_exported(live, stack, letters):
    """By text or pattern, with errors at the field; the export of what matches takes three clicks."""
    stack.publish("letters", 12)
    page = live("/topics/letters/post")
    clicks = Clicks(page)
    page.get_by_role("button", name="Messages", exact=True).click()
    form = page.get_by_role("form", name="Search the messages")
    form.get_by_label("Match as").select_option("regex")
    form.get_by_label("Search in bodies").fill("(")
    form.get_by_label("Search in bodies").press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("Missing )")
    form.get_by_label("Search in bodies").fill("message 1\\d?$")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Searched 12 of 12 messages: 3 matches.")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("article")).to_have_count(3)
    with page.expect_download() as download:
        form.get_by_role("link", name="Export matches: NDJSON").click()
    assert clicks.count == 3
    assert len(download.value.path().read_bytes().splitlines()) == 3
    form.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("main").get_by_role("article")).to_have_count(12)
    expect(page.get_by_role("tab", name="Ready")).to_be_visible()


def test_the_ends_of_a_long_list_are_one_click_away(live, stack, letters):
    """The newest and the oldest message of a list of several pages, and the list again."""
    stack.publish("letters", 45)
    wait_until(lambda: stack.channel("letters", "post")["depth"] == 45, "the channel has the messages")
    page = live("/topics/letters/post?messages=ready")
    panel = page.get_by_role("region", name="Messages")
    articles = panel.get_by_role("article")
    expect(panel).to_contain_text("1 to 20 of 45, by node")
    panel.get_by_role("button", name="Newest").click()
    expect(panel).to_contain_text("Newest 20 of 45 on all nodes")
    expect(articles.first).to_contain_text("message 44")
    panel.get_by_role("button", name="Oldest").click()
    expect(panel).to_contain_text("Oldest 20 of 45 on all nodes")
    expect(articles.first).to_contain_text("message 0")
    panel.get_by_role("button", name="By node").click()
    expect(panel).to_contain_text("1 to 20 of 45, by node")


def test_messages_are_searched_by_size_and_one_is_copied_and_finished(live, stack, letters):
    """A range that is not understood is named beside its field. The copy leaves the message, the finish removes it; the
    dialog says so before."""
    stack.command("/topic/create", topic="letters.copies")
    stack.command("/pub", b'{"order": 17, "kind": "gift"}', topic="letters")
    stack.publish("letters", 3)
    wait_until(lambda: stack.channel("letters", "post")["depth"] == 4, "the channel has the messages")
    page = live("/topics/letters/post?messages=ready")
    form = page.get_by_role("form", name="Search the messages")
    least = form.get_by_label("Min. size")
    least.fill("big")
    expect(least).to_have_attribute("aria-invalid", "true")
    least.fill("20")
    form.get_by_label("Max. attempts").fill("0")
    form.get_by_label("Max. age").fill("1h")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Searched 4 of 4 messages: 1 match.")).to_be_visible()
    article = page.get_by_role("main").get_by_role("article")
    expect(article.get_by_role("region", name="Body of")).to_contain_text('"order": 17')
    colours = article.get_by_text(re.compile(r'^(17|"gift")$')).evaluate_all(
        "parts => parts.map((part) => getComputedStyle(part).color)"
    )
    assert len({*colours}) == 2, "numbers and texts have a colour each"
    dialog = page.get_by_role("dialog")
    cost = dialog.get_by_label("What this does")

    article.get_by_text("Actions", exact=True).click()
    article.get_by_role("button", name="Copy to topic…").click()
    dialog.get_by_label("To topic").fill("letters.copies")
    expect(cost).to_contain_text("is published to topic letters.copies on its node. Channel post does not change.")
    dialog.get_by_role("button", name="Copy").click()
    expect(page.get_by_text(re.compile("^Message .* was copied to letters.copies.$"))).to_be_visible()
    assert stack.channel("letters", "post")["depth"] == 4
    assert stack.topic("letters.copies")["message_count"] == 1

    expect(dialog).to_have_count(0)
    expect(article).to_have_count(1)

    article.get_by_text("Actions", exact=True).click()
    article.get_by_role("button", name="Finish…").click()
    expect(cost).to_contain_text("is removed from channel post, and no consumer processes it any more.")
    dialog.get_by_role("button", name="Finish: 1 message lost").click()
    expect(page.get_by_text(re.compile("^Message .* was finished.$"))).to_be_visible()
    expect(article).to_have_count(0)
    assert stack.channel("letters", "post")["depth"] == 3


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
    """From the node's page, after its cost was shown and its name typed; a short message says that it is done."""
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
    expect(page.get_by_role("status", name="News")).to_contain_text(f"Topic faded was tombstoned on {node}.")
    expect(dialog).to_have_count(0)
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
        beyond = pixels_beyond(page)
        assert beyond <= 0, f"{path} is {beyond} px wider than the screen"
        assert axe(page) == []


def test_bodies_are_decoded_as_messagepack_and_by_uploaded_descriptors(live, stack, letters, axe):
    """A type that the file lacks is refused by name; afterwards bodies are decoded, and trees close by keyboard."""
    stack.command("/pub", bytes.fromhex("82a26964cfffffffffffffffffa474616773 92a161a162"), topic="letters")
    stack.command("/pub", order_body(id=2**64 - 1, note="gift", cents=1250, tags=["a"]), topic="letters")
    page = live("/topics/letters/post?messages=ready")
    articles = page.get_by_role("main").get_by_role("article")
    expect(articles).to_have_count(2)
    page.get_by_label("Open all").check()
    expect(articles.first).to_contain_text('"id": 18446744073709551615')
    expect(articles.last).not_to_contain_text("cents")
    page.get_by_role("button", name="Message types…").click()
    dialog = page.get_by_role("dialog", name="Message types")
    file = {"name": "order.pb", "mimeType": "x/y", "buffer": descriptors()}
    dialog.get_by_label("Descriptors").set_input_files(file)
    dialog.get_by_label("Message type", exact=True).fill("shop.v1.Basket")
    dialog.get_by_role("button", name="Upload").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no message type shop.v1.Basket")
    dialog.get_by_label("Message type", exact=True).fill(ORDER)
    dialog.get_by_role("button", name="Upload").click()
    expect(dialog.get_by_role("list", name="Message types")).to_contain_text(ORDER)
    assert axe(page) == []
    dialog.get_by_role("button", name="Close").click()
    expect(articles.last).to_contain_text("cents: 1250")
    expect(articles.last).to_contain_text("id: 18446744073709551615")
    total = articles.last.get_by_role("button", name="total")
    total.focus()
    page.keyboard.press("Enter")
    expect(total).to_have_attribute("aria-expanded", "false")
    expect(articles.last).not_to_contain_text("cents")
    page.get_by_role("button", name="Message types…").click()
    dialog.get_by_role("button", name=f"Delete {ORDER} of letters").click()
    expect(dialog).to_contain_text("There are no message types.")


def test_dead_messages_are_listed_with_their_reason_and_requeued(live, stack, letters, axe):
    """The channel's page counts them, and the tab says when and why each died."""
    for body in (b"poison", b"fine"):
        stack.command("/pub", body, topic="letters")
    page = live("/topics/letters/post?messages=ready")
    found = page.evaluate(
        "async () => (await (await fetch('/api/v1/messages?topic=letters&channel=post')).json()).messages"
    )
    (poison,) = (each["id"] for each in found if b64decode(each["body"]) == b"poison")
    stack.command("/channel/bury", topic="letters", channel="post", id=poison)
    panel = page.get_by_role("region", name="Messages")
    panel.get_by_role("tab", name="Dead").click()
    article = panel.get_by_role("article", name=f"Message {poison}")
    expect(article).to_contain_text("dead")
    article.get_by_role("button", name=poison).click()
    expect(article).to_contain_text("an operator buried it")
    expect(page.get_by_label("Numbers of this channel")).to_contain_text("1 died")
    assert axe(page) == []
    article.get_by_text("Actions", exact=True).click()
    article.get_by_role("button", name="Requeue now").click()
    expect(page.get_by_text(f"Message {poison} was requeued.")).to_be_visible()
    expect(panel).to_contain_text("Nothing is dead.")
    assert held(page, "letters", "post") == [b"fine", b"poison"]


def test_headers_are_shown_searched_and_published_again(live, stack, letters, axe):
    """On a phone: an opened message has a table of them, and one without any has none. A long value is as wide as the
    screen."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    sent = {"headers": {"tenant": "acme", "traceparent": trace, "note": "x" * 4000}, "body": "with headers"}
    stack.command("/mpub", json.dumps(sent).encode(), topic="letters", envelope="true")
    stack.command("/pub", b"without", topic="letters")
    page = live("/topics/letters/post?messages=ready", viewport=WIDTHS["phone"])
    articles = page.get_by_role("main").get_by_role("article")
    expect(articles).to_have_count(2)
    page.get_by_label("Open all").check()
    expect(articles.get_by_text("Copy body")).to_have_count(2)
    table = page.get_by_role("table", name=re.compile("^Headers of "))
    expect(table).to_have_count(1)
    expect(table.get_by_role("row", name=f"traceparent {trace}")).to_be_visible()
    assert pixels_beyond(page) <= 0
    assert axe(page) == []
    form = page.get_by_role("form", name="Search the messages")
    expect(form).to_be_hidden()  # on a phone, it is behind a line, so that the first message is on the screen
    page.get_by_text("Search and export").click()
    header = form.get_by_label("Header", exact=True)
    header.fill("two words")
    expect(form.get_by_role("alert")).to_contain_text("tenant:acme")
    header.fill("tenant:ACME")
    header.press("Enter")
    expect(page.get_by_text("Searched 2 of 2 messages: 1 match.")).to_be_visible()
    expect(articles).to_have_count(1)
    articles.get_by_role("button", name="Publish again…").click()
    page.get_by_role("dialog").get_by_role("button", name="Publish again").click()
    expect(page.get_by_text("Published again to letters")).to_be_visible()
    form.get_by_role("button", name="Clear").click()
    expect(header).to_have_value("")
    found = page.evaluate(
        "async () => (await (await fetch('/api/v1/messages?topic=letters&channel=post')).json()).messages"
    )
    assert [each["headers"] for each in found] == [sent["headers"], {}, sent["headers"]]


def test_a_tail_shows_headers(live, stack, letters):
    """In each opened message that has any."""
    page = live("/topics/letters?tail=on")
    tail = page.get_by_role("region", name="Tail")
    expect(tail).to_contain_text("connected to 1 node")
    sent = {"headers": {"tenant": "acme"}, "body": "with headers"}
    stack.command("/mpub", json.dumps(sent).encode(), topic="letters", envelope="true")
    article = tail.get_by_role("article")
    article.get_by_role("button", name=re.compile("^[0-9a-f]{16}$")).click()
    expect(article.get_by_role("row", name="tenant acme")).to_be_visible()
