"""Work for some clients that could delay all other clients."""

from __future__ import annotations

import select
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bench import load, wire
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, Deflated, Layer, connect, upgraded
from bench.measure import CHANNEL, TOPIC
from bench.paced import answered

RDY_COUNT = 2500
"""Messages in flight with each consumer: the largest RDY that a broker allows by default."""
UNKNOWN_FIN = b"FIN 0000000000000000\n"
"""A command that is answered with an error frame, by which time all commands before it have been processed."""
MAX_SECONDS = 10.0
"""After this time, the connections that sent the NOPs disconnect even if the NOPs have not been processed."""
DEFER_MS = 3_600_000
DEFERRALS_PER_BURST = 100
BURST_SECONDS = 0.001


class FullConsumers:
    """Consumers of one channel, each with RDY_COUNT messages in flight."""

    def __init__(self, sockets: list[socket.socket], size: int, ids: list[np.ndarray]) -> None:
        self._sockets = sockets
        self._stride = wire.MESSAGE_HEADER + size
        self._ids = ids

    def _lines(self, before: bytes, behind: bytes) -> list[bytes]:
        """Return, for each consumer, a command line for each of its messages."""
        line = np.frombuffer(before + bytes(16) + behind, np.uint8)
        return [
            np.concatenate(
                [np.tile(line[: len(before)], (RDY_COUNT, 1)), ids, np.tile(line[len(before) + 16 :], (RDY_COUNT, 1))],
                axis=1,
            ).tobytes()
            for ids in self._ids
        ]

    def requeue(self) -> None:
        """Requeue all messages at once, and wait until all are redelivered."""
        for sock, lines in zip(self._sockets, self._lines(b"REQ ", b" 0\n"), strict=True):
            sock.sendall(lines)
        missing = len(self._sockets) * RDY_COUNT * self._stride
        while missing > 0:
            readable, _, _ = select.select(self._sockets, [], [], SILENCE_SECONDS)
            if not readable:
                raise BenchError(f"{missing // self._stride} requeued messages were not redelivered")
            for sock in readable:
                missing -= len(answered(sock.recv(1 << 20)))

    def touch(self) -> None:
        """Touch all messages at once, and wait until the touches are processed."""
        for sock, lines in zip(self._sockets, self._lines(b"TOUCH ", b"\n"), strict=True):
            sock.sendall(lines + UNKNOWN_FIN)
        for sock in self._sockets:
            reply = b""
            while not list(load.frames_in(reply)):
                reply += answered(sock.recv(4096))
            if b"E_FIN_FAILED" not in reply:
                raise BenchError(f"the server answered {reply!r} to a TOUCH")

    def leave(self) -> None:
        """Close every connection with its messages in flight."""
        for sock in self._sockets:
            sock.close()


@contextmanager
def full_consumers(address: tuple[str, int], consumers: int, size: int) -> Iterator[FullConsumers]:
    """Subscribe consumers to the work channel, with messages of ``size`` bytes, and wait until all are full."""
    stride = wire.MESSAGE_HEADER + size
    identify = wire.identify(client_id="bench", heartbeat_interval=60_000, msg_timeout=900_000)
    greeting = wire.MAGIC + identify + f"SUB {TOPIC} {CHANNEL}\nRDY {RDY_COUNT}\n".encode()
    answers = 2 * len(wire.OK)
    with ExitStack() as stack:
        sockets, ids = [], []
        for _ in range(consumers):
            sock = stack.enter_context(connect(address))
            sock.sendall(greeting)
            data = bytearray()
            while len(data) < answers + RDY_COUNT * stride:
                data += answered(sock.recv(1 << 20))
            if data[:answers] != wire.OK * 2:
                raise BenchError(f"the server answered {bytes(data[:80])!r}")
            frames = np.frombuffer(data, np.uint8, RDY_COUNT * stride, answers).reshape(RDY_COUNT, stride)
            ids.append(frames[:, wire.ID_OFFSET : wire.ID_OFFSET + 16].copy())
            sockets.append(sock)
        yield FullConsumers(sockets, size, ids)


class Nops:
    """Deflated connections that each send NOPs, compressed to a thousandth of their size."""

    def __init__(self, links: list[Deflated], nbytes: int) -> None:
        self._links = links
        deflate = zlib.compressobj(9, wbits=-15)
        self._packed = deflate.compress(b"NOP\n" * (nbytes // len(links) // 4)) + deflate.flush(zlib.Z_FULL_FLUSH)

    def send(self) -> None:
        """Send all NOPs, wait until they are processed, at most MAX_SECONDS, and disconnect."""
        end = time.perf_counter() + MAX_SECONDS
        for link in self._links:
            link.send_packed(self._packed)
            link.sendall(wire.pub(TOPIC, bytes(16)))
        for link in self._links:
            link.settimeout(max(0.001, end - time.perf_counter()))
            try:
                load.Replies(link).wait(1)
            except TimeoutError:
                break
        for link in self._links:
            link.__exit__(None, None, None)


@contextmanager
def deflated_nops(address: tuple[str, int], connections: int, nbytes: int) -> Iterator[Nops]:
    """Open ``connections`` that will send ``nbytes`` of NOP in total."""
    with ExitStack() as stack:
        links = [stack.enter_context(upgraded(address, Layer.DEFLATE)) for _ in range(connections)]
        yield Nops([link for link in links if isinstance(link, Deflated)], nbytes)


@contextmanager
def publisher(address: tuple[str, int]) -> Iterator[tuple[socket.socket, load.Replies]]:
    sock, replies = load.publisher(address)
    with sock:
        yield sock, replies


class Deferrals:
    """Deferred publishes. Each adds records to the journal, so that the broker writes checkpoints."""

    def __init__(self, publisher: tuple[socket.socket, load.Replies], data_path: Path | None) -> None:
        self._sock, self._replies = publisher
        self._checkpoint = None if data_path is None else data_path / "checkpoint"
        self._burst = wire.dpub(TOPIC, DEFER_MS, bytes(16)) * DEFERRALS_PER_BURST

    def publish(self, count: int) -> None:
        for _ in range(count // DEFERRALS_PER_BURST):
            self._sock.sendall(self._burst)
            self._replies.wait(DEFERRALS_PER_BURST)

    def publish_until_checkpoint(self, most: int) -> None:
        """Publish 100,000 messages per second until the broker has written a checkpoint, but at most ``most``."""
        before = self._written()
        due = time.perf_counter()
        for _ in range(most // DEFERRALS_PER_BURST):
            self.publish(DEFERRALS_PER_BURST)
            if self._written() != before:
                return
            due += BURST_SECONDS
            time.sleep(max(0.0, due - time.perf_counter()))

    def _written(self) -> int:
        if self._checkpoint is None or not self._checkpoint.exists():
            return 0
        return self._checkpoint.stat().st_mtime_ns
