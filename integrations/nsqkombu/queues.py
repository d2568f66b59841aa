"""Depth, purge and deletion of a queue: over HTTP if the addresses are known, otherwise as far as TCP permits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aionsq import Consumer, HTTPFailed, Node
from aionsq.node import Verb
from nsqkombu.settings import Settings
from nsqkombu.source import Source

_NOT_FOUND = 404


async def depth(settings: Settings, sources: Sequence[Source]) -> int:
    """Return the number of messages that wait at the nsqds in ``nsqd_http_addresses``. Raises HTTPFailed."""
    total = 0
    for address in settings.nsqd_http_addresses:
        async with Node(address) as node:
            for source in sources:
                stats = await node.stats(source.topic, include_clients=False)
                for topic in stats.topics:
                    depths = [each.depth for each in topic.channels if each.channel_name == source.channel]
                    total += sum(depths) if topic.channels else topic.depth
    return total


async def act(settings: Settings, sources: Sequence[Source], verb: Verb) -> None:
    """Empty or delete the channels at the nsqds in ``nsqd_http_addresses``. Raises HTTPFailed.

    A topic without channels is emptied itself, because its messages are the queue's.
    """
    for address in settings.nsqd_http_addresses:
        async with Node(address) as node:
            for source in sources:
                stats = await node.stats(source.topic, include_clients=False)
                is_bare = any(not topic.channels for topic in stats.topics)
                try:
                    if is_bare:
                        await node.topic(verb, source.topic)
                    else:
                        await node.channel(verb, source.topic, source.channel)
                except HTTPFailed as error:
                    if error.status != _NOT_FOUND:  # a node without the channel
                        raise


async def drain(settings: Settings, source: Source) -> int:
    """Receive and finish messages until none has arrived for ``purge_idle``; return their number.

    Timestamps are not compared, so clocks do not matter. Deferred messages and those of other consumers are kept.
    """
    count = 0
    async with Consumer(
        source.topic,
        source.channel,
        nsqd_tcp_addresses=settings.nsqd_tcp_addresses,
        lookupd_http_addresses=settings.lookupd_http_addresses,
        options=replace(settings.consumer_options, max_in_flight=settings.max_in_flight),
    ) as consumer:
        while True:
            try:
                async with asyncio.timeout(settings.purge_idle_s):
                    message = await consumer.next_message()
            except TimeoutError:
                return count
            if message is None:
                return count
            message.finish()
            count += 1
