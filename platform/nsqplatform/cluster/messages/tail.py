"""Live view of a topic's messages for all viewers of this web process, through one ephemeral channel.

For any number of viewers of a topic, its nodes have one consumer, whose messages go to each viewer. Each process has
its own channel for each topic (``tail-<8 hex digits>#ephemeral``). nsqd removes it with its last connection: after the
last viewer, or the end of the process. Messages of other channels are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from base64 import b64encode
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta

from asgiref.sync import sync_to_async
from redis.exceptions import RedisError
from typing_extensions import TypedDict

from aionsq import Consumer, ConsumerOptions, Message
from nsqcluster import Client, ClusterUnreachable, NodeStats, NotInCluster, RequestFailed
from nsqcluster.reads import stats_params
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.topic_nodes import holders
from nsqplatform.cluster.readings.tail_channels import new_tail_channel

logger = logging.getLogger(__name__)

TAKEN_PER_S = 2_000
"""Limit of messages received per second. Above it, the ephemeral channel is emptied, so that its backlog stays
small."""
SHOWN_AT_ONCE = 20
"""Limit of messages for one viewer at a time; further ones are counted as skipped."""
BODY_BYTES = 4_096
"""Limit of a body for viewers."""
TURN_S = 0.25
"""Interval at which messages are received up to the limit, and at which waiting ones are sent to a viewer."""
TRIMMED_EVERY_S = 1.0
IN_FLIGHT = 200


class TailedMessage(TypedDict):
    """``timestamp`` in unix milliseconds; ``body``: base64 of its beginning; ``size``: its full size in bytes."""

    node: str
    id: str
    timestamp: int
    attempts: int
    size: int
    body: str
    truncated: bool


class Uncovered(TypedDict):
    """A node on which the topic has no channel yet. The first channel, even an ephemeral one, gets its backlog."""

    node: str
    depth: int


@dataclass(eq=False)
class Viewer:
    """A viewer, with the waiting messages and the number of skipped ones."""

    words: tuple[str, ...] = ()
    """Only messages whose bodies contain all of these are shown; case-insensitive."""
    paused: bool = False
    skipped: int = 0
    waiting: deque[TailedMessage] = field(default_factory=deque)

    def offer(self, text: str, shown: TailedMessage) -> None:
        """Queue a message that matches, or count it as skipped. ``text`` is its body in lower case."""
        if not all(word in text for word in self.words):
            return
        if self.paused or len(self.waiting) >= SHOWN_AT_ONCE:
            self.skipped += 1
        else:
            self.waiting.append(shown)

    def taken(self) -> tuple[list[TailedMessage], int]:
        """The messages since the last call, and the number of skipped ones."""
        messages, skipped = list(self.waiting), self.skipped
        self.waiting.clear()
        self.skipped = 0
        return messages, skipped


class Tail:
    """The tail of one topic, while it has viewers."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.channel = new_tail_channel()
        self.viewers: set[Viewer] = set()
        self._held_back = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """Number of connected nodes."""
        return len(self._consumer.connections)

    async def start(self) -> None:
        """Connect the consumer to the topic's nodes. Raises aionsq's ConnectFailed."""
        cluster = await sync_to_async(selectors.cluster)()
        self._consumer = Consumer(
            self.topic,
            self.channel,
            lookupd_http_addresses=cluster.lookupd,
            nsqd_tcp_addresses=() if cluster.lookupd else await sync_to_async(selectors.tcp_addresses)(),
            options=ConsumerOptions(
                max_in_flight=IN_FLIGHT,
                max_attempts=0,
                client_id="nsq-platform",
                user_agent="nsq-platform tail",
                lookupd_poll_interval=timedelta(seconds=10),
            ),
        )
        await self._consumer.start()
        self._tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._trim())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._consumer.stop(timedelta(0))

    async def _take(self) -> None:
        """Pass messages on, at most TAKEN_PER_S, so that a busy topic does not block this process."""
        allowance = int(TAKEN_PER_S * TURN_S)
        turn_ends = time.monotonic() + TURN_S
        while (message := await self._consumer.next_message()) is not None:
            message.finish()
            self._show(message)
            allowance -= 1
            left = turn_ends - time.monotonic()
            if left <= 0 or allowance == 0:
                self._held_back = self._held_back or left > 0
                await asyncio.sleep(max(0.0, left))
                allowance = int(TAKEN_PER_S * TURN_S)
                turn_ends = time.monotonic() + TURN_S

    def _show(self, message: Message) -> None:
        shown = TailedMessage(
            node=message.nsqd_address,
            id=message.id.decode("latin-1"),
            timestamp=message.timestamp // 1_000_000,
            attempts=message.attempts,
            size=len(message.body),
            body=b64encode(message.body[:BODY_BYTES]).decode(),
            truncated=len(message.body) > BODY_BYTES,
        )
        text = message.body.decode("utf-8", "replace").lower() if any(each.words for each in self.viewers) else ""
        for viewer in self.viewers:
            viewer.offer(text, shown)

    async def _trim(self) -> None:
        """Empty the tail's channel if its backlog is larger than what can be shown."""
        while True:
            await asyncio.sleep(TRIMMED_EVERY_S)
            if not self._held_back:
                continue
            try:
                where = await holders(await sync_to_async(selectors.cluster)(), self.topic)
            except (NotInCluster, ClusterUnreachable, RedisError):
                continue
            self._held_back = False
            async with node_client.client() as http:
                for name, address in where.items():
                    with contextlib.suppress(RequestFailed):
                        channel = (await stats_of(http, address, self.topic)).channel(self.topic, self.channel)
                        depth = channel.depth if channel else 0
                        if depth > TAKEN_PER_S:
                            names = {"topic": self.topic, "channel": self.channel}
                            await http.post(address, "/channel/empty", names)
                            logger.info(
                                "tail skipped messages", extra={"topic": self.topic, "node": name, "messages": depth}
                            )
                            for viewer in self.viewers:
                                viewer.skipped += depth


class Hub:
    """The tails of this process."""

    def __init__(self) -> None:
        self._tails: dict[str, Tail] = {}
        self._lock = asyncio.Lock()

    async def join(self, topic: str, viewer: Viewer) -> Tail:
        """Add ``viewer`` to the topic's tail. Raises aionsq's ConnectFailed."""
        async with self._lock:
            tail = self._tails.get(topic)
            if tail is None:
                tail = Tail(topic)
                await tail.start()
                self._tails[topic] = tail
            tail.viewers.add(viewer)
            return tail

    async def leave(self, tail: Tail, viewer: Viewer) -> None:
        """Remove a viewer; without viewers, the tail ends."""
        async with self._lock:
            tail.viewers.discard(viewer)
            if not tail.viewers and self._tails.get(tail.topic) is tail:
                del self._tails[tail.topic]
                await tail.stop()

    def is_tailed(self, topic: str) -> bool:
        return topic in self._tails


hub = Hub()


async def uncovered(topic: str) -> list[Uncovered]:
    """The nodes on which a tail would be the topic's first channel. Raises NotInCluster and ClusterUnreachable."""
    where = await holders(await sync_to_async(selectors.cluster)(), topic)
    async with node_client.client() as http:
        answers = await asyncio.gather(*(_uncovered(http, *node, topic) for node in sorted(where.items())))
    return [answer for answer in answers if answer is not None]


async def _uncovered(http: Client, node: str, address: str, topic: str) -> Uncovered | None:
    try:
        stats = await stats_of(http, address, topic)
    except RequestFailed:
        return None  # no messages can be consumed from it either
    found = next((each for each in stats.topics if each.topic_name == topic), None)
    return None if found is None or found.channels else Uncovered(node=node, depth=found.depth)


async def stats_of(http: Client, address: str, topic: str) -> NodeStats:
    """Read a node's statistics of the topic. Raises RequestFailed."""
    return await http.get(address, "/stats", NodeStats, stats_params(topic=topic))
