"""A message in a consumer's hands."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from aionsq.backoff import Outcome


class Answers(Protocol):
    """Whoever takes a message's answer to its nsqd."""

    address: str
    is_open: bool

    def answer(self, message: Message, outcome: Outcome, delay: timedelta | None) -> None: ...

    def touch(self, message: Message) -> None: ...


class Message:
    """One delivery of one message.

    The first answer counts: ``finish`` and ``requeue`` after it, and ``touch`` too, do nothing. Answers go out at the
    end of the event loop's turn, together; none of these methods waits. An answer to a message whose connection has
    gone is dropped: nsqd delivers the message again.
    """

    __slots__ = ("_answers", "attempts", "auto_response", "body", "has_responded", "id", "timestamp", "trial")

    def __init__(
        self, timestamp: int, attempts: int, id: bytes, body: bytes, answers: Answers, trial: int | None
    ) -> None:
        self.timestamp = timestamp
        """When nsqd accepted it, Unix nanoseconds."""
        self.attempts = attempts
        """1 at the first delivery."""
        self.id = id
        """16 hex digits; the same at each delivery from the same nsqd."""
        self.body = body
        self.trial = trial
        """Set when it was let through to test whether backoff can end."""
        self.has_responded = False
        self.auto_response = True
        self._answers = answers

    @property
    def nsqd_address(self) -> str:
        """``host:port`` of the nsqd it came from."""
        return self._answers.address

    @property
    def is_held(self) -> bool:
        """False once it was answered, or its connection is gone and nsqd delivers it again."""
        return self._answers.is_open and not self.has_responded

    def finish(self) -> None:
        """It is done: nsqd forgets it (FIN)."""
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.FINISHED, None)

    def requeue(self, delay: timedelta | None = None, *, backoff: bool = True) -> None:
        """Have it delivered again (REQ), after ``delay``; None: later the more attempts it had.

        With ``backoff`` it counts as a failure, and the consumer slows down.
        """
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.FAILED if backoff else Outcome.REQUEUED, delay)

    def touch(self) -> None:
        """Restart its timeout at nsqd: it is still being worked on."""
        if not self.has_responded:
            self._answers.touch(self)

    def give_up(self) -> None:
        """Finish it although it was never handled; neither a success nor a failure to backoff."""
        if not self.has_responded:
            self.has_responded = True
            self._answers.answer(self, Outcome.GIVEN_UP, None)

    def disable_auto_response(self) -> None:
        """The consumer does not answer it when the handler, or the loop's body, is through: the caller does."""
        self.auto_response = False

    def __repr__(self) -> str:
        return f"<Message {self.id.decode()} from {self.nsqd_address}, attempt {self.attempts}, {len(self.body)} bytes>"
