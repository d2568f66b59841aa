"""The address of a pair's arbiter."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nsqwire.addresses import parse_host_port

_URL: Final = re.compile(r"(etcds?)://([^/]+)/([A-Za-z0-9._-]+)")


class ArbiterAddress(NamedTuple):
    """Where etcd is, and what the pair is called there."""

    servers: list[tuple[str, int]]
    name: str
    has_tls: bool


class InvalidArbiter(ValueError):
    """The address of an arbiter is invalid; the text is for the user."""


def parse_arbiter(text: str) -> ArbiterAddress:
    """The parts of ``etcd://host:port,host:port/name``, or ``etcds://`` for TLS. Raises InvalidArbiter."""
    match = _URL.fullmatch(text)
    if match is None:
        raise InvalidArbiter(
            f"{text!r} is not etcd://HOST:PORT/NAME or etcds://HOST:PORT/NAME, with the name of the pair"
        )
    try:
        servers = [parse_host_port(address) for address in match[2].split(",")]
        return ArbiterAddress(servers, match[3], match[1] == "etcds")
    except ValueError as error:
        raise InvalidArbiter(f"{text!r}: {error}") from None
