"""A Redis that refuses commands is status 503 with a message, on every way into the platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from nsqplatform.accounts.oidc.provider import IdentityProvider
from nsqplatform.accounts.services import one_time_link
from nsqplatform.console.api import api as platform_api

pytestmark = pytest.mark.database

REFUSALS = {
    "full": "Redis is full and refuses to store anything: raise its maxmemory, or free memory",
    "read-only": "Redis is read-only: REDIS_URL has to name the primary server, not a replica",
    "locked": "Redis refuses the user or password of REDIS_URL",
}
"""The ways in which Redis refuses, and the message."""
NO_SNAPSHOT = "there is no snapshot of the cluster yet: is the collector running?"


@pytest.fixture(params=REFUSALS)
def refusing(request: pytest.FixtureRequest, redis: Redis, settings: Any) -> Iterator[Callable[[], str]]:
    """Lets Redis refuse commands from the call on, and returns the message."""
    how: str = request.param
    # A connection that was open before needs no password.
    admin = Redis.from_url(settings.REDIS_URL, single_connection_client=True)
    set_up = {
        "full": lambda: admin.config_set("maxmemory", "1"),
        "read-only": lambda: admin.execute_command("REPLICAOF", "127.0.0.1", "1"),
        "locked": lambda: (admin.config_set("requirepass", "secret"), admin.client_kill_filter(_type="normal")),
    }

    def begin() -> str:
        set_up[how]()
        return REFUSALS[how]

    yield begin
    admin.config_set("maxmemory", "0")
    admin.execute_command("REPLICAOF", "NO", "ONE")
    admin.config_set("requirepass", "")
    admin.close()


def test_signing_in_is_refused_with_the_reason(refusing, browser, account, password):
    """Attempts could not be counted, so no password is checked."""
    account("viewer")
    message = refusing()
    answer = browser().request("POST", "session", {"username": "viewer", "password": password})
    assert (answer.status_code, answer.json()["message"]) == (503, message)


def test_a_page_that_needs_redis_shows_the_reason(refusing, settings, db):
    """A browser gets a page, and a script JSON."""
    settings.NSQ_OIDC = IdentityProvider(issuer="http://127.0.0.1:1", client_id="nsq")
    message = refusing()
    page = Client().get("/signin/oidc", headers={"Accept": "text/html"})
    assert page.status_code == 503
    assert message in page.text
    script = Client().get("/signin/oidc")
    assert (script.status_code, script.json()) == (503, {"message": message})


def test_no_endpoint_fails_with_500(refusing, browser, account):
    """Every GET of the API without a path's parameter answers, or is refused with the reason."""
    account("admin")
    admin = browser()
    assert admin.sign_in("admin").status_code == 200
    paths = [
        path.removeprefix("/api/v1/")
        for path, methods in platform_api.get_openapi_schema()["paths"].items()
        if "get" in methods and "{" not in path
    ]
    assert {"snapshot", "me", "jobs"} <= {*paths}
    message = refusing()
    answers = {path: admin.request("GET", path) for path in paths}
    failed = {path: answer.json() for path, answer in answers.items() if answer.status_code in (500, 503)}
    if failed.get("snapshot") == {"message": NO_SNAPSHOT}:  # reading was not refused, and there is none
        del failed["snapshot"]
    assert failed == {path: {"message": message} for path in failed}
    assert answers["me"].status_code == 200  # the sweep is signed in


def test_nsqadmins_endpoints_are_refused_with_the_reason(refusing, api):
    """For scripts that poll, and that change something."""
    message = refusing()
    answers = [
        api.request("PUT", "/config/nsqlookupd_http_addresses", '["127.0.0.1:1"]'),
        api.get("/api/topics"),
        api.get("/api/nodes"),
    ]
    assert (answers[0].status_code, answers[0].json()) == (503, {"message": message})
    assert 500 not in [answer.status_code for answer in answers]


def test_a_sign_in_link_works_without_redis(refusing, account):
    """The page that reports the error recommends it."""
    link = one_time_link(account("admin"))
    refusing()
    browser = Client()
    assert browser.get(link).status_code == 200
    assert browser.post(link).status_code == 302
    assert browser.get("/api/v1/me").json()["username"] == "admin"
