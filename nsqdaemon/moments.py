"""Points in time as users give them: a duration before now, or an absolute time."""

from datetime import UTC, datetime, timedelta
from typing import Final

from nsqwire.durations import nanoseconds, parse_duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def past_ns(text: str, now_ns: int) -> int:
    """Parse ``90m`` (that long before now) or ``2026-11-22T06:30:00Z`` to Unix nanoseconds.

    Raises ValueError with a message for the user, also for a time without a zone and a time in the future.
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
        age = timedelta(microseconds=now_ns // 1000) - (moment - _EPOCH)
    if age < timedelta(0):
        raise ValueError(f"{text!r} is in the future")
    return now_ns - nanoseconds(age)
