"""Backlog: number of messages waiting in the channels that a tool consumes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self

from aionsq.addresses import split_address
from aionsq.tools.flags import Sources
from nsqcluster import Client, reads
from nsqcluster.addresses import host_port
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import detail_of

TIMEOUT_S = 2.0


class HTTPAddresses(NamedTuple):
    """``failures`` has the reason for each server that did not give an address, such as ``nsqd 127.0.0.1:4150``."""

    known: list[str]
    failures: dict[str, str]


class Unknown(NamedTuple):
    """The HTTP address of an nsqd is unknown."""

    reason: str


class Backlog:
    """Depth of channels, summed over all nodes; use it with ``async with``."""

    def __init__(self, sources: Sources, channels: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """``channels`` returns the topics and channels that are consumed now."""
        self._sources = sources
        self._channels = channels
        self.client = Client(tls=sources.tls, timeout_s=TIMEOUT_S)
        self._http_addresses: dict[str, str | Unknown] = {}
        """HTTP address of each nsqd that was given by its TCP address, once it answered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.client.close()

    async def depth(self) -> int | None:
        """Return the number of messages waiting in the channels; None if no node answers."""
        depths = await asyncio.gather(*(self._depth_of(topic, channel) for topic, channel in self._channels()))
        known = [depth for depth in depths if depth is not None]
        return sum(known) if known else None

    async def http_addresses(self, topic: str) -> HTTPAddresses:
        """Find the HTTP addresses of the nodes that have the topic."""
        if self._sources.lookupd_http_addresses:
            answers = await reads.lookups(self.client, self._sources.lookupd_http_addresses, topic)
            failures = {f"nsqlookupd {each}": detail_of(error) for each, error in answers.failures.items()}
            return HTTPAddresses(list(nodes_of(answers.found)), failures)
        nsqds = self._sources.nsqd_tcp_addresses
        found = dict(zip(nsqds, await asyncio.gather(*map(self._http_address, nsqds)), strict=True))
        return HTTPAddresses(
            [each for each in found.values() if not isinstance(each, Unknown)],
            {f"nsqd {name}": each.reason for name, each in found.items() if isinstance(each, Unknown)},
        )

    async def _depth_of(self, topic: str, channel: str) -> int | None:
        known = {address: address for address in (await self.http_addresses(topic)).known}
        stats = (await reads.stats(self.client, known, topic=topic, channel=channel)).found
        found = [answer.channel(topic, channel) for answer in stats.values()]
        return sum(each.depth for each in found if each is not None) if stats else None

    async def _http_address(self, tcp_address: str) -> str | Unknown:
        """Return the HTTP address of an nsqd: by convention the port after its TCP port, if ``/info`` confirms it."""
        if tcp_address not in self._http_addresses:
            host, port = split_address(tcp_address)
            address = host_port(host, port + 1)
            infos = await reads.infos(self.client, [address])
            if error := infos.failures.get(address):
                return Unknown(f"HTTP {address}: {detail_of(error)}")  # nsqd may be starting
            other = infos.found[address].tcp_port
            reason = f"HTTP {address}: belongs to the nsqd with TCP port {other}"
            self._http_addresses[tcp_address] = address if other == port else Unknown(reason)
        return self._http_addresses[tcp_address]
