"""The address of a pair's arbiter."""

from __future__ import annotations

import re
from typing import Final

from nsqwire.addresses import parse_host_port

_URL: Final = re.compile(r"etcd://([^/]+)/([A-Za-z0-9._-]+)")


class InvalidArbiter(ValueError):
    """The address of an arbiter is invalid; the text is for the user."""


def parse_arbiter(text: str) -> tuple[list[tuple[str, int]], str]:
    """The addresses and the pair's name in ``etcd://host:port,host:port/name``. Raises InvalidArbiter."""
    match = _URL.fullmatch(text)
    if match is None:
        raise InvalidArbiter(f"{text!r} is not etcd://HOST:PORT/NAME, with the name of the pair")
    try:
        return [parse_host_port(address) for address in match[1].split(",")], match[2]
    except ValueError as error:
        raise InvalidArbiter(f"{text!r}: {error}") from None
