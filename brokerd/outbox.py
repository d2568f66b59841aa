"""Frames that clients are sent together, once the journal has their deliveries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brokerd.client import Client

OUTBOX_BYTES = 256 * 1024
"""Bytes gathered before they are sent: until then it is not known whether a connection takes more."""

logger = logging.getLogger("brokerd")


class Outbox:
    """The frames of one channel that were put in flight and not sent yet, in order."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._frames: list[tuple[Client, bytes | memoryview]] = []

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def room(self) -> int:
        """Bytes that it takes before it must be flushed; at least 1, for a frame of any size fits an empty one."""
        return max(1, OUTBOX_BYTES - self.nbytes)

    @property
    def is_full(self) -> bool:
        """True once it must be flushed."""
        return self.nbytes >= OUTBOX_BYTES

    def add(self, client: Client, frames: bytes | memoryview) -> None:
        """Gather ``frames`` for ``client``."""
        self._frames.append((client, frames))
        self.nbytes += len(frames)

    def flush(self) -> None:
        """Send all. A client whose connection fails is hung up: what it was sent is requeued as it leaves."""
        frames, self._frames, self.nbytes = self._frames, [], 0
        for client, data in frames:
            try:
                client.send(data)
            except Exception:
                logger.exception("PROTOCOL(V2): [%s] messages could not be sent", client.remote_address)
                client.blocked = True
                client.hang_up()
