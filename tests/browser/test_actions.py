"""Actions of an operator on topics and channels, and their entries in the audit trail."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.recorded import reload_once_recorded
from tests.harness import web
from tests.harness.waiting import wait_until


def last_entry(page, topic):
    """The newest line of the audit page about a topic."""
    page.goto("/audit")
    return page.get_by_role("list", name="Audit trail").get_by_role("listitem").filter(has_text=topic).first


def confirm(page, button, said):
    """Confirm the question. Of a single node nothing is listed: the dialog closes, and a message says what was done."""
    page.get_by_role("dialog").get_by_role("button", name=button).click()
    expect(page.get_by_role("status", name="News")).to_contain_text(said)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_pausing_a_topic_pauses_it_on_the_broker_and_is_audited(live, stack):
    """After a pause the page shows a badge; after unpausing, the log has both with user and time."""
    stack.command("/topic/create", topic="press")
    page = live("/topics/press")
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(page, "Pause topic", "Topic press was paused.")
    assert stack.topic("press")["paused"] is True
    expect(page.locator("header").get_by_text("paused", exact=True)).to_be_visible()
    page.get_by_role("button", name="Unpause").click()
    confirm(page, "Unpause topic", "Topic press was unpaused.")
    assert stack.topic("press")["paused"] is False
    entry = last_entry(page, "press")
    expect(entry).to_contain_text("mara")
    expect(entry).to_contain_text("unpause")
    expect(entry).to_contain_text("done")
    expect(entry.locator("time")).to_have_text(re.compile(r"\d{4}, \d\d:\d\d:\d\d"))
    entry.get_by_text("1 result").click()
    expect(entry).to_contain_text(stack.addresses["--nsqd-http-address"])


def test_emptying_a_channel_shows_what_is_lost_and_asks_for_its_name(live, stack):
    """The dialog shows the number of messages; its button is enabled once the name is typed; then the channel is
    empty."""
    stack.command("/topic/create", topic="bins")
    stack.command("/channel/create", topic="bins", channel="glass")
    stack.publish("bins", 42)
    page = live("/topics/bins/glass")
    expect(page.get_by_label("Numbers of this channel")).to_contain_text("42")
    page.get_by_role("button", name="Empty").click()
    dialog = page.get_by_role("dialog")
    cost = dialog.get_by_label("What this does")
    node = stack.addresses["--nsqd-http-address"]
    expect(cost).to_contain_text(f"42 messages on node {node} are deleted: 42 waiting.")
    expect(cost).to_contain_text(re.compile(r"Figures as of \d\d:\d\d:\d\d\."))
    empty = dialog.get_by_role("button", name="Empty channel")
    expect(empty).to_be_disabled()
    dialog.get_by_label("to confirm").fill("glas")
    expect(empty).to_be_disabled()
    dialog.get_by_label("to confirm").fill("glass")
    expect(empty).to_have_text("Empty channel: 42 messages lost")
    confirm(page, "Empty channel", "Channel glass of topic bins was emptied.")
    assert stack.channel("bins", "glass")["depth"] == 0
    numbers = page.get_by_label("Numbers of this channel")
    expect(numbers.get_by_text("Emptied", exact=True)).to_be_visible()
    expect(numbers.get_by_text("0 rewound")).to_be_visible()
    expect(page.get_by_role("list", name="Events")).to_contain_text("Emptied bins / glass by mara")
    reload_once_recorded(page, "bins", "glass", "emptied_rate")
    plot = page.get_by_role("img", name="Emptied and rewound per second")
    expect(plot.locator(".u-series").filter(has_text="Emptied")).to_be_visible()
    entry = last_entry(page, "bins / glass")
    expect(entry).to_contain_text("empty")
    expect(entry).to_contain_text("mara")


def test_deleting_a_topic_takes_it_away_and_leads_back_to_the_list(live, stack):
    """The topic is gone from the broker and the list, and stays in the log."""
    stack.publish("doomed", 5)
    stack.command("/channel/create", topic="doomed", channel="one")
    page = live("/topics/doomed")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    cost = dialog.get_by_label("What this does")
    expect(cost).to_contain_text(re.compile(r"^5 messages on node \S+ are deleted: .*in 1 channel 5 waiting\."))
    expect(cost).to_contain_text("The topic and its 1 channel are removed")
    expect(dialog.get_by_role("button", name="Delete topic")).to_be_disabled()
    dialog.get_by_label("to confirm").fill("doomed")
    confirm(page, "Delete topic", "Topic doomed was deleted.")
    assert stack.topic("doomed") is None
    expect(page).to_have_url(re.compile("/topics$"))
    expect(page.get_by_role("link", name="doomed", exact=True)).to_have_count(0)
    expect(last_entry(page, "doomed")).to_contain_text("delete")


@pytest.mark.parametrize("leave", ["Escape", "Cancel"])
def test_a_question_without_an_answer_changes_nothing(live, stack, leave):
    """Escape and Cancel close the dialog; the focus returns to the button that opened it."""
    stack.publish("spared")
    page = live("/topics/spared")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill("spared")
    if leave == "Escape":
        page.keyboard.press("Escape")
    else:
        page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    assert stack.topic("spared") is not None


def test_the_keyboard_stays_within_the_dialog(live, stack):
    """Tab moves the focus inside the dialog only."""
    stack.publish("spared")
    page = live("/topics/spared")
    page.get_by_role("button", name="Delete").press("Enter")
    expect(page.get_by_label("to confirm")).to_be_focused()
    for _ in range(6):
        page.keyboard.press("Tab")
        behind = "document.querySelector('main, header').contains(document.activeElement)"
        assert page.evaluate(behind) is False


def test_a_failure_is_reported_in_the_dialog(live, stack):
    """Somebody else has deleted the topic meanwhile: the dialog says so and stays open."""
    stack.publish("vanishing")
    page = live("/topics/vanishing")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause updates").click()
    stack.command("/topic/delete", topic="vanishing")
    expect(live("/topics").get_by_role("row", name="vanishing")).to_contain_text("inactive")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("no node of the cluster", ignore_case=True)


def test_a_topic_and_a_channel_are_created_from_the_page(live, stack):
    """An invalid name is refused beside the field; a valid one opens the new page."""
    stack.publish("any")
    page = live("/topics")
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("two words")
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Letters, digits")
    dialog.get_by_label("Name").fill("fresh")
    dialog.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name="fresh", level=1)).to_be_visible()
    expect(page.get_by_text("Only a registry has this topic")).to_be_visible()
    stack.publish("fresh")
    page.get_by_role("button", name="New channel").click()
    page.get_by_role("dialog").get_by_label("Name").fill("first")
    page.get_by_role("dialog").get_by_role("button", name="Create channel").click()
    expect(page.get_by_role("heading", name="first", level=1)).to_be_visible()
    assert stack.channel("fresh", "first") is not None


def test_a_topic_that_was_just_created_is_not_reported_missing(live, stack):
    """Until the collector has read it, its page says that it was created, not that it may have been deleted."""
    stack.publish("any")
    page = live("/topics")
    page.evaluate(
        """() => {
            window.said = new Set();
            const note = () => document.querySelectorAll('main .notice .title').forEach((it) => said.add(it.innerText));
            new MutationObserver(note).observe(document.body, {childList: true, subtree: true, characterData: true});
        }"""
    )
    page.get_by_role("button", name="New topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill("newborn")
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    expect(page.get_by_text("Only a registry has this topic")).to_be_visible()
    said = page.evaluate("[...window.said]")
    assert not [title for title in said if "No node has" in title], said


def test_the_page_of_a_deleted_topic_or_channel_leads_to_the_list(live, stack):
    """Whoever looks at it meanwhile is not left on a page without contents, and sees the reason."""
    stack.command("/topic/create", topic="shortlived")
    stack.command("/channel/create", topic="shortlived", channel="first")
    page, other = live("/topics/shortlived"), live("/topics/shortlived/first")
    for each in (page, other):
        expect(each.get_by_role("button", name="Delete…")).to_be_visible()
    address = f"http://{stack.addresses['--lookupd-http-address']}"
    stack.command("/channel/delete", topic="shortlived", channel="first")
    web.post(f"{address}/channel/delete", params={"topic": "shortlived", "channel": "first"}, trust_env=False)
    expect(other).to_have_url(re.compile("/topics/shortlived$"))
    news = other.get_by_role("status", name="News")
    expect(news).to_contain_text("Channel first of topic shortlived no longer exists.")
    stack.command("/topic/delete", topic="shortlived")
    web.post(f"{address}/topic/delete", params={"topic": "shortlived"}, trust_env=False)
    for each in (page, other):
        expect(each).to_have_url(re.compile("/topics$"))
        expect(each.get_by_role("status", name="News")).to_contain_text("Topic shortlived no longer exists.")


def test_a_viewer_sees_everything_and_changes_nothing(visit, stack):
    """There are no buttons, and the reason is shown; the API refuses the actions as well."""
    stack.publish("exhibit")
    visitor = visit("/topics/exhibit", user="viktor")
    page = visitor.page
    expect(page.get_by_role("heading", name="exhibit", level=1)).to_be_visible()
    expect(page.get_by_text("View only")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(Pause|Unpause|Empty…|Delete…|New channel)$"))).to_have_count(0)
    for action in ("pause", "empty", "delete"):
        status, answer = visitor.call("POST", "actions", {"action": action, "topic": "exhibit"})
        assert status == 403, answer
        assert answer["message"]
    assert stack.topic("exhibit")["paused"] is False
    assert stack.topic("exhibit")["depth"] == 1


def test_the_audit_page_is_filtered(live, stack):
    """By person, action and object; an empty result says so and offers to clear the filter."""
    stack.command("/topic/create", topic="needle")
    page = live("/topics/needle")
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(page, "Pause topic", "Topic needle was paused.")
    page.goto("/audit")
    entries = page.get_by_role("list", name="Audit trail").get_by_role("listitem")
    page.get_by_role("searchbox", name="Object").fill("needle")
    page.get_by_label("Person").select_option("mara")
    page.get_by_label("Action").select_option("pause")
    expect(entries).to_have_count(1)
    page.get_by_label("Result").select_option("failed")
    expect(page.get_by_text("No matching entries")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(entries.first).to_be_visible()


def test_the_palette_shows_the_present_cost_of_an_action_on_another_topic(live, stack):
    """On the page of a topic, which follows that topic only, the figures of another one are as of now."""
    for topic in ("near", "far"):
        stack.command("/topic/create", topic=topic)
        stack.command("/channel/create", topic=topic, channel="all")
    stack.publish("far", 3)
    page = live("/topics?q=far")
    expect(page.get_by_role("link", name="far", exact=True)).to_be_visible()
    page.evaluate("history.pushState(null, '', '/topics/near'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_role("heading", name="near", level=1)).to_be_visible()
    stack.publish("far", 4)
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill("delete far")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete topic far")
    expect(dialog.get_by_label("What this does")).to_contain_text("7 messages")
    stack.publish("far", 2)
    expect(dialog.get_by_label("What this does")).to_contain_text("9 messages")
    page.keyboard.press("Escape")
    stack.publish("near", 6)
    expect(page.get_by_label("Numbers of this topic")).to_contain_text("Depth 6")


def page_of_emptied_channel(live, stack, *, topic, messages):
    """Publish to a new topic, empty its channel ``all``, and open the page of that channel."""
    stack.command("/topic/create", topic=topic)
    stack.command("/channel/create", topic=topic, channel="all")
    stack.command("/channel/create", topic=topic, channel="keeps")  # without --retention, its backlog keeps them
    stack.publish(topic, messages)
    wait_until(lambda: stack.channel(topic, "all")["depth"] == messages, "the channel has the messages")
    stack.command("/channel/empty", topic=topic, channel="all")
    return live(f"/topics/{topic}/all")


def test_before_a_rewind_the_nodes_count_what_is_redelivered(live, stack):
    """The dialog says how many messages are delivered again, for each chosen time, without rewinding."""
    page = page_of_emptied_channel(live, stack, topic="again", messages=9)
    page.get_by_role("button", name="Rewind").click()
    cost = page.get_by_role("dialog").get_by_label("What this does")
    expect(cost).to_contain_text(re.compile(r"^9 messages on node \S+ are delivered again, the oldest of "))
    expect(cost).to_contain_text("No clients are subscribed")
    expect(cost).to_contain_text(re.compile(r"Counted by the nodes\. Figures as of \d\d:\d\d:\d\d\."))
    page.get_by_label("Back to").select_option("A point in time…")
    expect(cost).to_contain_text("The figures are not known yet.")
    assert stack.channel("again", "all")["depth"] == 0


def test_a_channel_emptied_by_mistake_is_rewound(live, stack):
    """To a time or by a duration. The page says how many messages are delivered again; nothing is left to close."""
    page = page_of_emptied_channel(live, stack, topic="regret", messages=7)
    page.get_by_role("button", name="Rewind").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Back to").select_option("A point in time…")
    dialog.get_by_role("button", name="Rewind channel").click()
    expect(dialog.get_by_role("alert")).to_have_text("A date and a time are needed.")
    dialog.get_by_label("Back to").select_option("10 minutes ago")
    dialog.get_by_role("button", name="Rewind channel").click()
    news = page.get_by_role("status", name="News")
    expect(news).to_contain_text("Channel all of topic regret was rewound: 7 messages, the oldest of")
    expect(dialog).to_have_count(0)
    expect(page.get_by_label("Numbers of this channel")).to_contain_text("7")
    expect(last_entry(page, "regret")).to_contain_text("rewind")


def test_a_rewind_over_two_nodes_shows_what_each_of_them_delivers_again(live, stack):
    """The dialog counts the messages of both, stays open with the outcome on each, and closes. The audit trail has
    both."""
    page = page_of_emptied_channel(live, stack, topic="regrets", messages=7)
    here = stack.addresses["--nsqd-http-address"]
    with stack.second_node() as other:
        for channel in ("all", "keeps"):
            for kind, names in (("topic", {}), ("channel", {"channel": channel})):
                other.post(f"/{kind}/create", topic="regrets", **names)
        for _ in range(2):
            other.publish("regrets")
        nodes = page.get_by_role("table", name="This channel on each node")
        expect(nodes.get_by_role("link")).to_have_text(sorted([here, other.id]))
        wait_until(lambda: other.topics()["regrets"]["channels"][0]["depth"] == 2, "the channel has the messages")
        other.post("/channel/empty", topic="regrets", channel="all")
        page.get_by_role("button", name="Rewind").click()
        dialog = page.get_by_role("dialog")
        cost = dialog.get_by_label("What this does")
        expect(cost).to_contain_text("9 messages on 2 nodes are delivered again, the oldest of ")
        dialog.get_by_role("button", name="Rewind channel").click()
        expect(dialog.get_by_text("Done everywhere.", exact=True)).to_be_visible()
        for node, count in ((here, 7), (other.id, 2)):
            row = dialog.get_by_role("table", name="Outcome on each node").get_by_role("row").filter(has_text=node)
            expect(row).to_contain_text("done")
            expect(row).to_contain_text(f"{count} messages, the oldest of")
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_label("Numbers of this channel")).to_contain_text("Depth 9")
        entry = last_entry(page, "regrets / all")
        expect(entry).to_contain_text("rewind")
        entry.get_by_text("2 results", exact=True).click()
        for node, count in ((here, 7), (other.id, 2)):
            result = entry.get_by_role("listitem").filter(has_text=node)
            expect(result).to_contain_text(f"{count} messages, the oldest of")
        other.post("/topic/delete", topic="regrets")
