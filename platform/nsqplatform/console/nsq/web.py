"""``nsq web``: Daphne, which serves pages, API and websockets."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from nsqplatform.console.nsq.options import address
from nsqplatform.console.nsq.ports import bind_error, holder, parse_address


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nsq web", description="Serve the operator's web platform.")
    parser.add_argument(
        "--http-address",
        type=address,
        default=parse_address("127.0.0.1:4171"),
        metavar="HOST:PORT",
        help="address to listen on (%(default)s)",
    )
    parser.add_argument(
        "--http-fd", type=int, metavar="N", help="descriptor of an inherited listening socket, in place of an address"
    )
    options = parser.parse_args(argv)
    if options.http_fd is not None:
        return serve(["--fd", str(options.http_fd)])
    host, port = options.http_address
    # If Daphne cannot listen, it logs that and keeps running; a supervisor needs an exit.
    if error := bind_error(options.http_address):
        taken_by = holder(port)
        parser.exit(
            1,
            f"nsq web: cannot listen on {options.http_address}: {error.strerror}"
            + (f", {taken_by} does\n" if taken_by else "\n"),
        )
    return serve(["-b", host or "0.0.0.0", "-p", str(port)])


def serve(where: list[str]) -> int:
    """Run Daphne until a signal."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
    from nsqplatform.console.server import CommandLine

    CommandLine().run([*where, "--no-server-name", "-v", "0", "nsqplatform.console.asgi:application"])
    return 0
