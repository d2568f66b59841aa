"""Ranges of time and of numbers in requests to the API."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.django_db

RANGES = {
    "events": ("since", "until"),
    "audit": ("since", "until"),
    "audit/export.csv": ("since", "until"),
    "audit/export.json": ("since", "until"),
    "history?scope=cluster": ("from", "to"),
    "marks": ("since", "until"),
    "messages/9a40000000000000/life?topic=orders": ("from", "to"),
    "reports/runs/1/result": ("since", "until"),
    "reports/runs/1/result/series?figures=p99": ("since", "until"),
    "reports/runs/1/result/heat": ("since", "until"),
    "reports/runs/1/result/calendar?objective=latency": ("since", "until"),
}


@pytest.fixture
def page(browser, account):
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    return page


def test_every_range_of_the_api_is_in_this_test():
    """An endpoint that is added with a range needs an entry."""
    from nsqplatform.console.api import api

    ranges = set()
    for path, methods in api.get_openapi_schema()["paths"].items():
        names = {each["name"] for each in methods.get("get", {}).get("parameters", ())}
        if {"since", "until"} <= names or {"from", "to"} <= names:
            path = path.removeprefix("/api/v1/").replace("{id}", "9a40000000000000")
            ranges.add(re.sub(r"\{(int:)?run_id\}", "1", path))
    assert ranges == {each.partition("?")[0] for each in RANGES}


@pytest.mark.parametrize("path", RANGES)
def test_a_range_that_ends_before_it_begins_is_refused(page, path):
    """With 422, as any request that is not understood, and both parameters by name."""
    first, last = RANGES[path]
    times = {first: 1_700_000_000_000, last: 1_600_000_000_000}
    if path.startswith(("history", "messages")):
        times = {name: at // 1000 for name, at in times.items()}
    query = "&".join(f"{name}={at}" for name, at in times.items())
    answer = page.request("GET", f"{path}{'&' if '?' in path else '?'}{query}")
    assert answer.status_code == 422, answer.content
    refusal = answer.json()
    assert {each["field"] for each in refusal["field_errors"]} == {first, last}
    assert first in refusal["message"]
    assert last in refusal["message"]


def test_every_number_of_a_query_has_bounds():
    """Without them, a number that the database cannot store is an internal error."""
    from nsqplatform.console.api import api

    unbounded = []
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                kinds = parameter["schema"].get("anyOf", [parameter["schema"]])
                numbers = [kind for kind in kinds if kind.get("type") in ("integer", "number")]
                if parameter["in"] == "query" and not all(
                    kind.keys() & {"maximum", "exclusiveMaximum"} and kind.keys() & {"minimum", "exclusiveMinimum"}
                    for kind in numbers
                ):
                    unbounded.append(f"{method} {path}: {parameter['name']}")
    assert not unbounded, "\n".join(unbounded)


@pytest.mark.parametrize("name", ["before", "schedule"])
def test_a_number_that_no_database_can_store_is_refused(page, name):
    """422, with its name."""
    answer = page.request("GET", f"reports/runs?{name}={10**30}")
    assert answer.status_code == 422, answer.content
    assert name in answer.json()["message"]


def test_an_id_that_no_database_can_store_is_not_found(browser, account):
    """404, at every address with one number."""
    from nsqplatform.console.api import api

    account("admin")
    page = browser()
    page.sign_in("admin")
    paths = [
        path.removeprefix("/api/v1/")
        for path, methods in api.get_openapi_schema()["paths"].items()
        if "get" in methods and len(re.findall(r"\{", path)) == 1 and re.search(r"\{(int:)?\w+_id\}", path)
    ]
    assert len(paths) > 5
    addresses = {path: re.sub(r"\{[^}]*\}", str(10**30), path) + "?figures=p99&objective=latency" for path in paths}
    answers = {path: page.request("GET", address).status_code for path, address in addresses.items()}
    assert answers == dict.fromkeys(paths, 404)
