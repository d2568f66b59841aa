"""Requests to the API whose content type is that of a form, through Daphne. The API reads JSON whatever the type."""

from __future__ import annotations

import httpx
import pytest

from tests.harness import web as http
from tests.platform.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)

FORMS = ["multipart/form-data", "multipart/form-data; boundary=b", "application/x-www-form-urlencoded"]
JSON = b'{"alerts": [1]}'


def acknowledge(base: str, caller: Caller, kind: str, content: bytes = JSON) -> httpx.Response:
    headers = {**caller.as_sent, "Content-Type": kind}
    return http.post(f"{base}/api/v1/alerts/acknowledge", content=content, headers=headers)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("name", ["operator's token", "stranger"])
def test_a_body_that_is_no_form_is_answered_as_json(web, callers, name: str, kind: str) -> None:
    """Also if it cannot be read as a form: the server, which would answer 400 without a body, does not try."""
    caller = callers(name)
    as_json, as_form = acknowledge(web.base, caller, "application/json"), acknowledge(web.base, caller, kind)
    assert (as_form.status_code, as_form.json()) == (as_json.status_code, as_json.json())


@pytest.mark.parametrize(
    ("kind", "content"), [(FORMS[0], JSON), (FORMS[1], b"--b\r\nx"), (FORMS[2], b"&".join([b"a=b"] * 1001))]
)
def test_a_form_of_a_session_is_refused_with_a_message(web, callers, kind: str, content: bytes) -> None:
    """Django looks for the CSRF token of a session in it; after that, the body is gone."""
    answer = acknowledge(web.base, callers("operator"), kind, content)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["message"]
