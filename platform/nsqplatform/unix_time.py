"""Times of the API: Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload

from nsqwire.units import Milliseconds

LATEST_MS: Milliseconds = 253_402_300_799_000
"""The last second of the year 9999, after which Python has no times."""


@overload
def unix_ms(at: datetime) -> Milliseconds: ...


@overload
def unix_ms(at: None) -> None: ...


def unix_ms(at: datetime | None) -> Milliseconds | None:
    return None if at is None else int(at.timestamp() * 1000)


def from_unix_ms(at: Milliseconds) -> datetime:
    """The time in UTC. Raises ValueError, OverflowError or OSError for one that Python does not have."""
    return datetime.fromtimestamp(at / 1000, UTC)
