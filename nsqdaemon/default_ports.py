"""The ports of a whole platform on one machine, at a fixed distance from one base."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from nsqdaemon.variable import InvalidVariable

VARIABLE: Final = "NSQ_PORT_BASE"
"""Environment variable with the port of the broker's TCP protocol."""
BASE: Final = 4150
HIGHEST: Final = 65535 - 21


class DefaultPorts(NamedTuple):
    """The ports where ``nsq up`` listens and where the tools look for its servers, by default."""

    nsqd_tcp: int
    nsqd_http: int
    lookupd_tcp: int
    lookupd_http: int
    web: int


def ports_from(base: int) -> DefaultPorts:
    """The ports for a base, at the distances of NSQ's: for 4150, they are 4150, 4151, 4160, 4161 and 4171.

    Raises ValueError if one of them is not a port.
    """
    if not 0 < base <= HIGHEST:
        raise ValueError(f"{base} is not a port from 1 to {HIGHEST}; the last port is 21 above it")
    return DefaultPorts(base, base + 1, base + 10, base + 11, base + 21)


def parse_port_base(text: str) -> DefaultPorts:
    """The ports for a base that a user has given. Raises ValueError."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a port from 1 to {HIGHEST}")
    return ports_from(int(text))


def default_ports(environ: Mapping[str, str] = os.environ) -> DefaultPorts:
    """The ports for ``$NSQ_PORT_BASE``, else for NSQ's 4150. Raises InvalidVariable."""
    try:
        return parse_port_base(environ.get(VARIABLE) or str(BASE))
    except ValueError as error:
        raise InvalidVariable(VARIABLE, str(error)) from None
