"""Names of topics and channels that the user gives."""

from __future__ import annotations

from typing import Literal

from aionsq.tools.flags import WrongUsage
from nsqwire.names import is_valid_name


def check_names(kind: Literal["topic", "channel"], *names: str) -> None:
    """Raise ToolFailed for a name that is not valid, before a server is asked for it."""
    for name in names:
        if not is_valid_name(name):
            raise WrongUsage(f"{kind} name {name!r} is not valid")
