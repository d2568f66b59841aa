"""JSON as Go's encoding/json writes and reads it.

Written JSON is compact and safe inside HTML, and whole floats have no fraction; floats below 0.0001 are written as
Python does. When reading, each byte that is not UTF-8, and each unpaired ``\\ud800`` to ``\\udfff``, becomes U+FFFD, so
that the text can always be written again.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Final

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

# In JSON these characters occur in strings only, so they can be replaced in the whole text.
_ESCAPES: Final = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)
_RAW_ESCAPES: Final = tuple((character.encode(), escape.encode()) for character, escape in _ESCAPES)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_PLAIN_FLOAT: Final = 1e21  # Go uses an exponent from this value on

MAX_DIGITS: Final = 100
"""Longest integer that is read as an int. Python refuses to parse integers of thousands of digits."""


def encode(value: Any) -> bytes:
    """Encode dicts (in their order), lists, tuples, strings, numbers, booleans and None. Raises ValueError for NaN.

    A lone surrogate, which stands for an undecodable byte in a str, is written as U+FFFD, as in Go.
    """
    text = _encode(value)
    # Python writes 1.0 and 1e+16 where Go writes 1 and 10000000000000000. Whole floats are rare in our responses, so
    # the value is only walked if the text seems to contain one.
    if ".0," in text or ".0}" in text or ".0]" in text or "e+" in text or text.endswith(".0"):
        text = _encode(_whole_floats_as_ints(value))
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode()


def encode_without_floats(value: Any) -> bytes:
    """As encode, and several times faster. The value must not contain floats: they would not be written as in Go."""
    import orjson  # imported here because it is slow to import, for a fast start

    only_json_types = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    try:
        raw = orjson.dumps(value, option=only_json_types)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return encode(value)
    for character, escape in _RAW_ESCAPES:
        if character in raw:
            raw = raw.replace(character, escape)
    return raw


def _whole_floats_as_ints(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT else value
    if isinstance(value, dict):
        return {key: _whole_floats_as_ints(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole_floats_as_ints(item) for item in value]
    return value


def decode_json(raw: bytes) -> Any:
    """Return the value of a JSON text. An integer of more than MAX_DIGITS becomes a float.

    Raises ValueError or RecursionError.
    """
    text = raw.decode("utf-8", "go_replace")
    value = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)
    return _sound(value) if "\\u" in text else value


def _sound(value: Any) -> Any:
    """Return ``value`` without lone surrogates."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("go_replace", _replace_each_byte)
