"""Response of brokerd to ``GET /channel/peek``, a path that Go's nsqd does not have."""

from __future__ import annotations

from msgspec import Struct


class PeekedClient(Struct, kw_only=True):
    """The client that has a message in flight."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str


class PeekedMessage(Struct, kw_only=True):
    """One message. Times are in unix nanoseconds. ``body`` is the start of the body in base64; ``size`` is the whole
    body's length in bytes."""

    id: str
    timestamp: int
    attempts: int
    size: int
    body: str
    truncated: bool
    due: int | None = None
    deadline: int | None = None
    client: PeekedClient | None = None


class PeekPage(Struct, kw_only=True):
    """``total`` is the number of messages in the state that was requested; ``messages`` is one page of them."""

    total: int
    messages: list[PeekedMessage]
