"""The stamps of a data path, by which an older copy of it is recognised; see :mod:`brokerd.mirror.pair`."""

from __future__ import annotations

import json
from typing import NamedTuple

from brokerd.mirror.errors import InvalidStream
from nsqwire.foreign_json import UNREADABLE_JSON


class Stamps(NamedTuple):
    """The record's stamp at the time they were stored, and the one that the record gets next."""

    last: str = ""
    next: str = ""

    def to_bytes(self) -> bytes:
        """The stamps as JSON."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Stamps:
        """Read stamps. Raises InvalidStream."""
        try:
            fields = json.loads(data)
            return cls(last=str(fields["last"]), next=str(fields["next"]))
        except UNREADABLE_JSON as error:
            raise InvalidStream(f"stamps cannot be read: {error!r}") from None
