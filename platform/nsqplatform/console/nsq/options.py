"""Options that several subcommands share, and types of options, for argparse."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from nsqdaemon.command_line import CommandParser
from nsqdaemon.default_ports import DefaultPorts, parse_port_base
from nsqplatform.console.checkout import default_home
from nsqplatform.console.environment import DATABASE_URL, HOME
from nsqplatform.console.nsq.ports import Address, parse_address


def address(text: str) -> Address:
    """Parse ``host:port``; an invalid one is an error of the command line."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def port_base(text: str) -> DefaultPorts:
    """Parse a base of ports; an invalid one is an error of the command line."""
    try:
        return parse_port_base(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_home(parser: argparse.ArgumentParser) -> None:
    """Add ``--home``, of the data folder. :func:`use_home` applies it."""
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="data folder (default: $NSQ_HOME, else var/ in a checkout, else the user's data folder)",
    )


def use_home(options: argparse.Namespace) -> None:
    """Use the folder that was given, here and in processes that are started, before Django is loaded."""
    if options.home is not None:
        os.environ[HOME.name] = str(options.home.absolute())


def use_existing_home(options: argparse.Namespace, command: CommandParser) -> None:
    """As :func:`use_home`, for a command on a platform that is there: a mistyped folder is an error, and not created.

    The default folder may be missing if the database is elsewhere.
    """
    use_home(options)
    if not default_home().is_dir() and (options.home is not None or DATABASE_URL.name not in os.environ):
        command.error(f"there is no platform at {default_home()}: nsq up creates one; --home names another folder")
