"""A real broker process per test that asks for one, and the smallest client that speaks V2 to it."""

from __future__ import annotations

import http.client
import json
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode

import cramjam
import pytest

DEADLINE_S = 10.0
SILENCE_S = 0.15
RESPONSE, ERROR, MESSAGE = 0, 1, 2
SNAPPY_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


class Answer(NamedTuple):
    """An HTTP answer, read whole."""

    status: int
    headers: Message
    text: str


class BrokerProcess:
    """A ``python -m brokerd`` of its own, on free ports, with its log at hand line by line."""

    def __init__(self, data_path: Path, *flags: str) -> None:
        self.data_path = data_path
        given = {flag.lstrip("-").split("=")[0] for flag in flags}
        defaults = {"tcp-address": "127.0.0.1:0", "http-address": "127.0.0.1:0", "data-path": str(data_path)}
        command = [sys.executable, "-m", "brokerd"]
        command += [f"--{name}={value}" for name, value in defaults.items() if name not in given]
        self.process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.tcp_address = self.http_address = ""

    def wait_until_ready(self) -> None:
        """Return once both faces listen, and take their addresses from the log."""
        self.tcp_address = self.wait_for_log(r"TCP: listening on (\S+)")[1]
        self.http_address = self.wait_for_log(r"HTTP: listening on (\S+)")[1]

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for_log(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """The first log line that matches, from line ``after`` on; fails the test if none comes in time."""
        deadline = time.monotonic() + DEADLINE_S
        seen = after
        with self._changed:
            while True:
                for line in self.log[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self.log)
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no log line matches {pattern!r} in:\n" + "\n".join(self.log))
                self._changed.wait(min(left, 0.1))

    @property
    def tcp(self) -> tuple[str, int]:
        return _host_port(self.tcp_address)

    @property
    def http(self) -> tuple[str, int]:
        return _host_port(self.http_address)

    @property
    def url(self) -> str:
        return f"http://{self.http_address}"

    def stats(self, **query: str) -> dict[str, object]:
        """What ``/stats`` says now, as JSON."""
        answer = self.request("GET", f"/stats?{urlencode({'format': 'json', **query})}")
        assert answer.status == 200, answer.text
        return dict(json.loads(answer.text))

    def request(self, method: str, target: str, body: bytes = b"", *, chunked: bool = False) -> Answer:
        """One request whose target goes out exactly as it is written."""
        connection = http.client.HTTPConnection(*self.http, timeout=DEADLINE_S)
        try:
            connection.request(method, target, iter([body]) if chunked else body, encode_chunked=chunked)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def wait_for_exit(self) -> int:
        """The exit status, once the process has ended and its log has been read to the end."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def terminate(self) -> int:
        """SIGTERM, and the exit status that follows."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to put anything in order."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait_for_exit()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class V2Client:
    """A blocking V2 connection without any cleverness: what a test sends is what goes out."""

    def __init__(self, address: tuple[str, int] | str, *, magic: bytes = b"  V2") -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE_S)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, DEADLINE_S)
        self.socket.sendall(magic)

    def __enter__(self) -> V2Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, bytes]:
        """The next frame's type and data, heartbeats answered and left out. Raises EOFError at the end."""
        while True:
            size, kind = struct.unpack(">ii", self._exactly(8))
            data = self._exactly(size - 4)
            if (kind, data) != (RESPONSE, b"_heartbeat_"):
                return kind, data
            self.send(b"NOP\n")

    def command(self, data: bytes) -> tuple[int, bytes]:
        """Send, and return the next frame."""
        self.send(data)
        return self.frame()

    def ok(self, data: bytes) -> None:
        """Send a command that must be answered with OK."""
        assert self.command(data) == (RESPONSE, b"OK")

    def message(self) -> tuple[bytes, int, bytes]:
        """The next message's id, attempts and body."""
        kind, data = self.frame()
        assert kind == MESSAGE, (kind, data)
        return data[10:26], int.from_bytes(data[8:10], "big"), data[26:]

    def bodies(self, number: int) -> list[bytes]:
        """The bodies of the next messages."""
        return [self.message()[2] for _ in range(number)]

    def is_silent(self, seconds: float = SILENCE_S) -> bool:
        """True when nothing arrives for ``seconds``: the one thing that only waiting can show."""
        return not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """True once the broker has closed the connection; reads and drops whatever comes before."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"connection closed after {data!r}")
            data += part
        return data


class PackedSocket:
    """A client's end of a compressed stream: as much of a socket as a V2Client uses."""

    def __init__(self, under: socket.socket) -> None:
        self.under = under
        self._plain = b""

    def sendall(self, data: bytes) -> None:
        self.under.sendall(self.pack(data))

    def recv(self, size: int) -> bytes:
        while not self._plain:
            data = self.under.recv(65536)
            if not data:
                return b""
            self._plain = self.unpack(data)
        part, self._plain = self._plain[:size], self._plain[size:]
        return part

    def close(self) -> None:
        self.under.close()

    def pack(self, data: bytes) -> bytes:
        raise NotImplementedError

    def unpack(self, data: bytes) -> bytes:
        raise NotImplementedError


class DeflatedSocket(PackedSocket):
    """Raw DEFLATE both ways."""

    def __init__(self, under: socket.socket) -> None:
        super().__init__(under)
        self.packer, self._unpacker = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)

    def pack(self, data: bytes) -> bytes:
        return self.packer.compress(data) + self.packer.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> bytes:
        return self._unpacker.decompress(data)


class SnappySocket(PackedSocket):
    """The snappy framing format both ways; checks that the broker's stream begins with its identifier."""

    def __init__(self, under: socket.socket) -> None:
        super().__init__(under)
        self._begun = False
        self._rest = b""
        self.chunks: list[int] = []

    def pack(self, data: bytes) -> bytes:
        stream = bytes(cramjam.snappy.compress(data))
        begun, self._begun = self._begun, True
        return stream[10:] if begun else stream

    def unpack(self, data: bytes) -> bytes:
        data = self._rest + data
        plain = b""
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[1:4], "little")):
            chunk, data = data[:end], data[end:]
            if not self.chunks:
                assert chunk == SNAPPY_IDENTIFIER
            else:
                plain += bytes(cramjam.snappy.decompress(SNAPPY_IDENTIFIER + chunk))
            self.chunks.append(chunk[0])
        self._rest = data
        return plain


StartBroker = Callable[..., BrokerProcess]


def _starter(directory: Callable[[], Path]) -> Iterator[StartBroker]:
    started: list[BrokerProcess] = []

    def start(*flags: str, data_path: Path | None = None, ready: bool = True) -> BrokerProcess:
        started.append(BrokerProcess(data_path or directory(), *flags))
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Start brokers: ``start_broker(*flags, data_path=…, ready=True)``; whatever still runs at the end is killed."""
    yield from _starter(lambda: tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def start_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """As start_broker, for brokers that the tests of a module share."""
    yield from _starter(lambda: tmp_path_factory.mktemp("data"))


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A running broker with default settings."""
    return start_broker()


@pytest.fixture
def connect() -> Iterator[Callable[..., V2Client]]:
    """Open V2 connections: ``connect(broker)`` or ``connect(address, magic=…)``; all are closed at the end."""
    opened: list[V2Client] = []

    def open_(target: BrokerProcess | tuple[str, int] | str, *, magic: bytes = b"  V2") -> V2Client:
        address = target.tcp if isinstance(target, BrokerProcess) else target
        opened.append(V2Client(address, magic=magic))
        return opened[-1]

    yield open_
    for client in opened:
        client.socket.close()


@pytest.fixture
def packed_socket() -> Callable[[str, socket.socket], PackedSocket]:
    """Put a compression over a socket: ``packed_socket("deflate", peer.socket)``, or ``"snappy"``."""
    return lambda codec, under: {"deflate": DeflatedSocket, "snappy": SnappySocket}[codec](under)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], object]:
    """Poll until a condition holds and return what it gave; fails the test if it does not within the deadline."""

    def poll(condition: Callable[[], object]) -> object:
        deadline = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < deadline, "the condition never held"
            time.sleep(0.01)
        return value

    return poll
