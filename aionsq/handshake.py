"""The handshake of a connection, without I/O: IDENTIFY, the negotiated upgrades, AUTH, SUB.

The connection calls :meth:`Handshake.begin`, then :meth:`Handshake.received` for each frame; both return the steps to
take, in order. After an upgrade (TLS or compression) nsqd sends ``OK`` through the new layer, and nothing may be sent
before it arrives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aionsq.errors import Refused, TLSRequired
from aionsq.options import ConnectionOptions
from nsqwire import encoding, frame


class HandshakeFailed(Exception):
    """The handshake failed; the text is the reason."""


@dataclass(frozen=True)
class Negotiated:
    """The settings in nsqd's response to IDENTIFY; the defaults are those of an nsqd that negotiates nothing."""

    max_rdy_count: int = 2500
    msg_timeout_ms: int = 60_000
    version: str = ""
    """Empty for an nsqd too old to report it."""
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False
    auth_required: bool = False
    headers: bool = False
    """Whether messages have headers on this connection."""
    draining: bool = False
    """Whether the node refuses publishes because it is being drained."""


class Upgrade(Enum):
    """Step: add this layer below the protocol."""

    TLS = "tls_v1"
    DEFLATE = "deflate"
    SNAPPY = "snappy"


@dataclass(frozen=True)
class Send:
    """Step: write these bytes."""

    data: bytes


@dataclass(frozen=True)
class Ready:
    """Step: the handshake is complete."""

    negotiated: Negotiated


Step = Send | Upgrade | Ready


class Handshake:
    """The handshake of one connection. Topic and channel are None for a connection that publishes."""

    def __init__(self, options: ConnectionOptions, topic: str | None = None, channel: str | None = None) -> None:
        self.negotiated = Negotiated()
        self._options = options
        self._subscription = (topic, channel) if topic is not None and channel is not None else None
        self._upgrades: list[Upgrade] = []
        self._expects = "IDENTIFY"

    def begin(self) -> list[Step]:
        """Return the first steps: the magic and IDENTIFY."""
        return [Send(encoding.MAGIC_V2 + encoding.identify(self._options.identify_fields()))]

    def received(self, frame_type: int, data: bytes) -> list[Step]:
        """Process a frame. Raises HandshakeFailed, after which the connection must be closed."""
        if frame_type == frame.RESPONSE and data == frame.HEARTBEAT:
            return [Send(encoding.NOP)]
        if frame_type == frame.ERROR:
            text = data.decode(errors="replace")
            if TLSRequired.is_meant_by(text):
                raise HandshakeFailed(f"nsqd requires TLS: set the option tls_v1 ({text})") from Refused(text)
            raise HandshakeFailed(f"{self._expects} was refused: {text}") from Refused(text)
        if frame_type != frame.RESPONSE:
            raise HandshakeFailed(f"unexpected frame of type {frame_type} instead of the response to {self._expects}")
        if self._expects == "IDENTIFY":
            self._identified(data)
            return self._next_upgrade()
        if self._expects == "SUB":
            return [Ready(self.negotiated)]
        if self._expects == "AUTH":
            return self._subscribe()
        if data != b"OK":
            raise HandshakeFailed(f"{data[:40]!r} instead of OK after the upgrade to {self._expects}")
        return self._next_upgrade()

    def _identified(self, data: bytes) -> None:
        try:
            answer: Any = json.loads(data)
            granted = Negotiated(
                max_rdy_count=int(answer.get("max_rdy_count", 0)),
                msg_timeout_ms=int(answer.get("msg_timeout", Negotiated.msg_timeout_ms)),
                version=str(answer.get("version", "")),
                tls_v1=bool(answer.get("tls_v1")),
                deflate=bool(answer.get("deflate")),
                deflate_level=int(answer.get("deflate_level", 6)),
                snappy=bool(answer.get("snappy")),
                auth_required=bool(answer.get("auth_required")),
                headers=self._options.headers and bool(answer.get("headers")),
                draining=bool(answer.get("draining")),
            )
        except (ValueError, TypeError, AttributeError):
            if data != b"OK":
                raise HandshakeFailed(f"{data[:40]!r} is not a valid response to IDENTIFY") from None
            granted = Negotiated()  # an nsqd older than feature negotiation
        self.negotiated = granted
        for upgrade in Upgrade:
            asked, given = bool(getattr(self._options, upgrade.value)), bool(getattr(granted, upgrade.value))
            if given and not asked:
                raise HandshakeFailed(f"nsqd enabled {upgrade.value}, which was not requested")
            if asked and not given:
                raise HandshakeFailed(f"nsqd does not grant {upgrade.value}")
            if given:
                self._upgrades.append(upgrade)

    def _next_upgrade(self) -> list[Step]:
        if self._upgrades:
            upgrade = self._upgrades.pop(0)
            self._expects = upgrade.value
            return [upgrade]
        if self.negotiated.auth_required:
            if not self._options.auth_secret:
                raise HandshakeFailed("nsqd requires an auth_secret, and none is set")
            self._expects = "AUTH"
            return [Send(encoding.auth(self._options.auth_secret))]
        return self._subscribe()

    def _subscribe(self) -> list[Step]:
        if self._subscription is None:
            return [Ready(self.negotiated)]
        self._expects = "SUB"
        return [Send(encoding.sub(*self._subscription))]
