"""The client's exceptions. ``except NSQError`` catches every exception that the client raises.

Names, bodies and delays that violate NSQ's rules raise nsqwire's errors (``BadTopic``, ``BadChannel``, ``BadMessage``,
``BadBody``, ``Invalid``) before anything is sent, because nsqd closes the connection after it has refused them. All
others are derived from :class:`ClientError`, which is an ``NSQError`` too.
"""

from __future__ import annotations

from nsqwire.errors import NSQError


class ClientError(NSQError):
    """Base of the client's own errors."""


class InvalidArgument(ClientError, ValueError):
    """An address, an option or another argument has a value that it cannot have; nothing was sent."""


class WrongType(ClientError, TypeError):
    """An argument has a type that it cannot have, such as a ``str`` as the body of a message; nothing was sent."""


class ConnectFailed(ClientError):
    """The connection could not be established: no network, no nsqd at the address, a failed handshake, or, for a
    producer, a node that is being drained."""

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


class TLSRequired(Refused):
    """nsqd takes commands over TLS only, and the option ``tls_v1`` is not set. Nothing was stored."""

    def __init__(self, address: str, frame: str) -> None:
        super().__init__(frame)
        self.address = address

    def __str__(self) -> str:
        return f"nsqd {self.address} requires TLS: set the option tls_v1 ({self.args[0]})"

    @staticmethod
    def is_meant_by(frame: str) -> bool:
        """Whether nsqd says so in this error frame."""
        return frame.startswith("E_INVALID ") and frame.endswith("(TLS required)")


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
