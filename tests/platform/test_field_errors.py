"""A 422 of the API names the fields at fault as structure, beside the text that people read."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.django_db, pytest.mark.database]

RULE = {"name": "Backlog", "scope": "channel", "metric": "depth", "comparison": "above", "threshold": 1.0}
SCHEDULE = {"name": "daily", "job": "latency", "cron": "0 6 * * *"}


@pytest.fixture
def admin(browser, account) -> Any:
    account("admin", "ada")
    person = browser()
    assert person.sign_in("ada").status_code == 200
    return person


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        ("POST", "alerts/rules", RULE | {"threshold": "lots", "hold_s": -1}, ["threshold", "hold_s"]),
        ("POST", "alerts/rules", RULE | {"topic_pattern": "a b"}, ["topic_pattern"]),
        ("POST", "alerts/rules", RULE | {"notifiers": [7]}, ["notifiers.0"]),
        ("POST", "alerts/notifiers", {"name": "ops", "kind": "webhook", "url": "ftp://x"}, ["url"]),
        ("POST", "alerts/silences", {"reason": "x", "ends_at": 1, "topic_pattern": "a"}, ["ends_at"]),
        ("POST", "people", {"username": "ada", "role": "viewer"}, ["username"]),
        ("POST", "people", {"username": "bob", "role": "operator", "topic_patterns": ["a b"]}, ["topic_patterns"]),
        ("POST", "account/tokens", {"name": "cron", "role": "viewer", "expires_at": 1}, ["expires_at"]),
        ("PUT", "account/password", {"current_password": "no", "new_password": "x"}, ["current_password"]),
        ("POST", "messages", {"topic": "orders", "bodies": ["x", ""]}, ["bodies.1"]),
        ("POST", "messages", {"topic": "a b", "bodies": ["x"]}, ["topic"]),
        ("POST", "reports/schedules", SCHEDULE | {"cron": "61 * * * *"}, ["cron"]),
        ("POST", "reports/schedules", SCHEDULE | {"notify_email": "bob"}, ["notify_email"]),
        ("POST", "reports/schedules", SCHEDULE | {"parameters": {"window": "7m"}}, ["parameters.window"]),
        ("POST", "reports/runs", {"job": "latency", "parameters": {"window": "7m"}}, ["parameters.window"]),
        ("POST", "reports/runs", {"job": "latency", "parameters": {"topic": "x" * 501}}, ["parameters.topic"]),
        ("POST", "reports/runs", {"job": "latency", "parameters": {"topic": ["x"]}}, ["parameters.topic"]),
        ("POST", "reports/runs", {"job": "latencies"}, ["job"]),
        ("GET", "reports/schedules/preview?cron=61+*+*+*+*", None, ["cron"]),
        ("GET", "clients?limit=0", None, ["limit"]),
    ],
)
def test_an_invalid_request_names_its_fields(admin, method, path, body, fields):
    """Each field comes with its own text, and ``message`` contains all of them."""
    answer = admin.request(method, path, body)
    assert answer.status_code == 422
    errors = answer.json()["field_errors"]
    assert [error["field"] for error in errors] == fields
    assert all(error["message"] for error in errors)
    assert "Value error" not in answer.text, "pydantic's words"
    assert answer.json()["message"] == "; ".join(f"{error['field']}: {error['message']}" for error in errors)


def test_each_weakness_of_a_password_is_an_error_of_its_own(admin, password):
    """The field is named once for each."""
    body = {"current_password": password, "new_password": "1234567"}
    errors = admin.request("PUT", "account/password", body).json()["field_errors"]
    assert {error["field"] for error in errors} == {"new_password"}
    assert len(errors) > 1


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("alerts/silences", {"reason": "x", "ends_at": 1 << 40}, "a silence needs a rule or a pattern; "),
        ("reports/schedules", {"name": "x", "job": "latency"}, "a schedule has either cron or every_seconds"),
    ],
)
def test_an_invalid_request_as_a_whole_names_no_field(admin, path, body, message):
    """``field_errors`` is empty then."""
    answer = admin.request("POST", path, body)
    assert (answer.status_code, answer.json()["field_errors"]) == (422, [])
    assert answer.json()["message"].startswith(message)


def test_the_schema_declares_field_errors_for_every_422():
    """The web app's types are generated from it."""
    from nsqplatform.console.api import api

    schema = api.get_openapi_schema()
    bodies = {
        operation["responses"][422]["content"]["application/json"]["schema"]["$ref"]
        for path in schema["paths"].values()
        for operation in path.values()
        if 422 in operation["responses"]
    }
    assert bodies == {"#/components/schemas/InvalidRequest"}
    assert schema["components"]["schemas"]["InvalidRequest"]["required"] == ["message", "field_errors"]
