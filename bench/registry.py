"""The registry's rows: many nodes register many topics, and ``/lookup`` is queried while they send commands."""

from __future__ import annotations

import dataclasses
import json
import random
import socket
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import load
from bench.errors import BenchError
from bench.links import connect, received_exactly
from bench.load import Load
from bench.measure import Measured, Options, Row, ask_all, measure, mebibytes
from bench.processes import LoadProcesses, pin
from bench.server import Address, Server, floor

MAGIC = b"  V1"
OK = struct.pack(">i", 2) + b"OK"
TICK_SECONDS = 0.01
"""Pause between steps. In each step, one node pings, and another unregisters and registers a topic. With 1,000 nodes,
each pings every ten seconds; nsqd pings every fifteen."""
NODES_ASKED = 20
RECEIVE_BYTES = 1 << 20


class Fleet:
    """``nodes`` connections that each announce an nsqd and register every topic."""

    def __init__(self, address: Address, nodes: int, topics: list[str], stack: ExitStack) -> None:
        self._sockets = [stack.enter_context(connect(address)) for _ in range(nodes)]
        self._topics = topics

    def register(self) -> Load:
        """Register all topics of all nodes, and wait for the response to every REGISTER."""
        clock = load.Clock()
        commands = "".join(f"REGISTER {topic}\n" for topic in self._topics).encode()
        for number, sock in enumerate(self._sockets):
            body = json.dumps(
                {
                    "broadcast_address": f"10.0.{number >> 8}.{number & 255}",
                    "hostname": f"node{number}",
                    "tcp_port": 4150,
                    "http_port": 4151,
                    "version": "1.3.0",
                }
            ).encode()
            sock.sendall(MAGIC + b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
            (length,) = struct.unpack(">i", received_exactly(sock, 4))
            received_exactly(sock, length)
            sock.sendall(commands)
            expect_ok(sock, len(self._topics))
        return clock.load(len(self._sockets) * len(self._topics))

    @contextmanager
    def talking(self) -> Iterator[list[int]]:
        """Ping, unregister and register in a thread during the block.

        Yields a list with one item, the number of commands so far.
        """
        leaving = threading.Event()
        commands, failures = [0], []

        def talk() -> None:
            turn = 0
            try:
                while not leaving.wait(TICK_SECONDS):
                    turn += 1
                    pinging = self._sockets[turn % len(self._sockets)]
                    moving = self._sockets[turn * 7 % len(self._sockets)]
                    topic = self._topics[turn % len(self._topics)]
                    pinging.sendall(b"PING\n")
                    expect_ok(pinging, 1)
                    moving.sendall(f"UNREGISTER {topic}\nREGISTER {topic}\n".encode())
                    expect_ok(moving, 2)
                    commands[0] += 3
            except (BenchError, OSError) as error:
                failures.append(error)

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield commands
        finally:
            leaving.set()
            thread.join()
        if failures:
            raise BenchError(f"a node's connection failed: {failures[0]}")


def expect_ok(sock: socket.socket, count: int) -> None:
    answers = received_exactly(sock, count * len(OK))
    if answers != OK * count:
        raise BenchError(f"the registry answered {answers[:80]!r}")


def ask_in_turn(address: Address, paths: list[str], seconds: float) -> tuple[Load, float, int]:
    """GET the paths repeatedly in random order on one connection, each after the previous response.

    Returns the load with its latencies, the longest of them in µs, and the bytes of the largest body. Raises BenchError
    for any status but 200.
    """
    requests = [f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode() for path in paths]
    latencies = array("q")
    buffer, largest = bytearray(RECEIVE_BYTES), 0
    view = memoryview(buffer)
    with connect(address) as sock:
        clock, until = load.Clock(), time.perf_counter_ns() + int(seconds * 1e9)
        sent = time.perf_counter_ns()
        while sent < until:
            sock.sendall(random.choice(requests))
            received = 0
            while (end := buffer.find(b"\r\n\r\n", 0, received)) < 0:
                received += (count := sock.recv_into(view[received:]))
                if not count:
                    raise BenchError("the server closed the connection")
            head = bytes(view[:end])
            if not head.startswith(b"HTTP/1.1 200 "):
                raise BenchError(f"the server answered {head.decode(errors='replace').splitlines()[0]}")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            largest = max(largest, length)
            left = end + 4 + length - received
            while left:
                if not (count := sock.recv_into(view[: min(left, RECEIVE_BYTES)])):
                    raise BenchError("the server closed the connection")
                left -= count
            answered = time.perf_counter_ns()
            latencies.append(answered - sent)
            sent = answered
        return clock.load(len(latencies), latencies), max(latencies) / 1000, largest


@contextmanager
def registry(options: Options) -> Iterator[Server]:
    """Run a lookup on free loopback ports."""
    flags = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
    server = Server(["-m", "nsqlookup", *flags], ["TCP", "HTTP"])
    try:
        pin(server.pid, options.cores.server)
        yield server
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()


def lookup(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Register every topic from every node; then look topics up while the nodes ping, unregister and register."""
    names = [f"topic{i:05}" for i in range(options.topics)]
    paths = [f"/lookup?topic={name}" for name in names]
    size = f"{options.connections:,} nodes × {options.topics:,} topics"
    with registry(options) as server, ExitStack() as stack:
        empty = mebibytes(server.anonymous_bytes())
        fleet = Fleet(server.tcp, options.connections, names, stack)
        registered = measure(server, fleet.register)
        check_registered(server, options.connections, names)
        also = {"anon MB before": empty} if empty is not None else {}
        yield bare(registered, "lookup in", f"REGISTER of {size}", options, also=also)

        longest = largest = 0.0
        with fleet.talking() as commands:

            def ask() -> Load:
                nonlocal longest, largest
                done, longest, largest = processes.run(ask_in_turn, server.http, paths, options.seconds)
                return done

            asked = measure(server, ask)
        also = {
            "longest, µs": longest,
            "answer kB": largest / 1000,
            "meanwhile, commands/s of nodes": commands[0] / asked.load.seconds,
            "/nodes, ms": nodes_ms(server),
        }
        check_registered(server, options.connections, names)
    with floor(options.cores, "respond", f"--bytes={int(largest)}") as least:

        def ask_least() -> Load:
            return processes.run(ask_in_turn, least.tcp, paths, options.seconds)[0]

        bare_responder = measure(least, ask_least)
    yield bare(asked, "lookup", f"/lookup of {size}", options, bare_responder, also=also)


def bare(
    measured: Measured,
    name: str,
    what: str,
    options: Options,
    least: Measured | None = None,
    *,
    also: dict[str, float],
) -> Row:
    """Return a row without a message size."""
    return dataclasses.replace(measured.row(name, what, options, least, also=also), size=0, twin=False)


def nodes_ms(server: Server) -> float:
    """Return the mean time of ``/nodes``, whose response contains every registration."""
    begun = time.perf_counter()
    ask_all(server.http, "GET", ["/nodes"] * NODES_ASKED)
    return (time.perf_counter() - begun) / NODES_ASKED * 1000


def check_registered(server: Server, nodes: int, names: list[str]) -> None:
    """Compare the registrations with the registry's responses."""
    [answer] = ask_all(server.http, "GET", [f"/lookup?topic={names[-1]}"])
    [topics] = ask_all(server.http, "GET", ["/topics"])
    found, known = len(json.loads(answer)["producers"]), len(json.loads(topics)["topics"])
    if (found, known) != (nodes, len(names)):
        raise BenchError(f"{nodes} nodes registered {len(names)} topics, but the registry knows {found} and {known}")
