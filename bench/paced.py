"""Load on a schedule: each command is sent when due, however long earlier responses take.

Response times are measured from when the command was due. A server that stops for a second therefore delays every
command that was due meanwhile, not only one.
"""

from __future__ import annotations

import select
import time
from array import array
from dataclasses import dataclass

from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, connect

RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True)
class Talk:
    """A client's commands and the expected responses: ``greeting`` once at the start, ``command`` repeatedly."""

    greeting: bytes
    greeted: bytes
    command: bytes
    answer: bytes


def until_stopped(address: tuple[str, int], talk: Talk, rate: float, control: tuple[str, int]) -> array[int]:
    """Send ``talk.command`` ``rate`` times a second until the connection to ``control`` ends.

    Returns the response time of each, in ns.
    """
    waits = array("q")
    period_ns = int(1e9 / rate)
    with connect(control) as controlling, connect(address) as sock:
        sock.sendall(talk.greeting)
        greeted = b""
        while len(greeted) < len(talk.greeted):
            greeted += answered(sock.recv(RECEIVE_BYTES))
        if greeted != talk.greeted:
            raise BenchError(f"the server answered {greeted!r}")
        begun, sent, stopped, rest = time.perf_counter_ns(), 0, False, b""
        while not stopped or len(waits) < sent:
            now = time.perf_counter_ns()
            due = sent if stopped else (now - begun) // period_ns + 1
            if due > sent:
                sock.sendall(talk.command * (due - sent))
                sent = due
            next_ns = 1_000_000_000 if stopped else begun + sent * period_ns - now
            readable, _, _ = select.select([sock] if stopped else [sock, controlling], [], [], max(0, next_ns) / 1e9)
            now = time.perf_counter_ns()
            if sock in readable:
                rest += answered(sock.recv(RECEIVE_BYTES))
                count = len(rest) // len(talk.answer)
                if rest[: count * len(talk.answer)] != talk.answer * count:
                    raise BenchError(f"the server answered {rest[:80]!r}")
                rest = rest[count * len(talk.answer) :]
                for number in range(len(waits), len(waits) + count):
                    waits.append(now - begun - number * period_ns)
            elif len(waits) < sent and now - begun - len(waits) * period_ns > SILENCE_SECONDS * 1e9:
                raise BenchError(f"the server has not answered for {SILENCE_SECONDS:.0f} s")
            stopped = stopped or controlling in readable
    return waits


def answered(data: bytes) -> bytes:
    """Return what a socket received. Raises BenchError if it is empty: the connection is closed."""
    if not data:
        raise BenchError("the server closed the connection")
    return data
