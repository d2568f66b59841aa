"""Globs of the names of topics and channels: those of operators, objectives, alert rules, silences, masks and types."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from fnmatch import fnmatchcase, translate

LONGEST = 64
_NAME = f"{string.ascii_letters}{string.digits}._-#"
"""The characters of names: ``#`` is in ``#ephemeral``."""
_PART = re.compile(rf"[{re.escape(_NAME)}*?]|(?P<set>\[!?[^\]]+\])")


def is_pattern(text: str) -> bool:
    """Whether each part of this glob can match a part of the name of a topic or channel: a character of names, ``*``,
    ``?``, or a set with such a character, such as ``[a-c]`` or ``[!0-9]``."""
    if not 1 <= len(text) <= LONGEST:
        return False
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or (part["set"] and not any(fnmatchcase(each, part["set"]) for each in _NAME)):
            return False
        at = part.end()
    return True


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that returns a true value if a name matches the glob."""
    return (lambda name: True) if pattern == "*" else re.compile(translate(pattern)).match
