"""The charts of the cluster, of topics and of channels."""

from __future__ import annotations

import re
import signal
from typing import get_args

from playwright.sync_api import expect

from nsqplatform.console.events import Kind
from tests.browser.recorded import highest, reload_once_recorded
from tests.browser.widths import pixels_beyond
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until


def test_a_channel_has_charts_of_more_than_depth_and_rate(live, stack):
    """Its latency, oldest age, messages in flight and deferred, requeues and timeouts, each with its latest figure."""
    stack.publish("plotted")
    stack.command("/channel/create", topic="plotted", channel="lines")
    stack.publish("plotted", 3)
    page = live("/topics/plotted/lines")
    charts = page.get_by_role("region", name="Charts")
    expect(charts.get_by_role("img")).to_have_count(6)
    for title, legend in {
        "Depth, messages": "Depth: 4",
        "Messages per second": "Published:",
        "Age of the oldest unfinished message": "Oldest age:",
        "Latency from publishing to finishing": "p99: –",
        "In flight and deferred, messages": "Deferred: 0",
        "Requeues and timeouts per second": "Timed out: 0/s",
    }.items():
        label, _, value = legend.partition(":")
        row = charts.get_by_role("img", name=title, exact=True).locator(".u-series").filter(has_text=label)
        expect(row).to_contain_text(value.strip())


def test_the_overview_has_charts_of_the_cluster(live, stack):
    """Depth, rates and messages in flight, of all topics together."""
    stack.publish("plotted")
    page = live("/")
    charts = page.get_by_role("region", name="Charts")
    for title in ("Depth, messages", "Messages per second", "In flight and clients"):
        expect(charts.get_by_role("img", name=title, exact=True)).to_be_visible()
    assert pixels_beyond(page) <= 0


def test_a_channel_says_why_it_has_a_backlog(live, stack, axe):
    """In one sentence, which changes as a consumer comes that is not ready, and as somebody pauses the channel."""
    stack.publish("reasons")
    stack.command("/channel/create", topic="reasons", channel="why")
    stack.publish("reasons", 3)
    page = live("/topics/reasons/why")
    expect(page.get_by_text(re.compile(r"^No consumer.*: 4 messages waiting"))).to_be_visible()
    with stack.consumer("reasons", "why", "lazy"):
        expect(page.get_by_text(re.compile(r"not ready for messages \(RDY 0\): 4 messages waiting"))).to_be_visible()
        page.get_by_role("button", name="Pause", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Pause channel").click()
        expect(page.get_by_text(re.compile(r"^Paused since \d\d:\d\d by mara: 4 messages waiting\.$"))).to_be_visible()
        assert axe(page) == []


def test_what_expires_is_neither_finished_nor_published(live, stack):
    """It has a number and a line of its own: of four messages that no consumer took, all were dropped."""
    stack.command("/topic/create", topic="plotted.old")
    stack.command("/channel/create", topic="plotted.old", channel="lines")
    page = live("/topics/plotted.old/lines")
    charts = page.get_by_role("region", name="Charts")
    numbers = page.get_by_label("Numbers of this channel")
    expect(charts.get_by_role("img")).to_have_count(6)
    expect(numbers.get_by_text("Dropped", exact=True)).to_have_count(0)
    stack.command("/policy", b'{"msg_ttl": "10ms"}', pattern="plotted.old")
    try:
        stack.publish("plotted.old", 4)
        dropped = page.locator(".stat").filter(has_text="Dropped")
        expect(dropped.locator(".value")).to_have_text("4")
    finally:
        stack.command("/policy/delete", pattern="plotted.old")
    expect(numbers).to_contain_text("Depth 0")
    channel = stack.channel("plotted.old", "lines")
    assert (channel["message_count"], channel["depth"], channel["in_flight_count"]) == (4, 0, 0)
    reload_once_recorded(page, "plotted.old", "lines", "drop_rate")
    assert highest(page, "plotted.old", "lines", "finish_rate") == 0
    line = charts.get_by_role("img", name="Died and dropped per second").locator(".u-series")
    expect(line.filter(has_text="Dropped")).to_be_visible()


def test_what_happened_is_marked_in_the_charts(live, stack, axe):
    """A pause is a line in every chart of its channel, with who did it, and is named in the list below."""
    stack.publish("marked")
    stack.command("/channel/create", topic="marked", channel="lines")
    stack.publish("marked")
    page = live("/topics/marked/lines")
    charts = page.get_by_role("region", name="Charts")
    expect(charts.get_by_role("img")).to_have_count(6)
    pauses = charts.get_by_title(
        "Paused marked / lines by mara"
    )  # a busy node may be down meanwhile, which is marked too
    assert pauses.count() == 0
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause channel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    events = charts.get_by_role("list", name="Events").get_by_role("listitem")
    expect(events).to_contain_text(["Paused marked / lines by mara"])
    expect(pauses).to_have_count(6)

    def is_drawn_in_the_plot() -> bool:
        plot = charts.get_by_role("img", name="Depth, messages").locator(".u-over").bounding_box()
        line = pauses.first.bounding_box()
        # A chart that is drawn anew has none for a moment.
        return bool(plot and line and plot["x"] <= line["x"] <= plot["x"] + plot["width"])

    wait_until(is_drawn_in_the_plot, "the line is in the plot")
    assert axe(page) == []
    page = live("/")
    expect(page.get_by_role("list", name="Events")).to_contain_text("Paused marked / lines by mara")


RECORDED = """
from django.utils.timezone import now
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.models import NodeEvent
from nsqplatform.reports.models import ReportRun
NodeEvent.objects.create(at=now(), node="kinds:4151", kind=NodeEvent.Kind.RESTARTED)
ReportRun.objects.create(job="latency", state="cancelled", requested_by="clerk", started_at=now(), finished_at=now())
AuditEntry.objects.create(user="ada", action="hand over", subject="kinds:4151", outcome="done")
"""
"""A script for ``manage.py shell``: what a restart between two polls, a report and the hand-over of a pair leave
behind."""


def test_each_kind_of_event_is_marked_in_the_charts_of_the_cluster(visit, stack):
    """What people do to topics, channels and nodes, nodes that go down, answer again or restart, alerts, reports, and
    the marks of scripts."""
    for topic in ("kinds", "kinds.stone"):
        stack.command("/topic/create", topic=topic)
    for channel in ("all", "keeps"):  # without --retention, the second one's backlog keeps the messages
        stack.command("/channel/create", topic="kinds", channel=channel)
    stack.publish("kinds", 20)
    wait_until(lambda: stack.channel("kinds", "all")["depth"] == 20, "the channel has the messages")
    admin = visit("/nodes", user="ada")
    page = admin.page

    def post(path: str, **body) -> dict:
        status, answer = admin.call("POST", path, body)
        assert status < 300, answer
        return answer

    def expect_marked(text: str) -> None:
        charts = page.get_by_role("region", name="Charts").get_by_role("figure")
        expect(charts.filter(has=page.get_by_title(text))).to_have_count(3)

    metric = {"scope": "channel", "metric": "depth", "threshold": 5, "topic_pattern": "kinds"}
    rule = post("alerts/rules", name="Kinds deep", **metric, hold_s=0, resolve_after_s=0)
    try:
        with stack.second_node() as other:
            other.publish("kinds.left")  # with a message left, its process does not end
            expect(page.get_by_role("link", name=other.id).first).to_be_visible()
            page.goto("/")
            other.freeze()
            expect_marked(f"Node down: {other.id}")
            other.signal(signal.SIGCONT)
            expect_marked(f"Node up: {other.id}")
            post("drains", node=other.id, timeout_s=0)
            post("drains/cancel", node=other.id)
            other.post("/topic/delete", topic="kinds.left")
        expect_marked("Alert fired: Kinds deep: kinds/all")
    finally:
        admin.call("DELETE", f"alerts/rules/{rule['id']}")
    post("actions", action="pause", topic="kinds", channel="all")
    post("actions", action="unpause", topic="kinds", channel="all")
    post("actions", action="empty", topic="kinds", channel="all")
    post("rewinds", topic="kinds", channel="all", since="2026-01-01T00:00:00Z")
    post("tombstones", topic="kinds.stone", node=stack.addresses["--nsqd-http-address"])
    post("actions", action="delete", topic="kinds")
    mark = post("marks", text="deploy of kinds")
    stack.manage("shell", "-c", RECORDED)
    texts = {
        "paused": "Paused kinds / all by ada",
        "unpaused": "Unpaused kinds / all by ada",
        "emptied": "Emptied kinds / all by ada",
        "rewound": "Rewound kinds / all by ada",
        "deleted": "Deleted kinds by ada",
        "tombstoned": "Tombstoned kinds.stone by ada",
        "drain_begun": f"Began to drain {other.id} by ada",
        "drain_cancelled": f"Cancelled the drain of {other.id} by ada",
        "handed_over": "Handed over kinds:4151 by ada",
        "node_down": f"Node down: {other.id}",
        "node_up": f"Node up: {other.id}",
        "node_restarted": "Node restarted: kinds:4151",
        "alert_fired": "Alert fired: Kinds deep: kinds/all",
        "report_run": "Report End-to-end latency was cancelled, requested by clerk",
        "marked": "Mark: deploy of kinds by ada",
    }
    assert {*texts} == {*get_args(Kind)}
    for text in texts.values():
        expect_marked(text)
    assert admin.call("DELETE", f"marks/{mark['id']}")[0] == 204


def test_a_client_has_its_rates_and_its_oldest_message(live, stack, axe):
    """How much of its RDY count is in use, what it finishes per second, and how long it has had its oldest message."""
    stack.publish("worked")
    host, _, port = stack.addresses["--nsqd-tcp-address"].partition(":")
    with V2Client((host, int(port))) as worker:
        worker.sub("worked", "hard", ready_count=2)
        worker.message()
        page = live("/topics/worked/hard")
        row = page.get_by_role("table", name="Clients").get_by_role("row").nth(1)
        expect(row).to_contain_text("1 of 2 · 50%")
        expect(row.get_by_role("img", name=re.compile("Finish rate of"))).to_be_visible()
        expect(row).to_contain_text("0/s")
        titles = page.get_by_role("table", name="Clients").get_by_role("columnheader").all_inner_texts()
        oldest = row.get_by_role("cell").nth(titles.index("Oldest in flight"))
        expect(oldest).to_have_text(re.compile(r"^\d.* m?s$"))
        assert axe(page) == []
