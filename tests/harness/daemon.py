"""brokerd and the registry as separate processes, on loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sys
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from bench.ports import free_port
from tests.harness.process import Process
from tests.harness.waiting import DEADLINE_S

BROKER = "brokerd"
REGISTRY = "nsqlookup"

IMPORTS = ("brokerd.process", "nsqlookup.http", "nsqlookup.settings", "nsqlookup.tcp", "nsqlookup.scheduler")
"""Most of what brokerd and the registry import."""

HOST = "127.0.0.1"

Self = TypeVar("Self", bound="Daemon")


class Answer(NamedTuple):
    """A complete HTTP response."""

    status: int
    headers: Message
    text: str


class Daemon(Process):
    """A ``python -m brokerd`` or ``python -m nsqlookup``, on free ports unless ``flags`` set the addresses.

    With ``keep_ports`` the daemon listens on the same ports after each start; otherwise it takes new ones. It is forked
    from a process that has imported it, unless it is ``plain``: for tests of what happens before it runs, or of its
    memory.
    """

    def __init__(
        self,
        module: str,
        *flags: str,
        keep_ports: bool = False,
        plain: bool = False,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        given = {flag.lstrip("-").split("=")[0] for flag in flags}
        addresses = [
            f"--{name}={HOST}:{free_port() if keep_ports else 0}"
            for name in ("tcp-address", "http-address")
            if name not in given
        ]
        super().__init__(
            [sys.executable, "-m", module, *addresses, *flags], env=env, imports=() if plain else IMPORTS, **popen
        )
        self.tcp_address = self.http_address = ""

    def launch(self: Self) -> Self:
        """Start the daemon and wait until it listens. Returns the daemon."""
        self.start()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until the daemon listens for TCP and HTTP, and read the addresses from its log."""
        self.tcp_address = self.wait_for_log(r"TCP: listening on (\S+)")[1]
        self.http_address = self.wait_for_log(r"HTTP: listening on (\S+)")[1]

    @property
    def tcp(self) -> tuple[str, int]:
        return host_port(self.tcp_address)

    @property
    def http(self) -> tuple[str, int]:
        return host_port(self.http_address)

    @property
    def url(self) -> str:
        return f"http://{self.http_address}"

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        chunked: bool = False,
    ) -> Answer:
        """Send one request, with ``target`` unchanged."""
        connection = http.client.HTTPConnection(*self.http, timeout=DEADLINE_S)
        try:
            sent = iter([body]) if chunked else body
            with contextlib.suppress(BrokenPipeError):  # a body that is too large is refused before all of it was sent
                connection.request(method, target, sent, dict(headers), encode_chunked=chunked)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def get(self, target: str) -> Any:
        """GET ``target`` and return the JSON of the response; asserts status 200."""
        answer = self.request("GET", target)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def post(self, path: str, body: bytes = b"", **query: str) -> str:
        """POST to ``path`` and return the text of the response; asserts status 200."""
        answer = self.request("POST", f"{path}?{urlencode(query)}" if query else path, body)
        assert answer.status == 200, answer.text
        return answer.text

    def is_answering(self) -> bool:
        """Return whether ``/ping`` answers 200. Raises AssertionError if the process has ended."""
        assert self.is_running, self.output
        try:
            return self.request("GET", "/ping").status == 200
        except OSError:
            return False

    def stats(self, **query: str) -> dict[str, Any]:
        """Return the broker's ``/stats``, parsed."""
        return dict(self.get(f"/stats?{urlencode({'format': 'json', **query})}"))

    def topics(self) -> dict[str, dict[str, Any]]:
        """Return the topics of the broker's ``/stats`` by name."""
        return {topic["topic_name"]: topic for topic in self.stats()["topics"]}

    def stop(self) -> None:
        """Send SIGTERM if the daemon still runs; asserts that it exits with status 0."""
        if hasattr(self, "process") and self.is_running:
            status = self.terminate()
            assert status == 0, f"exit status {status} after SIGTERM:\n{self.output}"
        self.close()

    def end(self, how: signal.Signals) -> int:
        """Send a signal, wait for the exit and return the exit status."""
        self.signal(how)
        return self.wait_for_exit()


class Broker(Daemon):
    """A brokerd on ``data_path``."""

    def __init__(self, data_path: Path, *flags: str, **more: Any) -> None:
        self.data_path = data_path
        default = (
            [] if any(flag.lstrip("-").startswith("data-path") for flag in flags) else [f"--data-path={data_path}"]
        )
        super().__init__(BROKER, *default, *flags, **more)


class Registry(Daemon):
    """A lookup, the registry."""

    def __init__(self, *flags: str, **more: Any) -> None:
        super().__init__(REGISTRY, *flags, **more)


def host_port(address: str) -> tuple[str, int]:
    """Split ``host:port``; the brackets of an IPv6 address are removed."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
