"""Names of the channels through which the platform tails topics. They are the platform's own, no consumer's."""

from __future__ import annotations

import re
import secrets

_PATTERN = re.compile(r"tail-[0-9a-f]{8}#ephemeral")


def new_tail_channel() -> str:
    """Return a name for the channel of a tail."""
    return f"tail-{secrets.token_hex(4)}#ephemeral"


def is_tail_channel(name: str) -> bool:
    """Whether this is the name of the channel of a tail, of any web process."""
    return name.startswith("tail-") and _PATTERN.fullmatch(name) is not None
