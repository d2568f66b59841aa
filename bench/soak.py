"""``python -m bench.soak``: aionsq under load while brokers and registries are killed, restarted, paused and moved.

Producers publish to all brokers and record the acknowledged messages. Consumers discover the brokers through the
registries and fail occasionally. At the end, every acknowledged message must have reached each channel, and according
to the brokers each consumer's RDY must be evenly distributed and total ``max_in_flight``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from aionsq import ClientError, Consumer, ConsumerOptions, Ids, Message, Node, Producer, ProducerOptions
from bench.command_line import Parser, Progress, directory, errors_in_one_line
from bench.errors import BenchError
from bench.soak_cluster import Cluster

log = logging.getLogger(__name__)

BROKERS, REGISTRIES = 4, 2
SETTLE_SECONDS = 120.0
SETTLE_MESSAGES = 40
"""Messages to each topic between two checks of RDY."""
SETTLING = b"settling."
FAILS, SLEEPS = 0.002, 0.02
"""Fraction of the messages on which a handler fails, and fraction that it processes slowly."""

_S, _MS = timedelta(seconds=1), timedelta(milliseconds=1)
_QUICK: dict[str, Any] = {
    "heartbeat_interval": _S,
    "read_timeout": 3 * _S,
    "max_reconnect_delay": _S,
}
"""Intervals of seconds instead of up to a minute, so that faults have effects within the run."""


@dataclass(frozen=True)
class Stream:
    """A topic, its channel, and its producers and consumers."""

    topic: str
    channel: str
    producers: int
    per_second: int
    """Publishes per second of each producer."""
    consumers: int
    max_in_flight: int


STREAMS = (
    Stream("orders", "archive", producers=2, per_second=200, consumers=3, max_in_flight=50),
    # max_in_flight is less than the number of brokers, so that RDY 1 must rotate.
    Stream("scarce", "audit", producers=1, per_second=20, consumers=2, max_in_flight=2),
)


@dataclass
class Ledger:
    """The acknowledged and the received messages of one stream."""

    acknowledged: set[bytes] = field(default_factory=set)
    in_doubt: int = 0
    """Number of publishes that ended with an error, whose messages may or may not be stored."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of these errors by name."""
    seen: set[bytes] = field(default_factory=set)
    deliveries: int = 0

    @property
    def missing(self) -> set[bytes]:
        return self.acknowledged - self.seen


@dataclass(frozen=True)
class Outcome:
    """The result of a soak."""

    ledgers: dict[str, Ledger]
    faults: Counter[str]
    settle_seconds: float
    """Seconds from the last fault until every acknowledged message had arrived and RDY was balanced."""
    imbalance: list[str]

    @property
    def is_good(self) -> bool:
        return not self.imbalance and not any(ledger.missing for ledger in self.ledgers.values())


async def produce(stream: Stream, number: int, producer: Producer, ledger: Ledger, stop: asyncio.Event) -> None:
    """Publish numbered messages until ``stop``, then wait for the answers."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Future[Ids]] = set()
    began, count = loop.time(), 0

    def note(body: bytes, done: asyncio.Future[Ids]) -> None:
        under_way.discard(done)
        if done.cancelled() or (error := done.exception()) is not None:
            ledger.in_doubt += 1
            ledger.refused["cancelled" if done.cancelled() else type(error).__name__] += 1
        else:
            ledger.acknowledged.add(body)

    while not stop.is_set():
        body = b"%d.%d" % (number, count)
        answer = producer.pub(stream.topic, body)
        under_way.add(answer)
        answer.add_done_callback(partial(note, body))

        count += 1
        await asyncio.sleep(max(0.0, began + count / stream.per_second - loop.time()))
    await asyncio.gather(*under_way, return_exceptions=True)


async def consume(consumer: Consumer, ledger: Ledger, chance: random.Random) -> None:
    """Process messages until the consumer stops; a message counts only once its handler succeeded."""

    async def handle(message: Message) -> None:
        ledger.deliveries += 1
        if chance.random() < FAILS and not message.body.startswith(SETTLING):
            raise HandlerFailed
        if chance.random() < SLEEPS:
            await asyncio.sleep(chance.uniform(0.0, 0.2))
        ledger.seen.add(message.body)

    await consumer.run(handle, concurrency=10)


class HandlerFailed(Exception):
    """Raised by a handler to simulate a failure."""


async def imbalance(cluster: Cluster, streams: dict[str, Stream]) -> list[str]:
    """List deviations from the expected RDY counts, as reported by the brokers; ``streams`` is by client id.

    All brokers are queried at once, because with fewer RDY than brokers, RDY 1 rotates several times a second.
    """
    ready: dict[str, list[int]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(broker.http_address)) for broker in cluster.brokers]
        answers = await asyncio.gather(*(node.stats() for node in nodes))
    for topic in itertools.chain.from_iterable(answer.topics for answer in answers):
        for channel in topic.channels:
            for client in channel.clients:
                ready[client.client_id].append(client.ready_count)
    complaints = []
    for client_id, stream in streams.items():
        counts = ready[client_id]
        if len(counts) != len(cluster.brokers):
            complaints.append(f"{client_id} is connected {len(counts)} times to {len(cluster.brokers)} brokers")
        elif sum(counts) != stream.max_in_flight or max(counts) - min(counts) > 1:
            complaints.append(f"{client_id} has RDY {counts} and max_in_flight {stream.max_in_flight}")
    return complaints


async def soak(below: Path, seconds: float, seed: int, report: Callable[[str], None]) -> Outcome:
    """Run the soak; ``report`` gets a line of progress each second. Raises BenchError if a server does not start."""
    chance = random.Random(seed)
    cluster = Cluster(below, BROKERS, REGISTRIES)
    ledgers = {stream.topic: Ledger() for stream in STREAMS}
    clients: dict[str, Stream] = {}
    stop_producing = asyncio.Event()
    try:
        await cluster.start([(stream.topic, stream.channel) for stream in STREAMS])
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            producing = []
            producers: dict[str, Producer] = {}
            for stream in STREAMS:
                ledger = ledgers[stream.topic]
                for number in range(stream.consumers):
                    client_id = f"{stream.topic}-{number}"
                    clients[client_id] = stream
                    consumer = Consumer(
                        stream.topic,
                        stream.channel,
                        lookupd_http_addresses=[registry.http_address for registry in cluster.registries],
                        options=consumer_options(client_id, stream),
                    )
                    stack.push_async_callback(consumer.stop)
                    group.create_task(consume(consumer, ledger, chance))
                for number in range(stream.producers):
                    addresses = [address for broker in cluster.brokers for address in broker.tcp_addresses]
                    options = ProducerOptions(resend=True, publish_timeout=20 * _S, **_QUICK)
                    producer = await stack.enter_async_context(Producer(addresses, options))
                    producers[stream.topic] = producer
                    producing.append(group.create_task(produce(stream, number, producer, ledger, stop_producing)))
            reporting = group.create_task(report_each_second(ledgers, cluster, report))
            await cluster.inject_faults(seconds, chance)
            stop_producing.set()
            await asyncio.gather(*producing)
            began = time.monotonic()
            complaints = await settled(cluster, ledgers, clients, producers)
            took = time.monotonic() - began
            reporting.cancel()
            await stack.aclose()
        return Outcome(ledgers, cluster.faults, took, complaints)
    finally:
        await cluster.close()


def consumer_options(client_id: str, stream: Stream) -> ConsumerOptions:
    return ConsumerOptions(
        client_id=client_id,
        max_in_flight=stream.max_in_flight,
        max_attempts=0,
        msg_timeout=5 * _S,
        default_requeue_delay=200 * _MS,
        max_requeue_delay=_S,
        backoff_multiplier=20 * _MS,
        max_backoff_duration=_S,
        lookupd_poll_interval=_S,
        lookupd_poll_timeout=2 * _S,
        **_QUICK,
    )


async def settled(
    cluster: Cluster, ledgers: dict[str, Ledger], clients: dict[str, Stream], producers: dict[str, Producer]
) -> list[str]:
    """Wait at most SETTLE_SECONDS until the cluster has settled; returns the remaining deviations of RDY.

    While RDY is not balanced, messages are sent to each topic, and no handler fails on them, because backoff ends only
    with a success. Many are needed: a consumer in backoff requests one message from one broker.
    """
    until = time.monotonic() + SETTLE_SECONDS
    numbers = itertools.count()
    while True:
        complaints = await imbalance(cluster, clients)
        if not complaints and not any(ledger.missing for ledger in ledgers.values()):
            return []
        if time.monotonic() > until:
            return complaints
        for complaint in complaints:
            log.info("not settled: %s", complaint)
        for topic, producer in producers.items() if complaints else ():
            bodies = [SETTLING + b"%d" % number for number in itertools.islice(numbers, SETTLE_MESSAGES)]
            await asyncio.gather(*(producer.pub(topic, body) for body in bodies))
            ledgers[topic].acknowledged.update(bodies)
        await asyncio.sleep(0.2)


async def report_each_second(ledgers: dict[str, Ledger], cluster: Cluster, report: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(1)
        acknowledged = sum(len(ledger.acknowledged) for ledger in ledgers.values())
        missing = sum(len(ledger.missing) for ledger in ledgers.values())
        faults = ", ".join(f"{count} {what}" for what, count in sorted(cluster.faults.items()))
        report(f"{acknowledged} acknowledged, {missing} under way; {faults}")


def summary(outcome: Outcome, seconds: float, seed: int) -> str:
    """Return the outcome as text for a user."""
    faults = ", ".join(f"{count} {what}" for what, count in sorted(outcome.faults.items()))
    lines = [f"{seconds:g} s, {BROKERS} brokers, {REGISTRIES} registries, seed {seed}", f"faults: {faults}"]
    for topic, ledger in outcome.ledgers.items():
        doubt = ", ".join(f"{count} {name}" for name, count in ledger.refused.items())
        lines.append(
            f"{topic}: {len(ledger.acknowledged)} acknowledged, {len(ledger.missing)} of them lost, "
            f"{ledger.in_doubt} not acknowledged{f' ({doubt})' if doubt else ''}, {ledger.deliveries} deliveries"
        )
        lines += [f"  lost: {body.decode()}" for body in sorted(ledger.missing)[:20]]
    lines.append(f"settled {outcome.settle_seconds:.1f} s after the last fault")
    lines += outcome.imbalance or ["RDY is in balance"]
    return "\n".join(lines)


def main() -> None:
    parser = Parser(prog="python -m bench.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=minutes, default=10.0, help="duration (default 10)")
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run; its timing cannot be repeated")
    parser.add_argument("--data-path", type=directory, help="directory for the data paths, which are kept on failure")
    parser.add_argument("--log", type=Path, help="file for the client's log")
    given = parser.parse_args()
    with errors_in_one_line("bench.soak"):
        run(given)


def run(given: argparse.Namespace) -> None:
    """Run the soak, and print its summary. Exits with status 1 if a message was lost. Raises BenchError, OSError."""
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    logging.basicConfig(
        level=logging.INFO if given.log else logging.CRITICAL,
        filename=given.log,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    below = Path(tempfile.mkdtemp(prefix="soak-", dir=given.data_path))
    try:
        with Progress() as progress:
            outcome = uvloop.run(soak(below, given.minutes * 60, seed, progress.show))
    except (BenchError, ClientError, OSError, ExceptionGroup) as error:
        raise BenchError(f"{error} (seed {seed}, data in {below})") from error
    except KeyboardInterrupt:
        shutil.rmtree(below, ignore_errors=True)
        raise
    print(summary(outcome, given.minutes * 60, seed))
    if not outcome.is_good:
        print(f"the data is kept: {below}")
        raise SystemExit(1)
    shutil.rmtree(below)


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes between 0 and 1440")
    return value


if __name__ == "__main__":
    main()
