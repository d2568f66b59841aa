"""Listening sockets of all our servers. An address is ``host:port`` or the path of a Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqwire.addresses import address_text, parse_host_port

_BACKLOG: Final = 4096
"""Length of the kernel's queue of connections to accept; the system's limit may be lower."""


class ListenFailed(Exception):
    """Listening on an address failed; the text is nsqd's, ``listen (<address>) failed - <reason>``."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A bound socket. ``shown`` is the address for the log; ``port`` is the bound port, -1 for a Unix socket."""

    socket: socket.socket
    shown: str
    port: int
    path: Path | None = None

    async def serve(self, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Accept connections, each with a protocol of its own."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            return await loop.create_unix_server(protocol, sock=self.socket, backlog=_BACKLOG)
        return await loop.create_server(protocol, sock=self.socket, backlog=_BACKLOG)

    def remove(self) -> None:
        """Close the socket, and remove a Unix socket's file so that the next start can bind it."""
        self.socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def listen(address: str) -> Listener:
    """Bind ``address``; an empty host means every interface, port 0 any free one. Raises ListenFailed."""
    if ":" in address and address.rpartition(":")[2].isdecimal():
        return listen_tcp(address)
    return _listen_unix(Path(address))


def listen_tcp(address: str) -> Listener:
    """As listen, for a server that has no Unix socket: an address other than ``host:port`` is an error."""
    try:
        bound = _bind_tcp(*parse_host_port(address))
    except (OSError, ValueError) as error:
        raise ListenFailed(f"listen ({address}) failed - {_reason(error)}") from error
    name = bound.getsockname()
    return Listener(socket=bound, shown=address_text(name), port=name[1])


def _bind_tcp(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _listen_unix(path: Path) -> Listener:
    # asyncio would silently unlink an existing file, which may be another server's socket.
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ListenFailed(f"listen ({path}) failed - {_reason(error)}") from error
    return Listener(socket=bound, shown=str(path), port=-1, path=path)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)  # the error's own text repeats the address
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
