"""Signing in, staying, leaving."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD
from tests.browser.long_tables import scrolled_to


def test_signing_in_leads_to_the_page_that_was_asked_for(visit, stack):
    """A stranger at a deep link signs in and is where the link pointed."""
    stack.command("/topic/create", topic="deep#ephemeral")
    visitor = visit("/topics/deep%23ephemeral", user=None)
    expect(visitor.page).to_have_url(re.compile(r"/signin\?next="))
    visitor.sign_in("mara")
    expect(visitor.page.get_by_role("heading", name="deep#ephemeral", level=1)).to_be_visible()
    expect(visitor.page).to_have_url(re.compile(r"/topics/deep%23ephemeral$"))


def test_signing_in_leads_to_no_other_site(visit):
    """An address that a browser would take for another host, because it drops the tab, leads to the overview."""
    visitor = visit("/signin?next=%2F%09%2Fevil.example%2F", user=None)
    visitor.sign_in("mara")
    expect(visitor.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert visitor.page.evaluate("location.pathname") == "/"


def test_a_wrong_password_is_reported_beside_the_field(visit):
    """The field is marked, the message stands below it, and the name is kept."""
    visitor = visit("/", user=None)
    visitor.sign_in("mara", "wrong")
    expect(visitor.page.get_by_role("alert")).to_have_text("Incorrect user name or password.")
    expect(visitor.page.get_by_label("Password")).to_be_focused()
    expect(visitor.page.get_by_label("Password")).to_have_attribute("aria-invalid", "true")
    expect(visitor.page.get_by_label("User name")).to_have_value("mara")


def test_an_empty_field_is_asked_for(visit):
    """Nothing is sent without a name and a password."""
    visitor = visit("/signin", user=None)
    visitor.page.get_by_role("button", name="Sign in").click()
    expect(visitor.page.get_by_role("alert")).to_have_text("Enter your user name.")
    expect(visitor.page.get_by_label("User name")).to_be_focused()


def test_a_session_that_ended_leads_to_sign_in_and_back(visit, stack):
    """The cookie is gone: the next thing done asks to sign in, says why, and returns to the page."""
    stack.command("/topic/create", topic="lasting")
    visitor = visit("/topics/lasting")
    page = visitor.page
    page.get_by_role("button", name="Pause", exact=True).click()
    pause = page.get_by_role("dialog").get_by_role("button", name="Pause topic").element_handle()
    visitor.context.clear_cookies()
    pause.dispatch_event("click")  # does not wait: a request of the page itself may have closed the dialog
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    visitor.sign_in("mara")
    expect(page.get_by_role("heading", name="lasting", level=1)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)  # whoever signs in next must not confirm it
    expect(page.get_by_role("alert")).to_have_count(0)
    assert stack.topic("lasting")["paused"] is False


def test_signing_out_ends_the_session(visit):
    """After signing out the page is closed, by its address too."""
    visitor = visit("/topics")
    visitor.page.get_by_role("button", name="Menu").click()
    visitor.page.get_by_role("button", name="Sign out").click()
    expect(visitor.page.get_by_role("heading", name="Sign in to NSQ")).to_be_visible()
    visitor.page.goto("/topics")
    expect(visitor.page).to_have_url(re.compile("/signin"))


def test_the_menu_names_the_person_and_the_role(visit):
    """Who is signed in, and as what."""
    page = visit("/", user="viktor").page
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_text("Signed in as viktor, role viewer")).to_be_visible()


def test_what_an_operator_of_some_topics_may_not_do_is_not_offered(visit, stack):
    """Tail, Messages and the palette's actions are absent for other topics; check boxes and Tombstone are disabled,
    with the reason; forms that create topics say which ones are allowed."""
    for topic in ("limit.mine", "limit.other"):
        stack.command("/topic/create", topic=topic)
        stack.command("/channel/create", topic=topic, channel="billing")
    stack.manage("create_account", "olga", "--role", "operator", "--password", PASSWORD)
    limit = "from nsqplatform.accounts.models import User; "
    stack.manage("shell", "-c", limit + "User.objects.filter(username='olga').update(topic_patterns=['limit.mine'])")
    page = visit("/topics?q=limit.", user="olga").page
    expect(page.get_by_role("checkbox", name="Choose limit.mine")).to_be_enabled()
    refused = page.get_by_role("checkbox", name="Choose limit.other")
    expect(refused).to_be_disabled()
    expect(refused).to_have_attribute("title", "You may act on limit.mine only")
    page.get_by_role("checkbox", name=re.compile("^Choose all")).click()
    expect(page.get_by_text("1 topic chosen")).to_be_visible()
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog", name="New topic")
    expect(dialog).to_contain_text("You may act on limit.mine only")
    dialog.get_by_label("Name").fill("limit.new")
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_have_text("You may act on limit.mine only")
    page.goto("/lookup")
    form = page.get_by_role("region", name="Create a topic or channel")
    expect(form).to_contain_text("You may act on limit.mine only")
    form.get_by_label("Topic name").fill("limit.new")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("alert")).to_have_text("You may act on limit.mine only")
    assert stack.topic("limit.new") is None
    form.get_by_label("Topic name").fill("limit.mine")
    form.get_by_label("Channel name").fill("made")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("status")).to_have_text("Channel made of topic limit.mine was created.")
    page.goto("/topics/limit.mine")
    expect(page.get_by_role("button", name="Tail")).to_be_visible()
    page.goto("/topics/limit.other")
    expect(page.get_by_text("View only: you may act on limit.mine.")).to_be_visible()
    expect(page.get_by_role("button", name="Tail")).to_have_count(0)
    page.goto("/topics/limit.other/billing")
    expect(page.get_by_text("View only: you may act on limit.mine.")).to_be_visible()
    expect(page.get_by_role("button", name="Messages")).to_have_count(0)
    for typed in ("delete limit.other", "publish to limit.other", "tail limit.other", "empty limit.other billing"):
        page.keyboard.press("Control+k")
        page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill(typed)
        expect(page.get_by_text(f"Nothing matches “{typed}”")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Command palette").get_by_role("combobox").fill("delete limit")
    expect(page.get_by_role("option")).to_have_text(
        [re.compile("Delete limit.mine"), re.compile("limit.mine / made"), re.compile("limit.mine / billing")]
    )
    page.keyboard.press("Escape")
    page.goto("/nodes")
    here = stack.addresses["--nsqd-http-address"]
    page.get_by_role("group", name="Nodes").get_by_role("link", name=here).click()
    topics = page.get_by_role("table", name="Topics on this node")
    mine = page.get_by_role("button", name=re.compile("^Tombstone topic limit.mine "))
    expect(scrolled_to(topics, mine)).to_be_enabled()
    other = page.get_by_role("button", name=re.compile("^Tombstone topic limit.other "))
    expect(scrolled_to(topics, other)).to_be_disabled()
    expect(scrolled_to(topics, other)).to_have_attribute("title", "You may act on limit.mine only")
