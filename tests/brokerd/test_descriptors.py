"""The number of connections."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any


def open_here() -> int:
    """Number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def test_connections_are_not_limited_by_a_shells_number_of_open_files(
    start_broker: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Like Go's programs, the broker raises its limit to what the system allows; 400 clients are served where a shell
    gave 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, open_here() + 32), hard))  # the starting process has it too
    try:
        broker = start_broker()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for client in [connect(broker) for _ in range(400)]:
        client.ok(b"PUB t\n\x00\x00\x00\x01x")
