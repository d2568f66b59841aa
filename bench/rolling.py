"""The rows about a rolling restart: three nodes end and start again in turn, while producers publish and a consumer
reads.

A node ends by a drain or by SIGTERM. The producers are aionsq's, which know all three nodes, or connections without
failover: each knows one node, and reports an error if it cannot publish there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median

from aionsq import ClientError, Consumer, ConsumerOptions, Message, Producer
from bench import wire
from bench.errors import BenchError
from bench.measure import TOPIC, Options, Row, ask, create
from bench.ports import free_ports
from bench.processes import LoadProcesses
from bench.server import Address, Server

NODES = 3
PUBLISHERS = 6
"""Tasks that publish one message at a time; without failover, two for each node."""
INTERVAL_SECONDS = 0.01
HANDLING_SECONDS = 0.005
CHANNEL = "work"
SILENCE_SECONDS = 20.0
"""After this time without a message, missing messages count as lost."""
PUBLISH_SECONDS = 30.0


@dataclass(frozen=True)
class Way:
    """How nodes end, and who publishes."""

    is_drained: bool
    has_failover: bool

    @property
    def name(self) -> str:
        return f"{'drain' if self.is_drained else 'SIGTERM'}, {'aionsq' if self.has_failover else 'no failover'}"


WAYS = {
    "brokerd": (
        Way(is_drained=True, has_failover=True),
        Way(is_drained=False, has_failover=True),
        Way(is_drained=True, has_failover=False),
        Way(is_drained=False, has_failover=False),
    ),
    "nsqd": (Way(is_drained=False, has_failover=True), Way(is_drained=False, has_failover=False)),
}


@dataclass
class Tally:
    """What was published, and what was received. Each body is a number."""

    stored: set[bytes] = field(default_factory=set)
    failed: set[bytes] = field(default_factory=set)
    """Bodies of publishes that ended with an error. Some of them are stored."""
    received: Counter[bytes] = field(default_factory=Counter)
    publish_seconds: list[float] = field(default_factory=list)
    restart_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    """From the first publish to the last."""

    @property
    def lost(self) -> int:
        return len(self.stored - self.received.keys())

    def figures(self) -> dict[str, float]:
        return {
            "publish errors": len(self.failed),
            "messages delivered despite an error": len(self.failed & self.received.keys()),
            "messages lost": self.lost,
            "messages delivered twice": sum(count > 1 for count in self.received.values()),
            "longest publish, ms": max(self.publish_seconds, default=0.0) * 1000,
            "restart of a node, s": median(self.restart_seconds),
        }


class Node:
    """A node that keeps its ports and its data path."""

    def __init__(self, program: Path | None, data_path: Path, *, twin: bool) -> None:
        """``program``: Go's nsqd; None: brokerd."""
        tcp, http = free_ports(2)
        self.tcp: Address = ("127.0.0.1", tcp)
        self._program = program
        self._twin = twin
        self._flags = [
            *(f"--tcp-address=127.0.0.1:{tcp}", f"--http-address=127.0.0.1:{http}"),
            *("--broadcast-address=127.0.0.1", f"--data-path={data_path}"),
        ]
        data_path.mkdir()
        self.server = self._started()

    def restart(self, *, is_drained: bool) -> None:
        """Raises BenchError if the node does not end in time with status 0, or does not start again."""
        if is_drained:
            ask(self.server.http, "POST", "/drain")
            self.server.wait("a drain")
        else:
            self.server.stop()
        self.server = self._started()

    def close(self) -> None:
        if self.server.process.poll() is None:
            self.server.kill()

    def _started(self) -> Server:
        command = self._flags if self._program else ["-m", "brokerd", *self._flags]
        environment = {"BROKERD_KERNEL": "python"} if self._twin else None
        return Server(command, ["TCP", "HTTP"], environment, program=self._program)


class Publisher(ABC):
    @abstractmethod
    async def publish(self, body: bytes) -> None:
        """Return once the message is stored. Raises ClientError or OSError."""


class WithFailover(Publisher):
    """aionsq's producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def publish(self, body: bytes) -> None:
        await self._producer.pub(TOPIC, body)


class WithoutFailover(Publisher):
    """One connection to one node. A publish fails if the connection is lost, if it cannot be opened or if the node
    refuses the message. The next publish opens a new one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def publish(self, body: bytes) -> None:
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._publish(body)
        except (OSError, EOFError) as error:
            self.close()
            raise error if isinstance(error, OSError) else ConnectionResetError("the connection was closed") from None

    async def _publish(self, body: bytes) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
            await self._ask(wire.MAGIC + wire.identify(client_id="rolling", heartbeat_interval=-1))
        await self._ask(wire.pub(TOPIC, body))

    async def _ask(self, command: bytes) -> None:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(command)
        answer = await reader.readexactly(len(wire.OK))
        if answer != wire.OK:
            raise ConnectionError("the node refused the message")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def rolling(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Restart three nodes in turn, ``--rounds`` times; with ``--reference``, three of Go's too."""
    logging.getLogger("aionsq").setLevel(logging.ERROR)  # every lost connection is a warning
    for program, ways in WAYS.items():
        if program == "nsqd" and options.reference is None:
            continue
        nsqd = options.reference / "nsqd" if program == "nsqd" and options.reference else None
        for way in ways:
            tally = measured(nsqd, way, options)
            if program == "brokerd" and tally.lost:
                raise BenchError(f"rolling {way.name}: {tally.lost} messages were lost")
            yield Row(
                name=f"rolling {program}, {way.name}",
                what=f"{NODES} nodes restarted in turn, {options.rounds} times; {PUBLISHERS} producers, one consumer",
                twin=options.twin,
                size=0,
                messages=len(tally.stored),
                seconds=tally.seconds,
                also=tally.figures(),
            )


def measured(nsqd: Path | None, way: Way, options: Options) -> Tally:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path)))
        nodes = []
        for number in range(NODES):
            node = Node(nsqd, folder / str(number), twin=options.twin)
            stack.callback(node.close)
            create(node.server, {TOPIC: [CHANNEL]})
            nodes.append(node)
        tally = asyncio.run(restarted(nodes, way, options))
        for node in nodes:
            node.server.stop()
    return tally


async def restarted(nodes: list[Node], way: Way, options: Options) -> Tally:
    """Restart each node in turn under load, until everything that is stored has been received."""
    tally = Tally()
    addresses = [f"{host}:{port}" for host, port in (node.tcp for node in nodes)]
    pause = options.seconds / options.rounds / (NODES + 1)

    async def handle(message: Message) -> None:
        await asyncio.sleep(HANDLING_SECONDS)
        tally.received[message.body] += 1

    consumer_options = ConsumerOptions(max_in_flight=100, max_attempts=0)
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(
            Consumer(TOPIC, CHANNEL, nsqd_tcp_addresses=addresses, options=consumer_options)
        )
        handling = asyncio.create_task(consumer.run(handle, concurrency=20))
        publishers: list[Publisher] = []
        if way.has_failover:
            producer = await stack.enter_async_context(Producer(addresses))
            publishers += [WithFailover(producer)] * PUBLISHERS
        else:
            for number in range(PUBLISHERS):
                single = WithoutFailover(nodes[number % NODES].tcp)
                stack.callback(single.close)
                publishers.append(single)
        ending, numbers = asyncio.Event(), itertools.count()
        publishing_began = time.monotonic()
        publishing = [asyncio.create_task(publish(each, tally, numbers, ending)) for each in publishers]
        try:
            for _ in range(options.rounds):
                for node in nodes:
                    await asyncio.sleep(pause)
                    began = time.monotonic()
                    await asyncio.to_thread(node.restart, is_drained=way.is_drained)
                    tally.restart_seconds.append(time.monotonic() - began)
            await asyncio.sleep(pause)
        finally:
            ending.set()
            await asyncio.gather(*publishing)
            tally.seconds = time.monotonic() - publishing_began
        await silence(tally)
        await consumer.stop(grace=timedelta(seconds=SILENCE_SECONDS))
        await handling
    return tally


async def publish(publisher: Publisher, tally: Tally, numbers: Iterator[int], ending: asyncio.Event) -> None:
    """Publish a message every INTERVAL_SECONDS, or when the last is answered."""
    due = time.monotonic()
    while not ending.is_set():
        body, began = b"%d" % next(numbers), time.monotonic()
        try:
            await publisher.publish(body)
            tally.stored.add(body)
        except (ClientError, OSError):
            tally.failed.add(body)
        tally.publish_seconds.append(time.monotonic() - began)
        due = max(due + INTERVAL_SECONDS, time.monotonic() - INTERVAL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(due - time.monotonic(), 0.001)):
                await ending.wait()


async def silence(tally: Tally) -> None:
    """Wait until every stored message has been received, or none comes any more."""
    received, since = 0, time.monotonic()
    while tally.lost and time.monotonic() - since < SILENCE_SECONDS:
        if (now := tally.received.total()) != received:
            received, since = now, time.monotonic()
        await asyncio.sleep(0.05)
