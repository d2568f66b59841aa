"""HTTP interface of one nsqd: statistics, publishing, and actions on topics and channels."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Literal, get_args

from aionsq.addresses import http_url
from aionsq.arguments import body_bytes, check_name, check_type
from aionsq.errors import InvalidArgument
from aionsq.http import DEFAULT_TIMEOUT, HTTPClient, failures
from nsqcluster import Action, NodeInfo, NodeStats, publishing, reads
from nsqcluster.actions import perform_on_node

Verb = Literal["create", "delete", "empty", "pause", "unpause"]


class Node(HTTPClient):
    """Client of the nsqd whose HTTP address is ``host:port``.

    Every method raises HTTPFailed, and WrongType for arguments of other types.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises InvalidArgument for an address that is neither ``host:port`` nor a URL, and WrongType.

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
        check_name(topic, "topic")
        check_name(channel, "channel")
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
        check_name(topic, "topic")
        action = _action(verb)
        with failures():
            await perform_on_node(self._client, self._url, action, topic, None)

    async def channel(self, verb: Verb, topic: str, channel: str) -> None:
        """Create, delete, empty, pause or unpause a channel."""
        check_name(topic, "topic")
        check_name(channel, "channel")
        action = _action(verb)
        with failures():
            await perform_on_node(self._client, self._url, action, topic, channel)

    async def pub(self, topic: str, body: bytes, *, defer: timedelta = timedelta(0)) -> None:
        """Publish one message, which is delivered after ``defer`` at the earliest."""
        check_name(topic, "topic")
        body = body_bytes(body)
        check_type("defer", defer, timedelta)
        with failures():
            await publishing.publish(self._client, self._url, topic, body, defer_ms=defer // timedelta(milliseconds=1))


def _action(verb: Verb) -> Action:
    """Return the action of a verb. Raises InvalidArgument, WrongType."""
    check_type("verb", verb, str)
    if verb not in get_args(Verb):
        raise InvalidArgument(f"{verb!r} is not one of {', '.join(get_args(Verb))}")
    return Action(verb)
