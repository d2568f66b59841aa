"""The client's exceptions, all derived from :class:`ClientError`.

Arguments that violate NSQ's rules raise nsqwire's errors (``BadTopic``, ``BadChannel``, ``BadMessage``) before anything
is sent, because nsqd closes the connection after it has refused such arguments.
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of the client's errors."""


class ConnectFailed(ClientError):
    """The connection could not be established: no network, no nsqd at the address, or a failed handshake."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to nsqd {address}: {reason}")
        self.address = address
        self.reason = reason


class ConnectionLost(ClientError):
    """The connection ended. Commands without an answer may or may not have been executed."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"lost the connection to nsqd {address}: {reason}")
        self.address = address
        self.reason = reason


class Refused(ClientError):
    """nsqd answered with an error frame: ``code``, such as ``E_BAD_TOPIC``, and ``text``."""

    def __init__(self, frame: str) -> None:
        super().__init__(frame)
        self.code, _, self.text = frame.partition(" ")


class PublishTimedOut(ClientError):
    """No answer within the publish's timeout. The message may or may not have been stored."""


class ProducerFull(ClientError):
    """More than ``max_waiting_bytes`` would wait for a connection; the message was not sent."""


class ProducerClosed(ClientError):
    """The producer was closed before the message was published; it was not stored."""


class HeadersNotSupported(ClientError):
    """The node does not take the headers of messages, as Go's nsqd; the message was not sent."""


class ConsumerStopped(ClientError):
    """The consumer was not started, or was stopped and cannot be started again."""


class HTTPFailed(ClientError):
    """An HTTP request to nsqd or nsqlookupd failed. ``status`` is None if there was no response."""

    def __init__(self, url: str, status: int | None, reason: str) -> None:
        super().__init__(f"{url}: {reason}" if status is None else f"{url}: {status} {reason}")
        self.url = url
        self.status = status
        self.reason = reason
