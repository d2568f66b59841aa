"""Searches the messages of a channel on all its nodes, with progress, without side effects."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Literal, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async
from typing_extensions import TypedDict

from nsqcluster import RequestFailed
from nsqcluster.messages import PeekedMessage as BrokerMessage
from nsqcluster.messages import scan_pages
from nsqplatform.accounts.models import User
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.messages import masks, scan
from nsqplatform.cluster.messages.criteria import Criteria
from nsqplatform.cluster.messages.hidden_paths import HiddenPaths, Visible
from nsqplatform.cluster.messages.rows import PeekedMessage, row
from nsqplatform.cluster.messages.scan import NodePart, ScannedChannel

TIME_LIMIT_S = 120.0
"""A search ends after this time, so that an abandoned one does not occupy the nodes."""
PROGRESS_EVERY_S = 0.25
RIGHTS_CHECKED_EVERY_S = 5.0


class Counts(TypedDict):
    """``searched`` is the number of messages searched so far, of ``total``; ``matching`` the number that matched;
    ``withheld`` the number that could not be searched, because a mask withholds their bodies."""

    searched: int
    total: int
    matching: int
    withheld: int


class SearchProgress(Counts):
    type: Literal["progress"]


class FoundMessage(TypedDict):
    """A message that matches."""

    type: Literal["message"]
    message: PeekedMessage


class SearchEnd(Counts):
    """``reason``: everything was searched, the limit of messages or of time was reached, or a node failed."""

    type: Literal["end"]
    reason: Literal["complete", "limit", "time", "incomplete"]
    nodes: list[NodePart]


class Found(NamedTuple):
    """A message that matches, and what may be seen of its body and its headers."""

    node: str
    message: BrokerMessage
    visible: Visible
    headers: dict[str, str]


class Search:
    """One search of a channel. Raises PermissionDenied, NotInCluster, ClusterUnreachable and ValidationError."""

    def __init__(self, user: User, topic: str, channel: str, criteria: Criteria) -> None:
        self.hidden = masks.hidden_paths(user, topic)
        self.criteria = criteria
        self._body_test = criteria.body_test()
        self._header_test = criteria.header_test(self.hidden)
        self.channel: ScannedChannel = async_to_sync(scan.count_messages)(selectors.cluster(), topic, channel)
        self.nodes = {part["node"]: part for part in self.channel.nodes}
        self.searched = self.matching = self.withheld = 0
        self._user = user

    @property
    def counts(self) -> Counts:
        total = max(self.channel.total, self.searched)
        return Counts(searched=self.searched, total=total, matching=self.matching, withheld=self.withheld)

    async def pages(self) -> AsyncGenerator[list[Found]]:
        """Yield the messages that match, page by page and node by node. If a node fails, ``nodes`` has its error.

        Raises PermissionDenied if the user loses the right to read in the meantime.
        """
        checked_at = time.monotonic()
        async with node_client.client() as http:
            for node in [node for node, part in self.nodes.items() if not part["error"]]:
                try:
                    async for messages in scan_pages(http, *self.channel.at(node)):
                        if time.monotonic() - checked_at > RIGHTS_CHECKED_EVERY_S:
                            self.hidden = await sync_to_async(masks.hidden_paths_now)(self._user, self.channel.topic)
                            checked_at = time.monotonic()
                        found = await asyncio.to_thread(self._matching, node, messages, self.hidden)
                        yield found
                except RequestFailed as error:
                    reason = scan.reason_of(error) or "the channel was deleted"
                    self.nodes[node] = NodePart(node=node, total=self.nodes[node]["total"], error=reason)

    def _matching(self, node: str, messages: list[BrokerMessage], hidden: HiddenPaths) -> list[Found]:
        """Search one page, outside of the event loop."""
        now_ms = time.time_ns() // 1_000_000
        found = []
        for message in messages:
            if not self.criteria.matches_message(message, now_ms):
                continue
            if self._header_test is not None and not self._header_test.passes(message, hidden):
                continue
            visible = hidden.visible(b64decode(message.body))
            if self._body_test is not None and visible.visibility == "withheld":
                self.withheld += 1
            elif _matches(self._body_test, visible.body):
                found.append(Found(node, message, visible, hidden.visible_headers(message.headers)))
        self.searched += len(messages)
        self.matching += len(found)
        return found

    @property
    def is_complete(self) -> bool:
        return not any(part["error"] for part in self.nodes.values())


def _matches(body_test: Callable[[bytes], bool] | None, body: bytes) -> bool:
    return body_test is None or body_test(body)


async def search_events(
    search: Search, *, limit: int, max_body_bytes: int
) -> AsyncIterator[SearchProgress | FoundMessage | SearchEnd]:
    """Yield up to ``limit`` messages that match, the progress, and the end."""
    until = time.monotonic() + TIME_LIMIT_S
    reported_at = 0.0
    shown = 0
    reason: Literal["limit", "time"] | None = None
    async with aclosing(search.pages()) as pages:
        async for page in pages:
            taken = page[: limit - shown]
            for each in taken:
                yield FoundMessage(type="message", message=row(*each, max_body_bytes))
            shown += len(taken)
            if time.monotonic() - reported_at > PROGRESS_EVERY_S:
                reported_at = time.monotonic()
                yield SearchProgress(type="progress", **search.counts)
            if shown == limit:
                reason = "limit"
            elif time.monotonic() > until:
                reason = "time"
            if reason is not None:
                break
    ended = reason or ("complete" if search.is_complete else "incomplete")
    yield SearchEnd(type="end", reason=ended, nodes=list(search.nodes.values()), **search.counts)
