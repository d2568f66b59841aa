"""Text from other programs: any input becomes text that can be shown and encoded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.errors import BadBody
from nsqwire.gojson import decode_json
from nsqwire.identify import parse_identify

ANY_TEXT = st.lists(st.text(max_size=5) | st.sampled_from("\ud800\udbff\udc00\udfff"), max_size=5).map("".join)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud800"', "\ufffd"),
        (rb'"\ud800\ud801\udc00"', "\ufffd\U00010400"),
        (rb'"\udc00x"', "\ufffdx"),
        (rb'"\\ud800"', r"\ud800"),
        (b'"\xe2\x82"', "\ufffd\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
    ],
)
def test_invalid_utf8_becomes_the_replacement_character(raw: bytes, text: str) -> None:
    """As in Go: one for each byte that is not UTF-8, and one for each unpaired surrogate."""
    assert decode_json(raw) == text


@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.lists(ANY_TEXT)), st.booleans())
def test_every_text_of_a_decoded_document_can_be_encoded(document: object, ascii_only: bool) -> None:
    """Keys and values, escaped or not."""
    raw = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    json.dumps(decode_json(raw), ensure_ascii=False).encode()


@given(ANY_TEXT, st.booleans())
def test_a_client_can_call_itself_anything(text: str, ascii_only: bool) -> None:
    """Every text field of IDENTIFY accepts any text, and stores UTF-8."""
    names = ("client_id", "hostname", "user_agent", "topology_region", "topology_zone")
    body = json.dumps(dict.fromkeys(names, text), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    asked = parse_identify(body)
    for name in names:
        getattr(asked, name).encode()


def test_nan_is_not_json() -> None:
    """Go refuses it."""
    with pytest.raises(BadBody):
        parse_identify(b'{"client_id": NaN}')


def test_an_unknown_field_may_hold_a_number_of_any_length() -> None:
    """Go skips it. A known field refuses such a number, which is out of range."""
    number = b"9" * 5000
    assert parse_identify(b'{"later": [%b], "client_id": "x"}' % number).client_id == "x"
    with pytest.raises(BadBody):
        parse_identify(b'{"msg_timeout": %b}' % number)
