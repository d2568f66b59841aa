"""Bodies that say they are forms, which no endpoint of the API takes, through Daphne."""

from __future__ import annotations

import pytest

from tests.harness import web as http
from tests.platform.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=b"])
@pytest.mark.parametrize("name", ["operator", "operator's token", "stranger"])
def test_a_form_that_cannot_be_read_is_refused_with_a_message(web, callers, name: str, kind: str) -> None:
    """Twisted would answer 400 without a body, and Django with a page."""
    caller: Caller = callers(name)
    answer = http.post(
        f"{web.base}/api/v1/alerts/acknowledge",
        content=b'{"alerts": [1]}',
        headers={**caller.as_sent, "Content-Type": kind},
    )
    assert 400 <= answer.status_code < 500
    assert answer.json()["message"]
