"""What can go wrong for a user of the client. Every error of this package is a :class:`ClientError`.

Arguments that break NSQ's rules raise nsqwire's errors (``BadTopic``, ``BadChannel``, ``BadMessage``) before anything
is sent: a broker closes the connection over them, and every publish behind such a one would be lost.
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of the client's errors."""


class ConnectFailed(ClientError):
    """No conversation came about: the address cannot be reached, is no nsqd, or refused what IDENTIFY asked for."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to nsqd {address}: {reason}")
        self.address = address
        self.reason = reason


class ConnectionLost(ClientError):
    """The connection ended. What was sent and not answered may or may not have been done."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"lost the connection to nsqd {address}: {reason}")
        self.address = address
        self.reason = reason


class Refused(ClientError):
    """nsqd answered with an error frame. ``code`` is such as ``E_BAD_TOPIC``, ``text`` what follows it."""

    def __init__(self, frame: str) -> None:
        super().__init__(frame)
        self.code, _, self.text = frame.partition(" ")


class PublishTimedOut(ClientError):
    """No answer within the publish's timeout. The message may or may not have been stored."""


class ProducerFull(ClientError):
    """Too many bytes wait to be published; nothing was sent."""


class ProducerClosed(ClientError):
    """The producer was closed before this could be published; it was not stored."""


class ConsumerStopped(ClientError):
    """The consumer was stopped, and does not start again."""


class HTTPFailed(ClientError):
    """An HTTP request to nsqd or nsqlookupd failed. ``status`` is None when there was no answer at all."""

    def __init__(self, url: str, status: int | None, reason: str) -> None:
        super().__init__(f"{url}: {reason}" if status is None else f"{url}: {status} {reason}")
        self.url = url
        self.status = status
        self.reason = reason
