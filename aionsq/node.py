"""HTTP interface of one nsqd: statistics, publishing, and actions on topics and channels."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Literal

from aionsq.addresses import http_url
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient, failures
from nsqcluster import Action, NodeInfo, NodeStats, publishing, reads
from nsqcluster.actions import perform_on_node

Verb = Literal["create", "delete", "empty", "pause", "unpause"]


class Node(HTTPClient):
    """Client of the nsqd whose HTTP address is ``host:port``. Every method raises HTTPFailed."""

    def __init__(
        self,
        address: str,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises InvalidArgument for an address that is neither ``host:port`` nor a URL.

        ``tls`` is for an nsqd that requires HTTPS; by default the system's certificate authorities are trusted.
        """
        self.address = address
        self._url = http_url(address)
        super().__init__(timeout, connect_timeout, tls=tls)

    async def ping(self) -> str:
        """Return ``OK`` if nsqd is healthy; otherwise raise HTTPFailed with the reason."""
        with failures():
            return await reads.ping(self._client, self._url)

    async def info(self) -> NodeInfo:
        """Return ``/info``: version, addresses, start time."""
        with failures():
            return await reads.info(self._client, self._url)

    async def stats(
        self, topic: str = "", channel: str = "", *, include_clients: bool = True, include_histograms: bool = False
    ) -> NodeStats:
        """Return ``/stats``; ``topic`` and ``channel`` restrict it."""
        with failures():
            return await reads.node_stats(
                self._client,
                self._url,
                NodeStats,
                topic=topic,
                channel=channel,
                include_clients=include_clients,
                include_histograms=include_histograms,
            )

    async def topic(self, verb: Verb, topic: str) -> None:
        """Create, delete, empty, pause or unpause a topic."""
        with failures():
            await perform_on_node(self._client, self._url, Action(verb), topic, None)

    async def channel(self, verb: Verb, topic: str, channel: str) -> None:
        """Create, delete, empty, pause or unpause a channel."""
        with failures():
            await perform_on_node(self._client, self._url, Action(verb), topic, channel)

    async def pub(self, topic: str, body: bytes, *, defer: timedelta = timedelta(0)) -> None:
        """Publish one message, which is delivered after ``defer`` at the earliest."""
        with failures():
            await publishing.publish(self._client, self._url, topic, body, defer_ms=defer // timedelta(milliseconds=1))
