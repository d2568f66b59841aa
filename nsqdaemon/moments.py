"""Points in time as users give them: a duration before now, or an absolute time."""

from datetime import UTC, datetime
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
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            age = parse_duration(text)
        except ValueError:
            forms = "a duration such as 90m nor a time such as 2026-11-22T06:30:00Z"
            raise ValueError(f"{text!r} is neither {forms}") from None
    else:
        if moment.tzinfo is None:
            raise ValueError(f"the time {text!r} needs its zone, such as Z or +02:00")
        return nanoseconds(moment - _EPOCH)
    return now_ns - nanoseconds(age)
