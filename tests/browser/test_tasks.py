"""What operators do most, from the overview, with the clicks that it takes. Keys are not counted.

Other tests count those of signing in at a provider, clusters, saved views, definitions, figures of the past, reports,
and finding and exporting messages.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.clicks import Clicks
from tests.browser.long_tables import scrolled_to
from tests.browser.widths import WIDTHS
from tests.harness.v2 import V2Client, sized
from tests.harness.waiting import wait_until

Task = Callable[..., tuple[Page, Clicks]]


@pytest.fixture
def task(live) -> Task:
    """Opens the overview; the clicks are counted from then on."""

    def begin(**options) -> tuple[Page, Clicks]:
        page = live("/", **options)
        return page, Clicks(page)

    return begin


def menu(page: Page, place: str) -> None:
    page.get_by_role("navigation", name="Main").get_by_role("link", name=place).first.click()


def type_in_palette(page: Page, words: str, proposal: str) -> None:
    """Without a click: the palette opens by its key and goes to its first proposal."""
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill(words)
    expect(page.get_by_role("option").first).to_contain_text(proposal)
    page.keyboard.press("Enter")


def test_why_a_channel_has_a_backlog_is_said_without_a_click(task, stack):
    """The palette leads to the channel, which says it in one sentence."""
    stack.command("/topic/create", topic="tasks.why")
    stack.command("/channel/create", topic="tasks.why", channel="work")
    stack.publish("tasks.why", 3)
    page, clicks = task()
    type_in_palette(page, "tasks.why work", "tasks.why / work")
    expect(page.get_by_text(re.compile(r"^No consumer.*: 3 messages waiting"))).to_be_visible()
    assert clicks.count == 0


def test_a_channels_slow_consumer_is_found_without_a_click(task, stack):
    """The palette leads to the channel, whose table marks the slow one of two clients and says why it is slow."""
    stack.command("/topic/create", topic="tasks.consumers")
    stack.command("/channel/create", topic="tasks.consumers", channel="work")
    stack.publish("tasks.consumers", 20_000)
    host, _, port = stack.addresses["--nsqd-tcp-address"].partition(":")
    with V2Client((host, int(port))) as slow, V2Client((host, int(port))) as quick:
        for client, name in ((slow, b"tortoise"), (quick, b"hare")):
            client.ok(b"IDENTIFY\n" + sized(b'{"client_id": "%s"}' % name))
            client.sub("tasks.consumers", "work", ready_count=1)
        slow.message()
        page, clicks = task()
        type_in_palette(page, "tasks.consumers work", "tasks.consumers / work")
        rows = page.get_by_role("table", name="Clients").get_by_role("row")
        marked = rows.filter(has_text="tortoise").get_by_text("slow", exact=True)
        reason = page.get_by_text(re.compile(r"tortoise .*: Finished nothing in \d+ s with messages in flight"))

        def work() -> bool:
            quick.send(b"FIN %b\n" % quick.message()[0])
            return marked.is_visible() and reason.is_visible()

        wait_until(work, "the slow client is marked, with the reason")
        expect(rows.filter(has_text="tortoise")).to_contain_text("1 of 1 · 100%")
        expect(rows.filter(has_text="hare").get_by_text("slow", exact=True)).to_have_count(0)
        assert clicks.count == 0


def test_a_node_that_is_down_is_one_click_away(task, stack):
    """From every page: the header counts the nodes that are down, and leads to them."""
    with stack.second_node() as other:
        wait_until(lambda: other.id in stack.registered(), f"{other.id} is registered")
        other.freeze()
        page, clicks = task()
        page.locator("header").get_by_role("link", name=re.compile("nodes? down$")).click()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=other.id))
        expect(row.get_by_text("down", exact=True)).to_be_visible()
        assert clicks.count == 1


def test_a_person_is_invited_in_three_clicks(task):
    page, clicks = task(user="ada")
    menu(page, "People")
    page.get_by_role("button", name="Invite").click()
    page.get_by_label("User name").fill("newcomer")
    page.get_by_label("Role").select_option("operator")
    page.get_by_role("dialog").get_by_role("button", name="Invite").click()
    expect(page.get_by_text("Send this link to newcomer.")).to_be_visible()
    assert clicks.count == 3


def test_a_channel_is_rewound_in_two_clicks(task, stack):
    stack.command("/topic/create", topic="tasks.again")
    for channel in ("all", "keeps"):  # without --retention, the second one's backlog keeps the messages
        stack.command("/channel/create", topic="tasks.again", channel=channel)
    stack.publish("tasks.again", 7)
    wait_until(lambda: stack.channel("tasks.again", "all")["depth"] == 7, "the channel has the messages")
    stack.command("/channel/empty", topic="tasks.again", channel="all")
    page, clicks = task()
    type_in_palette(page, "tasks.again all", "tasks.again / all")
    page.get_by_role("button", name="Rewind").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("What this does")).to_contain_text("7 messages")
    dialog.get_by_role("button", name="Rewind channel").click()
    expect(page.get_by_role("status", name="News")).to_contain_text(
        "Channel all of topic tasks.again was rewound: 7 messages"
    )
    expect(dialog).to_have_count(0)
    assert clicks.count == 2


@pytest.fixture
def letters(stack):
    """A channel with five messages."""
    stack.command("/topic/create", topic="tasks.letters")
    stack.command("/channel/create", topic="tasks.letters", channel="post")
    stack.command("/channel/empty", topic="tasks.letters", channel="post")
    stack.publish("tasks.letters", 5)
    wait_until(lambda: stack.channel("tasks.letters", "post")["depth"] == 5, "the channel has the messages")


def test_one_message_is_requeued_in_four_clicks(task, stack, letters):
    """The messages, its line, its menu, and the action, which a toast confirms; the client loses it."""
    host, _, port = stack.addresses["--nsqd-tcp-address"].partition(":")
    with V2Client((host, int(port))) as slow:
        slow.sub("tasks.letters", "post", ready_count=1)
        message_id, _, _ = slow.message()
        slow.send(b"RDY 0\n")
        page, clicks = task()
        type_in_palette(page, "tasks.letters post", "tasks.letters / post")
        page.get_by_role("button", name="Messages").click()
        page.get_by_role("tab", name="In flight").press("Enter")
        article = page.get_by_role("article", name=f"Message {message_id.decode()}")
        article.get_by_role("button", expanded=False).click()
        article.get_by_text("Actions", exact=True).click()
        article.get_by_role("button", name="Requeue now").click()
        expect(page.get_by_text(f"Message {message_id.decode()} was requeued.")).to_be_visible()
        expect(article).to_have_count(0)
        assert stack.channel("tasks.letters", "post")["depth"] == 5
        assert clicks.count == 4


def test_one_message_is_moved_to_another_topic_in_five_clicks(task, stack, letters):
    """The messages, its line, its menu, the action, and the confirmation, after the topic was typed."""
    page, clicks = task()
    type_in_palette(page, "tasks.letters post", "tasks.letters / post")
    page.get_by_role("button", name="Messages").click()
    article = page.get_by_role("main").get_by_role("article").first
    article.get_by_role("button", expanded=False).click()
    article.get_by_text("Actions", exact=True).click()
    article.get_by_role("button", name="Move to topic…").click()
    dialog = page.get_by_role("dialog")
    page.keyboard.type("tasks.returns")
    expect(dialog.get_by_label("What this does")).to_contain_text("1 message of 9 B")
    expect(dialog.get_by_label("What this does")).to_contain_text("published to topic tasks.returns")
    dialog.get_by_role("button", name="Move").click()
    expect(page.get_by_text(re.compile("^Message .* was moved to tasks.returns.$"))).to_be_visible()
    expect(page.get_by_role("main").get_by_role("article")).to_have_count(4)
    assert stack.channel("tasks.letters", "post")["depth"] == 4
    assert stack.topic("tasks.returns")["message_count"] == 1
    assert clicks.count == 5


def test_all_messages_that_match_are_finished_in_three_clicks(task, stack, letters):
    """The messages, the action on all that a search has found, and the confirmation, after the channel's name was
    typed. A job executes it."""
    page, clicks = task()
    type_in_palette(page, "tasks.letters post", "tasks.letters / post")
    page.get_by_role("button", name="Messages").click()
    search = page.get_by_label("Search in bodies")
    search.fill("message")
    search.press("Enter")
    group = page.get_by_role("group", name="Actions on all 5 messages that match")
    group.get_by_role("button", name="Finish…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("What this does")).to_contain_text("5 of 5 messages match and are removed")
    page.keyboard.type("post")
    dialog.get_by_role("button", name="Finish: 5 messages lost").click()
    expect(page.get_by_role("region", name="Jobs").get_by_role("article", name="Finish 5 messages")).to_contain_text(
        "1 batch done"
    )
    assert stack.channel("tasks.letters", "post")["depth"] == 0
    assert clicks.count == 3


def test_a_topic_is_tombstoned_in_four_clicks(task, stack):
    """The nodes, the node, the topic, and the confirmation, after its name was typed."""
    stack.publish("tasks.faded")
    here = stack.addresses["--nsqd-http-address"]
    page, clicks = task()
    menu(page, "Nodes")
    page.get_by_role("group", name="Nodes").get_by_role("link", name=here).click()
    topics = page.get_by_role("table", name="Topics on this node")
    scrolled_to(topics, page.get_by_role("button", name=f"Tombstone topic tasks.faded on {here}")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("to confirm").fill("tasks.faded")
    dialog.get_by_role("button", name="Tombstone topic").click()
    expect(page.get_by_role("status", name="News")).to_contain_text(f"Topic tasks.faded was tombstoned on {here}.")
    expect(dialog).to_have_count(0)
    assert clicks.count == 4


def test_two_thousand_topics_are_deleted_in_four_clicks(task, stack):
    """The topics, all that match, delete, and the confirmation, after their number was typed."""
    topics = [f"tasks.bulk.{number}" for number in range(2_000)]
    for topic in topics:
        stack.command("/topic/create", topic=topic)
    page, clicks = task()
    menu(page, "Topics")
    page.get_by_role("searchbox", name="Search topics").fill("tasks.bulk.")
    every = page.get_by_role("checkbox", name="Choose all 2,000")
    every.click()
    page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("to confirm").fill("2000")
    dialog.get_by_role("button", name="Delete 2,000 topics").click()
    expect(page.get_by_role("article", name="Delete 2,000 topics")).to_contain_text("2,000 done", timeout=120_000)
    assert clicks.count == 4
    assert [name for name in stack.topics() if name.startswith("tasks.bulk.")] == []


FORGET = """
from nsqplatform.jobs.models import Job
print(Job.objects.filter(state="cancelled").delete())
"""
"""A script for ``manage.py shell``. Otherwise the panel covers a part of the pages of other tests: it shows the user's
own cancelled jobs for hours."""


def test_a_deletion_of_many_topics_is_cancelled_in_one_click(task, stack, axe):
    """The panel says by whom it was cancelled, how many topics were deleted and how many were not; these are still
    there. The audit trail has the same numbers, and the outcome of each topic that the job acted on. With the panel,
    the page suits a screen reader."""
    topics = [f"tasks.spared.{number}" for number in range(200)]  # more than a job acts on at once
    with stack.second_node() as other:
        for topic in topics:
            other.post("/topic/create", topic=topic)
        try:
            page, clicks = task()
            page.goto("/topics?q=tasks.spared.")
            page.get_by_role("checkbox", name="Choose all 200").press("Space")
            page.get_by_role("toolbar").get_by_role("button", name="Delete").press("Enter")
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("to confirm").fill("200")
            other.freeze()  # the first topics are not deleted before the job is cancelled
            dialog.get_by_role("button", name="Delete 200 topics").press("Enter")
            job = page.get_by_role("region", name="Jobs").get_by_role("article", name="Delete 200 topics")
            expect(job).to_contain_text(re.compile(r"remaining, \S+/s"))  # it has begun with some
            job.get_by_role("button", name="Cancel: Delete 200 topics").click()
            expect(job).to_contain_text("Cancelling")
            other.signal(signal.SIGCONT)
            expect(job).to_contain_text("Cancelled by mara")
            assert clicks.count == 1
            # On a busy machine, the node may answer the first requests too late, or all of them.
            counts = re.search(r"(\d+) done(?:, (\d+) on some nodes only)?, (\d+) not done", job.inner_text())
            assert counts is not None, job.inner_text()
            done, late, spared = (int(count or 0) for count in counts.groups())
            assert done + late + spared == 200, job.inner_text()
            assert 0 < spared <= len(other.topics()) <= 200 - done
            assert done + late > 0
            expect(job.get_by_role("button", name=re.compile("^Cancel"))).to_have_count(0)
            for size in WIDTHS.values():
                page.set_viewport_size(size)
                assert axe(page) == []
            page.set_viewport_size(WIDTHS["desk"])
            job.get_by_role("link", name="Audit trail").click()
            trail = page.get_by_role("list", name="Audit trail")
            entry = trail.get_by_role("listitem").filter(has_text="200 topics, job").first
            partly = f", {late} on some nodes only" if late else ""
            expect(entry).to_contain_text(f"{done} of 200 done{partly}, {spared} not done: cancelled by mara")
            entry.get_by_text("Each subject", exact=True).click()
            subjects = entry.get_by_role("listitem")
            expect(subjects).to_have_count(min(done + late, 100))  # on its first page
            deleted = subjects.filter(has=page.get_by_text("done", exact=True)).all_inner_texts()
            names = {re.search(r"tasks\.spared\.\d+", line)[0] for line in deleted}
            assert len(names) == len(deleted)
            assert len(deleted) == done or done + late > 100
            assert names.isdisjoint(other.topics())
        finally:
            other.signal(signal.SIGCONT)
            for topic in other.topics():
                other.post("/topic/delete", topic=topic)
            stack.manage("shell", "-c", FORGET)


def test_an_alert_is_silenced_in_four_clicks(task, visit, stack):
    """The alerts, the alert, silence, and the confirmation, after the reason was typed."""
    stack.command("/topic/create", topic="tasks.loud")
    stack.command("/channel/create", topic="tasks.loud", channel="siren")
    stack.publish("tasks.loud", 20)
    metric = {"scope": "channel", "metric": "depth", "threshold": 5, "topic_pattern": "tasks.loud"}
    admin = visit("/alerts?tab=rules", user="ada")
    rule = {"name": "Loud", **metric, "hold_s": 0, "resolve_after_s": 0}
    status, answer = admin.call("POST", "alerts/rules", rule)
    assert status == 201, answer
    try:
        page, clicks = task()
        menu(page, "Alerts")
        page.get_by_role("link", name="Loud", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Silence…").click()
        dialog = page.get_by_role("dialog", name="Silence alerts")
        dialog.get_by_label("Reason").fill("being moved")
        dialog.get_by_role("button", name="Silence", exact=True).click()
        firing = page.get_by_role("group", name="Firing alerts").get_by_role("row").filter(has_text="tasks.loud")
        expect(firing).to_contain_text("silenced until")
        assert clicks.count == 4
    finally:
        for kind in ("silences", "rules"):
            for each in admin.call("GET", f"alerts/{kind}")[1][kind]:
                admin.call("DELETE", f"alerts/{kind}/{each['id']}")


def test_who_paused_a_topic_is_one_click_away(task, stack):
    """The audit trail finds what was done to a topic."""
    stack.command("/topic/create", topic="tasks.held")
    page, clicks = task()
    type_in_palette(page, "pause tasks.held", "Pause tasks.held")
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").press("Enter")
    expect(page.get_by_text("Topic tasks.held was paused.")).to_be_visible()
    menu(page, "Audit")
    page.get_by_role("searchbox", name="Object").fill("tasks.held")
    entries = page.get_by_role("list", name="Audit trail").get_by_role("listitem")
    expect(entries).to_have_count(1)
    expect(entries).to_contain_text("mara")
    assert clicks.count == 1
