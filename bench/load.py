"""The load generators. Each is a plain function on raw sockets that runs in a separate process.

All output is built before the clock starts, and every response is checked: an error frame, a closed connection or an
HTTP status other than 200 ends the load with BenchError.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench import wire
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, Layer, Link, connect, upgraded

RECEIVE_BYTES = 4 << 20


@dataclass(frozen=True)
class Load:
    """The result of one generator. ``seconds`` is the time from its first byte sent to its last response."""

    messages: int
    seconds: float
    processor_seconds: float
    p50_us: float | None = None
    p99_us: float | None = None


class Clock:
    """Wall and processor time of this process since the creation of the clock."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._processor = time.process_time()

    def load(self, messages: int, latencies_ns: array[int] | None = None) -> Load:
        seconds, processor = time.perf_counter() - self._wall, time.process_time() - self._processor
        if not latencies_ns:
            return Load(messages, seconds, processor)
        p50, p99 = np.percentile(np.frombuffer(latencies_ns, np.int64), [50, 99]) / 1e3
        return Load(messages, seconds, processor, float(p50), float(p99))


class Replies:
    """The response frames of a publisher, parsed from the byte stream."""

    def __init__(self, sock: Link) -> None:
        self._sock = sock
        self._rest = b""

    def received(self, data: bytes) -> int:
        """Return the number of ``OK`` frames that ``data`` completes; heartbeats are skipped."""
        if not data:
            raise BenchError("the server closed the connection")
        data = self._rest + data
        whole, rest = divmod(len(data), len(wire.OK))
        if not rest and data == wire.OK * whole:  # nearly always
            self._rest = b""
            return whole
        count = position = 0
        for kind, payload, end in frames_in(data):
            position = end
            if kind == wire.ERROR:
                raise BenchError(f"the server answered {payload.decode(errors='replace')}")
            count += payload == b"OK"
        self._rest = data[position:]
        return count

    def wait(self, count: int) -> None:
        """Block until ``count`` more ``OK`` frames have arrived."""
        while count > 0:
            count -= self.received(self._sock.recv(65536))


def frames_in(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield (frame type, data, offset after it) of each complete frame."""
    position = 0
    while len(data) - position >= 8:
        size, kind = struct.unpack_from(">ii", data, position)
        end = position + 4 + size
        if end > len(data):
            return
        yield kind, data[position + 8 : end], end
        position = end


def publisher(address: tuple[str, int]) -> tuple[socket.socket, Replies]:
    """Open a connection and send GREETING, which a floor must answer with ``OK``."""
    sock = connect(address)
    replies = Replies(sock)
    sock.sendall(GREETING)
    replies.wait(1)
    return sock, replies


GREETING = wire.MAGIC + wire.identify(client_id="bench", hostname="bench", user_agent="nsq-bench/1")


def publish(
    address: tuple[str, int],
    command: bytes,
    messages: int,
    seconds: float,
    commands: float = math.inf,
    window: int = 16,
) -> Load:
    """Send ``command``, which contains ``messages`` messages, repeatedly, with up to ``window`` of them unanswered.

    Stops after ``seconds`` or after ``commands`` commands, whichever comes first.
    """
    sock, replies = publisher(address)
    whole = memoryview(command)
    with sock:
        sock.setblocking(False)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        clock, until = Clock(), time.perf_counter() + seconds
        rest, writable = whole[:0], True
        begun = outstanding = answered = 0
        while True:
            while writable and (rest or (outstanding < window and begun < commands and time.perf_counter() < until)):
                if not rest:
                    rest, outstanding, begun = whole, outstanding + 1, begun + 1
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    writable = False
            if not outstanding:
                return clock.load(answered * messages)
            poll.modify(sock, select.POLLIN if writable else select.POLLIN | select.POLLOUT)
            events = poll.poll(SILENCE_SECONDS * 1e3)
            if not events:
                raise BenchError(f"the server has not answered for {SILENCE_SECONDS:.0f} s")
            if events[0][1] & select.POLLOUT:
                writable = True
            if events[0][1] & ~select.POLLOUT:
                done = replies.received(sock.recv(65536))
                outstanding -= done
                answered += done


def publish_through(
    address: tuple[str, int], layer: Layer, command: bytes, messages: int, seconds: float, window: int = 16
) -> Load:
    """Like ``publish``, through TLS or deflate. The command is compressed before the clock starts."""
    packed = layer.packed(command)
    outstanding = answered = 0
    with upgraded(address, layer) as link:
        replies = Replies(link)
        clock, until = Clock(), time.perf_counter() + seconds
        while time.perf_counter() < until:
            link.send_packed(packed)
            outstanding += 1
            if outstanding == window:
                done = replies.received(link.recv(65536))
                outstanding -= done
                answered += done
        replies.wait(outstanding)
        return clock.load((answered + outstanding) * messages)


def publish_in_bursts(address: tuple[str, int], burst: bytes, messages: int, seconds: float) -> Load:
    """Send ``burst``, one command for each of ``messages``, and repeat once every command has its ``OK``."""
    sock, replies = publisher(address)
    answered = 0
    with sock:
        clock, until = Clock(), time.perf_counter() + seconds
        while time.perf_counter() < until:
            sock.sendall(burst)
            replies.wait(messages)
            answered += messages
        return clock.load(answered)


def publish_one_at_a_time(address: tuple[str, int], command: bytes, seconds: float) -> Load:
    """Send ``command`` (one message), wait for its ``OK``, and repeat; measures the latency of each."""
    sock, replies = publisher(address)
    latencies = array("q")
    with sock:
        clock, until = Clock(), time.perf_counter_ns() + int(seconds * 1e9)
        sent = time.perf_counter_ns()
        while sent < until:
            sock.sendall(command)
            replies.wait(1)
            answered = time.perf_counter_ns()
            latencies.append(answered - sent)
            sent = answered
        return clock.load(len(latencies), latencies)


def consume(
    address: tuple[str, int],
    topic: str,
    channel: str,
    *,
    expected: float,
    size: int,
    ready_count: int,
    seconds: float,
    layer: Layer | None = None,
) -> Load:
    """Receive and FIN until ``expected`` messages are finished or ``seconds`` have passed.

    Raises BenchError if nothing arrives for SILENCE_SECONDS. Between the first message and ``CLS``, silence is no error
    once ``seconds`` have passed: it ends the load.

    Every body has ``size`` bytes, so frames have a fixed stride, and one strided copy of the ids builds the FINs of a
    whole buffer. ``CLS`` follows the last FIN, never comes before the first message, and its ``CLOSE_WAIT`` stops the
    clock: by then the server has processed every FIN.
    """
    stride = wire.MESSAGE_HEADER + size
    header = int.from_bytes(struct.pack(">ii", stride - 4, wire.MESSAGE), "big")
    data = bytearray(RECEIVE_BYTES)
    view = memoryview(data)
    finishes = np.empty((RECEIVE_BYTES // stride + 1, wire.FIN_LENGTH), np.uint8)
    finishes[:] = np.frombuffer(b"FIN 0123456789abcdef\n", np.uint8)
    subscription = f"SUB {topic} {channel}\nRDY {ready_count}\n".encode()
    if layer is not None:
        sock: Link = upgraded(address, layer)
    else:
        sock, subscription = connect(address), GREETING + subscription
    with sock:
        clock, until = Clock(), time.perf_counter() + seconds
        sock.sendall(subscription)
        filled = finished = 0
        closing = False
        while True:
            is_flowing = finished > 0 and not closing
            patience = min(SILENCE_SECONDS, max(seconds, 0.1)) if is_flowing else SILENCE_SECONDS
            try:
                sock.settimeout(patience)
                nbytes: int | None = sock.recv_into(view[filled:])
            except TimeoutError:
                if not is_flowing or time.perf_counter() < until:
                    raise BenchError(f"nothing arrived for {patience:.1f} s, after {finished} messages") from None
                nbytes = None
            finally:
                sock.settimeout(SILENCE_SECONDS)  # FINs may wait longer for a busy server
            if nbytes is None:
                closing = True
                sock.sendall(b"CLS\n")
                continue
            if not nbytes:
                raise BenchError("the server closed the connection")
            filled += nbytes
            start = 0
            while filled - start >= 8:
                count = (filled - start) // stride
                headers = np.ndarray((count,), ">i8", data, start, (stride,))
                odd = np.flatnonzero(headers != header)  # frames of another type or size
                count = int(odd[0]) if len(odd) else count
                if count:
                    ids = np.ndarray((count, 16), np.uint8, data, start + wire.ID_OFFSET, (stride, 1))
                    finishes[:count, 4:20] = ids
                    if not closing:
                        sock.sendall(finishes[:count].data)
                        finished += count
                    start += count * stride
                else:
                    frame_end = start + 4 + struct.unpack_from(">i", data, start)[0]
                    if frame_end > filled:
                        break
                    kind, payload = struct.unpack_from(">i", data, start + 4)[0], bytes(view[start + 8 : frame_end])
                    if kind == wire.ERROR:
                        raise BenchError(f"the server answered {payload.decode(errors='replace')}")
                    if kind == wire.MESSAGE:
                        raise BenchError(f"a message of {len(payload) - 26} B arrived instead of {size} B")
                    if payload == b"CLOSE_WAIT":
                        return clock.load(finished)
                    if payload == b"_heartbeat_":
                        sock.sendall(b"NOP\n")
                    start = frame_end
            view[: filled - start] = view[start:filled]
            filled -= start
            if not closing and finished and (finished >= expected or time.perf_counter() > until):
                closing = True
                sock.sendall(b"CLS\n")


def post(address: tuple[str, int], request: wire.Request, messages: int, seconds: float, connections: int) -> Load:
    """Send ``request``, which publishes ``messages``, repeatedly on each of ``connections``, after each response."""
    sent_count = 0
    constant = request.bytes_of(0)
    sockets = {}
    for _ in range(connections):
        sock = connect(address)
        sockets[sock.fileno()] = sock
    poll = select.epoll()
    for descriptor in sockets:
        poll.register(descriptor, select.EPOLLIN)
    sent = dict.fromkeys(sockets, 0)
    latencies = array("q")
    now_ns = time.perf_counter_ns
    clock, until = Clock(), now_ns() + int(seconds * 1e9)
    try:
        for descriptor, sock in sockets.items():
            sent[descriptor] = now_ns()
            sent_count += 1
            sock.sendall(request.bytes_of(sent_count) if request.numbered else constant)
        waiting = connections
        while waiting:
            events = poll.poll(SILENCE_SECONDS)
            if not events:
                raise BenchError(f"the server has not answered for {SILENCE_SECONDS:.0f} s")
            for descriptor, _ in events:
                sock = sockets[descriptor]
                answer = sock.recv(65536)
                if not (answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\nOK")):
                    raise BenchError(f"the server answered {answer[:300]!r}")
                now = now_ns()
                latencies.append(now - sent[descriptor])
                if now < until:
                    sent[descriptor] = now
                    sent_count += 1
                    sock.sendall(request.bytes_of(sent_count) if request.numbered else constant)
                else:
                    waiting -= 1
        return clock.load(len(latencies) * messages, latencies)
    finally:
        poll.close()
        for sock in sockets.values():
            sock.close()
