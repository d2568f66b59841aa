"""Topic and channel names."""

from __future__ import annotations

import re

MAX_NAME_BYTES = 64
EPHEMERAL_SUFFIX = "#ephemeral"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """Return whether ``name`` is a valid name of a topic or channel.

    1 to 64 ASCII characters of ``.a-zA-Z0-9_-``, optionally ending in ``#ephemeral`` (which counts towards the 64).
    """
    return 0 < len(name) <= MAX_NAME_BYTES and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    """Return whether a topic or channel of this name is ephemeral, that is, never stored on disk."""
    return name.endswith(EPHEMERAL_SUFFIX)
