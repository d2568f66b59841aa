"""A steady flow of messages through a broker: publishers and a consumer in one loop, each send on a schedule.

Message ``i`` is due at ``i / rate`` and is sent on connection ``i`` modulo the number of connections. Its body begins
with ``i``, from which the consumer computes when it was due. numpy processes all messages of a read or write at once.
"""

from __future__ import annotations

import ctypes
import select
import socket
import time
from array import array
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np

from bench import load, wire
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, connect
from bench.load import Clock, Load

RING = 4096
"""Largest number of messages of one connection that are built but not sent."""
RECEIVE_BYTES = 1 << 20
READY_COUNT = 2500
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Flow:
    """The result of a flow: times of each message in ns, measured from when it was due."""

    load: Load
    to_ok_ns: array[int]
    to_delivery_ns: array[int]
    to_sent_ns: array[int]


class Publisher:
    """A connection that sends every ``connections``-th message, from ``first`` on."""

    def __init__(self, address: tuple[str, int], topic: str, first: int, connections: int, size: int) -> None:
        self.sock, _ = load.publisher(address)
        self.sock.setblocking(False)
        self._first = first
        self._step = connections
        command = wire.pub(topic, bytes(size))
        self._bytes = len(command)
        self._ring = np.tile(np.frombuffer(command, np.uint8), (RING, 1))
        self._numbers = np.ndarray((RING,), "<i8", self._ring.data, self._bytes - size, (self._bytes,))
        self._view = self._ring.data.cast("B")
        self._built = 0
        self._sent_bytes = 0
        self._answered = 0
        self._rest = b""

    @property
    def is_behind(self) -> bool:
        """True if it has bytes that the socket has not accepted."""
        return self._sent_bytes < self._built * self._bytes

    def build(self, due: int) -> None:
        """Build its messages with numbers below ``due``, as far as RING allows."""
        target = min(max(0, -(-(due - self._first) // self._step)), self._sent_bytes // self._bytes + RING)
        while self._built < target:
            at = self._built % RING
            part = min(target - self._built, RING - at)
            number = self._first + self._built * self._step
            self._numbers[at : at + part] = np.arange(number, number + part * self._step, self._step)
            self._built += part

    def send(self) -> slice:
        """Send the built messages that the socket accepts. Returns the numbers of those sent completely."""
        before = self._sent_bytes // self._bytes
        while self._sent_bytes < self._built * self._bytes:
            at = self._sent_bytes % (RING * self._bytes)
            end = min(at + self._built * self._bytes - self._sent_bytes, RING * self._bytes)
            try:
                self._sent_bytes += self.sock.send(self._view[at:end])
            except BlockingIOError:
                break
        return self._numbered(before, self._sent_bytes // self._bytes)

    def receive(self) -> slice:
        """Read responses. Returns the numbers of their messages. Raises BenchError unless all are OK."""
        data = self._rest + self.sock.recv(65536)
        whole = len(data) // len(wire.OK)
        if not data or data[: whole * len(wire.OK)] != wire.OK * whole:
            raise BenchError(f"the server answered {data[:80]!r}")
        self._rest = data[whole * len(wire.OK) :]
        before, self._answered = self._answered, self._answered + whole
        return self._numbered(before, self._answered)

    def _numbered(self, start: int, end: int) -> slice:
        return slice(self._first + start * self._step, self._first + end * self._step, self._step)


FIN = b"FIN 0123456789abcdef\n"
REQ = b"REQ 0123456789abcdef 0\n"


class Consumer:
    """A consumer of messages of ``size`` bytes. It answers each with ``answer``, FIN or REQ; any other frame is an
    error."""

    def __init__(self, address: tuple[str, int], topic: str, channel: str, size: int, answer: bytes = FIN) -> None:
        self.sock = connect(address)
        identify = wire.identify(client_id="bench", heartbeat_interval=60_000)
        self.sock.sendall(wire.MAGIC + identify + f"SUB {topic} {channel}\n".encode())
        load.Replies(self.sock).wait(2)
        # Not before: messages that wait would come with the responses.
        self.sock.sendall(f"RDY {READY_COUNT}\n".encode())
        self._stride = wire.MESSAGE_HEADER + size
        self._header = int.from_bytes(wire.frame(wire.MESSAGE, bytes(self._stride - 8))[:8], "big")
        self._data = bytearray(RECEIVE_BYTES)
        self._filled = 0
        self._answers = np.empty((RECEIVE_BYTES // self._stride + 1, len(answer)), np.uint8)
        self._answers[:] = np.frombuffer(answer, np.uint8)

    def receive(self) -> np.ndarray:
        """Read messages and answer them. Returns their numbers."""
        return self.receive_stamped()[0]

    def receive_stamped(self) -> tuple[np.ndarray, np.ndarray]:
        """Like ``receive``; also returns the timestamps."""
        nbytes = self.sock.recv_into(memoryview(self._data)[self._filled :])
        if not nbytes:
            raise BenchError("the server closed the connection")
        self._filled += nbytes
        stride, data = self._stride, self._data
        count = self._filled // stride
        odd = np.flatnonzero(np.ndarray((count,), ">i8", data, 0, (stride,)) != self._header)
        if len(odd):
            self._answer_heartbeat(int(odd[0]) * stride)
            count = int(odd[0])
        self._answers[:count, 4:20] = np.ndarray((count, 16), np.uint8, data, wire.ID_OFFSET, (stride, 1))
        self.sock.sendall(self._answers[:count].data)
        numbers = np.ndarray((count,), "<i8", data, wire.MESSAGE_HEADER, (stride,)).copy()
        timestamps = np.ndarray((count,), ">i8", data, 8, (stride,)).astype(np.int64)
        data[: self._filled - count * stride] = data[count * stride : self._filled]
        self._filled -= count * stride
        return numbers, timestamps

    def _answer_heartbeat(self, at: int) -> None:
        """Answer the heartbeat at this offset, and remove it. Raises BenchError if it is any other frame."""
        end = at + len(wire.HEARTBEAT)
        if self._data[at:end] != wire.HEARTBEAT:
            raise BenchError(
                f"the server sent {bytes(self._data[at : at + 80])!r} among messages of {self._stride} bytes"
            )
        self.sock.sendall(b"NOP\n")
        self._data[at : self._filled - len(wire.HEARTBEAT)] = self._data[end : self._filled]
        self._filled -= len(wire.HEARTBEAT)


def flow(
    address: tuple[str, int], topic: str, channel: str, *, rate: int, count: int, size: int, connections: int
) -> Flow:
    """Publish ``count`` messages of ``size`` bytes, ``rate`` a second, and consume them from the channel."""
    exact_timers()
    dues = np.arange(count) * 1_000_000_000 // rate
    to_ok, to_delivery, to_sent = (np.full(count, -1, np.int64) for _ in range(3))
    with ExitStack() as stack:
        consumer = Consumer(address, topic, channel, size)
        stack.enter_context(consumer.sock)
        publishers: dict[socket.socket, Publisher] = {}
        for first in range(connections):
            publisher = Publisher(address, topic, first, connections, size)
            publishers[stack.enter_context(publisher.sock)] = publisher
        sockets = [consumer.sock, *publishers]
        due = answered = delivered = 0
        clock, begun = Clock(), time.perf_counter_ns()
        heard = begun
        while answered < count or delivered < count:
            now = time.perf_counter_ns()
            due = min(count, (now - begun) * rate // 1_000_000_000 + 1)
            unsent = False
            for publisher in publishers.values():
                publisher.build(due)
                sent = publisher.send()
                if sent.start != sent.stop:
                    to_sent[sent] = time.perf_counter_ns() - begun - dues[sent]
                unsent = unsent or publisher.is_behind
            next_ns = 100_000 if unsent else dues[due] + begun - now if due < count else 1_000_000_000
            readable, _, _ = select.select(sockets, [], [], max(0, int(next_ns)) / 1e9)
            now = time.perf_counter_ns()
            for sock in readable:
                heard = now
                if sock is consumer.sock:
                    numbers = consumer.receive()
                    to_delivery[numbers] = now - begun - dues[numbers]
                    delivered += len(numbers)
                else:
                    answers = publishers[sock].receive()
                    to_ok[answers] = now - begun - dues[answers]
                    answered += len(range(answers.start, answers.stop, answers.step))
            if now - heard > SILENCE_SECONDS * 1e9:
                raise BenchError(f"nothing arrived for {SILENCE_SECONDS:.0f} s, after {delivered} of {count} messages")
        done = clock.load(count)
    if delivered != count or (to_delivery < 0).any():
        raise BenchError(f"{count} messages were published, and some were delivered twice")
    waits = (array("q", each.tobytes()) for each in (to_ok, to_delivery, to_sent))
    return Flow(done, *waits)


def exact_timers() -> None:
    """Make the system wake this thread on time, instead of up to 50 µs late."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
