"""Replaces values in the body and the headers of a message: those that masks hide from a person."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from secrets import token_hex
from typing import Literal, NamedTuple

from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment

Visibility = Literal["whole", "masked", "withheld"]

MASKED = "***"
"""Replaces each masked value, whatever its type."""
_RFC_9535 = JSONPathEnvironment(strict=True)
"""Without the parser's extensions, such as ``&``, whose results are not always values in the body."""


class Visible(NamedTuple):
    """The part of a body that a person may see. The ``body`` of a withheld one is empty."""

    body: bytes
    visibility: Visibility


class InvalidPath(ValueError):
    """A JSON path cannot be parsed; the text says where."""


def checked_path(path: str) -> str:
    """Return ``path`` if it is a JSON path (RFC 9535) that starts with ``$``. Raises InvalidPath."""
    if not path.startswith("$"):
        raise InvalidPath(f"{path!r} does not start with $")
    try:
        _compiled(path)
    except Exception as error:  # the parser raises more than its own exceptions
        raise InvalidPath(f"{path!r}: {str(error).splitlines()[0]}") from None
    return path


class HiddenPaths:
    """The JSON paths that are hidden from one person in the bodies of one topic, and with them the values of headers.

    A body is withheld if it is not one JSON object or list, or if a path cannot be evaluated in it: a value that cannot
    be found cannot be hidden. If any path is hidden, so is the value of every header that ``visible_headers`` does not
    name: a mask does not know the headers that publishers will send.
    """

    def __init__(self, paths: Sequence[str] = (), visible_headers: Collection[str] = ()) -> None:
        """``visible_headers`` are names in lower case."""
        self.paths = frozenset(paths)
        self._visible_headers = frozenset(visible_headers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenPaths) and self._hidden == other._hidden

    def __hash__(self) -> int:
        return hash(self._hidden)

    @property
    def _hidden(self) -> tuple[frozenset[str], frozenset[str]]:
        return self.paths, self._visible_headers

    def hides_header(self, name: str) -> bool:
        """Return whether the values of a header are hidden; ``name`` is in lower case."""
        return bool(self.paths) and name not in self._visible_headers

    def visible_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers, with the values that are hidden replaced. Names are not hidden."""
        return {name: MASKED if self.hides_header(name) else value for name, value in headers.items()}

    def visible(self, body: bytes) -> Visible:
        """The body, with its masked values replaced."""
        if not self.paths:
            return Visible(body, "whole")
        try:
            mark = token_hex(8)
            value = json.loads(body, parse_constant=_refuse)
            shown = json.loads(body, parse_float=mark.__add__, parse_int=mark.__add__)
            if not isinstance(value, dict | list):
                return Visible(b"", "withheld")
            # All are found before the first is replaced, because a filter may compare a value that is masked itself.
            found = [each.parts for path in self.paths for each in _compiled(path).finditer(value)]
            for parts in found:
                _replace(shown, parts)
            # The numbers are as they were sent: a double would round them.
            text = re.sub(f'"{mark}([^"]+)"', r"\1", json.dumps(shown, ensure_ascii=False))
            return Visible(text.encode(), "masked")
        except Exception:  # whatever fails, the body must not be shown
            return Visible(b"", "withheld")

    async def visible_in_thread(self, body: bytes) -> Visible:
        """As ``visible``. Values are masked in a thread, because that takes long enough to delay an event loop."""
        return await asyncio.to_thread(self.visible, body) if self.paths else self.visible(body)


def _refuse(constant: str) -> None:
    """Raises ValueError: ``NaN`` and ``Infinity`` are not JSON."""
    raise ValueError(constant)


@lru_cache(maxsize=1000)
def _compiled(path: str) -> JSONPath | CompoundJSONPath:
    return _RFC_9535.compile(path)


def _replace(value: object, parts: Sequence[int | str]) -> None:
    """Mask the value at ``parts``. Raises LookupError or TypeError if there is none, as for the whole body."""
    *way, last = parts
    for part in way:
        if value == MASKED:
            return  # a shorter path has masked all of it
        value = value[part]  # type: ignore[index]
    if value != MASKED:
        value[last] = MASKED  # type: ignore[index]
