"""Free ports of 127.0.0.1 for servers that must listen on the same port after a restart.

The ports are below the range of ephemeral ports (from 32768 on Linux, 49152 elsewhere), so that no outgoing connection
takes one while its server is down. No other process that uses this module is given the same port: a port is reserved
until the process that asked for it ends, by a lock on one byte of a file.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST, _LAST = 15000, 32000
_given: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens, and which no running process has been given by this module."""
    while True:
        port = random.SystemRandom().randint(_FIRST, _LAST)
        if port in _given or not _reserve(port):
            continue
        _given.add(port)  # also if it is taken: a lock of this process would be granted again
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports."""
    return [free_port() for _ in range(count)]


def _reserve(port: int) -> bool:
    """Whether no other process has reserved the port. The system ends a reservation together with its process."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    """The descriptor of the file whose bytes are locked; byte n is port n. It stays empty."""
    path = Path(tempfile.gettempdir()) / f"nsq-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
