"""Live view of a topic's messages for all viewers of this web process, through one ephemeral channel.

All viewers of a topic share one consumer, whose messages are sent to each of them. Each process has its own channel for
each topic (``tail-<8 hex digits>#ephemeral``). nsqd removes the channel when its last connection closes: after the last
viewer has left, or at the end of the process. Messages of other channels are not affected.
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
from nsqcluster import Action, Client, ClusterUnreachable, NodeStats, NotInCluster, RequestFailed, reads
from nsqcluster.actions import perform_on_node
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.topic_nodes import node_addresses
from nsqplatform.cluster.messages.hidden_paths import HiddenPaths, Visibility, Visible
from nsqplatform.cluster.readings.tail_channels import new_tail_channel
from nsqplatform.clusters.current import PerCluster
from nsqwire.units import Milliseconds

logger = logging.getLogger(__name__)

MAX_MESSAGES_PER_S = 2_000
"""Maximum number of messages received per second. If more are published, the ephemeral channel is emptied, so that its
backlog stays small."""
SHOWN_AT_ONCE = 20
"""Maximum number of messages waiting for one viewer; further ones are counted as skipped."""
BODY_BYTES = 4_096
"""Maximum size of a body that is sent to viewers."""
MASKED_BYTES = 65_536
"""Longer bodies are withheld from viewers with a mask, because masking many of them would occupy this process."""
INTERVAL_S = 0.25
"""Interval at which messages are received up to the limit, and at which waiting ones are sent to a viewer."""
TRIMMED_EVERY_S = 1.0
IN_FLIGHT = 200


class TailedMessage(TypedDict):
    """``timestamp`` is in Unix milliseconds; ``size`` is the size of the whole body in bytes; ``body`` is base64 of the
    beginning of the visible body; ``headers`` are the visible ones, by name in lower case."""

    node: str
    id: str
    timestamp: Milliseconds
    attempts: int
    size: int
    body: str
    truncated: bool
    visibility: Visibility
    headers: dict[str, str]


class NodeWithoutChannel(TypedDict):
    """A node on which the topic has no channel yet. Its first channel, even an ephemeral one, receives its backlog."""

    node: str
    depth: int


@dataclass(eq=False)
class Viewer:
    """A viewer, with the waiting messages and the number of skipped ones."""

    words: tuple[str, ...] = ()
    """Words that a body must contain to be shown; case-insensitive."""
    hidden: HiddenPaths = field(default_factory=HiddenPaths)
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

    def take(self) -> tuple[list[TailedMessage], int]:
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
        self._is_limited = False
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
                headers=True,
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
        """Pass messages on, at most MAX_MESSAGES_PER_S, so that a busy topic does not block this process."""
        allowance = int(MAX_MESSAGES_PER_S * INTERVAL_S)
        interval_ends = time.monotonic() + INTERVAL_S
        while (message := await self._consumer.next_message()) is not None:
            message.finish()
            await self._show(message)
            allowance -= 1
            left = interval_ends - time.monotonic()
            if left <= 0 or allowance == 0:
                self._is_limited = self._is_limited or left > 0
                await asyncio.sleep(max(0.0, left))
                allowance = int(MAX_MESSAGES_PER_S * INTERVAL_S)
                interval_ends = time.monotonic() + INTERVAL_S

    async def _show(self, message: Message) -> None:
        for hidden in {viewer.hidden for viewer in self.viewers}:
            visible = await _visible(message, hidden)
            shown = _shown(message, visible, hidden.visible_headers(message.headers))
            # A new mask may have changed the hidden paths of some viewers in the meantime.
            viewers = [viewer for viewer in self.viewers if viewer.hidden == hidden]
            text = visible.body.decode("utf-8", "replace").lower() if any(each.words for each in viewers) else ""
            for viewer in viewers:
                viewer.offer(text, shown)

    async def _trim(self) -> None:
        """Empty the tail's channel if its backlog is larger than what can be shown."""
        while True:
            await asyncio.sleep(TRIMMED_EVERY_S)
            if not self._is_limited:
                continue
            try:
                where = await node_addresses(await sync_to_async(selectors.cluster)(), self.topic)
            except (NotInCluster, ClusterUnreachable, RedisError):
                continue
            self._is_limited = False
            async with node_client.client() as http:
                for name, address in where.items():
                    with contextlib.suppress(RequestFailed):
                        stats = await reads.node_stats(http, address, NodeStats, topic=self.topic)
                        channel = stats.channel(self.topic, self.channel)
                        depth = channel.depth if channel else 0
                        if depth > MAX_MESSAGES_PER_S:
                            await perform_on_node(http, address, Action.EMPTY, self.topic, self.channel)
                            logger.info(
                                "tail skipped messages", extra={"topic": self.topic, "node": name, "messages": depth}
                            )
                            for viewer in self.viewers:
                                viewer.skipped += depth


async def _visible(message: Message, hidden: HiddenPaths) -> Visible:
    if hidden.paths and len(message.body) > MASKED_BYTES:
        return Visible(b"", "withheld")
    return await hidden.visible_in_thread(message.body)


def _shown(message: Message, visible: Visible, headers: dict[str, str]) -> TailedMessage:
    return TailedMessage(
        node=message.nsqd_address,
        id=message.id.decode("latin-1"),
        timestamp=message.timestamp // 1_000_000,
        attempts=message.attempts,
        size=len(message.body),
        body=b64encode(visible.body[:BODY_BYTES]).decode(),
        truncated=len(visible.body) > BODY_BYTES,
        visibility=visible.visibility,
        headers=headers,
    )


class Tails:
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
        """Remove a viewer. The tail ends with its last viewer."""
        async with self._lock:
            tail.viewers.discard(viewer)
            if not tail.viewers and self._tails.get(tail.topic) is tail:
                del self._tails[tail.topic]
                await tail.stop()

    def is_tailed(self, topic: str) -> bool:
        return topic in self._tails


tails = PerCluster(Tails)


async def nodes_without_channel(topic: str) -> list[NodeWithoutChannel]:
    """The nodes on which a tail would be the topic's first channel. Raises NotInCluster and ClusterUnreachable."""
    where = await node_addresses(await sync_to_async(selectors.cluster)(), topic)
    async with node_client.client() as http:
        answers = await asyncio.gather(*(_without_channel(http, *node, topic) for node in sorted(where.items())))
    return [answer for answer in answers if answer is not None]


async def _without_channel(http: Client, node: str, address: str, topic: str) -> NodeWithoutChannel | None:
    try:
        stats = await reads.node_stats(http, address, NodeStats, topic=topic)
    except RequestFailed:
        return None  # no messages can be consumed from it either
    found = next((each for each in stats.topics if each.topic_name == topic), None)
    return None if found is None or found.channels else NodeWithoutChannel(node=node, depth=found.depth)
