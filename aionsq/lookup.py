"""Lookup of topics in nsqlookupds. All nsqlookupds are queried, and their responses are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from aionsq.errors import HTTPFailed
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient
from nsqcluster import Producer
from nsqcluster.addresses import base_url, host_port
from nsqcluster.producers import ChannelNames, TopicNames
from nsqcluster.producers import Producers as Listed

T = TypeVar("T")


@dataclass(frozen=True)
class ProducerInfo:
    """An nsqd as nsqlookupd describes it."""

    broadcast_address: str
    tcp_port: int
    http_port: int
    hostname: str = ""
    version: str = ""
    topics: tuple[str, ...] = ()
    """Filled by :meth:`Lookup.nodes` only."""

    @property
    def tcp_address(self) -> str:
        """``host:port`` for a Producer or Consumer."""
        return host_port(self.broadcast_address, self.tcp_port)

    @property
    def http_address(self) -> str:
        """``host:port`` for a Node."""
        return host_port(self.broadcast_address, self.http_port)


@dataclass(frozen=True)
class Producers:
    """The nsqds that the nsqlookupds list, each once, and the errors of nsqlookupds that failed."""

    producers: tuple[ProducerInfo, ...]
    errors: tuple[HTTPFailed, ...]


@dataclass(frozen=True)
class Names:
    """Sorted names of topics or channels, and the errors of nsqlookupds that failed."""

    names: tuple[str, ...]
    errors: tuple[HTTPFailed, ...]


class Lookup(HTTPClient):
    """Client of one or more nsqlookupds. Queries raise nothing: their results contain the errors."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``addresses`` are ``host:port`` or URLs. Raises ValueError for an invalid address, and if there is none."""
        if not addresses:
            raise ValueError("no nsqlookupd address")
        self._urls = [base_url(address) for address in addresses]
        super().__init__(timeout, connect_timeout, headers)

    def add(self, address: str) -> None:
        """Query one more nsqlookupd from now on. Raises ValueError for an invalid address."""
        url = base_url(address)
        if url not in self._urls:
            self._urls.append(url)

    def remove(self, address: str) -> None:
        """Stop querying an nsqlookupd. Raises ValueError for an unknown address and for the last one."""
        url = base_url(address)
        if url not in self._urls:
            raise ValueError(f"nsqlookupd {address} is not one of this client's")
        if len(self._urls) == 1:
            raise ValueError(f"nsqlookupd {address} is the only one and cannot be removed")
        self._urls.remove(url)

    async def producers(self, topic: str) -> Producers:
        """Return the nsqds that have the topic. For a topic that no nsqlookupd knows the result is empty."""
        return self._merged(await self._ask("/lookup", Listed, {"topic": topic}))

    async def nodes(self) -> Producers:
        """Return all nsqds, with their topics."""
        return self._merged(await self._ask("/nodes", Listed, {}))

    async def topics(self) -> Names:
        """Return all topics."""
        found, errors = await self._ask("/topics", TopicNames, {})
        return Names(tuple(sorted({name for answer in found for name in answer.names})), errors)

    async def channels(self, topic: str) -> Names:
        """Return the topic's channels."""
        found, errors = await self._ask("/channels", ChannelNames, {"topic": topic})
        return Names(tuple(sorted({name for answer in found for name in answer.names})), errors)

    @staticmethod
    def _merged(answers: tuple[list[Listed], tuple[HTTPFailed, ...]]) -> Producers:
        found, errors = answers
        return Producers(_each_once(_info(each) for answer in found for each in answer.producers), errors)

    async def _ask(self, path: str, type: type[T], params: Mapping[str, str]) -> tuple[list[T], tuple[HTTPFailed, ...]]:
        """Return the responses and the errors. The 404 of an nsqlookupd that does not know the topic is in neither."""
        answers = await asyncio.gather(*(self._ask_one(url, path, type, params) for url in self._urls))
        found = [answer for answer in answers if answer is not None and not isinstance(answer, HTTPFailed)]
        return found, tuple(answer for answer in answers if isinstance(answer, HTTPFailed))

    async def _ask_one(self, url: str, path: str, type: type[T], params: Mapping[str, str]) -> T | HTTPFailed | None:
        try:
            return await self._get(url, path, type, params)
        except HTTPFailed as error:
            return None if error.status == 404 and error.reason == "TOPIC_NOT_FOUND" else error


def _info(producer: Producer) -> ProducerInfo:
    return ProducerInfo(
        broadcast_address=producer.broadcast_address,
        tcp_port=producer.tcp_port,
        http_port=producer.http_port,
        hostname=producer.hostname,
        version=producer.version,
        topics=tuple(producer.topics),
    )


def _each_once(producers: Iterable[ProducerInfo]) -> tuple[ProducerInfo, ...]:
    by_address: dict[str, ProducerInfo] = {}
    for each in producers:
        by_address.setdefault(each.tcp_address, each)
    return tuple(by_address[address] for address in sorted(by_address))
