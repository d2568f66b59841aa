"""Alerts in the browser: rules, firing alerts, acknowledgements, silences and notifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from bench.ports import free_port
from tests.analytics.hourly_archive import write_past_weeks
from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.waiting import wait_until

WEEKS_READ_WITHIN_MS = 150_000
"""A thousand files are read beside other tests."""


@pytest.fixture
def admin(visit):
    """Ada's browser, on the page of rules. All rules, silences and notifiers are removed at the end."""
    visitor = visit("/alerts?tab=rules", user="ada")
    yield visitor
    for kind in ("rules", "silences", "notifiers"):
        for each in visitor.call("GET", f"alerts/{kind}")[1][kind]:
            visitor.call("DELETE", f"alerts/{kind}/{each['id']}")


def waits_for_nobody(stack, topic: str, channels: tuple[str, ...] = ("siren",)) -> None:
    """Channels without consumers, with twenty messages each."""
    stack.command("/topic/create", topic=topic)
    for channel in channels:
        stack.command("/channel/create", topic=topic, channel=channel)
    stack.publish(topic, 20)


def depth_rule(topic: str, **fields) -> dict:
    """Fires at once, as a warning, for each channel of the topic with more than five messages."""
    metric = {"scope": "channel", "metric": "depth", "threshold": 5, "topic_pattern": topic}
    return {"name": f"Deep {topic}", **metric, "hold_s": 0, "resolve_after_s": 0, **fields}


def make(admin, rule: dict) -> None:
    status, answer = admin.call("POST", "alerts/rules", rule)
    assert status == 201, answer


def firing(page: Page, subject: str) -> Locator:
    """The row of this subject's alert."""
    return page.get_by_role("group", name="Firing alerts").get_by_role("row").filter(has_text=subject)


def badge(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Main").get_by_role("link", name=re.compile("^Alerts"))


def test_a_phone_shows_an_alerts_value_and_threshold(admin, visit, stack, axe):
    """Next to its name and subject, without scrolling the table; of a pending alert too."""
    waits_for_nobody(stack, "pocket")
    make(admin, depth_rule("pocket"))
    make(admin, depth_rule("pocket", name="Slow pocket", hold_s=86_400))
    page = visit("/alerts", viewport=WIDTHS["phone"]).page
    for table in ("Firing alerts", "Pending alerts"):
        box = page.get_by_role("group", name=table)
        row = box.get_by_role("row").filter(has_text="pocket / siren")
        for text in ("pocket / siren", "20 messages", "above 5"):
            part = row.get_by_text(text, exact=True)
            expect(part).to_be_visible()
            assert part.evaluate("part => part.scrollWidth <= part.clientWidth"), f"{text} is not cut"
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    assert pixels_beyond(page) <= 0
    assert axe(page) == []


def test_a_pending_alert_is_listed_until_its_condition_ends(admin, stack, axe):
    """The channel is beyond the threshold, but not yet for the hold time: the page shows when the alert would fire."""
    waits_for_nobody(stack, "alarm-p")
    make(admin, depth_rule("alarm-p", hold_s=7000))
    page = admin.page
    page.goto("/alerts")
    pending = page.get_by_role("group", name="Pending alerts").get_by_role("row").filter(has_text="alarm-p / siren")
    expect(pending).to_contain_text(re.compile(r"Deep alarm-p.*20 messages.*in 11\d min"))
    expect(page.get_by_text("No alerts are firing")).to_be_visible()
    assert axe(page) == []
    stack.command("/channel/empty", topic="alarm-p", channel="siren")
    expect(pending).to_have_count(0)


@pytest.fixture
def past_weeks(stack) -> Iterator[None]:
    """In past weeks, the channel alarm-w/siren had a depth of 100. Its neighbour is two weeks old."""
    weeks = {("alarm-w", "siren"): (6 * 168, 100.0), ("alarm-w", "young"): (2 * 168, 100.0)}
    written = write_past_weeks(stack.archive, datetime.now(UTC), weeks)
    yield
    for path in written:
        path.unlink(missing_ok=True)


def test_a_rule_compares_channels_with_past_weeks(admin, live, stack, axe, past_weeks):
    """The form names the band; the rule's row counts the channels with too little history; the alert says what is
    usual."""
    waits_for_nobody(stack, "alarm-w", ("siren", "young", "new"))
    # The form's preview is of the channels that the platform knows when it is filled in.
    channels = live("/channels?q=alarm-w")
    for name in ("siren", "young", "new"):
        expect(channels.get_by_role("link", name=f"alarm-w / {name}")).to_be_visible()
    channels.close()
    page = admin.page
    page.get_by_role("button", name="Write a new rule").click()
    form = page.get_by_role("dialog", name="New rule")
    form.get_by_label("Name").fill("Unlike past weeks")
    form.get_by_label("Topics").fill("alarm-w")
    form.get_by_label("Watch").select_option("Unusual depth")
    expect(form.get_by_label("Is", exact=True)).to_have_value("outside")
    expect(form.get_by_label("Band, score")).to_have_value("4")
    form.get_by_label("Band", exact=True).select_option("95 %")
    expect(form.get_by_label("Band, score")).to_have_value("1.96")
    expect(form.get_by_text("unknown for 3")).to_be_visible()
    expect(form.get_by_text("Past weeks are read when the rule is saved")).to_be_visible()
    assert axe(page) == []
    form.get_by_label("For at least", exact=True).fill("0")
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="Unlike past weeks")
    expect(row).to_contain_text("Unusual depth outside the 95 % band")
    short = "2 of 3 channels have fewer than 3 past weeks to compare with"
    expect(row).to_contain_text(short, timeout=WEEKS_READ_WITHIN_MS)
    for width in WIDTHS.values():
        page.set_viewport_size(width)
        assert pixels_beyond(page) <= 0
        expect(row).to_contain_text(short)
    row.get_by_role("button", name="Edit Unlike past weeks").click()
    form = page.get_by_role("dialog", name="Rule Unlike past weeks")
    expect(form.get_by_label("Band", exact=True)).to_have_value("1.96")
    expect(form.get_by_text(re.compile("alarm-w / siren.*20 messages.*usual .*, from 4 past weeks"))).to_be_visible()
    form.get_by_role("button", name="Cancel").click()
    page.set_viewport_size(WIDTHS["desk"])
    page.get_by_role("tab", name=re.compile("^Firing")).click()
    expect(firing(page, "alarm-w / siren")).to_contain_text("20 messages")
    expect(firing(page, "alarm-w / young")).to_have_count(0)
    firing(page, "alarm-w / siren").get_by_role("link", name="Unlike past weeks").click()
    expect(page.get_by_role("dialog")).to_contain_text(", from 4 past weeks")
    assert axe(page) == []


def test_a_rule_fires_is_acknowledged_and_is_over(admin, live, stack, axe):
    """An admin writes a rule with a preview; another operator sees the alert, acknowledges it, and finds it in the
    history once the messages are gone."""
    waits_for_nobody(stack, "alarm-a")
    operator = live("/channels?q=alarm-a")
    expect(operator.get_by_role("link", name="alarm-a / siren")).to_be_visible()

    page = admin.page
    page.get_by_role("button", name="Write a new rule").click()
    form = page.get_by_role("dialog", name="New rule")
    form.get_by_label("Name").fill("Piling up")
    form.get_by_label("Severity").select_option("critical")
    form.get_by_label("Topics").fill("alarm-a")
    form.get_by_label("Threshold", exact=True).fill("many")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_label("Threshold", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_text("A number is needed")).to_be_visible()
    form.get_by_label("Threshold", exact=True).fill("5")
    expect(form.get_by_text("Would fire now for 1 of 1 channel")).to_be_visible()
    assert axe(page) == []
    form.get_by_label("For at least", exact=True).fill("0")
    form.get_by_text("Resolution and repeated notifications").click()
    form.get_by_label("Resolved after", exact=True).fill("0")
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="Piling up")).to_contain_text("Depth above 5 messages")

    expect(operator.get_by_text("Critical: Piling up: alarm-a / siren")).to_be_visible()
    expect(badge(operator)).to_have_accessible_name("Alerts 1 firing")
    expect(operator.get_by_role("row").filter(has_text="alarm-a / siren").get_by_text("1 alert:")).to_be_attached()
    operator.get_by_role("link", name="alarm-a / siren").click()
    band = operator.get_by_role("region", name="Alerts")
    expect(band).to_contain_text("above 5 messages")
    band.get_by_role("link", name="Piling up").click()

    dialog = operator.get_by_role("dialog", name="Piling up: alarm-a / siren")
    expect(dialog).to_contain_text("Breached since")
    expect(dialog).to_contain_text("Notified No notifier: the alert is only shown here")
    assert axe(operator) == []
    dialog.get_by_label("Note").fill("adding consumers")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(dialog.get_by_text("by mara")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()
    expect(firing(operator, "alarm-a / siren")).to_contain_text("mara since")
    expect(operator.get_by_role("columnheader", name="Owner")).to_be_visible()
    expect(operator.get_by_role("button", name="Unacknowledged 0")).to_be_visible()
    expect(badge(operator)).to_have_accessible_name("Alerts")
    expect(operator.get_by_text("Critical: Piling up: alarm-a / siren")).to_have_count(0)
    page.get_by_role("tab", name=re.compile("^Firing")).click()
    expect(firing(page, "alarm-a / siren")).to_contain_text("mara since")

    stack.command("/channel/empty", topic="alarm-a", channel="siren")
    expect(operator.get_by_text("No alerts are firing")).to_be_visible()
    operator.get_by_role("tab", name="History").click()
    over = operator.get_by_role("group", name="Resolved alerts")
    newest = over.get_by_role("row").filter(has_text="alarm-a / siren").first
    expect(newest).to_contain_text("within the threshold again")
    expect(newest).to_contain_text("adding consumers")


def test_an_alert_is_silenced_for_a_while(admin, live, stack):
    """A reason is required; the alert stays on the page, marked, and is not in the badge until the silence ends."""
    waits_for_nobody(stack, "alarm-s")
    make(admin, depth_rule("alarm-s"))
    page = live("/alerts")
    expect(badge(page)).to_have_accessible_name("Alerts 1 firing")
    page.get_by_role("link", name="Deep alarm-s", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Silence…").click()
    dialog = page.get_by_role("dialog", name="Silence alerts")
    expect(dialog.get_by_label("Topics")).to_have_value("alarm-s")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    expect(dialog.get_by_label("Reason")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Reason").fill("being moved")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    expect(firing(page, "alarm-s / siren")).to_contain_text("silenced until")
    expect(badge(page)).to_have_accessible_name("Alerts")

    page.get_by_role("tab", name="Silences").click()
    row = page.get_by_role("group", name="Silences").get_by_role("row").filter(has_text="alarm-s")
    expect(row).to_contain_text("being moved")
    row.get_by_role("button", name=re.compile("^End silence")).click()
    expect(page.get_by_text("No active silences")).to_be_visible()
    expect(badge(page)).to_have_accessible_name("Alerts 1 firing")


def test_several_alerts_are_acknowledged_at_once(admin, live, stack):
    """The selected ones, with one note for all."""
    waits_for_nobody(stack, "alarm-m", ("one", "two"))
    make(admin, depth_rule("alarm-m"))
    page = live("/alerts")
    expect(firing(page, "alarm-m /")).to_have_count(2)
    page.get_by_label("Choose all 2").check()
    page.get_by_role("toolbar").get_by_role("button", name="Acknowledge…").click()
    dialog = page.get_by_role("dialog", name="Acknowledge 2 alerts")
    dialog.get_by_label("Note").fill("known")
    dialog.get_by_role("button", name="Acknowledge", exact=True).click()
    expect(page.get_by_text("Acknowledged 2 alerts.")).to_be_visible()
    expect(firing(page, "mara since")).to_have_count(2)
    expect(badge(page)).to_have_accessible_name("Alerts")


def test_the_overview_fits_a_desktop_screen_while_alerts_fire(admin, live, stack):
    """The alerts, what needs attention, the cluster's charts, what grows and the largest backlogs are visible without
    scrolling, however many alerts there are."""
    topics = [f"alarm-f.{number}" for number in range(8)]
    for topic in topics:
        waits_for_nobody(stack, topic)
    make(admin, depth_rule("alarm-f.*"))
    page = live("/")
    alerts = page.get_by_role("region", name="Alerts")
    expect(badge(page)).to_have_accessible_name(re.compile("^Alerts [89] firing"))
    # Only the newest events are listed, and the alerts are events too.
    status, answer = admin.call("POST", "actions", {"action": "pause", "topic": topics[0]})
    assert status == 200, answer
    expect(alerts.get_by_role("link", name=re.compile(r"^\d+ more$"))).to_be_visible()
    expect(page.get_by_role("list", name="Events")).to_contain_text("Paused alarm-f.0")
    expect(page.get_by_role("region", name="Needs attention").get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_role("region", name="Largest backlog").get_by_role("listitem")).to_have_count(5)
    charts = page.get_by_role("region", name="Charts").get_by_role("img")
    expect(charts).to_have_count(3)
    names = ("Alerts", "Needs attention", "Fastest growing", "Largest backlog")
    parts = [*charts.all(), *(page.get_by_role("region", name=name) for name in names)]
    for part in parts:
        expect(part).to_be_in_viewport(ratio=1)


ABOVE_THE_REST = """alerts => [...document.querySelectorAll('main figure, main section.panel')]
    .filter((part) => part !== alerts)
    .every((part) => part.getBoundingClientRect().top >= alerts.getBoundingClientRect().top)"""


def test_the_overview_begins_with_what_burns_until_it_is_over(admin, live, stack, axe):
    """A critical alert is above a warning, and both are above the charts and the other lists. Each links to the alert
    and to its subject. It disappears when it is over, and the list with the last one."""
    for topic in ("alarm-o.mild", "alarm-o.dire"):
        waits_for_nobody(stack, topic)
    page = live("/")
    expect(page.get_by_role("region", name="Largest backlog")).to_be_visible()
    alerts = page.get_by_role("region", name="Alerts")
    expect(alerts).to_have_count(0)
    make(admin, depth_rule("alarm-o.mild"))
    lines = alerts.get_by_role("listitem")
    expect(lines).to_contain_text(["Deep alarm-o.mild"])
    make(admin, depth_rule("alarm-o.dire", severity="critical"))
    expect(lines).to_contain_text(["Deep alarm-o.dire", "Deep alarm-o.mild"])
    expect(lines.first).to_contain_text(re.compile("critical.*alarm-o.dire / siren.*20 messages.*above 5", re.I | re.S))
    headings = page.get_by_role("main").get_by_role("heading", level=2)
    expect(headings.first).to_have_text("Alerts")
    for width in WIDTHS.values():
        page.set_viewport_size(width)
        wait_until(lambda: alerts.evaluate(ABOVE_THE_REST), "the alerts are above the charts and the other lists")
        assert axe(page) == []
    page.set_viewport_size(WIDTHS["desk"])

    lines.first.get_by_role("link", name="Deep alarm-o.dire").click()
    dialog = page.get_by_role("dialog", name="Deep alarm-o.dire: alarm-o.dire / siren")
    expect(dialog).to_contain_text("Depth above 5 messages")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("link", name="Overview", exact=True).click()
    lines.first.get_by_role("link", name="alarm-o.dire / siren").click()
    expect(page.get_by_role("heading", name="siren", level=1)).to_be_visible()
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(lines).to_have_count(2)

    stack.command("/channel/empty", topic="alarm-o.dire", channel="siren")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("Deep alarm-o.mild")
    stack.command("/channel/empty", topic="alarm-o.mild", channel="siren")
    expect(alerts).to_have_count(0)
    expect(page.get_by_role("region", name="Charts")).to_be_visible()


def test_a_viewer_looks_and_changes_nothing(admin, live, stack):
    """Alerts, rules, silences and notifiers are shown without buttons; the API refuses changes as well."""
    waits_for_nobody(stack, "alarm-v")
    make(admin, depth_rule("alarm-v"))
    page = live("/alerts", user="viktor")
    expect(firing(page, "alarm-v / siren")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Acknowledge "))).to_have_count(0)
    expect(page.get_by_role("checkbox")).to_have_count(0)
    page.get_by_role("link", name="Deep alarm-v", exact=True).click()
    dialog = page.get_by_role("dialog", name="Deep alarm-v: alarm-v / siren")
    expect(dialog.get_by_text("Depth above 5 messages")).to_be_visible()
    expect(dialog.get_by_role("button")).to_have_text(["Done"])
    dialog.get_by_role("button", name="Done").click()
    panel = page.get_by_role("tabpanel")
    shown = {"Rules": "Deep alarm-v", "Silences": "No active silences", "Notifiers": "on this page only"}
    for tab, text in shown.items():
        page.get_by_role("tab", name=tab).click()
        expect(panel).to_contain_text(text)
        expect(panel.get_by_role("button", name=re.compile("New|Edit|Delete|Add"))).to_have_count(0)


def test_a_webhook_that_does_not_take_the_test_says_so_beside_its_address(admin):
    """In the dialog, and afterwards in the list, where the address can be corrected."""
    page = admin.page
    page.get_by_role("tab", name="Notifiers").click()
    page.get_by_role("button", name="New notifier").click()
    dialog = page.get_by_role("dialog", name="New notifier")
    dialog.get_by_label("Name").fill("ops")
    dialog.get_by_label("Address").fill("not an address")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_text("An http or https address is needed.")).to_be_visible()
    expect(dialog.get_by_label("Address")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Address").fill(f"http://127.0.0.1:{free_port()}/hook")
    dialog.get_by_role("button", name="Save and send a test").click()
    expect(dialog.get_by_text("The test was not delivered: connection refused")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()
    row = page.get_by_role("list", name="Notifiers").get_by_role("listitem").filter(has_text="ops")
    expect(row).to_contain_text("failing")
    expect(row).to_contain_text("connection refused")


def test_suggested_rules_are_offered(admin, axe):
    """If there are no rules, the page offers suggested ones: one is added, then the rest."""
    page = admin.page
    expect(page.get_by_role("heading", name="No rules yet: suggested rules")).to_be_visible()
    assert axe(page) == []
    page.get_by_role("button", name="Add Node missing").click()
    expect(page.get_by_role("group", name="Rules").get_by_role("row").filter(has_text="Node missing")).to_be_visible()
    page.get_by_text(re.compile(r"^\d+ suggested rules not in use$")).click()
    page.get_by_role("button", name="Add Backlog", exact=True).click()
    row = page.get_by_role("group", name="Rules").get_by_role("row").filter(has_text="Backlog")
    expect(row).to_contain_text("Depth above 100,000 messages for 5 min")
    row.get_by_role("button", name="Disable Backlog").click()
    expect(row).to_contain_text("disabled")
    row.get_by_role("button", name="Delete Backlog").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete rule").click()
    expect(row).to_have_count(0)
