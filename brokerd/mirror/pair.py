"""The record of a pair, which the arbiter keeps: its term, who leads it, and which members are in sync.

A member is *in sync* if it has everything that was acknowledged. Only the member that leads writes the record, and
only while it holds the election key.

A *stamp* is a random text that changes about once in a lease. Before the record gets a new stamp, each member in sync
stores it beside the record's present one. A data path that was replaced by an older copy is recognised by the lack of
the record's stamp.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from nsqwire.foreign_json import UNREADABLE_JSON

DURABLE_BOOT = "durable"
"""The boot id of a member that acknowledges only what is on its disk: a restart of its machine loses nothing."""


class InvalidRecord(Exception):
    """The arbiter has a value that is not the record of a pair; the text says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class PairRecord:
    """``pair`` identifies the pair, and ``node_id`` is that of both members."""

    pair: str
    node_id: int
    epoch: int
    """The number of the term; each term's is one higher than that of the term before."""
    leader: str
    """The member that leads the term."""
    in_sync: Mapping[str, str] = field(default_factory=dict)
    """The members in sync, each with the boot id of its machine."""
    stamp: str = ""
    """A stamp that all members in sync have stored. Empty: a member needs none, because one is of a version without
    stamps."""
    unserved: int = 0
    """Number of terms in a row, up to this one, whose winners have not served yet."""

    def may_lead(self, member: str, boot: str, stamps: Collection[str]) -> bool:
        """Return whether a member has everything that was acknowledged: it is in sync, its machine was not restarted
        since, and its data path, which has these ``stamps``, is no older copy."""
        return self.in_sync.get(member) == boot and (not self.stamp or self.stamp in stamps)

    def led_by(self, member: str, boot: str) -> PairRecord:
        """The record of the next term, which ``member`` leads.

        The members that were in sync remain so until ``member`` has recovered its data path: if it is lost meanwhile,
        or finds damage, they may lead. Nothing is acknowledged in the term before the record has the smaller set.
        """
        in_sync = {**self.in_sync, member: boot}
        return replace(self, epoch=self.epoch + 1, leader=member, in_sync=in_sync, unserved=self.unserved + 1)

    def with_in_sync(self, in_sync: Mapping[str, str]) -> PairRecord:
        """The record of the same term with other members in sync. The primary serves, or gives back the lead."""
        return replace(self, in_sync=dict(in_sync), unserved=0)

    def with_stamp(self, stamp: str) -> PairRecord:
        """The record of the same term with another stamp."""
        return replace(self, stamp=stamp)

    def to_bytes(self) -> bytes:
        """The record as JSON."""
        fields = {
            "pair": self.pair,
            "node_id": self.node_id,
            "epoch": self.epoch,
            "leader": self.leader,
            "in_sync": dict(self.in_sync),
            "stamp": self.stamp,
            "unserved": self.unserved,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PairRecord:
        """Read a record. Raises InvalidRecord."""
        try:
            fields = json.loads(data)
            return cls(
                pair=str(fields["pair"]),
                node_id=int(fields["node_id"]),
                epoch=int(fields["epoch"]),
                leader=str(fields["leader"]),
                in_sync={str(member): str(boot) for member, boot in fields["in_sync"].items()},
                stamp=str(fields.get("stamp", "")),
                unserved=int(fields.get("unserved", 0)),
            )
        except UNREADABLE_JSON as error:
            raise InvalidRecord(f"the arbiter's record of the pair cannot be read: {error!r}") from None
