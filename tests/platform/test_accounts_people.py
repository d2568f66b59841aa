"""People: invitations, limits, closed accounts; their tokens and sessions; and their entries in the audit trail."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone

from nsqplatform.accounts.models import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def admin(browser, account):
    account("admin", "ada")
    person = browser()
    person.sign_in("ada")
    return person


def test_an_invited_person_signs_in_once_and_chooses_a_password(admin, browser):
    """The link leads to the account's page; the new password is checked and works."""
    made = admin.request("POST", "people", {"username": "olga", "role": "operator", "topic_patterns": ["orders.*"]})
    assert made.status_code == 201
    client = Client(enforce_csrf_checks=True)
    page = client.get(made.json()["path"]).content.decode()
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    answer = client.post(made.json()["path"], {"csrfmiddlewaretoken": token})
    assert (answer.status_code, answer["Location"]) == (302, "/account")
    me = client.get("/api/v1/me").json()
    assert (me["username"], me["role"], me["topic_patterns"], me["has_password"]) == (
        *("olga", "operator", ["orders.*"]),
        False,
    )

    def choose(password: str) -> int:
        body = json.dumps({"new_password": password})
        headers = {"X-CSRFToken": me["csrf_token"]}
        return client.put(
            "/api/v1/account/password", body, content_type="application/json", headers=headers
        ).status_code

    assert choose("12345678") == 422
    assert choose("a long way to Tipperary") == 204
    assert browser().sign_in("olga", "a long way to Tipperary").status_code == 200


def test_a_session_gets_a_new_key_at_sign_in(browser, account):
    """A session key that somebody else planted is invalid afterwards."""
    account("viewer", "ann")
    ann = browser()
    ann.sign_in("ann")
    planted = ann.client.cookies["sessionid"].value
    ann.sign_in("ann")
    assert ann.client.cookies["sessionid"].value != planted
    assert Client(headers={"Cookie": f"sessionid={planted}"}).get("/api/v1/me").status_code == 401
    cookie = ann.client.cookies["sessionid"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")


def test_a_copy_of_the_database_signs_nobody_in(browser, account):
    """The key in the cookie is in no column, and none of what is stored is valid as a key."""
    account("viewer", "ann")
    ann = browser()
    ann.sign_in("ann")
    key = ann.client.cookies["sessionid"].value
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM accounts_session")
        stored = [str(value) for row in cursor.fetchall() for value in row]
    assert len(stored) > 5
    for value in stored:
        assert key not in value
        assert Client(headers={"Cookie": f"sessionid={value}"}).get("/api/v1/me").status_code == 401
    assert ann.request("GET", "me").status_code == 200


def test_an_upgrade_signs_nobody_out(browser, account):
    """Sessions of a release that stored their keys remain valid."""
    account("viewer", "ann")
    ann = browser()
    ann.sign_in("ann")
    key = ann.client.cookies["sessionid"].value
    Session.objects.update(session_key=key)
    assert ann.request("GET", "me").status_code == 401
    ann.client.cookies["sessionid"] = key
    MigrationRecorder(connection).migration_qs.filter(app="accounts", name__gte="0004").delete()
    call_command("migrate", "accounts", "0004", verbosity=0)
    call_command("migrate", "accounts", fake=True, verbosity=0)  # what the later ones do has been done
    assert ann.request("GET", "me").json()["username"] == "ann"


def test_signing_out_everywhere_else_leaves_this_session(browser, account):
    account("viewer", "ann")
    here, there = browser(), browser()
    here.sign_in("ann")
    there.sign_in("ann")
    shown = here.request("GET", "account/sessions").json()["sessions"]
    assert sorted(each["current"] for each in shown) == [False, True]
    assert here.request("DELETE", "account/sessions").json() == {"ended": 1}
    assert there.request("GET", "me").status_code == 401
    assert here.request("GET", "me").status_code == 200


def test_the_last_admin_stays_one(admin):
    """Nobody else could make another."""
    [ada] = admin.request("GET", "people").json()["people"]
    for change in ({"role": "viewer"}, {"is_active": False}):
        answer = admin.request("PATCH", f"people/{ada['id']}", change)
        assert (answer.status_code, answer.json()["message"]) == (
            *(422,),
            "this is the last admin: make another one first",
        )


def test_a_token_is_shown_once_and_has_no_more_than_its_owner(browser, account):
    """It stops working when it expires, and has fewer rights when its owner's role is lowered."""
    from nsqplatform.accounts.models import ApiToken, User

    user = account("operator", "olga")
    olga = browser()
    olga.sign_in("olga")
    assert olga.request("POST", "account/tokens", {"name": "cron", "role": "admin"}).status_code == 422
    secret = olga.request("POST", "account/tokens", {"name": "cron", "role": "operator"}).json()["secret"]
    assert secret not in olga.request("GET", "account/tokens").content.decode()
    assert secret not in str(ApiToken.objects.values().get())
    script = Client(headers={"Authorization": f"Bearer {secret}"})
    assert script.get("/api/v1/me").json()["role"] == "operator"
    User.objects.filter(pk=user.pk).update(role="viewer")
    assert script.get("/api/v1/me").json()["role"] == "viewer"
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    refused = script.get("/api/v1/me")
    assert refused.status_code == 401
    assert refused.json()["message"].startswith("this token expired on ")


def test_the_audit_trail_is_filtered_by_the_platform_and_downloaded_as_filtered(admin):
    """Invitations, changes and refused sign-ins are in it; no cell is a formula."""
    from nsqplatform.accounts.audit import record

    admin.request("POST", "people", {"username": "olga", "role": "operator"})
    admin.request("POST", "session", {"username": "ada", "password": "wrong"})
    record(user=None, action="sign-in", subject="=1+1", outcome="refused")
    found = admin.request("GET", "audit?outcome=refused&object=ada").json()["entries"]
    assert [(each["action"], each["subject"]) for each in found] == [("sign-in", "ada")]
    assert [each["subject"] for each in admin.request("GET", "audit?user=ada&action=invite").json()["entries"]] == [
        "olga"
    ]


def test_a_formula_in_an_export_is_text():
    from nsqplatform.accounts.audit import record
    from nsqplatform.accounts.audit_api import csv_lines
    from nsqplatform.accounts.models import AuditEntry

    record(user=None, action="sign-in", subject="=1+1", outcome="refused")
    [row] = csv.DictReader(io.StringIO("".join(csv_lines(AuditEntry.objects.all()))))
    assert row["subject"] == "'=1+1"
