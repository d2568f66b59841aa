"""The events of a run, which it prints as JSON lines and the platform reads (docs/analytics.md)."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict


class Progressed(TypedDict):
    """How far a run has come."""

    event: Literal["progress"]
    fraction: float
    """Done of the whole run, 0 to 1."""
    stage: str


class Done(TypedDict):
    """The run has written its result."""

    event: Literal["done"]
    rows: int
    """Number of rows of the result."""


class Failed(TypedDict):
    """The run failed: ``kind`` is for programs, ``message`` for people."""

    event: Literal["failed"]
    kind: str
    message: str


Event: TypeAlias = Progressed | Done | Failed


class Ready(TypedDict):
    """A warm session has removed what the last job left, and can run another one."""

    event: Literal["ready"]


class Declined(TypedDict):
    """A warm session does not run this job: it reads too much, and is faster in a process of its own."""

    event: Literal["declined"]


class Ended(TypedDict):
    """A warm session takes no more jobs and ends, for the given reason."""

    event: Literal["ended"]
    reason: str


SessionEvent: TypeAlias = Event | Ready | Declined | Ended
"""What a warm session prints."""
