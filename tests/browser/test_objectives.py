"""Objectives on their pages: created, counted, changed, deleted, and only by administrators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

AIM = {"name": "Parcels", "kind": "success", "target_percent": 99.0, "topic_pattern": "postbags"}

COUNTED_S = 180.0
"""Counts are stored by the minute, and a collector that was killed while it stopped counts the minute again."""


@pytest.fixture
def ada(visit: Any) -> Iterator[Any]:
    """An administrator; what the test leaves is deleted."""
    visitor = visit("/alerts", user="ada")
    yield visitor
    for each in visitor.call("GET", "objectives")[1]["objectives"]:
        visitor.call("DELETE", f"objectives/{each['id']}")
    for rule in visitor.call("GET", "alerts/rules")[1]["rules"]:
        if rule["scope"] == "objective":
            visitor.call("DELETE", f"alerts/rules/{rule['id']}")


@pytest.mark.timeout(600)
def test_an_objective_is_created_counted_changed_and_deleted(ada, stack, axe):
    """From the empty page, which says what an objective is, to a budget that a failed delivery has used up."""
    page = ada.page
    stack.command("/topic/create", topic="postbags")
    stack.command("/channel/create", topic="postbags", channel="sorting")
    page.get_by_role("main").get_by_role("link", name="Objectives").click()
    expect(page.get_by_role("main")).to_contain_text("is its error budget")
    page.get_by_role("button", name="New objective").click()
    dialog = page.get_by_role("dialog", name="New objective")
    dialog.get_by_label("Target, %").fill("100")
    dialog.get_by_role("button", name="Create objective").click()
    expect(dialog.get_by_label("Target, %")).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_role("alert").filter(has_text="at most 99.9999")).to_be_visible()
    expect(dialog.get_by_role("alert").filter(has_text="Give the objective a name")).to_be_visible()
    dialog.get_by_label("Within, ms").fill("1,000")
    expect(dialog).to_contain_text("Counted up to 1.006 s, the next bound")
    assert axe(page) == []
    dialog.get_by_label("Name").fill("Parcels")
    dialog.get_by_label("Good are").select_option("deliveries that are finished")
    dialog.get_by_label("Target, %").fill("75")
    dialog.get_by_label("Topics").fill("post bags")
    dialog.get_by_role("button", name="Create objective").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'post bags' is not a glob")
    dialog.get_by_label("Topics").fill("postbags")
    dialog.get_by_role("button", name="Create objective").click()
    row = page.get_by_role("row").filter(has_text="Parcels")
    expect(row).to_contain_text("75 % of deliveries succeed over 30 days")
    [objective] = ada.call("GET", "objectives")[1]["objectives"]

    expect(page.get_by_text("No alert rule watches the burn rates")).to_be_visible()
    page.get_by_role("button", name="Add 3 rules").click()
    expect(page.get_by_text("No alert rule watches the burn rates")).to_have_count(0)
    rules = [each for each in ada.call("GET", "alerts/rules")[1]["rules"] if each["scope"] == "objective"]
    assert {(each["metric"], each["threshold"]) for each in rules} == {
        ("burn_1h", 14.4),
        ("burn_6h", 6.0),
        ("burn_3d", 1.0),
    }

    def counted() -> dict[str, Any]:
        return dict(ada.call("GET", f"objectives/{objective['id']}")[1])

    wait_until(lambda: counted()["counted_since"], "the collector counts it", within_s=COUNTED_S)
    with V2Client(address_of(stack)) as client:
        client.sub("postbags", "sorting", 1)
        client.send(b"RDY 1\n")
        stack.publish("postbags", 3)
        client.send(b"REQ %s 0\n" % client.message()[0])
        for _ in range(3):
            client.send(b"FIN %s\n" % client.message()[0])
        wait_until(lambda: has_finished(ada, 3), "the collector has read it", within_s=COUNTED_S)
    stack.restart_collector()  # it stores what it has counted of the minute
    wait_until(lambda: (counted()["good"], counted()["bad"]) == (3, 1), "the counts are stored", within_s=COUNTED_S)
    row.get_by_role("link", name="Parcels").click()
    budget = page.get_by_label("Budget", exact=True)
    expect(budget).to_contain_text("0 of 1 bad message left")
    expect(budget).to_contain_text("75.0 %")
    expect(page.get_by_role("row").filter(has_text="3 days")).to_contain_text("1 ×")
    assert axe(page, "color-contrast") == []

    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Objective Parcels")
    dialog.get_by_label("Target, %").fill("50")
    expect(dialog.get_by_text("the window starts again")).to_have_count(0)
    dialog.get_by_label("Channels").fill("sort*")
    expect(dialog.get_by_text("the window starts again")).to_be_visible()
    dialog.get_by_label("Channels").fill("*")
    dialog.get_by_role("button", name="Save").click()
    expect(budget).to_contain_text("1 of 2 bad messages left")

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete objective Parcels")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete objective").click()
    expect(page.get_by_text("No objectives", exact=True)).to_be_visible()
    assert ada.call("GET", "objectives")[1]["objectives"] == []
    assert [fault for fault in ada.faults if "422" not in fault] == []


def address_of(stack: Any) -> tuple[str, int]:
    host, _, port = stack.addresses["--nsqd-tcp-address"].partition(":")
    return host, int(port)


def has_finished(visitor: Any, count: int) -> bool:
    channels = visitor.call("GET", "snapshot")[1]["channels"]
    return [
        (row["message_count"], row["depth"], row["in_flight_count"]) for row in channels if row["topic"] == "postbags"
    ] == [(count, 0, 0)]


def test_a_viewer_sees_objectives_and_changes_none(ada, visit):
    """Neither the list nor the detail offers a change."""
    status, objective = ada.call("POST", "objectives", AIM)
    assert status == 201, objective
    page = visit("/objectives", user="viktor").page
    expect(page.get_by_role("row").filter(has_text="Parcels")).to_contain_text("99 % of deliveries succeed")
    main = page.get_by_role("main")
    expect(main).to_contain_text("An administrator can add them.")
    for name in ("New objective", "Edit", "Delete", "Add"):
        expect(main.get_by_role("button", name=name)).to_have_count(0)
    main.get_by_role("link", name="Parcels").click()
    expect(page.get_by_role("heading", name="Parcels", level=1)).to_be_visible()
    expect(main).to_contain_text("99 % of deliveries succeed over 30 days, of channels postbags / *.")
    for name in ("Edit", "Delete"):
        expect(main.get_by_role("button", name=name)).to_have_count(0)


def test_the_last_figures_stay_while_the_platform_cannot_be_reached(ada, visit):
    """The page says that they may be out of date, and why; they are read again on request."""
    status, objective = ada.call("POST", "objectives", AIM)
    assert status == 201, objective
    page = visit(f"/objectives/{objective['id']}", user="ada", viewport=WIDTHS["phone"]).page
    main = page.get_by_role("main")
    expect(main).to_contain_text("99 % of deliveries succeed")
    page.context.set_offline(True)
    outdated = main.get_by_role("alert").filter(has_text="This may be out of date")
    expect(outdated).to_be_visible(timeout=40_000)  # the next request comes within 15 seconds
    expect(main).to_contain_text("99 % of deliveries succeed")
    assert pixels_beyond(page) == 0
    page.context.set_offline(False)
    outdated.get_by_role("button", name="Try again").click()
    expect(outdated).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_fit_the_screen(ada, visit, width):
    """At a long name, too."""
    status, objective = ada.call("POST", "objectives", AIM | {"name": "Parcels are sorted " * 5, "window_days": 7})
    assert status == 201, objective
    page = visit("/objectives", user="ada", viewport=WIDTHS[width]).page
    expect(page.get_by_role("row").filter(has_text="Parcels")).to_be_visible()
    assert pixels_beyond(page) == 0
    page.goto(f"/objectives/{objective['id']}")
    expect(page.get_by_role("heading", name="Parcels", level=1)).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("over 7 days")
    assert pixels_beyond(page) == 0
