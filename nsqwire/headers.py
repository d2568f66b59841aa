"""Headers of messages: names with values, which are sent and stored beside the body. Go's nsqd does not support them.

A header block is a compact JSON object of strings, in UTF-8. The order of the headers is kept.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final

from nsqwire.errors import BadHeaders

MAX_HEADERS: Final = 64
MAX_VALUE_LENGTH: Final = 4096
MAX_BLOCK_BYTES: Final = 16 * 1024
MAX_MESSAGES: Final = 10_000
"""Most messages of one HMPUB, or lines of one request with envelopes. Their headers are checked in one turn of the
event loop, which takes about 10 µs a message and delays other clients."""
DEDUP_ID: Final = "dedup-id"
"""Name of the header with the deduplication id of a message that is published with HPUB or HDPUB."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_quoted: Final = json.encoder.encode_basestring


def is_header_name(name: str) -> bool:
    """Return whether a header may have this name, in any case."""
    return _NAME.fullmatch(name) is not None


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return the header block, with names in lower case. Raises BadHeaders."""
    return _to_block(_checked(headers.items()))


def decode_headers(block: bytes | bytearray | memoryview) -> dict[str, str]:
    """Return the headers in a block, with names in lower case and in their order. Raises BadHeaders."""
    if len(block) > MAX_BLOCK_BYTES:
        raise BadHeaders(f"header block of {len(block)} bytes is longer than {MAX_BLOCK_BYTES}")
    try:
        decoded = _decode(bytes(block).decode())
    except (ValueError, RecursionError):
        raise BadHeaders("header block is not JSON in UTF-8") from None
    if not isinstance(decoded, _Pairs):
        raise BadHeaders("header block is not a JSON object")
    return _checked(decoded)


def checked_headers(pairs: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return headers, given as pairs of name and value, with names in lower case. Raises BadHeaders."""
    headers = _checked(pairs)
    _to_block(headers)
    return headers


def parse_envelope(line: bytes) -> tuple[bytes, dict[str, str]]:
    """Parse a line of ``/mpub?envelope=true``, ``{"headers": {…}, "body": "…"}`` or ``{…, "body_base64": "…"}``.

    Returns the body and the headers. Raises BadHeaders, whose text describes the error. This is not the binary envelope
    of :mod:`nsqwire.envelope`.
    """
    try:
        decoded = _decode(line.decode())
    except (ValueError, RecursionError):
        raise BadHeaders("not JSON in UTF-8") from None
    if not isinstance(decoded, _Pairs):
        raise BadHeaders("not a JSON object")
    members = dict(decoded)
    if len(members) < len(decoded):
        raise BadHeaders("a key appears twice")
    if unknown := members.keys() - {"headers", "body", "body_base64"}:
        raise BadHeaders(f"key {_shown(min(unknown))} is not headers, body or body_base64")
    if ("body" in members) == ("body_base64" in members):
        raise BadHeaders("exactly one of body and body_base64 is required")
    name = "body" if "body" in members else "body_base64"
    text, headers = members[name], members.get("headers", _Pairs())
    if not isinstance(text, str) or not _is_text(text):
        raise BadHeaders(f"{name} is not a string of Unicode text")
    if not isinstance(headers, _Pairs):
        raise BadHeaders("headers are not a JSON object")
    try:
        body = text.encode() if name == "body" else b64decode(text, validate=True)
    except ValueError:
        raise BadHeaders("body_base64 is not base64") from None
    if not body:
        raise BadHeaders(f"{name} is empty")
    return body, checked_headers(headers)


class _Pairs(tuple[tuple[str, object], ...]):
    """The members of a JSON object as pairs, so that names that appear twice are found."""

    __slots__ = ()


_decode: Final = json.JSONDecoder(object_pairs_hook=_Pairs).decode  # json.loads makes a decoder for each call


def _checked(pairs: Iterable[tuple[object, object]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadHeaders(f"header name {_shown(name)} is not 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'")
        lower = name.lower()
        if lower in headers:
            raise BadHeaders(f"header {lower} appears twice")
        if not isinstance(value, str):
            raise BadHeaders(f"value of header {lower} is not a string")
        if len(value) > MAX_VALUE_LENGTH:
            raise BadHeaders(f"value of header {lower} has {len(value)} characters, more than {MAX_VALUE_LENGTH}")
        if not value.isprintable() and _CONTROL.search(value):
            raise BadHeaders(f"value of header {lower} has a control character")
        if not (value.isascii() or _is_text(value)):
            raise BadHeaders(f"value of header {lower} is not Unicode text")
        headers[lower] = value
        if len(headers) > MAX_HEADERS:
            raise BadHeaders(f"more than {MAX_HEADERS} headers")
    return headers


def _to_block(headers: Mapping[str, str]) -> bytes:
    # Names have no characters that JSON escapes. The encoder of json takes four times as long.
    block = ("{" + ",".join([f'"{name}":{_quoted(value)}' for name, value in headers.items()]) + "}").encode()
    if len(block) > MAX_BLOCK_BYTES:
        raise BadHeaders(f"header block of {len(block)} bytes is longer than {MAX_BLOCK_BYTES}")
    return block


def _is_text(value: str) -> bool:
    """Return whether a str has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: object) -> str:
    return ascii(name if not isinstance(name, str) or len(name) <= 80 else name[:80] + "…")
