"""Free ports of 127.0.0.1 for servers that must listen on the same port after a restart.

The ports are below the range of ephemeral ports (from 32768 on Linux, 49152 elsewhere), so that no outgoing connection
takes one while its server is down.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 15000, 32000
_given: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens, and which this process has not returned before."""
    while True:
        port = random.SystemRandom().randint(_FIRST, _LAST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports."""
    return [free_port() for _ in range(count)]
