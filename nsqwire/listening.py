"""Listening sockets, the same for each server of ours."""

from __future__ import annotations

import os
import socket
from typing import Final

from nsqwire.addresses import parse_host_port

_BACKLOG: Final = 1024


class ListenFailed(Exception):
    """An address cannot be listened on; the text is nsqd's, ``listen (<address>) failed - <reason>``."""


def listen_tcp(address: str) -> socket.socket:
    """Bind and listen on ``host:port``; port 0 takes a free one, an empty host every interface, IPv4 and IPv6.

    Raises ListenFailed.
    """
    try:
        host, port = parse_host_port(address)
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, ValueError) as error:
        raise ListenFailed(f"listen ({address}) failed - {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)  # the error's own text repeats the address
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
