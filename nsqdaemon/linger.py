"""The end of a TCP connection whose client may still be sending.

Closing a socket with unread input resets the connection. A client that is sending then sees the reset, and may lose the
error that the server sent before. So the server ends its own side only, and reads on until the client closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUIET_S: Final = 5.0
"""A client that sends nothing for this long is not waited for."""
LONGEST_S: Final = 30.0
_DISCARDED_BYTES: Final = 64 * 1024
_discarded = bytearray(_DISCARDED_BYTES)
"""The buffer into which all connections read: the bytes are not used."""


class Linger(asyncio.BufferedProtocol):
    """Takes the transport over: sends what is buffered and the end of the stream, and discards input until the client
    closes, is quiet for QUIET_S, or LONGEST_S have passed.

    ``lost`` is called as the transport's ``connection_lost``.
    """

    def __init__(self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
        self._transport = transport
        self._lost = lost
        self._loop = loop = asyncio.get_running_loop()
        self._last_read = loop.time()
        self._until = self._last_read + LONGEST_S
        self._timer = loop.call_later(QUIET_S, self._check)
        transport.set_protocol(self)
        transport.write_eof()
        transport.resume_reading()

    def get_buffer(self, sizehint: int) -> bytearray:
        return _discarded

    def buffer_updated(self, nbytes: int) -> None:
        self._last_read = self._loop.time()

    def eof_received(self) -> None:
        """The client has closed its side, too: the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._lost(exc)

    def _check(self) -> None:
        """Abort the connection if it has lingered long enough: a transport that is closed would wait for a client that
        does not read."""
        now = self._loop.time()
        end = min(self._last_read + QUIET_S, self._until)
        if now < end:
            self._timer = self._loop.call_later(end - now, self._check)
        else:
            self._transport.abort()
