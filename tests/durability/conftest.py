"""Brokers that are ended and started again over the same data path, and a client to look at what is left."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.server import Server, start_brokerd

DEADLINE_S = 10.0


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Peer:
    """A blocking V2 connection; heartbeats are answered and left out."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(server.tcp, DEADLINE_S)
        self.send(b"  V2")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, bytes]:
        while True:
            size, kind = struct.unpack(">ii", self._exactly(8))
            data = self._exactly(size - 4)
            if data != b"_heartbeat_":
                return kind, data
            self.send(b"NOP\n")

    def ok(self, command: bytes) -> None:
        self.send(command)
        assert self.frame() == (0, b"OK")

    def pub(self, topic: str, body: bytes) -> None:
        self.ok(f"PUB {topic}\n".encode() + sized(body))

    def dpub(self, topic: str, defer_ms: int, body: bytes) -> None:
        self.ok(f"DPUB {topic} {defer_ms}\n".encode() + sized(body))

    def mpub(self, topic: str, bodies: list[bytes]) -> None:
        self.ok(f"MPUB {topic}\n".encode() + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies))))

    def sub(self, topic: str, channel: str, ready_count: int = 0) -> None:
        self.ok(f"SUB {topic} {channel}\n".encode())
        if ready_count:
            self.send(b"RDY %d\n" % ready_count)

    def message(self) -> tuple[bytes, int, bytes]:
        """Id, attempts and body of the next message."""
        kind, data = self.frame()
        assert kind == 2, (kind, data)
        return data[10:26], int.from_bytes(data[8:10], "big"), data[26:]

    def finish(self, *message_ids: bytes) -> None:
        """FIN each, and wait until the broker has worked through them."""
        self.send(b"".join(b"FIN %b\n" % each for each in message_ids))
        self.settle()

    def settle(self) -> None:
        """Wait until the broker has worked through everything sent so far; nothing else may be under way."""
        self.send(b"FIN zzzzzzzzzzzzzzzz\n")
        kind, data = self.frame()
        assert (kind, data[:33]) == (1, b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz"), data

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"connection closed after {bytes(data[:200])!r}")
            data += part
        return bytes(data)


class Node:
    """One data path and the broker that is running over it now."""

    def __init__(self, data_path: Path, *flags: str) -> None:
        self.data_path = data_path
        self.flags = flags
        self.peers: list[Peer] = []
        self.server = start_brokerd(data_path, *flags)

    def connect(self) -> Peer:
        self.peers.append(Peer(self.server))
        return self.peers[-1]

    def end(self, how: str) -> None:
        """``SIGTERM`` and wait for a clean exit, or ``SIGKILL``."""
        if how == "SIGTERM":
            self.server.stop()
        else:
            self.server.kill()
        for peer in self.peers:
            peer.socket.close()
        self.peers.clear()

    def restart(self, how: str) -> None:
        self.end(how)
        self.server = start_brokerd(self.data_path, *self.flags)

    def post(self, path: str, **query: str) -> None:
        url = "http://{}:{}{}".format(*self.server.http, path)
        answer = httpx.post(url, params=query, trust_env=False)
        assert answer.status_code == 200, answer.text

    def ping(self) -> int:
        """The status that ``/ping`` answers with."""
        return httpx.get("http://{}:{}/ping".format(*self.server.http), trust_env=False).status_code

    def topics(self) -> dict[str, dict[str, Any]]:
        """``/stats``, by topic name; each topic's channels by channel name."""
        url = "http://{}:{}/stats".format(*self.server.http)
        topics = httpx.get(url, params={"format": "json"}, trust_env=False).json()["topics"]
        return {
            topic["topic_name"]: topic | {"channels": {each["channel_name"]: each for each in topic["channels"]}}
            for topic in topics
        }

    def channel(self, topic: str, channel: str) -> dict[str, Any]:
        return dict(self.topics()[topic]["channels"][channel])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Start a broker: ``start(*flags, data_path=…)``; it is killed at the end."""
    nodes: list[Node] = []

    def start_(*flags: str, data_path: Path | None = None) -> Node:
        if data_path is None:
            data_path = tmp_path / f"data{len(nodes)}"
            data_path.mkdir()
        nodes.append(Node(data_path, *flags))
        return nodes[-1]

    yield start_
    for node in nodes:
        node.end("SIGKILL")


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start()
