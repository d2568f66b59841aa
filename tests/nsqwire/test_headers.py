"""Header blocks: what is a header, and the errors that name what is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.errors import BadHeaders
from nsqwire.frame import FrameError, decode_message_with_headers
from nsqwire.headers import decode_headers, encode_headers

names = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
values = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40)
headers = st.dictionaries(names, values, max_size=8).filter(lambda found: len({*map(str.lower, found)}) == len(found))


@given(headers)
def test_headers_survive_the_block_in_lower_case_and_in_their_order(published: dict[str, str]) -> None:
    found = decode_headers(encode_headers(published))
    assert list(found.items()) == [(name.lower(), value) for name, value in published.items()]


@given(headers)
def test_a_block_is_what_json_writes(published: dict[str, str]) -> None:
    """Names and values need no escapes but JSON's own."""
    lower = {name.lower(): value for name, value in published.items()}
    assert encode_headers(published) == json.dumps(lower, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_block_is_compact_json_in_utf_8() -> None:
    assert encode_headers({"Trace-Id": "ü", "b": 'a "b"'}) == '{"trace-id":"ü","b":"a \\"b\\""}'.encode()


@pytest.mark.parametrize(
    ("published", "error"),
    [
        ({"": "x"}, "header name '' is not 1 to 64"),
        ({"a b": "x"}, "header name 'a b' is not"),
        ({"ä": "x"}, r"header name '\\xe4' is not"),
        ({"n" * 65: "x"}, "is not 1 to 64 characters"),
        ({"A": "x", "a": "y"}, "header a appears twice"),
        ({"a": 1}, "value of header a is not a string"),
        ({"a": "x" * 4097}, "value of header a has 4097 characters"),
        ({"a": "x\ny"}, "value of header a has a control character"),
        ({"a": "x\x85y"}, "value of header a has a control character"),
        ({"a": "\ud800"}, "value of header a is not Unicode text"),
        ({f"n{at}": "" for at in range(65)}, "more than 64 headers"),
        ({f"n{at}": "x" * 4096 for at in range(4)}, "header block of 16417 bytes is longer than 16384"),
    ],
)
def test_headers_that_cannot_be_published_are_named(published: dict[str, str], error: str) -> None:
    with pytest.raises(BadHeaders, match=error):
        encode_headers(published)
    block = json.dumps(published, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    with pytest.raises(BadHeaders):
        decode_headers(block)


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (b"", "header block is not JSON in UTF-8"),
        (b"{", "header block is not JSON in UTF-8"),
        (b'{"a":"\xff"}', "header block is not JSON in UTF-8"),
        (b"[" * 10_000, "header block is not JSON in UTF-8"),
        (b"[]", "header block is not a JSON object"),
        (b"null", "header block is not a JSON object"),
        (b'{"a":"1","A":"2"}', "header a appears twice"),
        (b'{"a":"1","a":"1"}', "header a appears twice"),
        (b'{"a":{"b":"c"}}', "value of header a is not a string"),
        (b'{"a":"\\ud800"}', "value of header a is not Unicode text"),
        (b" " * 16_385, "header block of 16385 bytes is longer than 16384"),
    ],
)
def test_bytes_that_are_not_a_header_block_are_named(block: bytes, error: str) -> None:
    with pytest.raises(BadHeaders, match=error):
        decode_headers(block)


@given(st.binary(max_size=60))
def test_any_bytes_are_headers_or_a_named_error(block: bytes) -> None:
    try:
        found = decode_headers(block)
    except BadHeaders:
        return
    assert decode_headers(encode_headers(found)) == found


HEAD = bytes(8) + b"\x00\x02" + b"0123456789abcdef"


def test_a_message_frame_with_headers_is_read() -> None:
    message = decode_message_with_headers(b"##" + HEAD + b"\x00\x00\x00\x02{}body##", 2, 2 + len(HEAD) + 10)
    assert (message.attempts, message.id, message.header_block, message.body) == (2, HEAD[10:], b"{}", b"body")


@pytest.mark.parametrize("data", [HEAD, HEAD + b"\x00\x00\x00\x03{}", HEAD + b"\xff\xff\xff\xff{}"])
def test_a_message_frame_with_impossible_sizes_is_an_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_message_with_headers(data)
