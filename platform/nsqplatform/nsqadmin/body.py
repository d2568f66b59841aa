"""Parses a request's JSON as Go's decoder does: keys are case-insensitive; unknown keys, and everything after the first
value, are ignored; errors have Go's texts."""

from __future__ import annotations

import json
from typing import Any

from nsqdaemon.http import HTTPError

_DECODER = json.JSONDecoder()
_KINDS = {bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def read(body: bytes, *fields: str) -> dict[str, str]:
    """The string fields of the JSON object at the beginning of the body; empty if missing or null.

    Raises HTTPError 400 with Go's text for invalid JSON.
    """
    value = first_value(body)
    if value is None:
        return dict.fromkeys(fields, "")
    if not isinstance(value, dict):
        raise HTTPError(400, f"json: cannot unmarshal {kind(value)} into Go value of type struct")
    given = {key.lower(): each for key, each in value.items()}
    found = {}
    for field in fields:
        each = given.get(field)
        if each is not None and not isinstance(each, str):
            raise HTTPError(400, f"json: cannot unmarshal {kind(each)} into Go struct field .{field} of type string")
        found[field] = each or ""
    return found


def kind(value: object) -> str:
    return _KINDS.get(type(value), "string")


def first_value(body: bytes) -> Any:
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise HTTPError(400, "EOF")
    try:
        value, _ = _DECODER.raw_decode(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        if at >= len(text) or (isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated")):
            raise HTTPError(400, "unexpected EOF") from None
        looking = "looking for beginning of value"
        if isinstance(error, json.JSONDecodeError) and "property name" in error.msg:
            looking = "looking for beginning of object key string"
        raise HTTPError(400, f"invalid character {text[at]!r} {looking}") from None
    return value
