"""Saved views: one's own and shared ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.saved_views.models import SavedView

pytestmark = [pytest.mark.django_db, pytest.mark.database]

DEEP = {"name": "Deep", "address": "/topics?q=orders&filter=backlog&sort=-depth"}


@pytest.fixture
def signed_in(browser: Any, account: Any) -> Callable[[str, str], Any]:
    def sign_in(role: str, username: str) -> Any:
        account(role, username)
        client = browser()
        assert client.sign_in(username).status_code == 200
        return client

    return sign_in


def names(client: Any) -> list[tuple[str, bool, bool]]:
    found = client.request("GET", "views").json()["views"]
    return [(each["name"], each["is_own"], each["may_change"]) for each in found]


def test_a_view_is_private_until_it_is_shared(signed_in: Any) -> None:
    """A viewer may save views and cannot share them; what operators share, everybody sees."""
    mara, viktor = signed_in("operator", "mara"), signed_in("viewer", "viktor")
    made = mara.request("POST", "views", DEEP)
    assert (made.status_code, made.json()["address"]) == (201, DEEP["address"])
    number = made.json()["id"]
    assert names(viktor) == []
    assert viktor.request("GET", f"views/{number}").status_code == 404
    assert mara.request("PATCH", f"views/{number}", {"is_shared": True}).json()["is_shared"] is True
    assert names(viktor) == [("Deep", False, False)]
    assert viktor.request("GET", f"views/{number}").json()["owner"] == "mara"

    own = viktor.request("POST", "views", DEEP)
    assert own.status_code == 201
    refused = viktor.request("PATCH", f"views/{own.json()['id']}", {"is_shared": True})
    assert refused.json()["message"] == "your role, viewer, may not share saved views"
    assert viktor.request("POST", "views", DEEP | {"name": "x", "is_shared": True}).status_code == 403
    assert names(viktor) == [("Deep", False, False), ("Deep", True, True)]


def test_a_view_is_renamed_and_deleted_by_its_owner_and_a_shared_one_by_admins(signed_in: Any) -> None:
    """The audit trail says who."""
    mara, otto, ada = signed_in("operator", "mara"), signed_in("operator", "otto"), signed_in("admin", "ada")
    number = mara.request("POST", "views", DEEP | {"is_shared": True}).json()["id"]
    refused = otto.request("PATCH", f"views/{number}", {"name": "Mine"})
    assert (refused.status_code, refused.json()["message"]) == (
        *(403,),
        "only its owner and admins may change a shared view",
    )
    assert otto.request("DELETE", f"views/{number}").status_code == 403
    assert ada.request("PATCH", f"views/{number}", {"name": "Backlog"}).json()["name"] == "Backlog"
    assert names(mara) == [("Backlog", True, True)]
    assert mara.request("DELETE", f"views/{number}").status_code == 204
    assert names(ada) == []
    entries = AuditEntry.objects.filter(action__endswith="view").values_list("user", "action", "subject")
    assert list(entries) == [
        ("mara", "delete view", "Backlog"),
        ("ada", "change view", "Backlog"),
        ("mara", "save view", "Deep"),
    ]


def test_a_shared_view_is_made_private_only_for_its_owner(signed_in: Any) -> None:
    """One without an owner would be seen by nobody, and an owner cannot have two of a name."""
    mara, ada = signed_in("operator", "mara"), signed_in("admin", "ada")
    imported = SavedView.objects.create(owner=None, name="Imported", address="/", is_shared=True)
    refused = ada.request("PATCH", f"views/{imported.pk}", {"is_shared": False})
    assert refused.status_code == 422
    assert refused.json()["message"] == "is_shared: this view has no owner: nobody could see it"
    mara.request("POST", "views", DEEP)
    shared = mara.request("POST", "views", DEEP | {"is_shared": True}).json()["id"]
    refused = ada.request("PATCH", f"views/{shared}", {"is_shared": False})
    assert refused.json()["message"] == "name: there is a view of mara named 'Deep' already"
    assert names(ada) == [("Deep", False, True), ("Imported", False, True)]


def test_an_owner_who_may_no_longer_share_gets_the_reason(signed_in: Any) -> None:
    mara = signed_in("operator", "mara")
    number = mara.request("POST", "views", DEEP | {"is_shared": True}).json()["id"]
    User.objects.filter(username="mara").update(role="viewer")
    for method in ("PATCH", "DELETE"):
        refused = mara.request(method, f"views/{number}", {"name": "Mine"})
        assert (refused.status_code, refused.json()["message"]) == (403, "your role, viewer, may not share saved views")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"address": "//evil.example/"}, "address"),
        ({"address": "/\\evil.example/"}, "address"),
        ({"address": "https://evil.example/"}, "address"),
        ({"address": "topics"}, "address"),
        ({"name": "  "}, "name"),
        ({"name": "Taken"}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_view_is_refused(signed_in: Any, change: dict[str, str], field: str) -> None:
    """A view leads to no other site, and has a name of its own."""
    mara = signed_in("operator", "mara")
    mara.request("POST", "views", DEEP | {"name": "Taken"})
    answer = mara.request("POST", "views", DEEP | change)
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["field_errors"]] == [field]
