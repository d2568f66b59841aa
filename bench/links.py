"""Connections of load generators: plain, or upgraded to TLS or deflate by IDENTIFY."""

from __future__ import annotations

import enum
import json
import socket
import ssl
import struct
import zlib
from types import TracebackType
from typing import Self

from bench import wire
from bench.errors import BenchError

SILENCE_SECONDS = 20.0
DEFLATE_LEVEL = 6
"""The default of nsqd and go-nsq."""


class Layer(enum.StrEnum):
    """The layer between the protocol and the socket."""

    TLS = "tls"
    DEFLATE = "deflate"

    def packed(self, command: bytes) -> bytes:
        """Return the bytes with which ``command`` is sent, repeatedly."""
        if self is Layer.TLS:
            return command
        deflate = zlib.compressobj(DEFLATE_LEVEL, wbits=-15)
        return deflate.compress(command) + deflate.flush(zlib.Z_FULL_FLUSH)  # independent of earlier data


def connect(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address, timeout=SILENCE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Deflated:
    """A socket with deflate. ``send_packed`` sends the result of Layer.packed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._inflate = zlib.decompressobj(-15)
        self._deflate = zlib.compressobj(1, wbits=-15)
        self.settimeout = sock.settimeout
        self.send_packed = sock.sendall

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sock.close()

    def recv(self, count: int) -> bytes:
        while True:
            if plain := self._inflate.decompress(self._inflate.unconsumed_tail, count):
                return plain
            packed = self._sock.recv(65536)
            if not packed:
                return b""
            if plain := self._inflate.decompress(packed, count):
                return plain

    def recv_into(self, view: memoryview) -> int:
        plain = self.recv(len(view))
        view[: len(plain)] = plain
        return len(plain)

    def sendall(self, data: bytes | memoryview) -> None:
        self._sock.sendall(self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH))


class Secured(ssl.SSLSocket):
    """A socket with TLS."""

    send_packed = ssl.SSLSocket.sendall


Link = socket.socket | Deflated | Secured


def upgraded(address: tuple[str, int], layer: Layer) -> Deflated | Secured:
    """Open a connection, identify and upgrade it. Raises BenchError if the server refuses."""
    sock = connect(address)
    try:
        asked = {"tls_v1": True} if layer is Layer.TLS else {"deflate": True, "deflate_level": DEFLATE_LEVEL}
        sock.sendall(wire.MAGIC + wire.identify(client_id="bench", feature_negotiation=True, **asked))
        kind, reply = received_frame(sock)
        if kind != wire.RESPONSE or not json.loads(reply).get("tls_v1" if layer is Layer.TLS else "deflate"):
            raise BenchError(f"the server refused {layer.name}: {reply.decode(errors='replace')}")
        link = secured(sock) if layer is Layer.TLS else Deflated(sock)
        if (answer := received_frame(link)) != (wire.RESPONSE, b"OK"):
            raise BenchError(f"the server answered {answer!r} to {layer.name}")
        return link
    except BaseException:
        sock.close()
        raise


def secured(sock: socket.socket) -> Secured:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the broker is our own child process
    context.sslsocket_class = Secured
    wrapped = context.wrap_socket(sock)
    assert isinstance(wrapped, Secured)
    return wrapped


def received_frame(link: Link) -> tuple[int, bytes]:
    """Read one frame and no byte more, because later bytes may belong to the next layer."""
    size, kind = struct.unpack(">ii", received_exactly(link, 8))
    return kind, received_exactly(link, size - 4)


def received_exactly(link: Link, count: int) -> bytes:
    """Return the next ``count`` bytes. Raises BenchError if the server closes the connection before."""
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise BenchError("the server closed the connection")
        data += more
    return data
