"""The rows with many idle connections, and with many channels that have pending timers."""

from __future__ import annotations

import math
import random
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from bench import lateness, wire
from bench.errors import BenchError
from bench.lateness import Watched
from bench.links import connect
from bench.load import Load
from bench.measure import Measured, Options, Row, create, create_work, mebibytes
from bench.processes import LoadProcesses
from bench.server import Address, brokerd
from bench.throughput import busy_pair, trial

HEARTBEAT_MS = 1000
"""Heartbeat interval of idle connections, the shortest allowed: 1,000 connections send a thousand per second."""
CHANNELS_PER_TOPIC = 100
MESSAGES_PER_TOPIC = 5
WATCHED_CHANNELS = 200


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


def timers(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish deferred messages to many channels; on some of these, a consumer lets each message time out once.

    The consumer measures how late messages arrive, by the wall clock, which their timestamps come from.
    """
    topics = [f"timers{i}" for i in range(math.ceil(options.channels / CHANNELS_PER_TOPIC))]
    per_topic = min(CHANNELS_PER_TOPIC, options.channels)
    names = [f"c{i}" for i in range(per_topic)]
    channels = len(topics) * per_topic
    pairs = [(topic, name) for name in names for topic in topics]
    watched = pairs[: max(len(topics), WATCHED_CHANNELS)]
    commands = deferrals(options, topics)
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, dict.fromkeys(topics, names))
        before = server.processor_seconds()
        seen: Watched = processes.run(lateness.watch, server.tcp, watched, commands, len(watched) * MESSAGES_PER_TOPIC)
        fired = len(commands) * per_topic
        spent = Measured(Load(fired, seen.seconds, seen.processor_seconds), server.processor_seconds() - before, None)
        anonymous = mebibytes(server.anonymous_bytes())
    deferred = spent.row("timers defer", f"DPUB, lateness with {channels:,} channels", options)
    yield lateness.shown(deferred, seen.deferred_ns, anonymous)
    timed_out = Row(
        name="timers timeout",
        what=f"msg_timeout, lateness with {channels:,} channels",
        twin=options.twin,
        size=options.size,
        messages=len(seen.timeouts_ns),
        seconds=seen.seconds,
    )
    yield lateness.shown(timed_out, seen.timeouts_ns, anonymous)


def deferrals(options: Options, topics: list[str]) -> list[bytes]:
    """Return DPUB commands whose delays are spread over ``options.seconds``; each body begins with its delay."""
    dice = random.Random(1)
    commands = []
    for topic in topics * MESSAGES_PER_TOPIC:
        defer_ms = lateness.EARLIEST_MS + dice.randrange(int(options.seconds * 1000))
        body = struct.pack(">i", defer_ms).ljust(options.size, b"\0")
        commands.append(wire.dpub(topic, defer_ms, body))
    return commands
