"""Sign-in with an identity provider, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from oidc_provider_mock import User, run_server_in_thread
from playwright.sync_api import expect

from tests.browser.clicks import Clicks
from tests.browser.conftest import Visitor


@pytest.fixture
def site(stack, monkeypatch) -> Iterator[str]:
    """Another web process of the platform, whose people sign in with a provider."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # the provider refuses http otherwise
    people = [
        User(sub="s-nora", claims={"preferred_username": "nora", "groups": ["nsq-admins"]}),
        User(sub="s-otto", claims={"preferred_username": "otto", "groups": ["staff"]}),
    ]
    with (
        run_server_in_thread(user_claims=people) as provider,
        stack.web(
            NSQ_OIDC_ISSUER=f"http://localhost:{provider.server_port}",
            NSQ_OIDC_CLIENT_ID="nsq",
            NSQ_OIDC_CLIENT_SECRET="secret",
            NSQ_OIDC_NAME="Harbour ID",
            NSQ_OIDC_ROLES="nsq-admins=admin",
        ) as address,
    ):
        yield address


@pytest.fixture
def stranger(chromium, site) -> Iterator[Visitor]:
    context = chromium.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    yield Visitor(context)
    context.close()


def test_a_person_signs_in_with_the_provider_and_out_again(stranger, axe):
    """Two clicks lead to the page that was asked for; signing out leads to the provider, too."""
    page = stranger.page
    page.goto("/audit")
    expect(page.get_by_role("link", name="Sign in with Harbour ID")).to_be_visible()
    assert axe(page) == []
    clicks = Clicks(page)
    page.get_by_role("link", name="Sign in with Harbour ID").click()
    page.get_by_role("button", name="s-nora").click()
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    assert clicks.count == 2
    page.get_by_role("button", name="Menu: nora").click()
    page.get_by_role("link", name="Your account").click()
    expect(page.get_by_text("You sign in with your identity provider")).to_be_visible()
    page.get_by_role("button", name="Menu: nora").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/oauth2/end_session"))


def test_a_person_without_a_role_sees_why(stranger, axe):
    page = stranger.page
    page.goto("/")
    page.get_by_role("link", name="Sign in with Harbour ID").click()
    page.get_by_role("button", name="s-otto").click()
    expect(page.get_by_role("alert")).to_contain_text("none of your groups has a role here")
    assert axe(page) == []
    page.get_by_role("link", name="sign in with a password").click()
    expect(page.get_by_label("User name")).to_be_visible()
