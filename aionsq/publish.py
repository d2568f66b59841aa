"""One outstanding publish."""

from __future__ import annotations

import asyncio

from nsqwire.units import Seconds

Ids = tuple[str, ...]
"""The ids of published messages; empty if the node does not report them."""


class Publish(asyncio.Future[Ids]):
    """A publish command and the future of its answer. One object without ``__init__`` is the fastest to create."""

    __slots__ = ("data", "deadline", "line", "sent_to")

    line: bytes
    """``PUB topic\\n`` if the publish may be combined with others in an MPUB; otherwise empty."""
    data: bytes
    """The bytes after ``line``, or the whole command. Cleared with the answer, because callers may keep the future."""
    deadline: Seconds
    """Loop time at which the publish ends with PublishTimedOut."""
    sent_to: str
    """Address of the nsqd that may have stored the message; empty if no nsqd has."""

    def end(self, error: Exception | None = None, ids: Ids = ()) -> None:
        """Set the ids or the exception, unless the publish timed out or was cancelled."""
        self.data = b""
        if self.done():
            return
        if error is None:
            self.set_result(ids)
        else:
            self.set_exception(error)
