"""Thousands of consumers of one channel, and a client beside them.

``python -m tests.failures.crowd --consumers=10000`` runs it by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.processes import anonymous_bytes
from nsqdaemon.descriptors import allow_many_descriptors
from tests.failures.bystander import Bystander
from tests.failures.fuzz import beside_broker
from tests.harness.daemon import Broker, Daemon
from tests.harness.v2 import MESSAGE, RESPONSE, V2Client
from tests.harness.waiting import DEADLINE_S, wait_until

PUBLISHED_AT_ONCE = 1000
SPARE_DESCRIPTORS = 200
"""Descriptors of this process that are not those of consumers."""


class Crowd(NamedTuple):
    """What happened to the consumers, of which each was to get one message."""

    consumers: int
    received: int
    """Messages that were received once."""
    unexpected: int
    """Messages that nobody published, or that were received more than once."""
    bytes_per_connection: int
    """Anonymous memory of the broker, for one connected consumer."""
    turns_s: list[float]
    """The times that the bystander's turns took: a publish, a delivery and a FIN each."""
    failures: list[str]


class _Consumer:
    """One connection, and the part of a frame that it has received."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, DEADLINE_S)
        self._data = b""
        self.send(b"  V2SUB crowd c\nRDY 1\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that have arrived, without heartbeats, which are answered. Raises EOFError."""
        received = self.socket.recv(65536)
        if not received:
            raise EOFError("the broker closed a connection")
        self._data += received
        while len(self._data) >= 4 and len(self._data) >= 4 + (size := int.from_bytes(self._data[:4], "big")):
            kind, data = int.from_bytes(self._data[4:8], "big"), self._data[8 : 4 + size]
            self._data = self._data[4 + size :]
            if (kind, data) == (RESPONSE, b"_heartbeat_"):
                self.send(b"NOP\n")
            else:
                yield kind, data


def _each_gets_a_frame(selector: selectors.BaseSelector, got: Callable[[_Consumer, int, bytes], None]) -> None:
    """Wait until each consumer has received a frame."""
    waiting = {key.fileobj for key in selector.get_map().values()}
    deadline = time.monotonic() + DEADLINE_S
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} consumers received nothing"
        for key, _ in selector.select(1.0):
            for kind, data in key.data.frames():
                got(key.data, kind, data)
                waiting.discard(key.fileobj)


def crowd(consumers: int, folder: Path) -> Crowd:
    """Connect consumers to a new broker, let each receive and finish a message, and leave."""
    if allow_many_descriptors() < consumers + SPARE_DESCRIPTORS:
        raise OSError(f"the limit of open descriptors is too low for {consumers} connections")
    failures = list[str]()
    with Broker(folder) as broker, contextlib.ExitStack() as stack:
        broker.wait_until_ready()
        turns_s, bystander = list[float](), beside_broker(broker)

        def timed_turn() -> bool:
            began = time.monotonic()
            is_right = bystander()
            turns_s.append(time.monotonic() - began)
            return is_right

        watching = Bystander(timed_turn)
        watching.start()
        stack.callback(watching.end)
        received, bytes_per_connection = _served(broker, consumers, stack)
        watching.end()
        if watching.is_alive() or watching.failure is not None:
            failures.append(f"the bystander was not served: {watching.failure or 'no answer'!r}")
        if watching.unexpected:
            failures.append("the bystander received another message")
        if "Traceback" in broker.output:
            failures.append(broker.output[-3000:])
    bodies = {b"%d" % number for number in range(consumers)}
    once = sum(received[body] == 1 for body in bodies)
    unexpected = sum(received.values()) - sum(received[body] > 0 for body in bodies)
    return Crowd(consumers, once, unexpected, bytes_per_connection, turns_s, failures)


def _served(broker: Daemon, consumers: int, stack: contextlib.ExitStack) -> tuple[Counter[bytes], int]:
    """The bodies that the consumers received, and the memory for each connection."""
    selector = stack.enter_context(selectors.DefaultSelector())
    before = anonymous_bytes(broker.process.pid) or 0
    for _ in range(consumers):
        consumer = _Consumer(broker.tcp)
        stack.callback(consumer.socket.close)
        selector.register(consumer.socket, selectors.EVENT_READ, consumer)

    def subscribed(_: _Consumer, kind: int, data: bytes) -> None:
        assert (kind, data) == (RESPONSE, b"OK"), data

    _each_gets_a_frame(selector, subscribed)
    grown = (anonymous_bytes(broker.process.pid) or 0) - before
    received = Counter[bytes]()

    def finish(consumer: _Consumer, kind: int, data: bytes) -> None:
        assert kind == MESSAGE, data
        received[data[26:]] += 1
        consumer.send(b"RDY 0\nFIN %b\n" % data[10:26])

    with V2Client(broker.tcp) as publisher:
        for start in range(0, consumers, PUBLISHED_AT_ONCE):
            end = min(start + PUBLISHED_AT_ONCE, consumers)
            publisher.mpub("crowd", [b"%d" % number for number in range(start, end)])
    _each_gets_a_frame(selector, finish)
    wait_until(lambda: _is_finished(broker, consumers), "every message is finished, and every consumer connected")
    return received, grown // consumers


def _is_finished(broker: Daemon, consumers: int) -> bool:
    answer = broker.get("/stats?format=json&topic=crowd&include_clients=false")
    [channel] = answer["topics"][0]["channels"]
    return (channel["depth"], channel["in_flight_count"], channel["client_count"]) == (0, 0, consumers)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.failures.crowd", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--consumers", type=int, default=10_000, help="connections (default 10,000)")
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder:
        done = crowd(parser.parse_args().consumers, Path(folder))
    print(f"{done.received} of {done.consumers} consumers received their message, {done.unexpected} another one")
    print(f"{done.bytes_per_connection / 1024:.1f} KiB of memory for each connection")
    median, longest = statistics.median(done.turns_s), max(done.turns_s)
    print(f"bystander: {len(done.turns_s)} turns, median {median * 1000:.1f} ms, longest {longest * 1000:.0f} ms")
    for failure in done.failures:
        print(f"  {failure}")
    sys.exit(1 if done.failures or done.unexpected or done.received < done.consumers else 0)


if __name__ == "__main__":
    main()
