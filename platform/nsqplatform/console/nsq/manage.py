"""``nsq manage``: Django's commands for the platform, such as ``create_account``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.prepare import load_django


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq manage",
        description="Run one of Django's commands with the platform's settings; help lists them.",
        examples=[
            ("nsq manage changepassword admin", "set a password"),
            ("nsq manage create_token admin backup --role operator --expires 720h", "print a token for scripts"),
            ("nsq manage help create_account", "the options of a command"),
        ],
    )
    add_home(made)
    made.add_argument("command", metavar="COMMAND", help="the command")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments and options")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command. Exits with 2 for one that does not exist, and otherwise as the command does."""
    made = parser()
    options = made.parse_args(argv)
    use_home(options)
    load_django()
    from django.core.management import ManagementUtility, get_commands
    from django.db import DatabaseError, connections

    if options.command not in get_commands() and options.command != "help":
        made.error(f"there is no command {options.command!r}; nsq manage help lists them")
    database = connections["default"].settings_dict
    file = Path(database["NAME"])
    is_missing = database["ENGINE"] == "django.db.backends.sqlite3" and not file.exists()
    try:
        ManagementUtility(["nsq manage", options.command, *options.arguments]).execute()
    except DatabaseError as error:
        reason = str(error).strip()
        if is_missing:
            connections.close_all()
            file.unlink(missing_ok=True)  # SQLite has created it
            reason = f"there is no platform at {file.parent}: nsq up creates one; --home names another folder"
        made.exit(1, f"nsq manage: {reason}\n")
    return 0
