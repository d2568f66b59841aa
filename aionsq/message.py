"""A message delivered to a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from aionsq.arguments import check_delay
from aionsq.backoff import Outcome
from nsqwire.headers import decode_headers
from nsqwire.units import Nanoseconds


class Answers(Protocol):
    """Sends a message's answers to its nsqd."""

    address: str
    is_open: bool

    def answer(self, message: Message, outcome: Outcome, delay: timedelta | None) -> None:
        """Send FIN, or REQ with ``delay`` (None: by the options and the message's attempts)."""
        ...

    def touch(self, message: Message) -> None:
        """Send TOUCH."""
        ...


class Message:
    """One delivery of one message.

    Only the first answer counts: later calls of ``finish``, ``requeue`` and ``touch`` do nothing. The methods do not
    block; the answers of one iteration of the event loop are sent together. If the connection is lost, answers are
    dropped, and nsqd redelivers the message.
    """

    __slots__ = (
        "_answers",
        "_header_block",
        "_headers",
        "attempts",
        "auto_response",
        "body",
        "has_responded",
        "id",
        "timestamp",
        "trial",
    )

    def __init__(
        self,
        timestamp: Nanoseconds,
        attempts: int,
        id: bytes,
        body: bytes,
        header_block: bytes,
        answers: Answers,
        trial: int | None,
    ) -> None:
        self.timestamp = timestamp
        """Time at which nsqd accepted the message, in Unix nanoseconds."""
        self.attempts = attempts
        """Number of deliveries so far; 1 at the first."""
        self.id = id
        """16 hex digits; the same at each delivery from the same nsqd."""
        self.body = body
        self.trial = trial
        """Number of the backoff test in which the message was delivered; None outside a test."""
        self.has_responded = False
        self.auto_response = True
        self._answers = answers
        self._header_block = header_block
        self._headers: Mapping[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The message's headers, with names in lower case; empty without the option ``headers``, or if it has none.

        Raises nsqwire.headers.BadHeaders if nsqd sent something else than headers.
        """
        if self._headers is None:
            self._headers = decode_headers(self._header_block) if self._header_block else {}
        return self._headers

    def set_contents(self, header_block: bytes, body: bytes) -> None:
        """Replace headers and body: those of an envelope were taken out of it."""
        self._header_block, self._headers, self.body = header_block, None, body

    @property
    def nsqd_address(self) -> str:
        """``host:port`` of the nsqd that delivered it."""
        return self._answers.address

    @property
    def is_in_flight(self) -> bool:
        """False once the message was answered or its connection was lost (nsqd then redelivers it)."""
        return self._answers.is_open and not self.has_responded

    def finish(self) -> None:
        """Finish the message: nsqd removes it from the channel (FIN)."""
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.FINISHED, None)

    def requeue(self, delay: timedelta | None = None, *, backoff: bool = True) -> None:
        """Return the message to nsqd for redelivery after ``delay`` (REQ).

        Without a delay, it is ``default_requeue_delay`` times the attempts, at most ``max_requeue_delay``.

        With ``backoff``, the requeue counts as a failure of the message. Raises WrongType for a delay of another type.
        """
        if delay is not None:
            check_delay(delay)
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.FAILED if backoff else Outcome.REQUEUED, delay)

    def touch(self) -> None:
        """Restart the message timeout at nsqd (TOUCH)."""
        if not self.has_responded:
            self._answers.touch(self)

    def give_up(self) -> None:
        """Finish the message without processing it. For backoff, this is neither a success nor a failure."""
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.GIVEN_UP, None)

    def disable_auto_response(self) -> None:
        """The caller will answer the message: the consumer does not answer it after the handler or the loop's body."""
        self.auto_response = False

    def __repr__(self) -> str:
        return f"<Message {self.id.decode()} from {self.nsqd_address}, attempt {self.attempts}, {len(self.body)} bytes>"
