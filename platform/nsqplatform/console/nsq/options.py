"""Types of option that several subcommands share, for argparse."""

from __future__ import annotations

import argparse

from nsqplatform.console.nsq.ports import Address, parse_address


def address(text: str) -> Address:
    """Parse ``host:port``; an invalid one is an error of the command line."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
