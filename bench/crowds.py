"""The rows with many idle connections."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from bench import wire
from bench.errors import BenchError
from bench.links import connect
from bench.measure import Options, Row, create_work
from bench.processes import LoadProcesses
from bench.server import Address, brokerd
from bench.throughput import busy_pair, trial

HEARTBEAT_MS = 1000
"""Heartbeat interval of idle connections, the shortest allowed: 1,000 connections send a thousand per second."""


@contextmanager
def crowd(address: Address, size: int) -> Iterator[None]:
    """Open ``size`` connections that only answer heartbeats; half of them consume a topic without traffic.

    Raises BenchError at the end if the server closed one of them.
    """
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        sockets: dict[int, socket.socket] = {}
        for i in range(size):
            sock = stack.enter_context(connect(address))
            subscription = f"SUB quiet c{i}\nRDY 10\n".encode() if i % 2 else b""
            sock.sendall(wire.MAGIC + wire.identify(heartbeat_interval=HEARTBEAT_MS) + subscription)
            sockets[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN)
        leaving = threading.Event()
        dropped: list[int] = []

        def answer() -> None:
            while not leaving.is_set():
                for descriptor, _ in poll.poll(0.1):
                    data = b""
                    with suppress(OSError):
                        data = sockets[descriptor].recv(4096)
                    if not data:
                        dropped.append(descriptor)
                        poll.unregister(descriptor)
                    elif wire.HEARTBEAT in data:
                        sockets[descriptor].sendall(b"NOP\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            leaving.set()
            thread.join()
        if dropped:
            raise BenchError(f"the server closed {len(dropped)} of {size} idle connections")


def idle(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Run a producer and a consumer, first alone, then beside many idle connections. Both runs do the same work."""
    messages = trial(options, processes)
    alone: float | None = None
    for size in (0, options.connections):
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server)
            with crowd(server.tcp, size):
                result = busy_pair(options, processes, server, messages)
        alone = alone or result.us_per_message
        what = f"one producer and one consumer beside {size:,} idle connections"
        yield result.row(f"idle {size}", what, options, cost_ratio=result.us_per_message / alone)
