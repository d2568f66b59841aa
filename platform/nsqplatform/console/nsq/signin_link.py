"""``nsq signin-link``: prints a sign-in link, for administrators of the machine who cannot sign in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nsqplatform.console.nsq.prepare import administrators_link, load_django


def main(argv: Sequence[str]) -> int:
    """Print the link. Exit 1 if there is no such account, or no database yet."""
    parser = argparse.ArgumentParser(prog="nsq signin-link", description="Print a link that signs an account in once.")
    parser.add_argument("--user", metavar="NAME", help="the account (default: the first administrator's)")
    parser.add_argument("--site", default="http://127.0.0.1:4171", metavar="URL", help="the platform (%(default)s)")
    options = parser.parse_args(argv)
    load_django()
    from django.db import DatabaseError

    try:
        link = administrators_link(options.user)
    except DatabaseError as error:
        print(f"nsq signin-link: cannot read the accounts: {error}; nsq up creates the database", file=sys.stderr)
        return 1
    if link is None:
        missing = f"no open account {options.user!r}" if options.user else "no administrator's account yet"
        print(f"nsq signin-link: there is {missing}", file=sys.stderr)
        return 1
    print(f"{options.site.rstrip('/')}{link.path}")
    return 0
