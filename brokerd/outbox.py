"""Frames that are sent to clients together, after the journal has recorded their deliveries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brokerd.client import Client

OUTBOX_BYTES = 256 * 1024
"""Bytes collected before they are sent. Only sending shows whether a connection accepts more."""

logger = logging.getLogger("brokerd")


class Outbox:
    """The frames of one channel that are in flight but not sent yet, in order."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._frames: list[tuple[Client, bytes | memoryview]] = []

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def room(self) -> int:
        """Bytes that may be added before a flush; at least 1, because an empty outbox takes a frame of any size."""
        return max(1, OUTBOX_BYTES - self.nbytes)

    @property
    def is_full(self) -> bool:
        """True if it must be flushed."""
        return self.nbytes >= OUTBOX_BYTES

    def add(self, client: Client, frames: bytes | memoryview) -> None:
        """Add ``frames`` for ``client``."""
        self._frames.append((client, frames))
        self.nbytes += len(frames)

    def flush(self) -> None:
        """Send all frames. If sending to a client fails it is disconnected, which requeues its messages."""
        frames, self._frames, self.nbytes = self._frames, [], 0
        for client, data in frames:
            try:
                client.send(data)
            except Exception:
                logger.exception("PROTOCOL(V2): [%s] messages could not be sent", client.remote_address)
                client.blocked = True
                client.hang_up()
