"""Selection of messages and fields by nsq_to_nsq."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aionsq.tools.json_filter import FieldMissing, JSONFilter, NotJSON

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_without_conditions_every_body_passes_as_it_is():
    """JSON or not."""
    assert JSONFilter().apply(b"\xff not json") == b"\xff not json"


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        (b'{"f":"2"}', True),
        (b'{"f":2}', True),
        (b'{"f":2.0}', True),
        (b'{"f":20e-1}', True),
        (b'{"f":2.0000000000000000001}', False),
        (b'{"f":"2.0"}', False),
        (b'{"f":[2]}', False),
        (b'{"f":null}', False),
        (b'{"f":true}', False),
        (b' { "a" : {"f":2} , "f" : 3 , "f" : 2 } ', True),
    ],
)
def test_a_required_value_is_met_by_its_text_or_its_number(body, passes):
    """Numbers are compared by value; the last of duplicate fields counts."""
    assert JSONFilter("f", "2").apply(body) == (body if passes else None)


def test_a_word_is_no_number():
    """--require-json-value true does not mean the boolean."""
    assert JSONFilter("f", "true").apply(b'{"f":true}') is None
    assert JSONFilter("f", "NaN").apply(b'{"f":"NaN"}') is not None


def test_a_required_field_may_have_any_value():
    """A message without it is not published; if its value is required, this is an error."""
    assert JSONFilter("f").apply(b'{"f":null}') == b'{"f":null}'
    assert JSONFilter("f").apply(b"{}") is None
    with pytest.raises(FieldMissing, match="missing field to check required value"):
        JSONFilter("f", "1").apply(b"{}")


def test_whitelisted_fields_keep_the_digits_they_were_written_with():
    """Keys are sorted and compact, missing ones are omitted; a number beyond 2^53 is not rounded."""
    body = b'{"z": 12345678901234567890, "y": 1.10, "x": {"n": 1e400, "s": "\\ud800"}, "<": "<&>"}'
    kept = JSONFilter(whitelist=["z", "y", "x", "nope", "<"]).apply(body)
    assert kept == b'{"\\u003c":"<&>","x":{"n": 1e400, "s": "\\ud800"},"y":1.10,"z":12345678901234567890}'


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[1]", b'"s"', b"1", b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1}x', b'{"a":NaN}', b"\xff{}"]
    + [b'{"a":' + b"[" * 100_000, b"{1:2}", b'{"a":1 "b":2}', b'{"a":Infinity}'],
)
def test_a_body_that_is_no_json_object_is_logged(body):
    """With the reference's text, and never with another error."""
    with pytest.raises(NotJSON, match="Unable to decode json: "):
        JSONFilter("f").apply(body)


@given(document=st.dictionaries(st.text(), JSON, max_size=5), keep=st.lists(st.text(), max_size=3))
def test_a_whitelisted_object_equals_the_parsed_one(document, keep):
    """Any object, however it was written."""
    names = [*keep, *list(document)[:2]]
    for indent in (None, 2):
        body = json.dumps(document, indent=indent).encode()
        kept = JSONFilter(whitelist=names or ["x"]).apply(body)
        assert kept is not None
        expected = {name: document[name] for name in sorted(set(names)) if name in document}
        assert json.loads(kept) == expected
        assert [*json.loads(kept)] == [*expected]


@given(st.binary())
def test_any_bytes_are_passed_on_filtered_or_logged(body):
    """No input breaks it."""
    try:
        JSONFilter("f", "1", ["f"]).apply(body)
    except (NotJSON, FieldMissing):
        pass
