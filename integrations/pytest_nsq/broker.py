"""The broker's process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

START_S: Final = 60.0
STOP_S: Final = 30.0
POLL_S: Final = 0.01
LOG_LINES: Final = 200
_LISTENS: Final = re.compile(r"(TCP|HTTP): listening on (\S+):(\d+)")


class BrokerFailed(Exception):
    """The broker did not start, or ended; the text has the end of its log."""


class Broker:
    """A ``python -m brokerd`` process on free loopback ports, with its data in ``folder``."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._command = [
            sys.executable,
            "-m",
            "brokerd",
            "--tcp-address=127.0.0.1:0",
            "--http-address=127.0.0.1:0",
            "--broadcast-address=127.0.0.1",
            f"--data-path={folder}",
            "--retention=24h",  # so that finished messages can be read again
            *flags,
        ]
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self.tcp_port = self.http_port = 0

    def start(self, *more_flags: str) -> None:
        """Start the process with ``more_flags`` for this start only, and wait until it listens. Raises BrokerFailed."""
        self.tcp_port = self.http_port = 0
        self.log.clear()
        self._process = subprocess.Popen(
            [*self._command, *more_flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            text=True,
            errors="backslashreplace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="nsq-log", daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_S
        while not (self.tcp_port and self.http_port):
            if self._process.poll() is not None:
                self._reader.join()
                raise BrokerFailed(f"the broker ended with status {self._process.returncode}:\n{self.output}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"the broker does not listen after {START_S:g} s:\n{self.output}")
            time.sleep(POLL_S)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """The last lines of the log."""
        return "\n".join(list(self.log))

    def stop(self) -> None:
        """End the process with SIGTERM, and with SIGKILL if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.log.append(line.rstrip("\n"))
                if found := _LISTENS.search(line):
                    if found[1] == "TCP":
                        self.tcp_port = int(found[3])
                    else:
                        self.http_port = int(found[3])
