"""Fixtures: a registry as an object that receives bytes, and as a process."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from nsqdaemon.http import Request, Response
from nsqlookup.http import make_router
from nsqlookup.registry import Registry
from nsqlookup.tcp import Conversation
from tests.harness import daemon as harness
from tests.harness.waiting import DEADLINE_S

SECOND = 1_000_000_000
IDENTITY = {"broadcast_address": "b", "hostname": "h", "http_port": 4161, "tcp_port": 4160, "version": "1.3.0"}


class Clock:
    """A clock in Unix nanoseconds that the test advances."""

    def __init__(self) -> None:
        self.now_ns = 1_795_184_228_805_018_549

    def __call__(self) -> int:
        return self.now_ns

    def pass_by(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


class NsqdOnTheWire:
    """One connection to a registry without a socket: takes bytes, returns replies."""

    def __init__(self, registry: Registry, clock: Clock, address: str) -> None:
        self.conversation = Conversation(registry, address, IDENTITY)
        self.clock = clock
        self.address = address

    def send(self, data: bytes, *, chunk: int | None = None) -> list[bytes]:
        """The replies to these bytes, without their lengths."""
        output = b""
        step = chunk or max(len(data), 1)
        for start in range(0, len(data), step):
            self.conversation.received(data[start : start + step], self.clock())
            output += self.conversation.session.take_output()
        return split_replies(output)

    def identify(self, **fields: Any) -> "NsqdOnTheWire":
        assert json.loads(self.send(b"  V1" + identify_command(**fields))[0]) == IDENTITY
        return self

    def ok(self, line: str) -> None:
        assert self.send(line.encode() + b"\n") == [b"OK"]

    def disconnect(self) -> None:
        for _ in self.conversation.ended():
            pass

    @property
    def closed(self) -> bool:
        return self.conversation.session.closed


def split_replies(output: bytes) -> list[bytes]:
    replies = []
    while output:
        (size,) = struct.unpack_from(">i", output)
        assert len(output) >= 4 + size, "a reply is cut short"
        replies.append(output[4 : 4 + size])
        output = output[4 + size :]
    return replies


def identify_command(**fields: Any) -> bytes:
    announced = {
        "broadcast_address": "addrA",
        "hostname": "hostA",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        **fields,
    }
    body = json.dumps(announced).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


LOOP = asyncio.new_event_loop()


def whole(response: Response) -> bytes:
    return response.body if response.parts is None else b"".join(response.parts)


class World:
    """One registry with its own clock, TCP protocol and HTTP API."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.registry = Registry(inactive_timeout=timedelta(minutes=5), tombstone_lifetime=timedelta(seconds=45))
        self._router = make_router(self.registry, self.clock)
        self._connections = 0

    def connect(self) -> NsqdOnTheWire:
        self._connections += 1
        return NsqdOnTheWire(self.registry, self.clock, f"127.0.0.1:{50_000 + self._connections}")

    def nsqd(self, *registrations: str, **fields: Any) -> NsqdOnTheWire:
        """An identified connection that has registered ``"topic"`` or ``"topic channel"`` each."""
        connection = self.connect().identify(**fields)
        for registration in registrations:
            connection.ok(f"REGISTER {registration}")
        return connection

    def request(self, method: str, target: str, body: bytes = b"") -> Response:
        async def answered() -> Response:
            answer = self._router.answer(Request(method, target.encode(), [], body))
            if isinstance(answer, Awaitable):
                answer = await answer
            assert isinstance(answer, Response)
            return answer

        return LOOP.run_until_complete(answered())

    def get(self, target: str) -> Any:
        response = self.request("GET", target)
        assert response.status == 200, response.body
        return json.loads(whole(response))

    def post(self, target: str) -> None:
        response = self.request("POST", target)
        assert (response.status, response.body) == (200, b"")

    def found(self, topic: str) -> list[str]:
        """The broadcast addresses that ``/lookup`` returns for the topic."""
        return [producer["broadcast_address"] for producer in self.get(f"/lookup?topic={topic}")["producers"]]


@pytest.fixture
def world() -> World:
    return World()


class RunningRegistry(harness.Registry):
    """A registry as a process, with its TCP side as sockets."""

    def port(self, face: str) -> int:
        """The port of ``TCP`` or ``HTTP``, once the registry listens there."""
        return int(self.wait_for_log(rf"INFO: {face}: listening on \S+:(\d+)$")[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port("TCP")), timeout=DEADLINE_S)

    def answer(self, target: str) -> tuple[int, bytes]:
        """Status and body of GET."""
        self.wait_until_ready()
        answer = self.request("GET", target)
        return answer.status, answer.text.encode()


@pytest.fixture
def start() -> Iterator[Callable[..., RunningRegistry]]:
    """Start a registry on free loopback ports, which is killed at the end of the test. It may not listen yet."""
    started: list[RunningRegistry] = []

    def run(*flags: str, **popen: Any) -> RunningRegistry:
        started.append(RunningRegistry(*flags, **popen).start())
        return started[-1]

    yield run
    for each in started:
        each.close()


def receive_reply(connection: socket.socket) -> bytes:
    """One reply from a real connection; ``b""`` at its end."""
    size = _exactly(connection, 4)
    return _exactly(connection, struct.unpack(">i", size)[0]) if size else b""


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        more = connection.recv(count - len(received))
        if not more:
            return b""
        received += more
    return received


@pytest.fixture(name="receive_reply")
def _receive_reply() -> Callable[[socket.socket], bytes]:
    return receive_reply


@pytest.fixture(name="identify_command")
def _identify_command() -> Callable[..., bytes]:
    return identify_command


@pytest.fixture(scope="session")
def world_factory() -> type[World]:
    return World
