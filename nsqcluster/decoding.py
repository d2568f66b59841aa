"""Decoding JSON responses of nsqd and nsqlookupd into their types."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from nsqcluster.errors import Malformed, Refused

T = TypeVar("T")

ENVELOPE = b'{"status_code"'
"""Start of every JSON response of nsqd and nsqlookupd before version 1.0, which put the data in an envelope."""


class _Envelope(Struct):
    status_code: int
    status_txt: str = ""
    data: Raw = Raw(b"null")


@lru_cache(maxsize=64)
def _decoder(type: Any) -> Decoder[Any]:
    return Decoder(type)


def decode(body: bytes | bytearray, type: type[T], url: str) -> T:
    """Decode the body of a 200 response to ``url``; unknown keys are ignored.

    Raises Malformed, whose reason names the path and the key, and Refused for an error in an envelope.
    """
    try:
        if body.startswith(ENVELOPE):
            envelope: _Envelope = _decoder(_Envelope).decode(body)
            if envelope.status_code != 200:
                raise Refused(url, envelope.status_code, envelope.status_txt)
            body = bytes(envelope.data)
        decoded: T = _decoder(cast(Hashable, type)).decode(body)
    except ValidationError as error:
        raise malformed(url, error) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(url, f"cannot read its {urlsplit(url).path}: Invalid JSON: {error}") from None
    return decoded


def malformed(url: str, error: ValidationError) -> Malformed:
    """Translate msgspec's error.

    ``Expected `int`, got `str` - at `$.topics[0].depth``` becomes ``topics.0.depth: Expected `int`, got `str```.
    """
    problem, _, path = str(error).partition(" - at ")
    where = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", path.strip("`")).removeprefix("$").removeprefix(".")
    return Malformed(url, f"cannot read its {urlsplit(url).path}: {where + ': ' if where else ''}{problem}")
