"""A cluster of our own brokers and registry, as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from bench.ports import free_ports


class Server:
    """A process of ours with an HTTP port; started again, it listens where it did."""

    def __init__(self, wait_until: Callable[..., Any], *command: str, http_port: int) -> None:
        self.address = f"127.0.0.1:{http_port}"
        self._wait_until = wait_until
        self._command = [sys.executable, "-m", *command]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait_until(self._answers, f"{self._command[2]} answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"{self._command} ended with {self.process.returncode}"
        try:
            return httpx.get(f"http://{self.address}/ping", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return httpx.request(method, f"http://{self.address}{path}", trust_env=False, **arguments)

    def topics(self) -> dict[str, Any]:
        answer = self.request("GET", "/stats?format=json").json()
        return {topic["topic_name"]: topic for topic in answer["topics"]}

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(20)


class OurCluster:
    def __init__(self, wait_until: Callable[..., Any], data: Path) -> None:
        lookup_tcp, lookup_http, *rest = free_ports(6)
        self.registry = Server(
            wait_until,
            *("lookup", "--tcp-address", f"127.0.0.1:{lookup_tcp}", "--http-address", f"127.0.0.1:{lookup_http}"),
            http_port=lookup_http,
        )
        self.brokers: list[Server] = []
        for name, tcp, http in (("a", *rest[:2]), ("b", *rest[2:])):
            (data / name).mkdir()
            broker = Server(
                wait_until,
                *("brokerd", "--tcp-address", f"127.0.0.1:{tcp}", "--http-address", f"127.0.0.1:{http}"),
                *("--broadcast-address", "127.0.0.1", "--data-path", str(data / name)),
                *("--lookupd-tcp-address", f"127.0.0.1:{lookup_tcp}"),
                http_port=http,
            )
            self.brokers.append(broker)

    def publish(self, topic: str, count: int) -> None:
        """Publish so many messages to each broker."""
        for broker in self.brokers:
            body = b"\n".join(b"message %d" % number for number in range(count))
            assert broker.request("POST", f"/mpub?topic={topic}", content=body).text == "OK"

    def make_channel(self, topic: str, channel: str) -> None:
        for broker in self.brokers:
            assert broker.request("POST", f"/topic/create?topic={topic}").status_code == 200
            assert broker.request("POST", f"/channel/create?topic={topic}&channel={channel}").status_code == 200
