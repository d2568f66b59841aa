"""Answers that arrive late: after the user has closed what asked, opened something else, typed or left the page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.held import Held, settle


def test_a_view_s_name_is_suggested_before_the_menu_is_shown(live):
    """What is typed at once is not overwritten by the suggestion."""
    page = live("/topics?q=quick")
    typed = page.evaluate(
        """async () => {
            document.querySelector('button.views').click();
            for (let i = 0; i < 20; i++) await Promise.resolve();
            const field = document.querySelector('#views input');
            const suggested = field.value;
            field.value = 'Typed at once';
            field.dispatchEvent(new InputEvent('input', {bubbles: true}));
            await new Promise((done) => setTimeout(done, 100));
            return [suggested !== '', field.value];
        }"""
    )
    assert typed == [True, "Typed at once"]


def test_a_view_that_was_saved_late_leaves_the_next_one_as_it_was_typed(live):
    """The menu was closed and opened again: it stays open, and the message names the view that was saved."""
    page = live("/topics?q=slow")
    saving = Held(page, "/api/v1/views$", "POST")
    button, field = page.get_by_role("button", name="Views"), page.get_by_label("Save this page as a view")
    button.click()
    field.fill("The first")
    page.get_by_role("button", name="Save", exact=True).click()
    saving.until()
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()
    button.click()
    field.fill("The second")
    saving.release()
    expect(page.get_by_role("status", name="News")).to_contain_text("Saved the view “The first”.")
    settle(page)
    expect(field).to_be_visible()
    expect(field).to_have_value("The second")


def test_a_saved_view_that_is_answered_late_does_not_lead_away_from_another_page(live, visit):
    """The user has gone to another page meanwhile."""
    visitor = visit("/")
    status, _ = visitor.call("POST", "views", {"name": "Late", "address": "/topics?q=late", "is_shared": False})
    assert status in (200, 201)
    view = next(each for each in visitor.call("GET", "views")[1]["views"] if each["name"] == "Late")
    page = live("/nodes")
    reading = Held(page, rf"/api/v1/views/{view['id']}$")
    page.evaluate(
        "address => { const link = document.querySelector('a.brand'); link.href = address; link.click(); }",
        f"/views/{view['id']}",
    )
    expect(page.get_by_text("Opening the view…")).to_be_visible()
    reading.until()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Channels").click()
    expect(page.get_by_role("heading", name="Channels", level=1)).to_be_visible()
    reading.release()
    expect(page).to_have_url(re.compile("/channels$"))


def test_a_late_outcome_does_not_replace_the_next_question(live, stack):
    """The first dialog was closed with Escape; its outcome is a message, and the second question stays."""
    stack.command("/topic/create", topic="late.pause")
    page = live("/topics/late.pause")
    acting = Held(page, "/api/v1/actions$", "POST")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").click()
    acting.until()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete topic late.pause")
    dialog.get_by_label(re.compile("^Type late.pause")).fill("late")
    acting.release()
    expect(page.get_by_role("status", name="News")).to_contain_text("Topic late.pause was paused.")
    settle(page)
    expect(dialog.get_by_label(re.compile("^Type late.pause"))).to_have_value("late")


def test_a_topic_that_was_created_late_does_not_lead_to_its_page(live, stack):
    """The dialog was closed and opened again for another topic, whose name stays as typed."""
    page = live("/topics")
    creating = Held(page, "/api/v1/actions$", "POST")
    page.get_by_role("button", name="New topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill("late.first")
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    creating.until()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="New topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill("late.second")
    creating.release()
    expect(page.get_by_role("dialog").get_by_label("Name")).to_have_value("late.second")
    expect(page.get_by_role("dialog").get_by_role("button", name="Create topic")).to_be_enabled()
    expect(page).to_have_url(re.compile("/topics$"))


def test_a_dialog_that_is_opened_again_at_once_stays_open(live):
    """The browser reports the closing of a dialog later, when it is open again."""
    page = live("/topics")
    is_open = page.evaluate(
        """async () => {
            const click = async (text) => {
                [...document.querySelectorAll('button')].find((each) => each.innerText.trim() === text).click();
                for (let i = 0; i < 20; i++) await Promise.resolve();
            };
            await click('New topic');
            await click('Cancel');
            await click('New topic');
            await new Promise((done) => setTimeout(done, 200));
            return document.querySelector('dialog[open] input') !== null;
        }"""
    )
    assert is_open


def test_a_late_answer_does_not_close_another_entry_s_dialog(visit, stack):
    """A mask is saved slowly; its dialog was closed, and that of another mask is open."""
    visitor = visit("/masks", user="ada")
    page = visitor.page
    for topic in ("late.one", "late.two"):
        status, _ = visitor.call("POST", "masks", {"topic_pattern": topic, "paths": ["$.card"], "visible_to": "admin"})
        assert status in (200, 201)
    page.reload()
    saving = Held(page, r"/api/v1/masks/\d+$", "PATCH")
    page.get_by_role("button", name="Edit the mask of late.one").click()
    page.get_by_role("dialog").get_by_label("Hidden values").fill("$.changed")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    saving.until()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Edit the mask of late.two").click()
    dialog = page.get_by_role("dialog", name="Mask of late.two")
    dialog.get_by_label("Hidden values").fill("$.typed")
    saving.release()
    expect(page.get_by_role("row").filter(has_text="late.one")).to_contain_text("$.changed")
    settle(page)
    expect(dialog.get_by_label("Hidden values")).to_have_value("$.typed")
    for topic in ("late.one", "late.two"):
        mask = next(each for each in visitor.call("GET", "masks")[1]["masks"] if each["topic_pattern"] == topic)
        visitor.call("DELETE", f"masks/{mask['id']}")


def test_the_message_that_was_chosen_last_is_published_again(live, stack):
    """The whole body of a long message arrives after another message was chosen."""
    stack.command("/topic/create", topic="late.letters")
    stack.command("/channel/create", topic="late.letters", channel="post")
    stack.command("/pub", b"long" * 1_000, topic="late.letters")
    stack.command("/pub", b"short", topic="late.letters")
    page = live("/topics/late.letters/post")
    page.get_by_role("button", name="Messages", exact=True).click()
    articles = page.get_by_role("main").get_by_role("article")
    expect(articles).to_have_count(2)
    page.get_by_label("Open all").check()
    reading = Held(page, "/api/v1/.*messages.*")
    long, short = articles.filter(has_text="longlong"), articles.filter(has_text="short")
    long.get_by_role("button", name="Publish again").click()
    reading.until()
    short.get_by_role("button", name="Publish again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("A copy of 5 bytes")
    reading.release()
    expect(dialog).to_contain_text("A copy of 5 bytes")


def test_the_palette_keeps_the_clients_of_what_is_typed(live, stack):
    """The answer to the first letters arrives after that to all of them."""
    stack.command("/topic/create", topic="late.clients")
    with stack.consumer("late.clients", "c", "latecomer-1"):
        page = live("/")
        asking = Held(page, r"/api/v1/clients\?(.*&)?q=latec(&|$)")
        page.keyboard.press("Control+k")
        box = page.get_by_role("dialog", name="Command palette").get_by_role("combobox")
        box.fill("latec")
        asking.until()
        box.fill("latecomer-1")
        found = page.get_by_role("option").filter(has_text="latecomer-1")
        expect(found).to_be_visible()
        asking.release()
        expect(found).to_be_visible()


def test_a_run_that_starts_late_does_not_lead_away_from_another_page(live):
    """The user has gone to another page; a message leads to the run."""
    page = live("/reports")
    starting = Held(page, "/api/v1/reports/.*", "POST")
    page.get_by_role("button", name="Run now", exact=True).click()
    starting.until()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    starting.release()
    expect(page.get_by_role("status", name="News").get_by_role("link")).to_have_attribute(
        "href", re.compile(r"/reports/runs/\d+|/runs/\d+")
    )
    expect(page).to_have_url(re.compile("/nodes$"))


@pytest.mark.parametrize("width", [1440, 390])
def test_a_failure_after_the_dialog_was_closed_is_shown_at_the_edge(live, stack, width):
    """Nobody believes that Escape has cancelled the action, or that it was done."""
    stack.command("/topic/create", topic="late.refused")
    page = live("/topics/late.refused", viewport={"width": width, "height": 900})
    acting = Held(page, "/api/v1/actions$", "POST")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").click()
    acting.until()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    acting.refuse(503, "no node answers")
    expect(page.get_by_role("status", name="News")).to_contain_text("Pause topic late.refused: No node answers.")
