"""Preparation of the platform's processes: Django, the database, the first account. ``nsq prepare`` does it alone."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.options import add_home, use_home


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in the block, and none of its objects later. Imports make a few hundred thousand objects that
    stay, and searching them for cycles is a fifth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_django() -> None:
    """Load Django's settings and applications. Raises the errors of invalid settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
    with without_collections():
        import django

        django.setup()


def load_django_quietly() -> None:
    """As :func:`load_django`, for a command: the log on standard error begins with warnings, because what the command
    did is its output, and an entry of the audit trail."""
    load_django()
    logging.getLogger().setLevel(logging.WARNING)


class SignInLink(NamedTuple):
    """``path``, after the site's address, signs ``account`` in once."""

    account: str
    path: str


def prepare_platform() -> SignInLink | None:
    """Migrate the database, create the first account, and return a link that signs an administrator in."""
    load_django()
    from django.core.management import call_command
    from django.db import connections

    from nsqplatform.accounts.services import first_start
    from nsqplatform.console.private_folder import create_private_file

    database = connections["default"].settings_dict
    if database["ENGINE"] == "django.db.backends.sqlite3":
        create_private_file(Path(database["NAME"]))
    try:
        call_command("migrate", interactive=False, verbosity=0)
        first_start()
        return administrators_link()
    finally:
        connections.close_all()


def administrators_link(username: str | None = None) -> SignInLink | None:
    """A link for ``username``, by default the oldest open administrator's account; None if there is none."""
    from nsqplatform.accounts.models import User
    from nsqplatform.accounts.roles import Role
    from nsqplatform.accounts.services import one_time_link

    accounts = User.objects.filter(is_active=True).order_by("pk")
    accounts = accounts.filter(username=username) if username else accounts.filter(role=Role.ADMIN, everywhere=True)
    user = accounts.first()
    return SignInLink(user.get_username(), one_time_link(user)) if user else None


def parser() -> CommandParser:
    """The options of ``nsq prepare``."""
    made = CommandParser(
        prog="nsq prepare",
        description="Create or migrate the platform's database, and create the first account. "
        "Repeated, it changes nothing.",
        examples=[("nsq prepare", "before the processes of the platform are started one by one")],
    )
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Prepare the database, for processes that are started one by one. Exit 1 if it cannot be reached or changed."""
    use_home(parser().parse_args(argv))
    from django.db import DatabaseError

    try:
        link = prepare_platform()
    except DatabaseError as error:
        print(f"nsq prepare: {str(error).strip()}", file=sys.stderr)
        return 1
    whose = f"nsq signin-link signs {link.account} in" if link else "there is no administrator's account"
    print(f"nsq prepare: the database is ready; {whose}")
    return 0
