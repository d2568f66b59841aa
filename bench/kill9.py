"""``python -m bench.kill9``: kill a brokerd while clients publish and consume, restart it, and repeat.

Producers (PUB, MPUB, DPUB) and consumers (FIN, REQ with and without delay, or no answer) record in a ledger what the
broker has guaranteed. After the last round, all channels are drained. The violations found are printed, and the exit
status is 1 if there are any. These are violations:

- an acknowledged publish that a channel never delivers,
- a message redelivered although its FIN was processed well before the kill,
- attempts that decrease, an id or a body that changes,
- a deferred message or a delayed requeue that is delivered before it is due.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import random
import shutil
import struct
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import wire
from bench.command_line import Parser, Progress, directory, errors_in_one_line, positive_count
from bench.errors import BenchError
from bench.ledger import Ledger
from bench.measure import ask
from bench.server import Address, Server, start_brokerd

TOPICS = ("orders", "reminders")
CHANNELS = ("work", "archive")
FLAGS = ("--msg-timeout=2s",)
MARKER = b"FIN zzzzzzzzzzzzzzzz\n"
"""FIN of an id that is never in flight: its error shows that every command sent before it has been processed."""
MARKER_ANSWER = b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz "
LOST = (ConnectionError, asyncio.IncompleteReadError)
ROUND_SECONDS = 30.0
DRAIN_SILENCE_SECONDS = 15.0
"""After this time without a finished message, missing messages count as lost."""
UNANSWERED = 20
"""Outstanding publishes of a producer."""


@dataclass(frozen=True)
class Outcome:
    """The result of several rounds. ``start_seconds`` is the slowest start after a kill."""

    ledger: Ledger
    start_seconds: float


class Connection:
    """A V2 connection that returns complete frames and answers heartbeats."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: Address) -> Connection:
        connection = cls(*await asyncio.open_connection(*address))
        connection.send(wire.MAGIC)
        return connection

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def frame(self) -> tuple[int, bytes]:
        while True:
            size, kind = struct.unpack(">ii", await self._reader.readexactly(8))
            data = await self._reader.readexactly(size - 4)
            if data != b"_heartbeat_":
                return kind, data
            self.send(b"NOP\n")

    def close(self) -> None:
        self._writer.close()


class Producer:
    """Publishes to one topic until the connection is lost."""

    def __init__(self, ledger: Ledger, topic: str, chance: random.Random) -> None:
        self._ledger, self._topic, self._chance = ledger, topic, chance

    def single(self) -> tuple[bytes, list[bytes]]:
        body = self._ledger.publish(self._topic)
        return wire.pub(self._topic, body), [body]

    def batch(self) -> tuple[bytes, list[bytes]]:
        bodies = [self._ledger.publish(self._topic) for _ in range(self._chance.randint(1, 40))]
        return wire.mpub(self._topic, bodies), bodies

    def deferred(self) -> tuple[bytes, list[bytes]]:
        defer_ms = self._chance.choice([self._chance.randint(1, 300), self._chance.randint(1000, 4000)])
        body = self._ledger.publish(self._topic, defer_ms)
        return wire.dpub(self._topic, defer_ms, body), [body]

    async def run(self, address: Address, make: Callable[[], tuple[bytes, list[bytes]]]) -> None:
        connection = await Connection.open(address)
        under_way: deque[list[bytes]] = deque()
        try:
            while True:
                while len(under_way) < UNANSWERED:
                    command, bodies = make()
                    under_way.append(bodies)
                    connection.send(command)
                await connection.drain()
                kind, data = await connection.frame()
                if (kind, data) != (wire.RESPONSE, b"OK"):
                    raise BenchError(f"a publish was answered {data.decode(errors='replace')}")
                self._ledger.acknowledged(under_way.popleft())
        finally:
            connection.close()


class Consumer:
    """Consumes one channel; if ``disruptive``, it also requeues messages and lets some time out."""

    def __init__(self, ledger: Ledger, topic: str, channel: str, chance: random.Random, *, disruptive: bool) -> None:
        self._ledger, self._topic, self._channel = ledger, topic, channel
        self._chance, self._disruptive = chance, disruptive
        self._seen: dict[bytes, tuple[int, int]] = {}  # id to (serial, attempts)
        self._fins: Counter[bytes] = Counter()  # FINs by id, without those that were refused
        self._given: list[tuple[int, int]] = []  # answered since the last marker was sent
        self._awaiting: deque[list[tuple[int, int]]] = deque()  # the answers before each outstanding marker

    async def run(self, address: Address) -> None:
        connection = await Connection.open(address)
        try:
            connection.send(f"SUB {self._topic} {self._channel}\nRDY 200\n".encode())
            while True:
                kind, data = await connection.frame()
                if kind == wire.MESSAGE:
                    self._message(connection, data)
                elif kind == wire.ERROR:
                    self._refused(data)
                if self._given and len(self._awaiting) < 4:
                    connection.send(MARKER)
                    self._awaiting.append(self._given)
                    self._given = []
                await connection.drain()
        finally:
            connection.close()

    def _message(self, connection: Connection, data: bytes) -> None:
        timestamp_ns, attempts = struct.unpack_from(">qH", data)
        message_id, body, now_ns = data[10:26], data[26:], time.time_ns()
        serial = self._ledger.delivered(
            self._topic, self._channel, message_id, timestamp_ns, attempts, body, now_ns, id(self)
        )
        if serial is None:
            return
        self._seen[message_id] = (serial, attempts)
        # A FIN of the delivery before, sent late, may have finished this one: it must not be expected again.
        is_maybe_finished = self._fins[message_id] > 0
        draw = self._chance.random() if self._disruptive and not is_maybe_finished else 1.0
        if draw < 0.03:
            return  # no answer: the message times out, or is in flight when the broker is killed
        if draw < 0.15:
            delay_ms = self._chance.choice([0, self._chance.randint(1, 400), self._chance.randint(400, 1500)])
            connection.send(b"REQ %b %d\n" % (message_id, delay_ms))
            self._ledger.requeueing(self._channel, serial, now_ns + delay_ms * 1_000_000)
        else:
            connection.send(b"FIN %b\n" % message_id)
            self._fins[message_id] += 1
            self._ledger.finishing(self._channel, serial, now_ns)
        self._given.append((serial, attempts))

    def _refused(self, data: bytes) -> None:
        if data.startswith(MARKER_ANSWER):
            self._ledger.confirmed(self._channel, self._awaiting.popleft())
            return
        code, _, message_id = data.split(b" ")[:3]
        if code not in (b"E_FIN_FAILED", b"E_REQ_FAILED"):
            raise BenchError(f"a consumer was answered {data.decode(errors='replace')}")
        answer = self._seen[message_id]
        if code == b"E_FIN_FAILED":
            self._fins[message_id] -= 1
            if self._fins[message_id]:  # redelivered here after a timeout: its other FIN counts
                return
        self._ledger.refused(self._channel, *answer)
        for given in (self._given, *self._awaiting):
            if answer in given:
                given.remove(answer)


async def until_lost(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until the connection to the broker is lost; any other exception propagates."""
    with contextlib.suppress(*LOST):
        await work


async def wait_for(condition: Callable[[], bool], tasks: list[asyncio.Task[None]], seconds: float) -> bool:
    """Return True once ``condition()`` is true, False after ``seconds``; raises the exception of a failed task."""
    until = time.monotonic() + seconds
    while not condition():
        for task in tasks:
            if task.done():
                task.result()
                raise BenchError("the broker closed a connection")
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.002)
    return True


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel running tasks, and raise the exception of a failed one."""
    await asyncio.wait(tasks, timeout=2)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


def consumers(ledger: Ledger, address: Address, chance: random.Random, *, disruptive: bool) -> list[asyncio.Task[None]]:
    each = [(topic, channel) for topic in TOPICS for channel in CHANNELS] + [(TOPICS[0], CHANNELS[0])]
    return [
        asyncio.create_task(
            until_lost(
                Consumer(ledger, topic, channel, chance, disruptive=disruptive and channel == "work").run(address)
            )
        )
        for topic, channel in each
    ]


def producers(ledger: Ledger, address: Address, chance: random.Random) -> list[asyncio.Task[None]]:
    orders, reminders = (Producer(ledger, topic, chance) for topic in TOPICS)
    ways = [
        (orders, orders.single),
        (orders, orders.batch),
        (reminders, reminders.deferred),
        (reminders, reminders.batch),
    ]
    return [asyncio.create_task(until_lost(producer.run(address, way))) for producer, way in ways]


async def one_round(server: Server, ledger: Ledger, chance: random.Random, publishes: int, *, gently: bool) -> None:
    """Load the broker until it has acknowledged up to ``publishes`` more messages; then kill or stop it under load."""
    target = ledger.acknowledged_count + chance.randint(min(100, publishes), publishes)
    tasks = producers(ledger, server.tcp, chance) + consumers(ledger, server.tcp, chance, disruptive=True)
    try:
        if not await wait_for(lambda: ledger.acknowledged_count >= target, tasks, ROUND_SECONDS):
            raise BenchError(f"the broker did not acknowledge {target} messages within {ROUND_SECONDS:.0f} s")
    finally:
        ended_ns = time.time_ns()
        await asyncio.to_thread(server.stop if gently else server.kill)
        await end(tasks)
        ledger.killed(ended_ns)


async def drain(server: Server, ledger: Ledger, chance: random.Random) -> None:
    """Consume until nothing is missing or nothing more arrives; then close the ledger."""
    tasks = consumers(ledger, server.tcp, chance, disruptive=False)
    finishes = -1
    try:
        while not await wait_for(lambda: not ledger.unfinished, tasks, DRAIN_SILENCE_SECONDS):
            if finishes == (finishes := ledger.counts["finishes"]):
                break
        ledger.close()
    finally:
        for task in tasks:
            task.cancel()
        await end(tasks)


async def kill_repeatedly(
    data_path: Path,
    rounds: int,
    seed: int,
    *,
    publishes: int = 3000,
    gently: bool = False,
    twin: bool = False,
    report: Callable[[int, Ledger], None] | None = None,
) -> Outcome:
    """Run ``rounds`` of load and kill over one data path, then drain it.

    A round ends after about ``publishes`` acknowledgements or fewer. ``gently``: the broker is stopped by SIGTERM
    instead; the guarantees are the same.
    Raises BenchError if the broker fails.
    """
    chance = random.Random(seed)
    ledger = Ledger(CHANNELS)
    slowest = 0.0

    def start() -> Server:
        # In this thread: if the task were cancelled during a start in another one, nothing would stop the broker.
        nonlocal slowest
        began = time.monotonic()
        server = start_brokerd(data_path, *FLAGS, twin=twin)
        slowest = max(slowest, time.monotonic() - began)
        return server

    for number in range(rounds):
        gc.freeze()  # the ledger grows, and a search for cycles in it would take longer than messages may take
        server = start()
        try:
            if number == 0:
                create(server)
            await one_round(server, ledger, chance, publishes, gently=gently)
        finally:
            server.kill()
        if report:
            report(number + 1, ledger)
    server = start()
    try:
        await drain(server, ledger, chance)
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    return Outcome(ledger, slowest)


def create(server: Server) -> None:
    for topic in TOPICS:
        ask(server.http, "POST", f"/topic/create?topic={topic}")
        for channel in CHANNELS:
            ask(server.http, "POST", f"/channel/create?topic={topic}&channel={channel}")


def main() -> None:
    parser = Parser(prog="python -m bench.kill9", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=positive_count, default=10, help="number of kills (default 10)")
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run; its timing cannot be repeated")
    parser.add_argument("--data-path", type=directory, help="directory for the data path, which is kept on failure")
    parser.add_argument("--gently", action="store_true", help="stop the broker by SIGTERM instead, under the same load")
    parser.add_argument("--twin", action="store_true", help="use the pure-Python kernel")
    given = parser.parse_args()
    with errors_in_one_line("bench.kill9"):
        run(given)


def run(given: argparse.Namespace) -> None:
    """Kill the broker repeatedly, and print the violations. Exits with status 1 if there are any. Raises BenchError."""
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    data_path = Path(tempfile.mkdtemp(prefix="kill9-", dir=given.data_path))

    try:
        with Progress() as progress:

            def report(number: int, ledger: Ledger) -> None:
                acknowledged, violations = ledger.acknowledged_count, len(ledger.violations)
                progress.show(f"round {number}/{given.rounds}: {acknowledged} acknowledged, {violations} violations")

            outcome = asyncio.run(
                kill_repeatedly(data_path, given.rounds, seed, gently=given.gently, twin=given.twin, report=report)
            )
    except (BenchError, OSError) as error:
        raise BenchError(f"{error} (seed {seed}, data in {data_path})") from error
    except KeyboardInterrupt:
        shutil.rmtree(data_path, ignore_errors=True)
        raise
    print(f"{given.rounds} rounds, seed {seed}, slowest start {outcome.start_seconds:.2f} s")
    print(f"{outcome.ledger.acknowledged_count:>9} publishes acknowledged")
    for what, number in sorted(outcome.ledger.counts.items()):
        print(f"{number:>9} {what}")
    print(f"{len(outcome.ledger.violations):>9} violations")
    for violation in outcome.ledger.violations[:50]:
        print(f"  {violation}")
    if outcome.ledger.violations:
        print(f"the data path is kept: {data_path}")
        raise SystemExit(1)
    shutil.rmtree(data_path)


if __name__ == "__main__":
    main()
