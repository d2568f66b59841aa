"""Saved views: the search, filters and order of a page, under a name."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.clicks import Clicks


def test_a_view_is_saved_shared_and_opened_by_another_person(live, stack, axe):
    """Three clicks to save and share what the page shows; two to open it."""
    stack.command("/topic/create", topic="viewed.eu")
    stack.command("/topic/create", topic="other")
    page = live("/topics?q=viewed&sort=-depth")
    clicks = Clicks(page)
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Save this page as a view").fill("Viewed by depth")
    page.get_by_label("Share with all users").click()
    assert axe(page) == []
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved the view “Viewed by depth”.")).to_be_visible()
    assert clicks.count == 3

    viktor = live("/", user="viktor")
    clicks = Clicks(viktor)
    viktor.get_by_role("button", name="Views").click()
    viktor.get_by_role("link", name="Viewed by depth").click()
    assert clicks.count == 2
    expect(viktor).to_have_url(re.compile(r"/topics\?q=viewed&sort=-depth$"))
    expect(viktor.get_by_role("link", name="viewed.eu")).to_be_visible()
    expect(viktor.get_by_role("link", name="other")).to_have_count(0)
    expect(viktor.get_by_role("searchbox", name="Search topics")).to_have_value("viewed")


def test_a_view_has_an_address_is_renamed_and_deleted(live, axe):
    """The address shows what the view shows now; without the view it says so."""
    page = live("/channels?q=x")
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Save this page as a view").fill("Mine")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved the view")).to_be_visible()
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="Edit the view Mine").click()
    dialog = page.get_by_role("dialog")
    address = dialog.get_by_text(re.compile(r"/views/\d+$")).inner_text()
    dialog.get_by_label("Name").fill("Renamed")
    assert axe(page) == []
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    page.goto(address)
    expect(page).to_have_url(re.compile(r"/channels\?q=x$"))
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="Edit the view Renamed").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("or it is not shared with you")


def test_a_view_of_a_topic_that_is_gone_says_so(visit, stack):
    """In the menu; the page says it too."""
    stack.command("/topic/create", topic="viewed.gone")
    visitor = visit("/topics/viewed.gone")
    page = visitor.page
    expect(page.get_by_role("heading", name="viewed.gone", level=1)).to_be_visible()
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved the view")).to_be_visible()
    # The action deletes it from the registry too, where it would be an inactive topic otherwise.
    status, answer = visitor.call("POST", "actions", {"action": "delete", "topic": "viewed.gone"})
    assert (status, answer["outcome"]) == (200, "done")
    page.goto("/topics")
    page.get_by_role("button", name="Views").click()
    expect(page.get_by_text("gone: topic viewed.gone")).to_be_visible()
