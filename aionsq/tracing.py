"""The interface of producers and consumers for tracing; :mod:`aionsq.otel` implements it with OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from aionsq.message import Message


class PublishTrace(Protocol):
    """The trace of one publish."""

    headers: Sequence[Mapping[str, str]]
    """For each message, headers to send with it if the node takes headers."""

    def ended(self, error: BaseException | None, ids: Sequence[str], address: str) -> None:
        """The publish has ended. ``address`` is that of the nsqd, or empty if the publish was not sent."""


class ProcessTrace(Protocol):
    """The trace of processing one message."""

    def ended(self, error: BaseException | None) -> None:
        """Processing has ended. ``error`` is the exception of the handler or the loop's body, or None."""


@runtime_checkable
class Tracing(Protocol):
    """Traces the publishes of producers and the messages of consumers."""

    def publish(
        self, topic: str, bodies: Sequence[bytes], headers: Sequence[Mapping[str, str]], *, batch: bool
    ) -> PublishTrace:
        """A publish begins. ``batch`` is True for an MPUB. ``headers`` are the caller's headers of each message."""
        ...

    def receive(self, message: Message, topic: str, channel: str, began_ns: int) -> None:
        """``next_message`` returns a message to a caller that has waited since ``began_ns``, in Unix nanoseconds."""

    def process(self, message: Message, topic: str, channel: str) -> ProcessTrace:
        """A handler or a loop's body begins to process a message, in the current task."""
        ...


_default: Tracing | None = None


def default_tracing() -> Tracing | None:
    """Return the tracing of producers and consumers that are created without one."""
    return _default


def set_default_tracing(tracing: Tracing | None) -> None:
    """Set the tracing of producers and consumers that are created from now on without one."""
    global _default
    _default = tracing
