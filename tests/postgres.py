"""A PostgreSQL server from a wheel, on a Unix socket, with its own data."""

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
NOT_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
"""Settings that are switched off. Emptying the tables after a test would wait for the disk, ten times longer than it
takes otherwise; the data of a test run need not outlive the machine."""


def start_postgres() -> tuple[Any, Callable[[], None]]:
    """Start a server, not durable; returns it and a function that stops it. Sometimes pg_ctl does not notice that the
    server is up: then it is stopped and another one is started.

    The folder is not pytest's: as root the server runs as a user of its own, to whom every pytest that starts on this
    machine closes pytest's folders.
    """
    if shutil.which("useradd") is None:  # pgserver calls it, and PATH may not contain it
        os.environ["PATH"] += f"{os.pathsep}/usr/sbin"
    logging.getLogger("pgserver").setLevel(logging.CRITICAL)  # the server still logs when the run's output is closed
    for attempt in range(START_ATTEMPTS):
        data = Path(tempfile.mkdtemp(prefix="nsq-postgres-"))
        try:
            server = pgserver.get_server(data)
        except subprocess.TimeoutExpired:
            os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
            if attempt == START_ATTEMPTS - 1:
                raise
        else:
            for setting in NOT_DURABLE:
                server.psql(f"ALTER SYSTEM SET {setting} = off")
            server.psql("SELECT pg_reload_conf()")
            return server, partial(_end, server, data)
    raise AssertionError("unreachable")


def _end(server: Any, data: Path) -> None:
    server.cleanup()
    shutil.rmtree(data, ignore_errors=True)
