"""A registry on the wire: as an object that is fed bytes, and as a process of its own."""

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from lookup.http import make_router
from lookup.registry import Registry
from lookup.tcp import Conversation
from nsqwire.http import Request, Response

DEADLINE_S = 30
SECOND = 1_000_000_000
IDENTITY = {"broadcast_address": "b", "hostname": "h", "http_port": 4161, "tcp_port": 4160, "version": "1.3.0"}


class Clock:
    """Unix nanoseconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_ns = 1_795_184_228_805_018_549

    def __call__(self) -> int:
        return self.now_ns

    def pass_by(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


class NsqdOnTheWire:
    """One connection to a registry without a socket: bytes in, replies out."""

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
    """One registry with a clock of its own, and both its faces."""

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

    def request(self, method: str, target: str) -> Response:
        async def answered() -> Response:
            answer = self._router.answer(Request(method, target.encode(), [], b""))
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
        """Where ``/lookup`` says the topic is, as broadcast addresses."""
        return [producer["broadcast_address"] for producer in self.get(f"/lookup?topic={topic}")["producers"]]


@pytest.fixture
def world() -> World:
    return World()


class Process:
    """A ``python -m lookup`` of the test's own, with its log at hand."""

    def __init__(self, *flags: str, **popen: Any) -> None:
        command = [sys.executable, "-m", "lookup", *flags]
        self.process = subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen})
        self.log: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            with self._changed:
                self.log.append(line.decode().rstrip("\n"))
                self._changed.notify_all()

    def logged(self, pattern: str) -> re.Match[str]:
        """The first log line that matches, waited for."""
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while True:
                for line in self.log:
                    if match := re.search(pattern, line):
                        return match
                assert time.monotonic() < deadline, f"no line matches {pattern!r} in {self.log}"
                assert self._reader.is_alive(), f"it ended without a line that matches {pattern!r}: {self.log}"
                self._changed.wait(0.1)

    def port(self, face: str) -> int:
        return int(self.logged(rf"INFO: {face}: listening on \S+:(\d+)$")[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port("TCP")), timeout=DEADLINE_S)

    def get(self, target: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port("HTTP"), timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start a registry on free loopback ports; it is gone when the test ends."""
    started: list[Process] = []

    def run(*flags: str, **popen: Any) -> Process:
        ports = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        process = Process(*ports, *flags, **popen)
        started.append(process)
        return process

    yield run
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.wait()
        for pipe in (each.process.stdout, each.process.stderr):
            if pipe is not None:
                pipe.close()


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
