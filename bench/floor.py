"""The floors: servers that only move bytes. No broker in this language and event loop can be faster.

``swallow --first N --every M``: answers ``OK`` after the first N bytes and after every further M, without parsing them.
``store --first N --every M --directory D``: like swallow, and writes the input once to files below D, as every broker
that stores messages must.
``relay --to PORT``: passes its input on to the floor at that port, and the answers back, as the primary of a pair must.
``blast --size S``: after ``RDY``, sends prebuilt message frames, one more for every FIN's length of bytes received,
without parsing them, and ends at ``CLS`` with ``CLOSE_WAIT``.
``send --size S --directory D``: like blast, with frames from files below D, as every broker that stores messages must.
``respond --bytes N``: parses HTTP with httptools and answers every request with 200 and N bytes (``OK`` if N is 2).

Each prints ``TCP: listening on 127.0.0.1:PORT`` on standard error and runs until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import httptools
import uvloop

from bench import wire

BUFFER_BYTES = 1 << 18
BLAST_FRAMES = 2500
CLOSE = b"CLS\n"
FILE_BYTES = 64 << 20
SENT_FILES = 4
"""Together larger than a processor's cache."""


class Swallow(asyncio.BufferedProtocol):
    """Counts bytes, and answers ``OK`` at each boundary."""

    transport: asyncio.Transport

    def __init__(self, first: int, every: int) -> None:
        self._every = every
        self._until_reply = first
        self._buffer = bytearray(BUFFER_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._until_reply -= nbytes
        replies = 0
        while self._until_reply <= 0:
            self._until_reply += self._every
            replies += 1
        if replies:
            self.transport.write(wire.OK * replies)


class Store(Swallow):
    """Like Swallow, and writes the input once, to files of a segment's size.

    The files are preallocated and written, not mapped, because that is the fastest way.
    """

    def __init__(self, first: int, every: int, directory: Path) -> None:
        super().__init__(first, every)
        self._view = memoryview(self._buffer)
        self._directory = directory
        self._count = 0
        self._file = self._next_file()
        self._offset = 0

    def _next_file(self) -> int:
        path = self._directory / f"{self._count}"
        self._count += 1
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(file, 0, FILE_BYTES)
        return file

    def buffer_updated(self, nbytes: int) -> None:
        if self._offset + nbytes > FILE_BYTES:
            os.close(self._file)
            self._file, self._offset = self._next_file(), 0
        self._offset += os.pwrite(self._file, self._view[:nbytes], self._offset)
        super().buffer_updated(nbytes)


class Relay(asyncio.Protocol):
    """Passes what a client sends on to another floor, and the answers back."""

    transport: asyncio.Transport

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting = b""
        self._answers: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._answers, _ = await loop.create_connection(lambda: Answers(self.transport), "127.0.0.1", self._port)
        self._answers.write(self._waiting)

    def data_received(self, data: bytes) -> None:
        if self._answers is None:
            self._waiting += data
        else:
            self._answers.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answers is not None:
            self._answers.close()


class Answers(asyncio.Protocol):
    """Passes what it receives back to a client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)


def prebuilt_frames(size: int) -> memoryview:
    return memoryview(b"".join(wire.message_frame(i, bytes(size)) for i in range(BLAST_FRAMES)))


class Blast(asyncio.BufferedProtocol):
    """Sends frames as fast as RDY allows: every 21 bytes received, the length of a FIN, allow one more frame."""

    transport: asyncio.Transport

    def __init__(self, size: int) -> None:
        self._frames = prebuilt_frames(size)
        self._frame_bytes = len(self._frames) // BLAST_FRAMES
        self._buffer = bytearray(BUFFER_BYTES)
        self._credit = 0
        self._fin_bytes = 0
        self._head = self._tail = b""
        """What was received before RDY, and the last bytes after it: a command may arrive in two parts."""
        self._subscribed = self._closing = False
        self._writable = True
        self._scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        start = 0 if self._subscribed else self._subscribe(nbytes)
        if not self._subscribed:
            return
        self._tail = (self._tail + bytes(self._buffer[max(start, nbytes - len(CLOSE)) : nbytes]))[-len(CLOSE) :]
        if self._tail == CLOSE:
            self._closing = True
            self.transport.write(wire.CLOSE_WAIT)
        else:
            self._fin_bytes += nbytes - start
            self._credit += self._fin_bytes // wire.FIN_LENGTH
            self._fin_bytes %= wire.FIN_LENGTH
        self._schedule()

    def _subscribe(self, nbytes: int) -> int:
        """Take everything up to RDY, however it is divided; return the offset after it in the buffer."""
        known = len(self._head)
        self._head += bytes(self._buffer[:nbytes])
        ready = re.search(rb"RDY (\d+)\n", self._head)
        if ready is None:
            return nbytes
        self._subscribed = True
        self._credit = int(ready[1])
        self.transport.write(wire.OK * 2)  # for IDENTIFY and SUB
        return ready.end() - known

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:  # one iteration of the loop between chunks, so that FINs are read
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._blast)

    def _blast(self) -> None:
        self._scheduled = False
        count = min(self._credit, BLAST_FRAMES)
        if count and self._writable and not self._closing:
            frames = self._next_frames(count)
            self._credit -= len(frames) // self._frame_bytes
            self.transport.write(frames)
            self._schedule()

    def _next_frames(self, most: int) -> memoryview:
        return self._frames[: most * self._frame_bytes]


class Send(Blast):
    """Like Blast, with frames from files of a segment's size, which are mapped and sent one after the other."""

    def __init__(self, size: int, directory: Path) -> None:
        super().__init__(size)
        self._directory = directory
        self._count = 0
        self._offset = 0
        self._file = self._next_file()

    @staticmethod
    def fill(directory: Path, size: int) -> None:
        """Create the files."""
        frames = prebuilt_frames(size)
        for i in range(SENT_FILES):
            with open(directory / f"{i}", "wb") as file:
                file.writelines([frames] * (FILE_BYTES // len(frames)))

    def _next_file(self) -> memoryview:
        self._count += 1
        with open(self._directory / f"{self._count % SENT_FILES}", "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def _next_frames(self, most: int) -> memoryview:
        if self._offset == len(self._file):
            self._file, self._offset = self._next_file(), 0
        start = self._offset
        self._offset = min(start + most * self._frame_bytes, len(self._file))
        return self._file[start : self._offset]


class Respond(asyncio.Protocol):
    """A minimal HTTP server: parses the request, drops its body and sends a fixed response."""

    transport: asyncio.Transport

    def __init__(self, size: int) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        self._answer = head.encode() + (b"OK" if size == 2 else bytes(size))
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(self._answer)


async def serve(protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"TCP: listening on {host}:{port}", file=sys.stderr, flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    names = ("swallow", "store", "relay", "blast", "send", "respond")
    swallow, store, relay, blast, send, respond = map(kinds.add_parser, names)
    for each in (swallow, store):
        each.add_argument("--first", type=int, required=True)
        each.add_argument("--every", type=int, required=True)
    relay.add_argument("--to", type=int, required=True)
    for each in (blast, send):
        each.add_argument("--size", type=int, required=True)
    for each in (store, send):
        each.add_argument("--directory", type=Path, required=True)
    respond.add_argument("--bytes", type=int, default=2)
    given = parser.parse_args()
    makers: dict[str, Callable[[], asyncio.BaseProtocol]] = {
        "swallow": lambda: Swallow(given.first, given.every),
        "store": lambda: Store(given.first, given.every, given.directory),
        "relay": lambda: Relay(given.to),
        "blast": lambda: Blast(given.size),
        "send": lambda: Send(given.size, given.directory),
        "respond": lambda: Respond(given.bytes),
    }
    if given.kind == "send":
        Send.fill(given.directory, given.size)
    uvloop.run(serve(makers[given.kind]))


if __name__ == "__main__":
    main()
