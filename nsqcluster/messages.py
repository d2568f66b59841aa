"""Messages of a channel of one node: reading them without consuming them, and actions on single ones, by their ids.

Only brokerd supports these requests. Go's nsqd refuses them, with ``Refused.is_unknown_request``. All functions raise
RequestFailed: Refused, with ``is_unknown_message``, if the channel no longer has the message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from msgspec import Struct

from nsqcluster.client import Client
from nsqcluster.decoding import decode
from nsqwire.units import Milliseconds

IDS_IN_A_REQUEST = 5000
"""brokerd's limit."""
MESSAGES_IN_A_PAGE = 100
"""brokerd's limit for ``peek``."""
LISTED_BYTES = 65_536
"""brokerd's limit of the bytes of a body in ``peek``."""

State = Literal["ready", "in_flight", "deferred", "dead"]
DeathReason = Literal["attempts", "expired", "overflow", "operator"]


class ChosenDead(NamedTuple):
    """Dead messages of one reason, or of all if it is None, that died at ``since`` or later, Unix milliseconds; None:
    at any time."""

    reason: DeathReason | None = None
    since: Milliseconds | None = None

    def includes(self, death: Death) -> bool:
        """Whether it includes a message with this death."""
        is_recent = self.since is None or death.died >= self.since * 1_000_000
        return is_recent and self.reason in (None, death.reason)

    @property
    def params(self) -> dict[str, str]:
        """The parameters of a request."""
        since = None if self.since is None else datetime.fromtimestamp(self.since / 1000, UTC).isoformat()
        return {name: text for name, text in (("reason", self.reason), ("since", since)) if text is not None}


class PeekedClient(Struct, kw_only=True):
    """The client that has a message in flight."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str


class Death(Struct, kw_only=True):
    """Why and when a message died; times are in Unix nanoseconds. ``client_id`` is that of the last client it was in
    flight with, empty if there was none."""

    reason: str
    failures: int
    first_failure: int
    died: int
    client_id: str


class PeekedMessage(Struct, kw_only=True):
    """One message. Times are in Unix nanoseconds. ``body`` is the start of the body in base64; ``size`` is the whole
    body's length in bytes."""

    id: str
    timestamp: int
    attempts: int
    state: State
    size: int
    body: str
    truncated: bool
    due: int | None = None
    deadline: int | None = None
    client: PeekedClient | None = None
    death: Death | None = None
    headers: dict[str, str] = {}
    sampled: bool = False
    """True if the node records what happens to it."""


class PeekPage(Struct, kw_only=True):
    """``total`` is the number of messages in the state that was requested; ``messages`` is one page of them."""

    total: int
    messages: list[PeekedMessage]


class ScanPage(Struct, kw_only=True):
    """``total`` is the number of messages of the channel; ``next`` is where the next page starts, None at the end."""

    total: int
    next: int | None
    messages: list[PeekedMessage]


class Finished(Struct):
    """``not_found`` are the ids that the channel does not have."""

    finished: int
    not_found: list[str]


class FinishedDead(Struct):
    """Number of dead messages that were removed."""

    finished: int


class RequeuedDead(Struct):
    """Number of dead messages that were requeued."""

    requeued: int


class Requeued(Struct):
    """``requeued`` includes messages that were waiting already."""

    requeued: int
    not_found: list[str]


async def peek(
    http: Client,
    address: str,
    topic: str,
    channel: str,
    state: State = "ready",
    *,
    limit: int,
    offset: int = 0,
    max_body_bytes: int = LISTED_BYTES,
) -> PeekPage:
    """Return a page of the channel's messages in a state, without consuming them."""
    numbers = {"limit": limit, "offset": offset, "max_body_bytes": max_body_bytes}
    return await http.get(address, "/channel/peek", PeekPage, {**_names(topic, channel), "state": state, **numbers})


async def scan(
    http: Client, address: str, topic: str, channel: str, start: int = 0, *, limit: int | None = None
) -> ScanPage:
    """Return the page at ``start`` of all messages of the channel that are not dead, with their whole bodies."""
    numbers = {"from": start} | ({} if limit is None else {"limit": limit})
    return await http.get(address, "/channel/scan", ScanPage, {**_names(topic, channel), **numbers})


async def scan_pages(http: Client, address: str, topic: str, channel: str) -> AsyncIterator[list[PeekedMessage]]:
    """Yield all messages of the channel that are not dead, page by page, oldest first."""
    start: int | None = 0
    while start is not None:
        page = await scan(http, address, topic, channel, start)
        yield page.messages
        start = page.next


async def message(http: Client, address: str, topic: str, channel: str, message_id: str) -> PeekedMessage:
    """Return one message, without its body."""
    return await http.get(address, "/channel/message", PeekedMessage, _names(topic, channel, message_id))


async def body(http: Client, address: str, topic: str, channel: str, message_id: str) -> bytes:
    """Return the whole body of a message."""
    return bytes(await http.get_body(address, "/channel/message/body", _names(topic, channel, message_id)))


def body_pieces(http: Client, address: str, topic: str, channel: str, message_id: str) -> AsyncIterator[bytes]:
    """Yield the whole body of a message as it arrives."""
    return http.stream(address, "/channel/message/body", _names(topic, channel, message_id))


async def finish(http: Client, address: str, topic: str, channel: str, ids: Sequence[str]) -> Finished:
    """Remove messages in any state from a channel."""
    path = "/channel/finish"
    return decode(await http.post(address, path, _names(topic, channel), _lines(ids)), Finished, path)


async def requeue(http: Client, address: str, topic: str, channel: str, ids: Sequence[str]) -> Requeued:
    """Make messages ready, and take those in flight from their clients."""
    path = "/channel/requeue"
    return decode(await http.post(address, path, _names(topic, channel), _lines(ids)), Requeued, path)


async def requeue_dead(
    http: Client, address: str, topic: str, channel: str, chosen: ChosenDead, *, rate: int, timeout_s: float
) -> int:
    """Deliver dead messages again, ``rate`` a second, or at once if it is 0. Returns their number.

    The node defers all of them before it answers, each to its due time.
    """
    path = "/channel/requeue"
    params = _dead(topic, channel, chosen) | ({"rate": rate} if rate else {})
    return decode(await http.post(address, path, params, timeout_s=timeout_s), RequeuedDead, path).requeued


async def remove_dead(
    http: Client, address: str, topic: str, channel: str, chosen: ChosenDead, *, timeout_s: float
) -> int:
    """Remove dead messages. Returns their number.

    A node without dead messages, such as Go's nsqd, would ignore the state and empty the channel. It refuses the
    request to list them, which therefore comes first.
    """
    await peek(http, address, topic, channel, "dead", limit=0)
    path = "/channel/empty"
    answer = await http.post(address, path, _dead(topic, channel, chosen), timeout_s=timeout_s)
    return decode(answer, FinishedDead, path).finished


def _dead(topic: str, channel: str, chosen: ChosenDead) -> dict[str, str | int]:
    return {**_names(topic, channel), "state": "dead", **chosen.params}


def _names(topic: str, channel: str, message_id: str = "") -> dict[str, str]:
    return {"topic": topic, "channel": channel} | ({"id": message_id} if message_id else {})


def _lines(ids: Sequence[str]) -> bytes:
    return "\n".join(ids).encode()
