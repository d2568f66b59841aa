"""A PostgreSQL server out of a wheel, on a Unix socket, with data of its own."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pgserver

START_ATTEMPTS = 4


def start_postgres() -> tuple[Any, Callable[[], None]]:
    """A server, and what ends it. Now and then pg_ctl waits in vain for one that is up: that is ended, and another
    started.

    The folder is not pytest's: as root the server runs as a user of its own, to whom every pytest that starts on this
    machine closes pytest's folders.
    """
    if shutil.which("useradd") is None:  # which pgserver calls, and a PATH need not lead to
        os.environ["PATH"] += f"{os.pathsep}/usr/sbin"
    logging.getLogger("pgserver").setLevel(logging.CRITICAL)  # it still talks when the run's output is closed
    for attempt in range(START_ATTEMPTS):
        data = Path(tempfile.mkdtemp(prefix="nsq-postgres-"))
        try:
            server = pgserver.get_server(data)
        except subprocess.TimeoutExpired:
            os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
            if attempt == START_ATTEMPTS - 1:
                raise
        else:
            return server, partial(_end, server, data)
    raise AssertionError("unreachable")


def _end(server: Any, data: Path) -> None:
    server.cleanup()
    shutil.rmtree(data, ignore_errors=True)
