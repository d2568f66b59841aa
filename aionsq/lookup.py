"""Asking nsqlookupds where topics live. All of them are asked, and what they know is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from aionsq.errors import HTTPFailed
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient, base_url, host_port

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
    """The nsqds that those who answered named, each once, and the errors of those who did not."""

    producers: tuple[ProducerInfo, ...]
    errors: tuple[HTTPFailed, ...]


@dataclass(frozen=True)
class Names:
    """Sorted names of topics or channels, and the errors of those who did not answer."""

    names: tuple[str, ...]
    errors: tuple[HTTPFailed, ...]


class Lookup(HTTPClient):
    """Client of one or more nsqlookupds. Its questions raise nothing: what failed is part of the answer."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``addresses`` are ``host:port`` or URLs. Raises ValueError for others, and for none."""
        if not addresses:
            raise ValueError("no nsqlookupd address")
        self._urls = [base_url(address) for address in addresses]
        super().__init__(timeout, connect_timeout, headers)

    def add(self, address: str) -> None:
        """Ask one more from now on. Raises ValueError for what is no address."""
        url = base_url(address)
        if url not in self._urls:
            self._urls.append(url)

    def remove(self, address: str) -> None:
        """Ask it no more. Raises ValueError for one that is not asked, and for the last."""
        url = base_url(address)
        if url not in self._urls:
            raise ValueError(f"nsqlookupd {address} is not among those asked")
        if len(self._urls) == 1:
            raise ValueError(f"nsqlookupd {address} is the last one")
        self._urls.remove(url)

    async def producers(self, topic: str) -> Producers:
        """The nsqds that have the topic; none yet for a topic nobody knows."""
        found, errors = await self._ask("/lookup", {"topic": topic}, read_producers)
        return Producers(_each_once(found), errors)

    async def nodes(self) -> Producers:
        """All nsqds, with their topics."""
        found, errors = await self._ask("/nodes", {}, read_producers)
        return Producers(_each_once(found), errors)

    async def topics(self) -> Names:
        """All topics."""
        found, errors = await self._ask("/topics", {}, lambda document: [str(name) for name in document["topics"]])
        return Names(tuple(sorted(set(found))), errors)

    async def channels(self, topic: str) -> Names:
        """The topic's channels."""
        found, errors = await self._ask(
            "/channels", {"topic": topic}, lambda document: [str(name) for name in document["channels"]]
        )
        return Names(tuple(sorted(set(found))), errors)

    async def _ask(
        self, path: str, params: dict[str, str], read: Callable[[Any], list[T]]
    ) -> tuple[list[T], tuple[HTTPFailed, ...]]:
        answers = await asyncio.gather(*(self._ask_one(url + path, params, read) for url in self._urls))
        found = [item for answer in answers if not isinstance(answer, HTTPFailed) for item in answer]
        return found, tuple(answer for answer in answers if isinstance(answer, HTTPFailed))

    async def _ask_one(self, url: str, params: dict[str, str], read: Callable[[Any], list[T]]) -> list[T] | HTTPFailed:
        try:
            return read(await self.get_json(url, params))
        except HTTPFailed as error:
            return [] if error.status == 404 and error.reason == "TOPIC_NOT_FOUND" else error
        except (KeyError, TypeError, ValueError):
            return HTTPFailed(url, 200, "the answer is not nsqlookupd's")


def read_producers(document: Any) -> list[ProducerInfo]:
    """The nsqds of an answer to ``/lookup`` or ``/nodes``. Raises KeyError, TypeError or ValueError if it is none."""
    return [
        ProducerInfo(
            broadcast_address=str(each["broadcast_address"]),
            tcp_port=int(each["tcp_port"]),
            http_port=int(each["http_port"]),
            hostname=str(each.get("hostname", "")),
            version=str(each.get("version", "")),
            topics=tuple(each.get("topics") or ()),
        )
        for each in document["producers"] or ()
    ]


def _each_once(producers: Iterable[ProducerInfo]) -> tuple[ProducerInfo, ...]:
    by_address: dict[str, ProducerInfo] = {}
    for each in producers:
        by_address.setdefault(each.tcp_address, each)
    return tuple(by_address[address] for address in sorted(by_address))
