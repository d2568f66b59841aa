"""Lookup of topics in nsqlookupds. All nsqlookupds are queried, and their responses are merged."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from aionsq.addresses import address_list, http_url
from aionsq.arguments import check_name
from aionsq.errors import HTTPFailed, InvalidArgument
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient, http_failed
from nsqcluster import Producer, reads
from nsqcluster.addresses import host_port
from nsqcluster.discovery import names_of, nodes_of
from nsqcluster.producers import Producers as Listed
from nsqcluster.reads import Answers


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
        addresses: str | Sequence[str],
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``addresses`` are ``host:port`` or URLs. Raises InvalidArgument for an invalid address, and if there is none.

        ``tls`` is for HTTPS; by default the system's certificate authorities are trusted.
        """
        given = address_list(addresses, "addresses")
        if not given:
            raise InvalidArgument("no nsqlookupd address")
        self._urls = list(dict.fromkeys(map(http_url, given)))
        super().__init__(timeout, connect_timeout, headers, tls)

    def add(self, address: str) -> None:
        """Query one more nsqlookupd from now on. Raises InvalidArgument for an invalid address."""
        url = http_url(address)
        if url not in self._urls:
            self._urls.append(url)

    def remove(self, address: str) -> None:
        """Stop querying an nsqlookupd. Raises InvalidArgument for an unknown address and for the last one."""
        url = http_url(address)
        if url not in self._urls:
            raise InvalidArgument(f"nsqlookupd {address} is not one of this client's")
        if len(self._urls) == 1:
            raise InvalidArgument(f"nsqlookupd {address} is the only one and cannot be removed")
        self._urls.remove(url)

    async def producers(self, topic: str) -> Producers:
        """Return the nsqds that have the topic. For a topic that no nsqlookupd knows the result is empty."""
        check_name(topic, "topic")
        return _producers(await reads.lookups(self._client, self._urls, topic))

    async def nodes(self) -> Producers:
        """Return all nsqds, with their topics."""
        return _producers(await reads.registered_nodes(self._client, self._urls))

    async def topics(self) -> Names:
        """Return all topics."""
        answers = await reads.registered_topics(self._client, self._urls)
        return Names(tuple(names_of(answers.found)), _errors(answers))

    async def channels(self, topic: str) -> Names:
        """Return the topic's channels."""
        check_name(topic, "topic")
        answers = await reads.registered_channels(self._client, self._urls, topic)
        return Names(tuple(names_of(answers.found)), _errors(answers))


def _producers(answers: Answers[Listed]) -> Producers:
    # An nsqd whose HTTP port is disabled has the HTTP port 0, so the TCP address identifies it.
    nodes = nodes_of(answers.found, key=attrgetter("tcp_address"))
    return Producers(tuple(_info(node.producer) for _, node in sorted(nodes.items())), _errors(answers))


def _errors(answers: Answers[Any]) -> tuple[HTTPFailed, ...]:
    return tuple(map(http_failed, answers.errors.values()))


def _info(producer: Producer) -> ProducerInfo:
    return ProducerInfo(
        broadcast_address=producer.broadcast_address,
        tcp_port=producer.tcp_port,
        http_port=producer.http_port,
        hostname=producer.hostname,
        version=producer.version,
        topics=tuple(producer.topics),
    )
