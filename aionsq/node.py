"""HTTP interface of one nsqd: statistics, publishing, and actions on topics and channels."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Literal

from aionsq.http import DEFAULT_TIMEOUT, HTTPClient
from nsqcluster import NodeInfo, NodeStats
from nsqcluster.addresses import base_url
from nsqcluster.reads import stats_params

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
        """Raises ValueError for an address that is neither ``host:port`` nor a URL.

        ``tls`` is for an nsqd that requires HTTPS; by default the system's certificate authorities are trusted.
        """
        self.address = address
        self._url = base_url(address)
        super().__init__(timeout, connect_timeout, tls=tls)

    async def ping(self) -> str:
        """Return ``OK`` if nsqd is healthy; otherwise raise HTTPFailed with the reason."""
        return await self._get_text(self._url, "/ping")

    async def info(self) -> NodeInfo:
        """Return ``/info``: version, addresses, start time."""
        return await self._get(self._url, "/info", NodeInfo, {})

    async def stats(
        self, topic: str = "", channel: str = "", *, include_clients: bool = True, include_histograms: bool = False
    ) -> NodeStats:
        """Return ``/stats``; ``topic`` and ``channel`` restrict it."""
        params = stats_params(
            topic=topic,
            channel=channel,
            include_clients=include_clients,
            include_histograms=include_histograms,
        )
        return await self._get(self._url, "/stats", NodeStats, params)

    async def topic(self, verb: Verb, topic: str) -> None:
        """Create, delete, empty, pause or unpause a topic."""
        await self._post(self._url, f"/topic/{verb}", {"topic": topic})

    async def channel(self, verb: Verb, topic: str, channel: str) -> None:
        """Create, delete, empty, pause or unpause a channel."""
        await self._post(self._url, f"/channel/{verb}", {"topic": topic, "channel": channel})

    async def pub(self, topic: str, body: bytes, *, defer: timedelta = timedelta(0)) -> None:
        """Publish one message, which is delivered after ``defer`` at the earliest."""
        delay = {"defer": str(defer // timedelta(milliseconds=1))} if defer else {}
        await self._post(self._url, "/pub", {"topic": topic, **delay}, body)
