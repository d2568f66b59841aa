"""``nsq signin-link``: prints a sign-in link, for administrators of the machine who cannot sign in.

On a database without accounts it creates the first one, ``admin``, as ``nsq up`` does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from nsqplatform.console.environment import SITE
from nsqplatform.console.nsq.prepare import SignInLink, administrators_link, load_django


def main(argv: Sequence[str]) -> int:
    """Print the link. Exit 1 if there is no such account, or no database yet."""
    parser = argparse.ArgumentParser(
        prog="nsq signin-link",
        description="Print a link that signs an account in once. If there is no account yet, create that of the first "
        "administrator, admin.",
    )
    parser.add_argument("--user", metavar="NAME", help="the account (default: the first administrator's)")
    parser.add_argument(
        "--site",
        default=SITE.read(os.environ, "http://127.0.0.1:4171"),
        metavar="URL",
        help="the platform (default: $NSQ_SITE, else http://127.0.0.1:4171)",
    )
    options = parser.parse_args(argv)
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
    print(f"{options.site.rstrip('/')}{link.path}")
    return 0
