"""The answer to a request for a host name that is not the platform's says what to set."""

from __future__ import annotations

import pytest
from django.core.exceptions import SuspiciousOperation
from django.test import Client, RequestFactory

from nsqplatform.console.refusals import bad_request

PAGE = {"Accept": "text/html,*/*;q=0.8"}


def get(host: str, path: str = "/", **headers: str):
    return Client().get(path, headers={"Host": host, **headers})


@pytest.mark.parametrize("path", ["/", "/topics", "/signin", "/no/such/page"])
def test_a_page_names_the_variable_and_its_value(path):
    """Whatever page was asked for, and whatever the port."""
    answer = get("nsq.example.org:4171", path, **PAGE)
    assert answer.status_code == 400
    assert "This platform does not answer to nsq.example.org" in answer.text
    assert "<code>NSQ_ALLOWED_HOSTS=nsq.example.org</code>" in answer.text


def test_a_script_gets_the_same_as_json():
    answer = get("nsq.example.org", "/api/v1/me")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/json")
    assert answer.json()["message"] == (
        'this platform does not answer to the host name "nsq.example.org": NSQ_ALLOWED_HOSTS has to name it'
    )


@pytest.mark.parametrize("host", ["<script>", "a b", "nsq_example!"])
def test_what_is_no_host_name_is_not_repeated(host):
    answer = get(host, **PAGE)
    assert answer.status_code == 400
    assert host not in answer.text
    assert "The request has no valid host name" in answer.text


def test_other_bad_requests_are_answered_as_ever():
    """They are not about the host name."""
    request = RequestFactory().get("/", headers=PAGE)
    answer = bad_request(request, SuspiciousOperation("too many fields"))
    assert answer.status_code == 400
    assert b"NSQ_ALLOWED_HOSTS" not in answer.content
