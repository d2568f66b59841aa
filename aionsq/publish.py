"""One outstanding publish."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from aionsq.errors import HeadersNotSupported
from aionsq.tracing import PublishTrace
from nsqwire.envelope import in_envelope
from nsqwire.errors import BadBody, BadMessage
from nsqwire.headers import MAX_MESSAGES
from nsqwire.units import Seconds

Ids = tuple[str, ...]
"""The ids of published messages; empty if the node does not report them."""

_length = struct.Struct(">i").pack
_NONE = b"{}"
"""The header block of a message without headers in an HMPUB."""


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

    def send_alone(self) -> None:
        """Combine the publish with no others from now on."""
        self.data, self.line = self.line + self.data, b""


def failed(error: Exception) -> asyncio.Future[Ids]:
    """Return the future of a publish that was not sent, with this exception."""
    future: asyncio.Future[Ids] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


class HeaderPublish(Publish):
    """A publish with headers. Its bytes depend on whether the node that it is sent to takes headers."""

    __slots__ = ("_alone", "_command", "_fallback", "_limits", "_messages", "_trace")

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        command: str,
        messages: Sequence[tuple[bytes, bytes]],
        fallback: str,
        limits: tuple[float, float],
        trace: PublishTrace | None,
    ) -> None:
        """``command`` is the line of the command without headers, such as ``DPUB orders 500``; ``messages`` are pairs
        of header block and body; ``limits`` are the largest body and the largest MPUB, in bytes."""
        super().__init__(loop=loop)
        self._command = command
        self._messages = messages
        self._fallback = fallback
        self._limits = limits
        self._trace = trace
        self._alone = False

    def encode(self, address: str, *, takes_headers: bool) -> None:
        """Set ``line`` and ``data`` for the node at ``address``.

        Raises HeadersNotSupported, and BadMessage or BadBody if headers make a message or an MPUB too large.
        """
        with_headers = takes_headers and any(block for block, _ in self._messages)
        if with_headers:
            blocks = [(block or _NONE, body) for block, body in self._messages]
            datas = [_length(len(block)) + block + body for block, body in blocks]
        elif takes_headers:
            datas = [body for _, body in self._messages]
        elif self._fallback == "error":
            raise HeadersNotSupported(f"nsqd {address} does not take headers; not stored")
        elif self._fallback == "envelope":
            datas = [in_envelope(block, body) if block else body for block, body in self._messages]
            if (longest := max(map(len, datas))) > self._limits[0]:
                raise BadMessage(f"message of {longest} bytes with its envelope is larger than {self._limits[0]}")
        else:
            datas = [body for _, body in self._messages]
        verb = self._command.partition(" ")[0]
        line = f"{'H' if with_headers else ''}{self._command}\n".encode()
        data = b"".join([part for each in datas for part in (_length(len(each)), each)])
        if verb == "MPUB":
            if with_headers and len(datas) > MAX_MESSAGES:
                raise BadBody(f"MPUB of {len(datas)} messages with headers is larger than {MAX_MESSAGES}")
            data = _length(len(datas)) + data
            if len(data) > self._limits[1]:
                raise BadBody(f"MPUB of {len(data)} bytes, headers included, is larger than {self._limits[1]}")
            data = _length(len(data)) + data
        self.line, self.data = line, data
        if self._alone or verb != "PUB":
            super().send_alone()

    def send_alone(self) -> None:
        """Combine the publish with no others, even if it is encoded for another node."""
        if not self._alone:
            self._alone = True
            super().send_alone()

    def set_result(self, result: Ids) -> None:
        """As a future's; the trace ends."""
        super().set_result(result)
        self._ended(None, result)

    def set_exception(self, exception: type | BaseException) -> None:
        """As a future's; the trace ends."""
        super().set_exception(exception)
        self._ended(exception if isinstance(exception, BaseException) else exception(), ())

    def cancel(self, msg: object = None) -> bool:
        """As a future's; the trace ends."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._ended(asyncio.CancelledError(), ())
        return cancelled

    def _ended(self, error: BaseException | None, ids: Ids) -> None:
        self._messages = ()
        if self._trace is not None:
            self._trace.ended(error, ids, self.sent_to)
