"""Listening sockets, the same for each server of ours."""

from __future__ import annotations

import socket
from typing import Final

from nsqwire.addresses import parse_host_port

_BACKLOG: Final = 1024


def listen_tcp(address: str) -> socket.socket:
    """Bind and listen on ``host:port``; port 0 takes a free one, an empty host every interface, IPv4 and IPv6.

    Raises OSError or ValueError with nsqd's sentence, ``listen (<address>) failed - <reason>``.
    """
    try:
        host, port = parse_host_port(address)
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise type(error)(f"listen ({address}) failed - {reason}") from None
