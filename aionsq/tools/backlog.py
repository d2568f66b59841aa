"""How many messages wait for a tool, asked of the nodes it consumes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.addresses import split_address
from aionsq.errors import HTTPFailed
from aionsq.http import host_port
from aionsq.lookup import Lookup
from aionsq.node import Node
from aionsq.tools.flags import Sources

TIMEOUT = timedelta(seconds=2)


class Backlog:
    """The depth of channels, summed over all nodes; to be used with ``async with``."""

    def __init__(self, sources: Sources, channels: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """``channels`` tells the topics and channels consumed at the moment."""
        self._sources = sources
        self._channels = channels
        self._stack = AsyncExitStack()
        self._nodes: dict[str, Node] = {}
        self._lookup: Lookup | None = None
        self._direct: dict[str, str | None] = {}

    async def __aenter__(self) -> Self:
        if self._sources.lookupd_http_addresses:
            lookup = Lookup(self._sources.lookupd_http_addresses, timeout=TIMEOUT)
            self._lookup = await self._stack.enter_async_context(lookup)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def depth(self) -> int | None:
        """Messages that wait in the channels; None where no node tells."""
        asked = [self._depth_of(topic, channel) for topic, channel in self._channels()]
        known = [depth for depth in await asyncio.gather(*asked) if depth is not None]
        return sum(known) if known else None

    async def _depth_of(self, topic: str, channel: str) -> int | None:
        if self._lookup is not None:
            addresses = [each.http_address for each in (await self._lookup.producers(topic)).producers]
        else:
            found = await asyncio.gather(*map(self._http_address, self._sources.nsqd_tcp_addresses))
            addresses = [address for address in found if address is not None]
        asked = (self._depth_at(address, topic, channel) for address in addresses)
        known = [depth for depth in await asyncio.gather(*asked) if depth is not None]
        return sum(known) if known else None

    async def _depth_at(self, address: str, topic: str, channel: str) -> int | None:
        try:
            stats = await (await self._node(address)).stats(topic, channel, include_clients=False)
            return sum(
                int(each["depth"])
                for described in stats["topics"] or ()
                for each in described["channels"] or ()
                if (described["topic_name"], each["channel_name"]) == (topic, channel)
            )
        except (HTTPFailed, KeyError, TypeError, ValueError):
            return None

    async def _http_address(self, tcp_address: str) -> str | None:
        """nsqd does not tell its HTTP port over TCP; by custom it is the next one, which is to say that it is it."""
        if tcp_address not in self._direct:
            host, port = split_address(tcp_address)
            address = host_port(host, port + 1)
            try:
                info = await (await self._node(address)).info()
            except HTTPFailed:
                return None  # it may be starting
            self._direct[tcp_address] = address if info.get("tcp_port") == port else None
        return self._direct[tcp_address]

    async def _node(self, address: str) -> Node:
        if address not in self._nodes:
            self._nodes[address] = await self._stack.enter_async_context(Node(address, timeout=TIMEOUT))
        return self._nodes[address]
