"""The client side of nsqlookupd's protocol V1, without a socket: commands out, replies in."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nsqwire.gojson import decode_json

MAGIC_V1 = b"  V1"
PING = b"PING\n"

_LENGTH = struct.Struct(">i")


class PeerFailed(Exception):
    """The nsqlookupd refused a command or violated the protocol. The connection cannot be used any more."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A broker's IDENTIFY; the ports are those that other machines connect to."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    topology_region: str
    topology_zone: str
    version: str


@dataclass(frozen=True, kw_only=True)
class PeerInfo:
    """The nsqlookupd's reply to IDENTIFY; ``broadcast_address`` is empty if it announced none."""

    broadcast_address: str
    http_port: int
    tcp_port: int
    version: str


def registration(kind: Literal["register", "unregister"], topic: str, channel: str | None) -> bytes:
    """REGISTER or UNREGISTER of a topic or a channel. REGISTER of a channel also registers its topic."""
    return f"{kind.upper()} {topic}{f' {channel}' if channel else ''}\n".encode()


class LookupSession:
    """The protocol of one connection. It begins with the magic and IDENTIFY.

    A reply is ``size i32 | data``, big-endian, without a frame type. Replies come in the order of the commands, so
    commands may be sent before earlier ones are answered. Only IDENTIFY must be answered first, because a refusal ends
    the connection.
    """

    def __init__(self, identity: Identity, *, max_reply_size: int) -> None:
        self.info: PeerInfo | None = None
        """Set by the reply to IDENTIFY."""
        self._max_reply_size = max_reply_size
        self._input = bytearray()
        self._owed: deque[bytes] = deque()
        body = json.dumps(identity.__dict__, separators=(",", ":"), ensure_ascii=False).encode()
        self._owed.append(b"IDENTIFY\n")
        self._output = [MAGIC_V1, b"IDENTIFY\n", _LENGTH.pack(len(body)), body]

    @property
    def outstanding_replies(self) -> int:
        """The number of commands without a reply."""
        return len(self._owed)

    def send(self, commands: Iterable[bytes]) -> None:
        """Queue commands, each a whole line."""
        for command in commands:
            self._owed.append(command)
            self._output.append(command)

    def take_output(self) -> bytes:
        """The bytes to send now."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def received(self, data: bytes) -> None:
        """Take bytes from the peer. Raises PeerFailed at the first unexpected reply."""
        self._input += data
        while len(self._input) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._input)
            if not 0 <= size <= self._max_reply_size:
                raise PeerFailed(f"reply of {size} bytes, expected 0 to {self._max_reply_size}")
            end = _LENGTH.size + size
            if len(self._input) < end:
                return
            reply = bytes(self._input[_LENGTH.size : end])
            del self._input[:end]
            self._answered(reply)

    def _answered(self, reply: bytes) -> None:
        if not self._owed:
            raise PeerFailed(f"reply to no command: {_shown(reply)}")
        command = self._owed.popleft()
        if self.info is None:
            self.info = _peer_info(reply)
        elif reply != b"OK":
            raise PeerFailed(f"{_shown(command.rstrip())} answered with {_shown(reply)}")


def _peer_info(reply: bytes) -> PeerInfo:
    try:
        info = decode_json(reply)
        if not isinstance(info, dict):
            raise ValueError("not an object")
        return PeerInfo(
            broadcast_address=str(info.get("broadcast_address") or ""),
            http_port=int(info.get("http_port") or 0),
            tcp_port=int(info.get("tcp_port") or 0),
            version=str(info.get("version") or ""),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise PeerFailed(f"IDENTIFY answered with {_shown(reply)}") from error


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return text if len(text) <= 200 else text[:200] + "…"
