"""What every request of the API may have as a number, and as a pattern of names."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from nsqplatform.accounts.schemas import Body
from nsqplatform.console.api import api
from nsqplatform.patterns import is_pattern, matcher


def bodies() -> set[type[BaseModel]]:
    """The models of all requests' bodies, and those in them."""
    found: set[type[BaseModel]] = set()
    waiting: list[Any] = [
        model
        for _, router in api._routers
        for path in router.path_operations.values()
        for operation in path.operations
        for model in operation.models
        if model.__ninja_param_source__ == "body"
    ]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            if each not in found:
                found.add(each)
                waiting += [field.annotation for field in each.model_fields.values()]
        else:
            waiting += get_args(each)
    return found


def parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for each in get_args(annotation):
        yield from parts(each)


def test_no_request_takes_true_for_a_number():
    """Wherever a number is expected, in lists too. Pydantic would read true as 1."""
    checked = 0
    for model in bodies():
        for name, field in model.model_fields.items():
            there = list(parts(field.annotation))
            if not any(each in (int, float) for each in there) or any(each in (bool, Any) for each in there):
                continue
            value = [True] if any(each is list for each in there) else True
            with pytest.raises(ValidationError) as refused:
                model.model_validate({name: value})
            faults = {error["loc"]: error["msg"] for error in refused.value.errors()}
            assert faults.get((name,)) == "Value error, a number is expected, not true or false", (model, name)
            assert issubclass(model, Body)
            checked += 1
    assert checked > 20


@pytest.mark.django_db
@pytest.mark.database
def test_the_field_with_the_boolean_is_named(browser, account):
    """As for every other wrong value."""
    account("admin")
    admin = browser()
    admin.sign_in("admin")
    objective = {"name": "Fast", "kind": "latency", "target_percent": 99, "threshold_ms": True}
    answer = admin.request("POST", "objectives", objective)
    assert (answer.status_code, answer.json()["message"]) == (
        422,
        "threshold_ms: a number is expected, not true or false",
    )
    for path, body in {
        "objectives": objective | {"threshold_ms": 5, "topic_pattern": "orders["},
        "alerts/rules": {"name": "r", "scope": "channel", "metric": "depth", "topic_pattern": "orders["},
        "alerts/silences": {"reason": "x", "ends_at": 4_000_000_000_000, "topic_pattern": "orders["},
        "people": {"username": "bob", "role": "operator", "topic_patterns": ["orders["]},
    }.items():
        answer = admin.request("POST", path, body)
        assert answer.status_code == 422, path
        assert "'orders[' is not a glob of" in answer.json()["message"]


@pytest.mark.parametrize(
    ("pattern", "is_one"),
    [
        ("*", True),
        ("orders.*", True),
        ("orders.[a-c]?", True),
        ("[!0-9]*", True),
        ("metrics#ephemeral", True),
        ("[", False),
        ("]", False),
        ("orders[", False),
        ("[]", False),
        ("[!]", False),
        ("[z-a]", False),
        ("[*]", False),
        ("orders!", False),
        ("or ders", False),
        ("", False),
        ("x" * 64, True),
        ("x" * 65, False),
    ],
)
def test_a_pattern_is_a_glob_each_part_of_which_can_match_a_part_of_a_name(pattern, is_one):
    """Otherwise an operator believes to watch topics, and watches none."""
    assert is_pattern(pattern) is is_one


PARTS = st.sampled_from(["{}", "?", "*", "[{}]", "[{}z]", "[!#]", "*{}", "{}*"])


@given(st.text("ab._", min_size=1, max_size=8), st.data())
def test_a_pattern_made_of_a_name_is_one_and_matches_it(name, data):
    """Whatever stands for its characters: themselves, a wildcard, or a set."""
    pattern = "".join(data.draw(PARTS).format(character) for character in name)
    assert is_pattern(pattern)
    assert matcher(pattern)(name)


@given(st.text("ab.-_*?[]!#", max_size=8), st.text("ab.-_", min_size=1, max_size=8))
def test_a_matcher_agrees_with_fnmatch(pattern, name):
    """Of rules and objectives, with which operators' rights are compared."""
    assert bool(matcher(pattern)(name)) is fnmatchcase(name, pattern)
