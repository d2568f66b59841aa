"""The greetings of the two members at the beginning of a connection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from brokerd.mirror.errors import InvalidStream
from nsqwire.foreign_json import UNREADABLE_JSON


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The greeting of the member that connects. ``pair`` is empty if its data path was never that of a pair.

    ``stores_stamps`` is false if the member's version does not know them.
    """

    member: str
    pair: str
    boot: str
    has_data: bool
    stores_stamps: bool = False

    def to_bytes(self) -> bytes:
        """The greeting as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Hello:
        """Read a greeting. Raises InvalidStream."""
        try:
            fields = json.loads(data)
            return cls(
                member=str(fields["member"]),
                pair=str(fields["pair"]),
                boot=str(fields["boot"]),
                has_data=bool(fields["has_data"]),
                stores_stamps=bool(fields.get("stores_stamps", False)),
            )
        except UNREADABLE_JSON as error:
            raise InvalidStream(f"a greeting cannot be read: {error!r}") from None


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """The primary's answer to a greeting: its pair, the node id of both members, and its ports for clients.

    A port is 0 if clients cannot be passed on to it. ``lease_s`` is its ``--mirror-lease``, 0 if its version does not
    send it.
    """

    pair: str
    node_id: int
    tcp_port: int = 0
    http_port: int = 0
    lease_s: int = 0

    def to_bytes(self) -> bytes:
        """The answer as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Welcome:
        """Read an answer. Raises InvalidStream."""
        try:
            fields = json.loads(data)
            return cls(
                pair=str(fields["pair"]),
                node_id=int(fields["node_id"]),
                tcp_port=int(fields["tcp_port"]),
                http_port=int(fields["http_port"]),
                lease_s=int(fields.get("lease_s", 0)),
            )
        except UNREADABLE_JSON as error:
            raise InvalidStream(f"a greeting cannot be read: {error!r}") from None
