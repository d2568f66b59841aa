"""A minimal client of NSQ's V2 protocol, which sends a test's bytes unchanged."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from types import TracebackType

import cramjam

from tests.harness.waiting import DEADLINE_S, is_readable

SILENCE_S = 0.15
RESPONSE, ERROR, MESSAGE = 0, 1, 2
SNAPPY_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


def sized(data: bytes) -> bytes:
    """Return ``data`` after its length, a u32."""
    return struct.pack(">I", len(data)) + data


def mpub(topic: str, bodies: list[bytes]) -> bytes:
    """Return an MPUB command."""
    return f"MPUB {topic}\n".encode() + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))


class V2Client:
    """A blocking V2 connection. It sends a test's bytes unchanged, and answers only heartbeats by itself."""

    def __init__(
        self, address: tuple[str, int] | str, *, magic: bytes = b"  V2", timeout_s: float = DEADLINE_S
    ) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout_s)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout_s)
        self.socket.sendall(magic)

    def __enter__(self) -> V2Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, bytes]:
        """Return type and data of the next frame; answers and skips heartbeats.

        Raises EOFError at the end, and TimeoutError if there are only heartbeats for DEADLINE_S.
        """
        deadline = time.monotonic() + DEADLINE_S
        while True:
            size, kind = struct.unpack(">ii", self._exactly(8))
            data = self._exactly(size - 4)
            if (kind, data) != (RESPONSE, b"_heartbeat_"):
                return kind, data
            if time.monotonic() > deadline:
                raise TimeoutError("nothing but heartbeats")
            self.send(b"NOP\n")

    def command(self, data: bytes) -> tuple[int, bytes]:
        """Send a command and return the next frame."""
        self.send(data)
        return self.frame()

    def ok(self, data: bytes) -> None:
        """Send a command; asserts that the answer is OK."""
        assert self.command(data) == (RESPONSE, b"OK")

    def message(self) -> tuple[bytes, int, bytes]:
        """Return id, attempts and body of the next message."""
        kind, data = self.frame()
        assert kind == MESSAGE, (kind, data)
        return data[10:26], int.from_bytes(data[8:10], "big"), data[26:]

    def bodies(self, number: int) -> list[bytes]:
        """Return the bodies of the next ``number`` messages."""
        return [self.message()[2] for _ in range(number)]

    def pub(self, topic: str, body: bytes) -> None:
        self.ok(f"PUB {topic}\n".encode() + sized(body))

    def dpub(self, topic: str, defer_ms: int, body: bytes) -> None:
        self.ok(f"DPUB {topic} {defer_ms}\n".encode() + sized(body))

    def mpub(self, topic: str, bodies: list[bytes]) -> None:
        self.ok(mpub(topic, bodies))

    def sub(self, topic: str, channel: str, ready_count: int = 0) -> None:
        self.ok(f"SUB {topic} {channel}\n".encode())
        if ready_count:
            self.send(b"RDY %d\n" % ready_count)

    def finish(self, *message_ids: bytes) -> None:
        """Send FIN for each message, and wait until the broker has processed them."""
        self.send(b"".join(b"FIN %b\n" % each for each in message_ids))
        self.settle()

    def settle(self) -> None:
        """Wait until the broker has processed everything sent so far; no other answer may be outstanding."""
        self.send(b"FIN zzzzzzzzzzzzzzzz\n")
        kind, data = self.frame()
        assert (kind, data[:33]) == (ERROR, b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz"), data

    def is_silent(self, seconds: float = SILENCE_S) -> bool:
        """Return True if nothing arrives for ``seconds``."""
        return not is_readable(self.socket, seconds)

    def is_closed(self) -> bool:
        """Return True once the broker has closed the connection; reads and drops everything before that."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"connection closed after {bytes(data[:200])!r}")
            data += part
        return bytes(data)


class PackedSocket:
    """A client's end of a compressed stream, with the methods of a socket that V2Client uses."""

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
    """Raw DEFLATE in both directions."""

    def __init__(self, under: socket.socket) -> None:
        super().__init__(under)
        self.packer, self._unpacker = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)

    def pack(self, data: bytes) -> bytes:
        return self.packer.compress(data) + self.packer.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> bytes:
        return self._unpacker.decompress(data)


class SnappySocket(PackedSocket):
    """The snappy framing format in both directions; asserts that the broker's stream begins with its identifier."""

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
