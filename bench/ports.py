"""Free ports of 127.0.0.1 for servers that are told where to listen, and that come back there after a restart.

They lie below the range from which systems give outgoing connections theirs (from 32768 on Linux, 49152 elsewhere), so
that none is taken by a connection while its server is down.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 15000, 32000
_given: set[int] = set()


def free_port() -> int:
    """One that nobody listens at, and that this process has not given out before."""
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
    """So many of them, all different."""
    return [free_port() for _ in range(count)]
