"""Decodes JSON from other programs as Go does, so that its text can always be encoded again.

Go replaces each byte that is not UTF-8, and each unpaired ``\\ud800`` to ``\\udfff``, with U+FFFD.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def decode_json(raw: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError or RecursionError."""
    text = raw.decode("utf-8", "go_replace")
    value = json.loads(text, parse_constant=_refuse_constant)
    return _sound(value) if "\\u" in text else value


def _sound(value: Any) -> Any:
    """``value`` without lone surrogates."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("go_replace", _replace_each_byte)
