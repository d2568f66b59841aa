"""Callers of nsqadmin's endpoints: scripts, tokens, sessions, and users that a proxy names; and ``/config``."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.test import Client

from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.accounts.tokens import create_token
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

READS = ["/api/topics", "/api/nodes", "/api/counter", "/api/topics/orders", "/api/graphite", "/config/log_level"]


def attempt(api: Any, **headers: Any) -> int:
    """The status of an action that would be carried out."""
    return int(api.post("/api/topics", {"topic": "fresh"}, **headers).status_code)


@pytest.fixture
def sso(nsqadmin_settings) -> None:
    """A proxy on 10.0.0.1 names users."""
    nsqadmin_settings(admin_user=("alice",), operator_user=("olga",), trusted_proxy_cidr=("10.0.0.1/32",))


# ---- scripts


@pytest.mark.parametrize("path", READS)
def test_by_default_nobody_gets_in_without_signing_in(go_cluster, locked_api, path):
    """Nothing is open by default."""
    answer = locked_api.get(path)
    assert (answer.status_code, answer.text) == (401, '{"message":"UNAUTHORIZED"}')
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert attempt(locked_api) == 401
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.parametrize(
    ("role", "read", "write", "configure"),
    [("viewer", 200, 403, 403), ("operator", 200, 200, 403), ("admin", 200, 200, 200)],
)
def test_the_script_role_opens_just_so_far(go_cluster, locked_api, nsqadmin_settings, role, read, write, configure):
    """Scripts for nsqadmin, which cannot sign in, work with ``--script-role``."""
    nsqadmin_settings(script_role=role)
    assert locked_api.get("/api/topics").status_code == read
    assert attempt(locked_api) == write
    assert locked_api.request("PUT", "/config/log_level", "info").status_code == configure


def test_scripts_from_elsewhere_are_refused(go_cluster, api, nsqadmin_settings):
    """Only this machine's are, unless a network is given."""
    assert api.get("/api/topics", peer="10.0.0.9").status_code == 401
    nsqadmin_settings(script_cidr=("10.0.0.0/8",))
    assert api.get("/api/topics", peer="10.0.0.9").status_code == 200
    assert api.get("/api/topics", peer="::ffff:10.0.0.9").status_code == 200
    assert api.get("/api/topics").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Origin": "null"}],
)
def test_another_sites_page_cannot_use_its_visitors_script_role(go_cluster, api, headers):
    """A browser can be made to post here; it sends the page's origin."""
    assert attempt(api, **headers) == 403
    assert attempt(api, Origin="http://localhost") == 200


@pytest.mark.parametrize("origin", ["http://localhost:80", "HTTP://LOCALHOST"])
def test_a_page_of_this_site_may_name_the_default_port(go_cluster, api, origin):
    """The origin is compared as it is for websockets: by host and port, not as text."""
    assert attempt(api, Origin=origin) == 200


@pytest.mark.parametrize("host", ["evil.example", "evil_name.example", "evil.example/", "localhost@evil.example"])
def test_a_name_that_was_pointed_at_us_is_refused(go_cluster, api, host):
    """A page of that name could otherwise read and do what a script may."""
    answer = api.get("/api/topics", Host=host)
    assert (answer.status_code, answer.json()["message"]) == (400, "INVALID_HOST")


def test_actions_of_scripts_are_in_the_audit_trail(go_cluster, api, browser, account):
    api.post("/api/topics", {"topic": "orders"})
    account("viewer")
    viewer = browser()
    viewer.sign_in("viewer")
    [entry] = viewer.request("GET", "audit?object=orders").json()["entries"]
    assert (entry["user"], entry["action"], entry["topic"], entry["remote_address"]) == (
        *("script", "create", "orders"),
        "127.0.0.1",
    )


# ---- tokens and sessions


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 200), ("admin", 200)])
def test_a_token_acts_for_its_account(go_cluster, locked_api, account, role, status):
    """From anywhere, under any of the platform's names."""
    token = create_token(user=account(role), name="cron")
    bearer = {"Authorization": f"Bearer {token}", "Host": "nsq.example"}
    assert locked_api.get("/api/topics", peer="10.9.9.9", **bearer).status_code == 200
    assert attempt(locked_api, peer="10.9.9.9", **bearer) == status


def test_a_token_that_is_not_ours_is_refused_even_where_scripts_are_not(go_cluster, api):
    """An invalid token is not replaced by the script role."""
    assert api.get("/api/topics", Authorization="Bearer nonsense").status_code == 401


def test_a_session_reads_and_needs_its_csrf_token_to_act(go_cluster, locked_api, account):
    user = account("operator")
    client = Client()
    client.force_login(user)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    assert locked_api.get("/api/topics", Cookie=cookie).status_code == 200
    assert attempt(locked_api, Cookie=cookie) == 403
    secret = "a" * 32
    assert attempt(locked_api, Cookie=f"{cookie}; csrftoken={secret}", X_CSRFToken=secret) == 200


def test_each_action_of_a_session_needs_its_csrf_token(go_cluster, locked_api, callers, account):
    """An earlier request with the token does not admit one without it, although the account is cached for a second.
    The refusal names the account, as at the API."""
    operator = callers("operator").headers
    cookie = {"Cookie": operator["Cookie"]}
    assert attempt(locked_api, **operator) == 200
    assert attempt(locked_api, **cookie) == 403
    assert locked_api.post("/api/v1/actions", {"action": "pause", "topic": "fresh"}, **cookie).status_code == 403
    kept = AuditEntry.objects.filter(outcome="refused").values_list("user", "topic", "subject")
    assert sorted(kept) == [
        ("operator", "fresh", "POST /api/topics"),
        ("operator", "fresh", "POST /api/v1/actions"),
    ]


@pytest.mark.parametrize("path", ["/api/topics", "/api/v1/actions"])
def test_a_body_above_the_limit_is_refused_at_every_door(go_cluster, locked_api, callers, settings, path):
    """The limit is the platform's."""
    operator = callers("operator").headers
    body = {"topic": "fresh", "action": "create", "ignored": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE}
    assert locked_api.post(path, body, **operator).status_code == 413
    body["ignored"] = "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2)
    assert locked_api.post(path, body, **operator).status_code == 200


# ---- users that a proxy names


@pytest.mark.parametrize(("name", "act", "configure"), [("alice", 200, 200), ("olga", 200, 403), ("bob", 403, 403)])
def test_users_that_a_trusted_proxy_names_have_their_roles(
    go_cluster, locked_api, nsqadmin_settings, sso, name, act, configure
):
    """The listed ones are admins and operators; all others are viewers."""
    nsqadmin_settings(allow_config_from_cidr="")
    proxied = {"peer": "10.0.0.1", "X_Forwarded_User": name}
    assert locked_api.get("/api/topics", **proxied).status_code == 200
    assert attempt(locked_api, **proxied) == act
    changed = locked_api.request("PUT", "/config/log_level", "info", **proxied)
    assert changed.status_code == configure
    if act == 403:
        assert changed.json() == {"message": "FORBIDDEN"}


def test_the_header_is_not_trusted_from_elsewhere(go_cluster, locked_api, sso, caplog):
    """A caller that bypasses the proxy is anonymous, and the attempt is logged."""
    for peer in ("127.0.0.1", "10.0.0.2", "::1"):
        assert locked_api.get("/api/topics", peer=peer, X_Forwarded_User="alice").status_code == 401
        assert attempt(locked_api, peer=peer, X_Forwarded_User="alice") == 401
    assert {record.peer for record in caplog.records if "not trusted" in getattr(record, "detail", "")} == {
        "127.0.0.1",
        "10.0.0.2",
        "::1",
    }
    assert not User.objects.exists()


def test_without_a_named_user_the_header_means_nothing(go_cluster, locked_api):
    assert locked_api.get("/api/topics", X_Forwarded_User="alice").status_code == 401


def test_a_proxied_request_without_a_user_is_anonymous(go_cluster, locked_api, sso):
    assert locked_api.get("/api/topics", peer="10.0.0.1").status_code == 401
    assert locked_api.get("/api/topics", peer="10.0.0.1", X_Forwarded_User="").status_code == 401


@pytest.mark.parametrize("door", [("DELETE", "/api/topics/orders"), ("POST", "/api/v1/actions")], ids=" ".join)
def test_of_several_credentials_the_same_one_counts_at_every_door(door, locked_api, sso, callers, caplog):
    """The token; without one, the name that a trusted proxy sends; without both, the session. An invalid token is
    refused, whatever is beside it. All of these are viewers, whose refused request names the account."""
    method, path = door
    caplog.set_level(logging.WARNING, logger="nsqplatform.accounts.audit")
    session = callers("viewer").headers
    proxy = {"X_Forwarded_User": "bob"}
    tom = User.objects.create(username="tom", role="viewer")
    token = {"Authorization": f"Bearer {create_token(user=tom, name='script')}"}
    for headers, status, name in (
        (session | proxy | token, 403, "tom"),
        (session | token, 403, "tom"),
        (proxy | token, 403, "tom"),
        (session | proxy, 403, "bob"),
        (session, 403, "viewer"),
        (session | proxy | {"Authorization": "Bearer nsq_none"}, 401, None),
    ):
        caplog.clear()
        answer = locked_api.request(method, path, {}, peer="10.0.0.1", **headers)
        assert answer.status_code == status, (headers, answer.text)
        assert "token" in answer.text or status == 403
        (refused,) = (record for record in caplog.records if record.message == "refused")
        assert name in (None, refused.user), headers


def test_other_users_can_be_refused(go_cluster, locked_api, sso, nsqadmin_settings):
    nsqadmin_settings(header_role="none")
    assert locked_api.get("/api/topics", peer="10.0.0.1", X_Forwarded_User="bob").status_code == 401


def test_the_header_may_have_another_name(go_cluster, locked_api, sso, nsqadmin_settings):
    nsqadmin_settings(acl_http_header="X-Remote-User")
    assert locked_api.get("/api/topics", peer="10.0.0.1", X_Forwarded_User="alice").status_code == 401
    assert locked_api.get("/api/topics", peer="10.0.0.1", X_Remote_User="alice").status_code == 200


def test_a_role_given_by_settings_ends_with_them(go_cluster, locked_api, sso, nsqadmin_settings):
    """It is not stored in the account."""
    proxied = {"peer": "10.0.0.1", "X_Forwarded_User": "alice"}
    assert attempt(locked_api, **proxied) == 200
    nsqadmin_settings(admin_user=("carol",))
    assert User.objects.get(username="alice").role == "viewer"


def test_a_closed_account_stays_closed(go_cluster, locked_api, sso, account):
    user = account("viewer", "alice")
    user.is_active = False
    user.save()
    assert locked_api.get("/api/topics", peer="10.0.0.1", X_Forwarded_User="alice").status_code == 401


def test_the_pages_and_the_platforms_api_know_the_header_too(sso, settings, tmp_path):
    """Without a password; a change still needs the CSRF token."""
    (tmp_path / "index.html").write_text("the app")
    settings.FRONTEND_DIST = tmp_path
    proxied = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_USER": "alice"}
    client = Client(enforce_csrf_checks=True, **proxied)
    assert client.get("/nodes", HTTP_ACCEPT="text/html").status_code == 200
    me = client.get("/api/v1/me").json()
    assert (me["username"], me["role"]) == ("alice", "admin")
    body = {"action": "pause", "topic": "nowhere"}
    assert client.post("/api/v1/actions", body, content_type="application/json").status_code == 403
    spoofed = Client(REMOTE_ADDR="10.0.0.2", HTTP_X_FORWARDED_USER="alice")
    assert spoofed.get("/api/v1/me").status_code == 401


def test_a_proxied_users_browser_cannot_be_used_by_another_site(go_cluster, locked_api, sso):
    """The proxy adds the header to every request of the browser."""
    proxied = {"peer": "10.0.0.1", "X_Forwarded_User": "alice"}
    assert attempt(locked_api, **proxied, Origin="https://evil.example") == 403


# ---- /config


def test_settings_are_read_by_their_file_keys(go_cluster, api, nsqadmin_settings):
    """Strings are plain, lists are JSON, durations are nanoseconds, the level is a number."""
    nsqadmin_settings(graphite_url="http://graphite/x", admin_user=())
    shown = {
        "graphite_url": "http://graphite/x",
        "statsd_interval": "60000000000",
        "proxy_graphite": "false",
        "admin_users": "[]",
        "nsqlookupd_http_addresses": f'["{go_cluster.registry.address}"]',
        "acl_http_header": "X-Forwarded-User",
    }
    assert {option: api.get(f"/config/{option}").text for option in shown} == shown
    assert api.get("/config/log_level").text in "12345"


@pytest.mark.parametrize("option", ["admin_user", "nope", "config", "version"])
def test_an_unknown_option_is_invalid(api, option):
    for answer in (api.get(f"/config/{option}"), api.request("PUT", f"/config/{option}", "x")):
        assert (answer.status_code, answer.json()) == (400, {"message": "INVALID_OPTION"})


@pytest.mark.parametrize(
    ("option", "body", "status"),
    [
        ("log_level", "", 413),
        ("log_level", "x" * ((1 << 20) + 1), 413),
        ("log_level", "loud", 400),
        ("nsqlookupd_http_addresses", "{", 400),
        ("nsqlookupd_http_addresses", "7", 400),
        ("nsqlookupd_http_addresses", "[7]", 400),
    ],
)
def test_a_value_that_cannot_be_used_is_invalid(api, option, body, status):
    answer = api.request("PUT", f"/config/{option}", body)
    assert (answer.status_code, answer.json()) == (status, {"message": "INVALID_VALUE"})


def test_other_registries_are_asked_from_now_on(go_cluster, api, collect, snapshot):
    """The endpoints use them at once, the collector soon; an empty list leaves the configured nodes."""
    from tests.platform.go_nsq import GoNode, GoRegistry

    node = GoNode("gamma")
    node.topic("elsewhere")
    other = GoRegistry([node])
    answer = api.request("PUT", "/config/nsqlookupd_http_addresses", f'["{other.address}"]')
    assert (answer.status_code, answer.text) == (200, f'["{other.address}"]')
    assert api.get("/api/topics").json()["topics"] == ["elsewhere"]
    collect()
    wait_until(lambda: [row["id"] for row in (snapshot() or {"nodes": []})["nodes"]] == [node.address], "its node")
    assert api.request("PUT", "/config/nsqlookupd_http_addresses", "[]").text == "[]"
    assert api.request("PUT", "/config/nsqlookupd_http_addresses", "null").text == "null"
    assert api.get("/config/nsqlookupd_http_addresses").text == "null"
    assert api.get("/api/nodes").json()["nodes"] is None, "no registry is asked"
    wait_until(lambda: api.get("/api/topics").json().get("topics") is None, "no registry, no node")
    node.stop()
    other.stop()


def test_the_log_level_is_changed_in_any_case(api):
    """It is shown as its number."""
    before = api.get("/config/log_level").text
    assert api.request("PUT", "/config/log_level", "WARN").text == "3"
    assert api.get("/config/log_level").text == "3"
    words = {"1": "debug", "2": "info", "3": "warn", "4": "error", "5": "fatal"}
    assert api.request("PUT", "/config/log_level", words[before]).text == before


def test_config_is_for_the_given_network(api, nsqadmin_settings):
    """The connection's own address counts, not a header."""
    nsqadmin_settings(script_cidr=("0.0.0.0/0",))
    for method in ("GET", "PUT"):
        answer = api.request(method, "/config/log_level", "info", peer="10.0.0.1", X_Forwarded_For="127.0.0.1")
        assert (answer.status_code, answer.json()) == (403, {"message": "FORBIDDEN"})
    nsqadmin_settings(allow_config_from_cidr="10.0.0.0/8")
    assert api.get("/config/log_level", peer="10.0.0.1").status_code == 200
    nsqadmin_settings(allow_config_from_cidr="")
    assert api.get("/config/log_level", peer="192.168.0.1").status_code == 200
