"""The user of the operating system as an administrator, for commands that use the platform's database directly."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqplatform.accounts.models import User


def administrator() -> User:
    """Who runs the command, with an administrator's rights. No account: it is not stored. Needs Django."""
    from nsqplatform.accounts.models import User
    from nsqplatform.accounts.roles import Role

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "command line"
    user = User(username=name, role=Role.ADMIN)
    user.via = "command line"
    return user
