"""Selection of messages by JSON fields, and of the fields to publish, for nsq_to_nsq."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from nsqwire.gojson import encode

_SPACE: Final = " \t\n\r"


class NotJSON(Exception):
    """The body is not a JSON object."""


class FieldMissing(Exception):
    """The message lacks the field whose value is required."""


class Number(str):
    """A JSON number as it was written."""


class JSONFilter:
    """Filters bodies.

    With an empty ``require_field``, no field is required; with an empty ``require_value``, any value matches; with an
    empty ``whitelist``, the whole body is published.
    """

    def __init__(self, require_field: str = "", require_value: str = "", whitelist: Sequence[str] = ()) -> None:
        self._field = require_field
        self._value = require_value
        self._number = _decimal(require_value)
        self._whitelist = sorted(set(whitelist))

    @property
    def parses_bodies(self) -> bool:
        """False if every body passes unchanged, JSON or not."""
        return bool(self._field or self._whitelist)

    def apply(self, body: bytes) -> bytes | None:
        """Return the body to publish, or None for a message that must not be published.

        A string matches the required value as text, and a number matches a numeric required value; other types never
        match. A whitelisted body has sorted keys and the original text of each value, so that numbers keep their
        digits. Raises NotJSON, and FieldMissing if a value is required.
        """
        if not self.parses_bodies:
            return body
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise NotJSON(f"Unable to decode json: {error}") from None
        fields = _fields(text)
        if self._field:
            if self._field not in fields:
                if self._value:
                    raise FieldMissing("missing field to check required value")
                return None
            if self._value and not self._is_required_value(fields[self._field][0]):
                return None
        if not self._whitelist:
            return body
        kept = [encode(name) + b":" + fields[name][1].encode() for name in self._whitelist if name in fields]
        return b"{" + b",".join(kept) + b"}"

    def _is_required_value(self, value: Any) -> bool:
        if isinstance(value, Number):
            return self._number is not None and _decimal(value) == self._number
        return isinstance(value, str) and value == self._value


def _fields(text: str) -> dict[str, tuple[Any, str]]:
    """The members of a JSON object: value and its text. The last of duplicate names counts. Raises NotJSON."""
    try:
        return _members(text)
    except (ValueError, RecursionError) as error:
        raise NotJSON(f"Unable to decode json: {error}") from None


def _members(text: str) -> dict[str, tuple[Any, str]]:
    members: dict[str, tuple[Any, str]] = {}
    at = _expect(text, _skip(text, 0), "{")
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            _expect(text, at, '"')
            name, at = _scan(text, at)
            start = _skip(text, _expect(text, _skip(text, at), ":"))
            value, at = _scan(text, start)
            members[name] = (value, text[start:at])
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                at += 1
                break
            at = _skip(text, _expect(text, at, ","))
    if _skip(text, at) != len(text):
        raise ValueError(f"extra text after the object, at {at}")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder: Final = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant)


def _scan(text: str, at: int) -> tuple[Any, int]:
    return _decoder.raw_decode(text, at)


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        found = repr(text[at]) if at < len(text) else "the end"
        raise ValueError(f"{character!r} expected at {at}, not {found}")
    return at + 1


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
