"""One nsqd's HTTP face: what it is doing, and the verbs on its topics and channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from aionsq.errors import HTTPFailed
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient, base_url

Verb = Literal["create", "delete", "empty", "pause", "unpause"]


class Node(HTTPClient):
    """Client of the nsqd whose HTTP address is ``host:port``. Every method raises HTTPFailed."""

    def __init__(
        self, address: str, *, timeout: timedelta = DEFAULT_TIMEOUT, connect_timeout: timedelta | None = None
    ) -> None:
        """Raises ValueError for an address that is neither ``host:port`` nor a URL."""
        self.address = address
        self._url = base_url(address)
        super().__init__(timeout, connect_timeout)

    async def ping(self) -> str:
        """``OK`` from a healthy nsqd; an unhealthy one's error has its reason."""
        return await self.get_text(self._url + "/ping")

    async def info(self) -> dict[str, Any]:
        """``/info``: version, addresses, start time."""
        return await self._document("/info", {})

    async def stats(
        self, topic: str = "", channel: str = "", *, include_clients: bool = True, include_histograms: bool = False
    ) -> dict[str, Any]:
        """``/stats`` as nsqd's JSON, of one topic and one channel where named."""
        params = {"format": "json", "include_clients": str(include_clients).lower(), "include_mem": "false"}
        if include_histograms:
            params["include_histograms"] = "true"
        if topic:
            params["topic"] = topic
        if channel:
            params["channel"] = channel
        return await self._document("/stats", params)

    async def topic(self, verb: Verb, topic: str) -> None:
        """Create, delete, empty, pause or unpause a topic."""
        await self.post(f"{self._url}/topic/{verb}", {"topic": topic})

    async def channel(self, verb: Verb, topic: str, channel: str) -> None:
        """Create, delete, empty, pause or unpause a channel."""
        await self.post(f"{self._url}/channel/{verb}", {"topic": topic, "channel": channel})

    async def pub(self, topic: str, body: bytes, *, defer: timedelta = timedelta(0)) -> None:
        """Publish one message, delivered no sooner than after ``defer``."""
        delay = {"defer": str(defer // timedelta(milliseconds=1))} if defer else {}
        await self.post(self._url + "/pub", {"topic": topic, **delay}, body)

    async def _document(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        document = await self.get_json(self._url + path, params)
        if not isinstance(document, dict):
            raise HTTPFailed(self._url + path, 200, "the answer is not nsqd's")
        return document
