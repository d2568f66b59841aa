"""The servers that do nothing but move the bytes: what no broker in this language and event loop can beat.

``swallow --first N --every M``: answers ``OK`` after the first N bytes and after every further M; never looks at them.
``blast --size S``: from ``RDY`` on sends prebuilt message frames, one more for every FIN's length of bytes that comes
back, never looks at them, and stops at ``CLS`` with ``CLOSE_WAIT``.
``respond``: parses HTTP with httptools and answers 200 ``OK`` to everything.

Each prints ``TCP: listening on 127.0.0.1:PORT`` on standard error and runs until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable
from typing import cast

import httptools
import uvloop

from bench import wire

BUFFER_BYTES = 1 << 18
BLAST_FRAMES = 2500


class Swallow(asyncio.BufferedProtocol):
    """Counts bytes; each boundary passed is an ``OK``."""

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


class Blast(asyncio.BufferedProtocol):
    """Sends frames as fast as RDY lets it: for every 21 bytes that come back, a FIN's length, it may send one more."""

    transport: asyncio.Transport

    def __init__(self, size: int) -> None:
        frame = wire.message_frame(0, bytes(size))
        self._frame_bytes = len(frame)
        self._frames = memoryview(b"".join(wire.message_frame(i, bytes(size)) for i in range(BLAST_FRAMES)))
        self._buffer = bytearray(BUFFER_BYTES)
        self._credit = 0
        self._fin_bytes = 0
        self._subscribed = self._closing = False
        self._writable = True
        self._scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._subscribed:
            ready = re.search(rb"RDY (\d+)\n", self._buffer[:nbytes])
            if ready is None:
                return
            self._subscribed = True
            self._credit = int(ready[1])
            self.transport.write(wire.OK * 2)  # for IDENTIFY and SUB
        elif self._buffer[nbytes - 4 : nbytes] == b"CLS\n":
            self._closing = True
            self.transport.write(wire.CLOSE_WAIT)
        else:
            self._fin_bytes += nbytes
            self._credit += self._fin_bytes // wire.FIN_LENGTH
            self._fin_bytes %= wire.FIN_LENGTH
        self._schedule()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:  # a turn of the loop between chunks, so that FINs are read
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._blast)

    def _blast(self) -> None:
        self._scheduled = False
        count = min(self._credit, BLAST_FRAMES)
        if count and self._writable and not self._closing:
            self._credit -= count
            self.transport.write(self._frames[: count * self._frame_bytes])
            self._schedule()


class Respond(asyncio.Protocol):
    """The least that still speaks HTTP: a request parsed, its body dropped, a fixed answer."""

    transport: asyncio.Transport
    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nOK"

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(self.ANSWER)


async def serve(protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"TCP: listening on {host}:{port}", file=sys.stderr, flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    swallow = kinds.add_parser("swallow")
    swallow.add_argument("--first", type=int, required=True)
    swallow.add_argument("--every", type=int, required=True)
    blast = kinds.add_parser("blast")
    blast.add_argument("--size", type=int, required=True)
    kinds.add_parser("respond")
    given = parser.parse_args()
    makers: dict[str, Callable[[], asyncio.BaseProtocol]] = {
        "swallow": lambda: Swallow(given.first, given.every),
        "blast": lambda: Blast(given.size),
        "respond": Respond,
    }
    uvloop.run(serve(makers[given.kind]))


if __name__ == "__main__":
    main()
