"""``nsq web``: Daphne, which serves pages, API and websockets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

from nsqdaemon.command_line import CommandParser
from nsqdaemon.default_ports import default_ports
from nsqplatform.console.nsq.options import add_home, address, use_home
from nsqplatform.console.nsq.ports import Address, bind_error, holder
from nsqplatform.console.nsq.prepare import without_collections


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq web",
        description="Serve the operator's web platform.",
        examples=[
            ("nsq web", "on 127.0.0.1:4171"),
            ("nsq web --http-address :8080", "on port 8080, for other machines too"),
        ],
    )
    made.add_argument(
        "--http-address",
        type=address,
        default=Address("127.0.0.1", default_ports().web),
        metavar="HOST:PORT",
        help="address to listen on (%(default)s)",
    )
    made.add_argument(
        "--http-fd", type=int, metavar="N", help="descriptor of an inherited listening socket, in place of an address"
    )
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    made = parser()
    options = made.parse_args(argv)
    use_home(options)
    if options.http_fd is not None:
        return serve(["--fd", str(options.http_fd)])
    host, port = options.http_address
    # If Daphne cannot listen, it logs that and keeps running; a supervisor needs an exit.
    if error := bind_error(options.http_address):
        taken_by = holder(port)
        made.exit(
            1,
            f"nsq web: cannot listen on {options.http_address}: {error.strerror}"
            + (f", {taken_by} does\n" if taken_by else "\n"),
        )
    return serve(["-b", host or "0.0.0.0", "-p", str(port)])


def serve(where: list[str]) -> int:
    """Run Daphne until a signal."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
    with without_collections():
        from nsqplatform.console.server import CommandLine

        import_module("nsqplatform.console.asgi")
        import_module("nsqplatform.console.urls")  # a first request would load it

    CommandLine().run([*where, "--no-server-name", "-v", "0", "nsqplatform.console.asgi:application"])
    return 0
