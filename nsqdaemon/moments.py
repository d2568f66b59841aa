"""Points in time as users give them: a duration before or after now, or an absolute time."""

from datetime import UTC, datetime, timedelta
from typing import Final

from nsqwire.durations import nanoseconds, parse_duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def past_ns(text: str, now_ns: int) -> int:
    """As moment_ns; a time in the future is refused too."""
    moment = moment_ns(text, now_ns)
    if moment > now_ns:
        raise ValueError(f"{text!r} is in the future")
    return moment


def moment_ns(text: str, now_ns: int) -> int:
    """Parse ``90m`` (that long before now) or ``2026-11-22T06:30:00Z`` to Unix nanoseconds.

    Raises ValueError with a message for the user, also for a time without a zone.
    """
    given = _parsed(text, "90m")
    return nanoseconds(given - _EPOCH) if isinstance(given, datetime) else now_ns - nanoseconds(given)


def coming(text: str, now: datetime) -> datetime:
    """Parse ``720h`` (that long after now) or an absolute time, which may be past. Raises as moment_ns."""
    given = _parsed(text, "720h")
    return given if isinstance(given, datetime) else now + given


def _parsed(text: str, example: str) -> datetime | timedelta:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return parse_duration(text)
        except ValueError:
            forms = f"a duration such as {example} nor a time such as 2026-11-22T06:30:00Z"
            raise ValueError(f"{text!r} is neither {forms}") from None
    if moment.tzinfo is None:
        raise ValueError(f"the time {text!r} needs its zone, such as Z or +02:00")
    return moment
