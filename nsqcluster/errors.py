"""Errors of requests to nsqd and nsqlookupd, and of actions on a cluster."""

from __future__ import annotations

import os
import socket
import ssl

from nsqwire.printable import printable


class RequestFailed(Exception):
    """A request failed. ``url`` is the requested URL and ``reason`` the cause as a short phrase, in one line."""

    def __init__(self, url: str, reason: str) -> None:
        reason = printable(reason)  # it may be what the server has sent
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class NotReached(RequestFailed):
    """No connection could be opened, so the request was not sent.

    ``error`` is the operating system's error; None if there is none, as for an invalid address.
    """

    def __init__(self, url: str, reason: str, error: OSError | None = None) -> None:
        super().__init__(url, reason)
        self.error = error


class TimedOut(RequestFailed):
    """The complete response did not arrive within ``within_s`` seconds. The request may still take effect."""

    def __init__(self, url: str, within_s: float) -> None:
        super().__init__(url, f"no answer within {within_s:g} s")
        self.within_s = within_s


class ConnectTimedOut(TimedOut, NotReached):
    """No connection was opened within ``within_s`` seconds, so the request was not sent."""

    def __init__(self, url: str, within_s: float) -> None:
        TimedOut.__init__(self, url, within_s)
        self.error = None


class Interrupted(RequestFailed):
    """The connection ended before the response was complete. The request may have taken effect."""


class Refused(RequestFailed):
    """The server responded with a status other than 200.

    ``message`` is the ``message`` of the response's JSON, otherwise its text; ``text`` is the body and ``phrase`` the
    reason phrase of the status line.
    """

    def __init__(self, url: str, status: int, message: str, *, text: str = "", phrase: str = "") -> None:
        super().__init__(url, f"answers {status} {message}".strip())
        self.status = status
        self.message = message
        self.text = text
        self.phrase = phrase

    @property
    def is_unknown_name(self) -> bool:
        """Whether the server does not have the topic, channel or policy."""
        return self.status == 404 and self.message in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND", "POLICY_NOT_FOUND")

    @property
    def is_unknown_message(self) -> bool:
        """Whether the channel no longer has the message."""
        return self.status == 404 and self.message == "MESSAGE_NOT_FOUND"

    @property
    def is_unknown_request(self) -> bool:
        """Whether the server does not support the request, as Go's nsqd does not support those of brokerd."""
        return self.status == 404 and self.message == "NOT_FOUND"


class Malformed(RequestFailed):
    """The response is not in the format of nsqd or nsqlookupd, or too long; the reason names the key or the limit."""


def detail_of(error: RequestFailed) -> str:
    """Return the server's status and message, or the reason why there was no valid response."""
    return printable(f"{error.status} {error.message}".strip()) if isinstance(error, Refused) else error.reason


def system_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error among ``error`` and its causes, or None."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, OSError) and error.errno:
            return error
        error = error.__cause__ or error.__context__
    return None


def reason_of(error: BaseException) -> str:
    """Describe an error in one phrase, with the operating system's text in lower case if there is one."""
    cause = system_error(error)
    if cause is None:
        return str(error) or type(error).__name__
    if isinstance(cause, ssl.SSLError):
        words = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or str(cause)
        return f"TLS: {words}"
    # asyncio replaces strerror. A failed name lookup has other error numbers, which os.strerror() does not know.
    text = str(cause.strerror) if isinstance(cause, socket.gaierror) else os.strerror(cause.errno or 0)
    return text.lower()
