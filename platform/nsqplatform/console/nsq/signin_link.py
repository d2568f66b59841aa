"""``nsq signin-link``: prints a sign-in link, for administrators of the machine who cannot sign in.

On a database without accounts it creates the first one, ``admin``, as ``nsq up`` does.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

from nsqdaemon.command_line import CommandParser
from nsqdaemon.default_ports import default_ports
from nsqplatform.console.checkout import default_home
from nsqplatform.console.environment import SITE
from nsqplatform.console.nsq.home import running
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.ports import Address
from nsqplatform.console.nsq.prepare import SignInLink, administrators_link, load_django

CONNECT_SECONDS = 1.0


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq signin-link",
        description="Print a link that signs an account in once. If there is no account yet, create that of the first "
        "administrator, admin.",
        examples=[
            ("nsq signin-link", "for the first administrator"),
            ("nsq signin-link --user ada --site https://nsq.example.org", "for another account and address"),
        ],
    )
    made.add_argument("--user", metavar="NAME", help="the account (default: the first administrator's)")
    made.add_argument(
        "--site",
        metavar="URL",
        help="the platform's address (default: $NSQ_SITE, else that of the nsq up which runs on the folder, else "
        "http://127.0.0.1:4171)",
    )
    add_home(made)
    return made


def local_address() -> Address:
    """The address of the platform that runs on the data folder, else the default one."""
    found = running(default_home())
    web = found.addresses.get("--http-address") if found else None
    return web.reachable if web else Address("127.0.0.1", default_ports().web)


def is_open(address: Address) -> bool:
    """Whether somebody listens at the address."""
    try:
        with socket.create_connection(address, CONNECT_SECONDS):
            return True
    except OSError:
        return False


def main(argv: Sequence[str]) -> int:
    """Print the link. Exit 1 if there is no such account, or no database yet."""
    options = parser().parse_args(argv)
    use_home(options)
    load_django()
    from django.db import DatabaseError

    from nsqplatform.accounts.services import FIRST_ACCOUNT, first_start

    try:
        path = None if options.user else first_start()
        if path is not None:
            print(f"nsq signin-link: the first account, {FIRST_ACCOUNT}, was created", file=sys.stderr)
            link: SignInLink | None = SignInLink(FIRST_ACCOUNT, path)
        else:
            link = administrators_link(options.user)
    except DatabaseError as error:
        reason = str(error).partition("\n")[0]
        print(
            f"nsq signin-link: cannot read the accounts: {reason}; `nsq up` or `manage.py migrate` creates the tables",
            file=sys.stderr,
        )
        return 1
    if link is None:
        missing = f"no open account {options.user!r}" if options.user else "no administrator's account yet"
        print(f"nsq signin-link: there is {missing}", file=sys.stderr)
        return 1
    address = local_address()
    here = f"http://{address}"
    site = options.site or SITE.read(os.environ, here)
    print(f"{site.rstrip('/')}{link.path}", flush=True)
    if site == here and not is_open(address):
        print(f"nsq signin-link: {here} does not answer: the link works once the platform runs there", file=sys.stderr)
    return 0
