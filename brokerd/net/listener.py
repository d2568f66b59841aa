"""Opening the sockets that are listened on: ``host:port``, or otherwise the path of a Unix socket."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from nsqwire.addresses import address_text
from nsqwire.listening import ListenFailed, listen_tcp

BACKLOG = 4096
"""Connections the kernel holds until they are accepted; the system's own limit may be lower."""


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
    if address.rpartition(":")[2].isdecimal() and ":" in address:
        bound = listen_tcp(address)
        name = bound.getsockname()
        return Listener(socket=bound, shown=address_text(name), port=name[1])
    return _listen_unix(Path(address))


def _listen_unix(path: Path) -> Listener:
    # asyncio would quietly unlink a name that is taken, which may be another broker's.
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ListenFailed(f"listen ({path}) failed - {reason}") from error
    return Listener(socket=bound, shown=str(path), port=-1, path=path)
