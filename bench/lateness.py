"""Lateness of messages that are due at a known time: a load generator like those in ``load``, with many consumers."""

from __future__ import annotations

import dataclasses
import select
import socket
import struct
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bench import load, wire
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, connect
from bench.measure import Row

EARLIEST_MS = 1000
"""The shortest delay. Publishing should take less, so that publishing and delivery do not overlap."""
TIMEOUT_NS = 1_000_000_000
TOLERANCE_NS = 2_000_000
"""How early an event may appear to be, measured by another process's clock."""


@dataclass(frozen=True)
class Watched:
    """Lateness in ns: of deferred messages at their first attempt, of timed-out messages at their second.

    The first is measured from the message's timestamp. The second is measured from the first delivery's arrival here,
    so it is slightly too small, and may be negative if this process was delayed.
    """

    deferred_ns: array[int]
    timeouts_ns: array[int]
    seconds: float
    processor_seconds: float


def watch(
    address: tuple[str, int], channels: Sequence[tuple[str, str]], commands: Sequence[bytes], expected: int
) -> Watched:
    """Subscribe to ``channels``, publish ``commands``, and receive ``expected`` messages that each time out once.

    A message's body begins with its delay in ms, ``int32``. Raises BenchError if a message arrives early.
    """
    deferred, timeouts = array("q"), array("q")
    seen: dict[tuple[int, bytes], int] = {}
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        consumers: dict[int, socket.socket] = {}
        rests: dict[int, bytes] = {}
        identify = wire.identify(client_id="bench", msg_timeout=TIMEOUT_NS // 1_000_000, output_buffer_size=-1)
        for topic, channel in channels:
            sock = stack.enter_context(connect(address))
            sock.sendall(wire.MAGIC + identify + f"SUB {topic} {channel}\nRDY 1000\n".encode())
            replies = load.Replies(sock)
            replies.wait(2)
            consumers[sock.fileno()], rests[sock.fileno()] = sock, b""
            poll.register(sock, select.EPOLLIN)
        publisher, replies = load.publisher(address)
        stack.enter_context(publisher)
        clock = load.Clock()
        publisher.sendall(b"".join(commands))
        replies.wait(len(commands))
        while len(timeouts) < expected:
            if not (events := poll.poll(SILENCE_SECONDS)):
                raise BenchError(f"only {len(timeouts)} of {expected} messages were redelivered")
            for descriptor, _ in events:
                sock = consumers[descriptor]
                data = sock.recv(1 << 18)
                if not data:
                    raise BenchError("the server closed the connection")
                now = time.time_ns()
                data = rests[descriptor] + data
                position = 0
                for kind, payload, end in load.frames_in(data):
                    position = end
                    if kind == wire.ERROR:
                        raise BenchError(f"the server answered {payload.decode(errors='replace')}")
                    if kind == wire.RESPONSE:
                        sock.sendall(b"NOP\n" * (payload == b"_heartbeat_"))
                        continue
                    timestamp, attempts = struct.unpack_from(">qH", payload)
                    key = descriptor, payload[10:26]
                    due = timestamp + struct.unpack_from(">i", payload, 26)[0] * 1_000_000
                    if attempts == 1:
                        check("a deferred message", now - due)
                        deferred.append(now - due)
                        seen[key] = now
                    elif key in seen:
                        check("a message that timed out", now - due - TIMEOUT_NS)
                        timeouts.append(now - seen.pop(key) - TIMEOUT_NS)
                        sock.sendall(b"FIN " + key[1] + b"\n")
                rests[descriptor] = data[position:]
        done = clock.load(expected)
    return Watched(deferred, timeouts, done.seconds, done.processor_seconds)


def check(what: str, lateness_ns: int) -> None:
    if lateness_ns < -TOLERANCE_NS:
        raise BenchError(f"{what} arrived {-lateness_ns / 1e6:.1f} ms early")


def shown(row: Row, lateness_ns: array[int], anonymous_mb: float | None) -> Row:
    """Return ``row`` with the lateness as its p50, p99 and maximum."""
    values = np.frombuffer(lateness_ns, np.int64) / 1e3
    p50, p99 = np.percentile(values, [50, 99])
    also = {"max ms": float(values.max()) / 1e3, "messages measured": float(len(values))}
    return dataclasses.replace(row, p50_us=float(p50), p99_us=float(p99), anonymous_mb=anonymous_mb, also=also)
