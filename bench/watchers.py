"""Simulated browsers: many WebSockets that subscribe to the cluster's figures, in one process."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import struct
import time
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvloop

from bench.errors import BenchError
from bench.server import Address
from bench.simulated import TOPIC_NODES

VERSION = re.compile(rb'"version":(\d+)')
TAKEN_AT = re.compile(rb'"taken_at":(\d+)')
FIRST = re.compile(rb"\d+")
HEAD_BYTES = 200
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
"""Opcodes of frames."""
SETTLE_SECONDS = 60.0


@dataclass
class Seen:
    """Totals of what the WebSockets received within the measured time."""

    deltas: int = 0
    snapshots: int = 0
    nbytes: int = 0
    missed: int = 0
    """Number of versions that a WebSocket did not receive."""
    closed: int = 0
    ages_ms: list[float] = field(default_factory=list)
    """Time from a node's response to the WebSocket frame with its figures, of watchers that parse them."""
    taken_at_ms: list[int] = field(default_factory=list)
    """``taken_at`` of each snapshot that one WebSocket received."""


class Watcher(asyncio.Protocol):
    """One WebSocket, whose view is a topic or everything.

    ``reads``: it measures the age of figures. ``records_times``: it records the times of snapshots.
    """

    def __init__(self, request: bytes, topic: str | None, seen: Seen, *, reads: bool, records_times: bool) -> None:
        self.request = request
        self.topic = topic
        self.seen = seen
        self.reads = reads
        self.records_times = records_times
        self.opened = False
        self.shown = asyncio.Event()
        """Set when the whole snapshot of its view has arrived."""
        self.version = 0
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def connection_lost(self, error: Exception | None) -> None:
        self.seen.closed += 1

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self.opened:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            if not received.startswith(b"HTTP/1.1 101"):
                raise BenchError(f"the web process refused a websocket: {bytes(received[:60])!r}")
            del received[: end + 4]
            self.opened = True
            if self.topic is not None:
                self.send({"type": "view", "topic": self.topic})
        place = 0
        while (frame := frame_at(received, place)) is not None:
            begin, place, opcode = frame
            if opcode == CLOSE:
                raise BenchError(f"the web process closed a websocket: {bytes(received[begin:place])!r}")
            if opcode == PING:  # the web process closes a WebSocket that does not answer
                self.write(PONG, bytes(received[begin:place]))
            else:
                self.take(bytes(received[begin:place]))
        del received[:place]

    def take(self, text: bytes) -> None:
        now_ms = time.time() * 1000
        found = VERSION.search(text, 0, HEAD_BYTES)
        if found is None:
            return
        version = int(found[1])
        self.seen.nbytes += len(text)
        if text.startswith(b'{"type":"snapshot"'):
            self.seen.snapshots += 1
            if self.topic is None or b'"view":{"topic"' in text[:HEAD_BYTES]:
                self.shown.set()
        else:
            self.seen.deltas += 1
            self.seen.missed += max(0, version - self.version - 1)
            if self.records_times and (taken := TAKEN_AT.search(text, 0, HEAD_BYTES)):
                self.seen.taken_at_ms.append(int(taken[1]))
            if self.reads and (stamp := first_bytes(text)) is not None:
                self.seen.ages_ms.append(now_ms - stamp / TOPIC_NODES)  # a topic's figure is the sum of its nodes'
        self.version = version

    def send(self, message: dict) -> None:
        self.write(TEXT, json.dumps(message).encode())

    def write(self, opcode: int, payload: bytes) -> None:
        """Write one frame, whose payload has at most 125 bytes."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.transport.write(struct.pack(">BB", 0x80 | opcode, 0x80 | len(payload)) + mask + masked)


def first_bytes(delta: bytes) -> int | None:
    """Return the first changed ``message_bytes`` of a topic in a delta; None if there is none.

    It is searched for in the text. Parsing the deltas of twenty watchers of everything would take a quarter of a
    second, during which the arrival of the next frames could not be measured.
    """
    place = delta.find(b'"message_bytes":[', delta.find(b'"set":', delta.find(b'"topics":')))
    found = None if place < 0 else FIRST.match(delta, place + len(b'"message_bytes":['))
    return None if found is None else int(found[0])


def frame_at(received: bytearray, place: int) -> tuple[int, int, int] | None:
    """Return start and end of the payload of the frame at ``place``, and its opcode; None if it is incomplete."""
    if len(received) < place + 2:
        return None
    opcode, length, begin = received[place] & 0x0F, received[place + 1] & 0x7F, place + 2
    if length >= 126:
        size = 2 if length == 126 else 8
        if len(received) < begin + size:
            return None
        length = int.from_bytes(received[begin : begin + size], "big")
        begin += size
    return (begin, begin + length, opcode) if len(received) >= begin + length else None


def itself(watcher: Watcher) -> Watcher:
    return watcher


def watch(address: Address, cookie: str, topics: list[str | None], seconds: float) -> tuple[Seen, float]:
    """Open a WebSocket for each of ``topics`` (None: everything), wait until each has its snapshot, and watch for
    ``seconds``. Returns the totals, and the processor seconds of this process meanwhile."""
    return uvloop.run(_watch(address, cookie, topics, seconds))


async def _watch(address: Address, cookie: str, topics: list[str | None], seconds: float) -> tuple[Seen, float]:
    host, port = address
    seen = Seen()
    watchers: list[Watcher] = []
    for number, topic in enumerate(topics):
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET /ws/cluster HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: http://{host}:{port}\r\nCookie: {cookie}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n"
        )
        watcher = Watcher(request.encode(), topic, seen, reads=number % 10 == 0, records_times=number == 0)
        await asyncio.get_running_loop().create_connection(partial(itself, watcher), host, port)
        watchers.append(watcher)
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            await asyncio.gather(*(watcher.shown.wait() for watcher in watchers))
    except TimeoutError:
        waiting = sum(not watcher.shown.is_set() for watcher in watchers)
        raise BenchError(f"{waiting} of {len(watchers)} WebSockets had no snapshot in {SETTLE_SECONDS:.0f} s") from None
    await asyncio.sleep(5)
    fresh = Seen()
    for watcher in watchers:
        watcher.seen = fresh
    before = time.process_time()
    await asyncio.sleep(seconds)
    for watcher in watchers:
        watcher.seen = seen
        watcher.transport.abort()
    fresh.closed += seen.closed
    return fresh, time.process_time() - before
