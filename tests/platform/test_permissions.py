"""Every endpoint, for every caller: refused requests are audited.

A new endpoint is found by itself, and fails here until it says whom it is for.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from django.urls import get_resolver
from ninja.constants import NOT_SET

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.console.api import UNDECLARED, api
from nsqplatform.nsqadmin.api import Endpoints
from tests.platform.callers import CALLERS, Caller

pytestmark = pytest.mark.django_db(transaction=True)

PUBLIC = {("POST", "/api/v1/session")}
"""What answers a stranger."""
OWN = {"/api/v1/account/", "/api/v1/session", "/api/v1/views"}
"""What everybody may change: their own."""
URLS = {
    "ping",
    "api/v1/",
    r"^api(?:/[\s\S]*)?$",
    "signin/oidc",
    "signin/oidc/callback",
    "signin/<str:token>",
    r"^(?!static/|ws/)[\s\S]*$",
}
NSQADMIN = {
    ("GET", "/ping"): None,
    ("GET", "/api/topics"): Permission.VIEW,
    ("GET", "/api/topics/:1"): Permission.VIEW,
    ("GET", "/api/topics/:1/:2"): Permission.VIEW,
    ("GET", "/api/nodes"): Permission.VIEW,
    ("GET", "/api/nodes/:1"): Permission.VIEW,
    ("GET", "/api/counter"): Permission.VIEW,
    ("GET", "/api/graphite"): Permission.VIEW,
    ("GET", "/render"): Permission.VIEW,
    ("POST", "/api/topics"): Permission.ACT,
    ("POST", "/api/topics/:1"): Permission.ACT,
    ("POST", "/api/topics/:1/:2"): Permission.ACT,
    ("DELETE", "/api/topics/:1"): Permission.ACT,
    ("DELETE", "/api/topics/:1/:2"): Permission.ACT,
    ("DELETE", "/api/nodes/:1"): Permission.ACT,
    ("GET", "/config/:1"): Permission.VIEW,
    ("PUT", "/config/:1"): Permission.ADMINISTER,
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Endpoint(NamedTuple):
    method: str
    path: str
    permission: Permission | None
    by_token: bool = True

    @property
    def concrete(self) -> str:
        """Its path with ids that do not exist, and a topic that an operator of ``orders.*`` may change."""
        path = re.sub(r"\{(?:int:)?\w+\}", "999999", self.path)
        return path.replace(":1", "orders.eu").replace(":2", "billing")


def ours() -> Iterator[tuple[Endpoint, Any]]:
    """The platform's own endpoints, from its routers, and the permission that each requires."""
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            full = "/api/v1/" + "/".join(part for part in (prefix.strip("/"), path.strip("/")) if part)
            for operation in view.operations:
                checks = operation.auth_callbacks
                if operation.auth_param is NOT_SET:
                    checks = UNDECLARED if router.auth is NOT_SET else router.auth
                for method in operation.methods:
                    permission = checks[0].permission if checks else None
                    yield Endpoint(method, full, permission, not checks or checks[0].enough), checks


def nsqadmins() -> Iterator[Endpoint]:
    for method, path in Endpoints().router.routes():
        yield Endpoint(method, path, NSQADMIN[method, path])


def everything() -> list[Endpoint]:
    found = [endpoint for endpoint, _ in ours()] + list(nsqadmins())
    # Signing out comes last: the caller is a stranger afterwards.
    return sorted(found, key=lambda endpoint: (endpoint.path == "/api/v1/session", endpoint))


# ---- what is declared


def test_every_endpoint_declares_its_permission():
    """By ``auth=needs(…)``; endpoints for strangers are listed here."""
    for endpoint, checks in ours():
        name = f"{endpoint.method} {endpoint.path}"
        if (endpoint.method, endpoint.path) in PUBLIC:
            assert not checks, name
        else:
            assert checks, f"{name} answers strangers"
            assert checks[0] is not UNDECLARED[0], f"{name} does not say auth=needs(...)"


def test_changes_require_more_than_the_right_to_look():
    """Except for one's own account."""
    for endpoint, _ in ours():
        if endpoint.method != "GET" and (endpoint.method, endpoint.path) not in PUBLIC:
            own = any(endpoint.path.startswith(prefix) for prefix in OWN)
            assert own or endpoint.permission is not Permission.VIEW, endpoint


def test_nsqadmins_endpoints_are_those_listed_here():
    """A new one must be added here, with its permitted callers."""
    assert set(Endpoints().router.routes()) <= set(NSQADMIN)


def test_there_are_no_other_paths():
    """All other paths of the web process are pages and sign-in links."""
    assert {str(pattern.pattern) for pattern in get_resolver().url_patterns} == URLS


# ---- what is granted


def granted(caller: Caller, endpoint: Endpoint) -> bool:
    if endpoint.permission is None:
        return True
    return caller.may(endpoint.permission) and (endpoint.by_token or not caller.token)


def check_each_endpoint(
    caller: Caller, api: Any, caplog: Any, *, granted: Callable[[Endpoint], bool], below: str = ""
) -> None:
    """Send each method to each path ``below`` a prefix: it is carried out if it is ``granted``, else refused and
    logged."""
    caplog.set_level(logging.WARNING, logger="nsqplatform.accounts.audit")
    offered = {(endpoint.method, endpoint.path): endpoint for endpoint in everything()}
    for method, path in itertools.product(METHODS, dict.fromkeys(path for _, path in offered)):
        endpoint = offered.get((method, path))
        concrete = (endpoint or Endpoint(method, path, None)).concrete
        if path == "/api/v1/session" and method == "DELETE" and caller.user is not None:
            continue  # it has a test of its own: it signs the caller out
        caplog.clear()
        answer = api.request(method, below + concrete, {} if method != "GET" else None, **caller.headers)
        said = (caller.name, method, below + concrete, answer.status_code, answer.text[:200])
        if endpoint is None:
            assert answer.status_code in (404, 405), said
        elif granted(endpoint):
            assert answer.status_code not in (401, 403, 500), said
        else:
            assert answer.status_code == (401 if caller.user is None else 403), said
            refusals = [record for record in caplog.records if record.message == "refused"]
            assert [record.subject for record in refusals] == [f"{method} {concrete}"], said
            assert refusals[0].user == (caller.user.username if caller.user else ""), said
            assert refusals[0].peer == "127.0.0.1"


ON_EVERY_DATABASE = ("viewer", "admin's token")
"""The callers whose requests together execute all statements that the requests of all callers execute."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.database] if name in ON_EVERY_DATABASE else []) for name in CALLERS],
)
def test_nobody_gets_more_than_their_role(name, callers, locked_api, go_cluster, caplog, nsqadmin_settings):
    """Each endpoint and method either refuses with 401 or 403 and logs it, or carries the request out."""
    caller = callers(name)
    check_each_endpoint(caller, locked_api, caplog, granted=partial(granted, caller))
    if caller.user is None or caller.user.role == Role.VIEWER:
        assert all(upstream.posts == [] for upstream in go_cluster.everything)


def test_refused_requests_are_in_the_audit_trail(callers, locked_api, go_cluster):
    """Requests of known users, and changes attempted by strangers; once a minute, to limit its size."""
    viewer = callers("viewer")
    body = {"action": "delete", "topic": "orders.eu", "channel": "billing"}
    for _ in range(3):
        assert locked_api.post("/api/v1/actions", body, **viewer.headers).status_code == 403
        assert locked_api.delete("/api/topics/orders.eu", **viewer.headers).status_code == 403
        assert locked_api.post("/api/v1/actions", body).status_code == 401
        assert locked_api.get("/api/v1/me").status_code == 401
    kept = AuditEntry.objects.filter(outcome="refused").values_list("user", "via", "action", "topic", "subject")
    assert sorted(kept) == [
        ("", "", "delete", "orders.eu", "POST /api/v1/actions"),
        ("viewer", "session", "delete", "orders.eu", "POST /api/v1/actions"),
        ("viewer", "session", "request", "", "DELETE /api/topics/orders.eu"),
    ]


# ---- topics


ACTIONS: dict[str, Callable[[Any, str, dict[str, str]], Any]] = {
    "the API": lambda api, topic, who: api.post("/api/v1/actions", {"action": "pause", "topic": topic}, **who),
    "nsqadmin's create": lambda api, topic, who: api.post("/api/topics", {"topic": topic}, **who),
    "nsqadmin's action": lambda api, topic, who: api.post(f"/api/topics/{topic}", {"action": "pause"}, **who),
    "nsqadmin's channel action": lambda api, topic, who: api.post(
        f"/api/topics/{topic}/billing", {"action": "pause"}, **who
    ),
    "nsqadmin's delete": lambda api, topic, who: api.delete(f"/api/topics/{topic}", **who),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("by", ["limited", "limited's token"])
def test_an_operator_of_some_topics_acts_on_no_others(action, by, callers, locked_api, go_cluster):
    """On every endpoint; what they may look at is not limited."""
    for topic in ("orders.eu", "invoices"):
        go_cluster.nodes[0].channel(topic, "billing")
    who = callers(by).headers
    refused = ACTIONS[action](locked_api, "invoices", who)
    assert refused.status_code == 403, refused.text
    assert all(upstream.posts == [] for upstream in go_cluster.everything)
    assert AuditEntry.objects.get(outcome="refused").user == "limited"
    assert locked_api.get("/api/topics/invoices", **who).status_code == 200
    assert ACTIONS[action](locked_api, "orders.eu", who).status_code == 200


# ---- input


def text_fields() -> Iterator[tuple[str, str, str, str]]:
    """``(method, path, "query" or "body", field)`` of every text field of the API."""
    schema = api.get_openapi_schema()
    models = schema["components"]["schemas"]

    def is_text(part: dict[str, Any]) -> bool:
        if "$ref" in part:
            return is_text(models[part["$ref"].rsplit("/", 1)[1]])
        return part.get("type") == "string" or any(is_text(each) for each in part.get("anyOf", []))

    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query" and is_text(parameter["schema"]):
                    yield method.upper(), path, "query", parameter["name"]
            content = operation.get("requestBody", {}).get("content", {})
            for media in content.values():
                body = media["schema"]
                properties = models[body["$ref"].rsplit("/", 1)[1]]["properties"] if "$ref" in body else {}
                for field, part in properties.items():
                    if is_text(part):
                        yield method.upper(), path, "body", field


def test_every_text_field_has_a_maximum_length(callers, locked_api, redis):
    """Each field has a limit, and the error names the field."""
    admin = callers("admin")
    found = list(text_fields())
    assert ("POST", "/api/v1/people", "body", "username") in found
    for method, path, where, field in found:
        concrete = re.sub(r"\{\w+\}", "999999", path)
        much = "x" * 20_000
        if where == "query":
            answer = locked_api.request(method, f"{concrete}?{field}={much}", **admin.headers)
        else:
            answer = locked_api.request(method, concrete, {field: much}, **admin.headers)
        said = (method, path, field, answer.status_code, answer.text[:300])
        assert answer.status_code == 422, said
        assert f"{field}:" in answer.json()["message"], said


@pytest.mark.parametrize("length", [16 << 20, 1 << 25])
def test_a_body_that_is_far_too_long_is_refused(length, callers, locked_api):
    """Before it is parsed."""
    admin = callers("admin")
    body = b'{"username":"' + b"x" * length + b'"}'
    answer = locked_api.request("POST", "/api/v1/people", body, Content_Type="application/json", **admin.headers)
    assert answer.status_code == 413
    assert "at most" in answer.json()["message"]
