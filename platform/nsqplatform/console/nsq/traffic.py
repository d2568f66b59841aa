"""The traffic of ``nsq demo``, a small shop: topics, channels, processing times and failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from aionsq import ClientError, Consumer, ConsumerOptions, Ids, Message, Producer, ProducerOptions
from nsqcluster import Client, RequestFailed
from nsqcluster.policies import Patterns, delete_node_policy, set_node_policy
from nsqwire.errors import NSQError

TICK_SECONDS = 0.05
WAVE_SECONDS = 120.0
"""Period in which the rate varies by half, so that charts have a shape."""
STOP_GRACE = timedelta(seconds=5)
POISON_EVERY = 100
"""One in this many messages of a topic whose channels give up cannot be processed."""


@dataclass(frozen=True, kw_only=True)
class Channel:
    """How a channel's consumers behave. ``work_seconds`` is the median of a log-normal, ``spread`` its sigma.

    ``load`` is arrival rate / capacity: above 1, the channel's backlog grows. With ``max_attempts``, some messages
    always fail, and die after this many deliveries.
    """

    name: str
    work_seconds: float
    spread: float = 0.4
    failing: float = 0.0
    load: float = 0.5
    clients: int = 1
    max_attempts: int = 0

    def sized(self, rate: float) -> tuple[int, float]:
        """Number of handlers and their median work in seconds, for which ``rate`` messages per second give ``load``."""
        mean = self.work_seconds * math.exp(self.spread**2 / 2)
        handlers = max(self.clients, math.ceil(rate * mean / self.load))
        if self.load <= 1:
            return handlers, self.work_seconds
        return handlers, self.work_seconds * (self.load * handlers / rate) / mean


@dataclass(frozen=True, kw_only=True)
class Topic:
    """``share``: fraction of all publishes; ``deferred``: fraction of its messages that are deferred by 5 to 45 s;
    ``traced``: whether its messages have headers, where nodes take them."""

    name: str
    share: float
    channels: Sequence[Channel]
    deferred: float = 0.0
    traced: bool = False


SHOP = (
    Topic(
        name="page_views",
        share=0.60,
        channels=(
            Channel(name="analytics", work_seconds=0.04, clients=2),
            Channel(name="archive", work_seconds=0.15, load=0.8),
            Channel(name="live_map#ephemeral", work_seconds=0.03),
        ),
    ),
    Topic(
        name="orders",
        share=0.20,
        channels=(
            Channel(name="billing", work_seconds=0.08, failing=0.03, clients=2),
            Channel(name="warehouse", work_seconds=0.4, spread=0.8, load=0.7),
        ),
        traced=True,
    ),
    Topic(
        name="emails",
        share=0.08,
        channels=(Channel(name="sender", work_seconds=0.25, spread=0.6, failing=0.1, max_attempts=3),),
        deferred=0.25,
    ),
    Topic(
        name="thumbnails",
        share=0.12,
        channels=(Channel(name="resize", work_seconds=0.5, load=1.4),),
    ),
)
GIVING_UP = [(topic, channel) for topic in SHOP for channel in topic.channels if channel.max_attempts]


@dataclass
class Counts:
    """Counts so far. ``behind``: by ``topic/channel``, the unfinished messages of the channels with a load above 1."""

    published: int = 0
    refused: int = 0
    deferred: int = 0
    finished: int = 0
    requeued: int = 0
    last_refusal: str = ""
    behind: dict[str, int] = field(default_factory=dict)


Finished = Callable[[str, str, int], None]
"""Called with topic, channel and nanoseconds from publish to finish."""


class Traffic:
    """Publishes and consumes until ``stop``."""

    def __init__(
        self,
        *,
        rate: float,
        nsqd_tcp_addresses: Sequence[str],
        lookupd_http_addresses: Sequence[str] = (),
        nsqd_http_addresses: Sequence[str] = (),
        finished: Finished | None = None,
    ) -> None:
        """``rate``: messages published per second in total. Consumers use the registries, if any are given. Some
        messages die if all of ``nsqd_http_addresses`` accept policies."""
        self.counts = Counts()
        self.nothing_dies = ""
        """Why no message dies, although HTTP addresses are given."""
        self._nsqd_http_addresses = nsqd_http_addresses
        self._gives_up = False
        self._rate = rate
        options = ProducerOptions(headers=True, headers_fallback="drop")
        self._producers = [Producer(address, options) for address in nsqd_tcp_addresses]
        self._lookupd_http_addresses = lookupd_http_addresses
        self._nsqd_tcp_addresses = () if lookupd_http_addresses else nsqd_tcp_addresses
        self._finished = finished
        self._consumers: list[Consumer] = []
        self._running: list[asyncio.Task[None]] = []
        self._random = random.Random()

    async def start(self) -> None:
        """Connect the producers and consumers. Raises ConnectFailed after closing all connections."""
        try:
            for producer in self._producers:
                await producer.start()
            await self._set_policies()
            for topic in SHOP:
                for channel in topic.channels:
                    await self._consume(topic, channel)
        except ClientError:
            await self.stop()
            raise
        self._running += [asyncio.create_task(self._publish(topic)) for topic in SHOP]

    async def _set_policies(self) -> None:
        """Have the nodes limit the deliveries of the channels with ``max_attempts``, until ``stop``."""
        try:
            async with Client() as http:
                for address in self._nsqd_http_addresses:
                    for topic, channel in GIVING_UP:
                        await set_node_policy(
                            http, address, Patterns(topic.name, channel.name), {"max_attempts": channel.max_attempts}
                        )
        except RequestFailed as error:
            self.nothing_dies = str(error)
        else:
            self._gives_up = bool(self._nsqd_http_addresses)

    async def _delete_policies(self) -> None:
        async with Client() as http:
            for address in self._nsqd_http_addresses if self._gives_up else ():
                for topic, channel in GIVING_UP:
                    with contextlib.suppress(RequestFailed):  # the node has ended, too
                        await delete_node_policy(http, address, Patterns(topic.name, channel.name))

    async def stop(self) -> None:
        """Stop publishing, wait for running handlers, and close all connections."""
        for task in self._running:
            task.cancel()
        for producer in self._producers:
            await producer.close(STOP_GRACE)
        await asyncio.gather(*(consumer.stop(STOP_GRACE) for consumer in self._consumers))
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._delete_policies()

    async def _consume(self, topic: Topic, channel: Channel) -> None:
        handlers, work_seconds = channel.sized(self._rate * topic.share)
        share = math.ceil(handlers / channel.clients)
        if channel.load > 1:
            self.counts.behind[f"{topic.name}/{channel.name}"] = 0

        loop = asyncio.get_running_loop()

        async def handle(message: Message) -> None:
            await asyncio.sleep(work_seconds * self._random.lognormvariate(0, channel.spread))
            is_poison = self._gives_up and channel.max_attempts and int(message.id, 16) % POISON_EVERY == 0
            if is_poison or self._random.random() < channel.failing:
                message.requeue(timedelta(seconds=self._random.uniform(1, 5)), backoff=False)
                self.counts.requeued += 1
                return
            message.finish()
            # Queued after the FIN in the event loop, because the FIN's transmission is part of the latency.
            loop.call_soon(self._note_finished, topic.name, channel.name, message.timestamp)

        for number in range(1, channel.clients + 1):
            name = f"{channel.name.partition('#')[0]}-{number}"
            options = ConsumerOptions(client_id=name, hostname=f"{name}.shop", max_in_flight=share, max_attempts=0)
            consumer = Consumer(
                topic.name,
                channel.name,
                nsqd_tcp_addresses=self._nsqd_tcp_addresses,
                lookupd_http_addresses=self._lookupd_http_addresses,
                options=options,
            )
            self._consumers.append(consumer)
            await consumer.start()
            self._running.append(asyncio.create_task(consumer.run(handle, concurrency=share)))

    def _note_finished(self, topic: str, channel: str, published_ns: int) -> None:
        latency_ns = time.time_ns() - published_ns
        self.counts.finished += 1
        key = f"{topic}/{channel}"
        if key in self.counts.behind:
            self.counts.behind[key] -= 1
        if self._finished is not None:
            self._finished(topic, channel, latency_ns)

    async def _publish(self, topic: Topic) -> None:
        """Publish at the topic's varying rate, evenly over the producers."""
        loop = asyncio.get_running_loop()
        began = last = loop.time()
        owed = 0.0
        number = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = loop.time()
            wave = 1 + 0.5 * math.sin(2 * math.pi * (now - began) / WAVE_SECONDS)
            # Publishes missed in a stall are skipped.
            owed += self._rate * topic.share * wave * min(now - last, 1.0) * self._random.uniform(0.5, 1.5)
            last = now
            while owed >= 1:
                owed -= 1
                number += 1
                self._publish_one(topic, number, self._producers[number % len(self._producers)])

    def _publish_one(self, topic: Topic, number: int, producer: Producer) -> None:
        body = json.dumps(self._event(topic, number)).encode()
        deferred = self._random.random() < topic.deferred
        if deferred:
            answer = producer.dpub(topic.name, timedelta(seconds=self._random.uniform(5, 45)), body)
        else:
            answer = producer.pub(topic.name, body, headers=self._headers() if topic.traced else None)
        answer.add_done_callback(lambda done: self._note_published(topic, done, deferred=deferred))

    def _note_published(self, topic: Topic, done: asyncio.Future[Ids], *, deferred: bool) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, ClientError | NSQError):
            self.counts.refused += 1
            self.counts.last_refusal = str(error)
            return
        self.counts.published += 1
        self.counts.deferred += deferred
        for channel in topic.channels:
            if channel.load > 1:
                self.counts.behind[f"{topic.name}/{channel.name}"] += 1

    def _headers(self) -> dict[str, str]:
        """Those of W3C trace context, and the shop's customer."""
        trace, span = self._random.getrandbits(128), self._random.getrandbits(64)
        return {
            "traceparent": f"00-{trace:032x}-{span:016x}-01",
            "tenant": self._random.choice(("acme", "globex", "initech")),
        }

    def _event(self, topic: Topic, number: int) -> dict[str, object]:
        return {
            "event": topic.name.removesuffix("s"),
            "number": number,
            "at": time.time(),
            "session": f"{self._random.getrandbits(64):016x}",
            "customer": self._random.randrange(1, 20_000),
            "country": self._random.choice(("DE", "FR", "JP", "NL", "US")),
            "path": f"/products/{self._random.randrange(1, 800)}",
        }
