"""Accounts: signing in by password, link and token; roles; protection from other sites."""

from __future__ import annotations

import itertools
import re
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.harness.waiting import DEADLINE_S

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def test_signing_in_and_out(browser, account):
    """The session exists from signing in to signing out."""
    account("viewer", "ann")
    ann = browser()
    assert ann.request("GET", "me").status_code == 401
    response = ann.sign_in("ann")
    assert (response.status_code, response.json()["username"], response.json()["role"]) == (200, "ann", "viewer")
    assert ann.request("GET", "me").json()["username"] == "ann"
    assert ann.request("DELETE", "session").status_code == 204
    assert ann.request("GET", "me").json() == {"message": "sign in, or send a valid token"}


def test_the_last_use_of_a_session_is_kept(browser, account):
    """A request two minutes after the last one, which is written once a minute, is seen."""
    from nsqplatform.accounts.models import Session

    account("viewer", "ann")
    ann = browser()
    ann.sign_in("ann")
    earlier = timezone.now() - timedelta(minutes=2)
    Session.objects.update(seen_at=earlier)
    assert ann.request("GET", "me").status_code == 200
    assert Session.objects.get().seen_at > earlier


def test_a_wrong_password_and_an_unknown_name_look_alike(browser, account):
    """The answer does not show which accounts exist."""
    account("viewer", "ann")
    wrong, unknown = browser().sign_in("ann", "no"), browser().sign_in("nobody", "no")
    assert (wrong.status_code, wrong.json()) == (unknown.status_code, unknown.json())
    assert wrong.status_code == 401


def test_guessing_is_slowed_down(browser, account):
    """After five failures, even the right password is refused for a while; other names are not affected."""
    account("viewer", "ann")
    account("viewer", "bob")
    for _ in range(5):
        assert browser().sign_in("ann", "guess").status_code == 401
    refused = browser().sign_in("ann")
    assert refused.status_code == 429
    assert "5 minutes" in refused.json()["message"]
    assert browser().sign_in("bob").status_code == 200


def test_guesses_at_the_same_time_are_slowed_down_too(browser, account):
    """Five of 25 simultaneous guesses are checked, as of 25 sequential ones."""
    account("viewer", "ann")
    gate, statuses = threading.Barrier(25), []

    def guess() -> None:
        from django.db import connection

        gate.wait(DEADLINE_S)
        statuses.append(browser().sign_in("ann", "guess").status_code)
        connection.close()

    threads = [threading.Thread(target=guess) for _ in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(statuses) == [401] * 5 + [429] * 20


def test_a_closed_account_cannot_sign_in(browser, account):
    """Its open sessions end too."""
    ann = account("viewer", "ann")
    before = browser()
    before.sign_in("ann")
    ann.is_active = False
    ann.save()
    assert browser().sign_in("ann").status_code == 401
    assert before.request("GET", "me").status_code == 401


# ---- one-time links


@pytest.fixture
def link(account):
    from nsqplatform.accounts.services import one_time_link

    return one_time_link(account("admin"))


def csrf_of(page: Any) -> str:
    return page.content.decode().split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]


def follow(client: Client, link: str) -> Any:
    """Open the link and press its button."""
    return client.post(link, {"csrfmiddlewaretoken": csrf_of(client.get(link))})


def test_a_link_signs_in_once(link):
    """Opening it shows a button, which signs in; a second use is refused."""
    client = Client(enforce_csrf_checks=True)
    response = follow(client, link)
    assert (response.status_code, response["Location"]) == (302, "/")
    assert client.get("/api/v1/me").json()["role"] == "admin"
    again = follow(Client(enforce_csrf_checks=True), link)
    assert again.status_code == 410
    assert b"no longer works" in again.content
    assert b"<code>nsq signin-link</code>" in again.content


def test_a_link_that_is_only_fetched_stays_good(link):
    """Mail scanners and previews do not use it up, and are not signed in."""
    scanner = Client(enforce_csrf_checks=True)
    for _ in range(3):
        assert scanner.get(link).status_code == 200
        assert scanner.head(link).status_code == 200
    assert scanner.get("/api/v1/me").status_code == 401
    assert follow(Client(enforce_csrf_checks=True), link).status_code == 302


def test_a_link_needs_its_page(link):
    """Another site cannot submit its form."""
    client = Client(enforce_csrf_checks=True)
    assert client.post(link).status_code == 403
    assert follow(client, link).status_code == 302


def test_a_link_expires(link):
    """After fifteen minutes it is refused."""
    from nsqplatform.accounts.models import OneTimeLink
    from nsqplatform.accounts.services import LINK_LIFETIME

    assert timedelta(minutes=15) == LINK_LIFETIME
    OneTimeLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert follow(Client(enforce_csrf_checks=True), link).status_code == 410


def test_a_link_used_twice_at_once_signs_in_one(link):
    """Check and use are one step."""
    from nsqplatform.accounts.services import use_link

    token = link.rsplit("/", 1)[1]
    gate, users = threading.Barrier(8), []

    def use() -> None:
        from django.db import connection

        gate.wait(DEADLINE_S)
        users.append(use_link(token=token))
        connection.close()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(user is not None for user in users) == [False] * 7 + [True]


def test_only_a_hash_of_a_link_is_kept(link):
    """A copy of the database does not let anyone sign in."""
    from nsqplatform.accounts.models import OneTimeLink

    assert link.rsplit("/", 1)[1] not in str(OneTimeLink.objects.values().get())


def test_the_first_start_makes_an_administrator(db):
    """Later starts make none."""
    from nsqplatform.accounts.services import first_start

    link = first_start()
    assert first_start() is None
    client = Client(enforce_csrf_checks=True)
    follow(client, link)
    me = client.get("/api/v1/me").json()
    assert (me["username"], me["role"]) == ("admin", "admin")


# ---- tokens


def test_a_token_has_the_permissions_of_its_account(account, browser):
    """A script needs neither cookies nor a CSRF token."""
    from nsqplatform.accounts.tokens import create_token

    token = create_token(user=account("operator"), name="backup")
    script = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {token}"})
    assert script.get("/api/v1/me").json()["username"] == "operator"
    body = {"action": "pause", "topic": "nowhere"}
    assert script.post("/api/v1/actions", body, content_type="application/json").status_code in (404, 502)


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer ", "Basic YTpi", "nonsense", "Bearer é"])
def test_an_unknown_token_is_refused(header, redis):
    """With 401 and the reason, whatever its form."""
    response = Client().get("/api/v1/me", headers={"Authorization": header})
    assert response.status_code == 401
    expected = "unknown token" if header.startswith("Bearer") else "sign in, or send a valid token"
    assert response.json()["message"].startswith(expected)


def test_a_token_ends_with_its_account(account):
    """Closing an account disables its tokens."""
    from nsqplatform.accounts.tokens import create_token

    user = account("operator")
    token = create_token(user=user, name="backup")
    user.is_active = False
    user.save()
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_new_token_of_the_same_name_replaces_the_old(account):
    """So a lost token can be disabled."""
    from nsqplatform.accounts.tokens import create_token

    user = account("viewer")
    old, new = create_token(user=user, name="backup"), create_token(user=user, name="backup")
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {old}"}).status_code == 401
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {new}"}).status_code == 200


# ---- roles

READS = [("GET", "me", None), ("GET", "snapshot", None), ("GET", "audit", None)]
WRITES = [
    ("POST", "actions", {"action": action, "topic": "orders"})
    for action in ("pause", "unpause", "empty", "create", "delete")
]


@pytest.mark.parametrize(
    ("role", "endpoint"), list(itertools.product(["stranger", "viewer", "operator", "admin"], READS + WRITES))
)
def test_each_role_has_its_permissions(role, endpoint, browser, account, go_cluster, redis):
    """All signed-in users may look; operators and administrators may act; a stranger may do nothing."""
    redis.set("nsq:snapshot", '{"version":1,"taken_at":1,"nodes":{},"topics":{},"channels":{}}')
    go_cluster.nodes[0].topic("orders")
    person = browser()
    if role != "stranger":
        account(role)
        person.sign_in(role)
    status = person.request(*endpoint).status_code
    if role == "stranger":
        assert status == 401
    elif role == "viewer" and endpoint in WRITES:
        assert status == 403
        assert go_cluster.nodes[0].posts == go_cluster.registry.posts == []
    else:
        assert status == 200


def test_every_endpoint_authenticates(browser):
    """Strangers can only sign in; this covers endpoints that are added later."""
    from nsqplatform.console.api import api

    schema = api.get_openapi_schema()
    for path, methods in schema["paths"].items():
        for method in methods:
            if (method, path) == ("post", "/api/v1/session"):
                continue
            concrete = re.sub(r"\{\w+\}", "1", path)
            response = browser().request(method.upper(), concrete.removeprefix("/api/v1/"))
            assert response.status_code == 401, (method, path, response.content)


# ---- other sites


def test_a_change_without_the_csrf_header_is_refused(browser, account, go_cluster):
    """A page of another site would send the cookie too."""
    account("operator")
    person = browser()
    person.sign_in("operator")
    go_cluster.nodes[0].topic("orders")
    person.csrf = ""
    response = person.request("POST", "actions", {"action": "pause", "topic": "orders"})
    assert response.status_code == 403
    assert "X-CSRFToken" in response.json()["message"]
    person.csrf = "forged" * 10
    assert person.request("POST", "actions", {"action": "pause", "topic": "orders"}).status_code == 403
    assert go_cluster.nodes[0].posts == []


def test_another_site_cannot_sign_its_visitor_in(browser, account, password):
    """A form cannot send JSON, and the browser reports the origin of a script."""
    account("viewer", "ann")
    body = f'{{"username":"ann","password":"{password}"}}'
    form = Client().generic("POST", "/api/v1/session", body, content_type="text/plain")
    assert form.status_code == 415
    script = browser().request(
        "POST", "session", {"username": "ann", "password": password}, Origin="http://evil.example"
    )
    assert script.status_code == 403
    own = browser().request("POST", "session", {"username": "ann", "password": password}, Origin="http://testserver")
    assert own.status_code == 200


# ---- commands


def test_accounts_and_tokens_are_made_from_the_command_line(browser, capsys):
    """For the operator of the machine."""
    call_command("create_account", "bob", "--role", "operator", "--password", "correct horse battery")
    assert browser().sign_in("bob", "correct horse battery").json()["role"] == "operator"
    capsys.readouterr()
    call_command("create_token", "bob", "backup")
    token = capsys.readouterr().out.strip()
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).json()["username"] == "bob"


def test_a_token_of_the_command_line_has_the_role_and_expiry_that_are_asked_for(account, capsys):
    """As one of the account's page; by default it has its owner's role, and does not expire."""
    from nsqplatform.accounts.models import ApiToken

    account("operator", "bob")
    for purpose, *options in (
        ("default",),
        ("short", "--role=viewer", "--expires=720h"),
        ("long", "--role=operator", "--expires=2999-01-31T06:30:00+02:00"),
    ):
        before = timezone.now()
        call_command("create_token", "bob", purpose, *options)
        secret = capsys.readouterr().out.strip()
        assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    default, short, long = (ApiToken.objects.get(name=each) for each in ("default", "short", "long"))
    assert [(each.role, each.cluster) for each in (default, short, long)] == [
        *(("operator", ""), ("viewer", ""), ("operator", ""))
    ]
    assert default.expires_at is None
    assert timedelta(days=29) < short.expires_at - before < timedelta(days=31)
    assert long.expires_at == datetime(2999, 1, 31, 4, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--role=admin"], "you are operator; a token cannot be more"),
        (["--role=king"], "invalid choice: 'king'"),
        (["--expires=-1h"], "this time is past"),
        (["--expires=2020-01-01T00:00:00Z"], "this time is past"),
        (["--expires=2999-01-01T00:00:00"], "needs its zone, such as Z"),
        (["--expires=soon"], "'soon' is neither a duration such as 720h nor a time such as 2026-11-22T06:30:00Z"),
        (["--cluster=paris"], "there is no cluster 'paris'"),
    ],
)
def test_a_token_beyond_its_owners_rights_or_past_its_expiry_is_refused(account, options, complaint):
    """By the rules of the account's page; no token is created."""
    from nsqplatform.accounts.models import ApiToken

    account("operator", "bob")
    with pytest.raises(CommandError, match=re.escape(complaint)):
        call_command("create_token", "bob", "backup", *options)
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create_account", "bob", "--password", "1234"], "too short"),
        (["create_account", "b b"], "Enter a valid username"),
        (["create_account", "bob", "--role", "king"], "king"),
        (["create_token", "nobody", "backup"], "nobody"),
    ],
)
def test_a_command_that_cannot_run_says_why(arguments, complaint, db):
    """With one line and a failing exit status."""
    with pytest.raises(CommandError, match=complaint):
        call_command(*arguments)


def test_a_counter_that_expires_while_it_is_incremented_starts_again():
    """The sign-in or refusal that it counts succeeds."""
    from nsqplatform.accounts.counters import increment

    assert [increment("kept", expires_s=60) for _ in range(2)] == [1, 2]
    assert [increment("expired-at-once", expires_s=0) for _ in range(2)] == [1, 1]
