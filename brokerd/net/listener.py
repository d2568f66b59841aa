"""Opening the sockets that are listened on: ``host:port``, or otherwise the path of a Unix socket."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

BACKLOG = 4096
"""Connections the kernel holds until they are accepted; the system's own limit may be lower."""


class ListenFailed(Exception):
    """An address cannot be listened on; the text names it and says why."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A bound socket. ``shown`` is what the log says; ``port`` is the real one, -1 for a Unix socket."""

    socket: socket.socket
    shown: str
    port: int
    path: Path | None = None

    def remove(self) -> None:
        """Close the socket, and take a Unix socket's name away so that the next start finds it free."""
        self.socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def listen(address: str) -> Listener:
    """Bind ``address``; an empty host means every interface, port 0 any free one. Raises ListenFailed."""
    host, colon, port = address.rpartition(":")
    try:
        if not colon or not port.isdecimal():
            return _listen_unix(Path(address))
        return _listen_tcp(host.removeprefix("[").removesuffix("]"), int(port))
    except (OSError, OverflowError) as error:
        raise ListenFailed(f"listen ({address}) failed - {_reason(error)}") from error


def _reason(error: OSError | OverflowError) -> str:
    if isinstance(error, socket.gaierror) or not isinstance(error, OSError) or not error.errno:
        return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return os.strerror(error.errno)  # the error's own text repeats the address at length


def _listen_tcp(host: str, port: int) -> Listener:
    if host:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    elif socket.has_dualstack_ipv6():
        bound = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    else:
        bound = socket.create_server(("", port), backlog=BACKLOG)
    name, number, *_ = bound.getsockname()
    return Listener(socket=bound, shown=f"[{name}]:{number}" if ":" in name else f"{name}:{number}", port=number)


def _listen_unix(path: Path) -> Listener:
    # asyncio would quietly unlink a name that is taken, which may be another broker's.
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return Listener(socket=bound, shown=str(path), port=-1, path=path)
