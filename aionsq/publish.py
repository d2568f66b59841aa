"""One publish under way."""

from __future__ import annotations

import asyncio


class Publish(asyncio.Future[None]):
    """A command and, being a future, its answer. Made for each publish, so it is one object and has no ``__init__``."""

    __slots__ = ("data", "deadline", "line", "sent_to")

    line: bytes
    """The command's line, ``PUB topic\\n`` for what may go with others in an MPUB; empty for all else."""
    data: bytes
    """What follows the line, or the whole command; emptied once it was answered, since callers keep futures."""
    deadline: float
    """Loop time at which it ends with PublishTimedOut."""
    sent_to: str
    """Address of the nsqd that may have stored it; empty while it is certain that none has."""

    def end(self, error: Exception | None = None) -> None:
        """Give its caller the result, unless it timed out or the caller has cancelled it."""
        self.data = b""
        if self.done():
            return
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)
