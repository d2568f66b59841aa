"""Points in time as people give them: so long ago, or on the clock."""

from datetime import UTC, datetime, timedelta
from typing import Final

from nsqwire.durations import nanoseconds, parse_duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def past_ns(text: str, now_ns: int) -> int:
    """Read ``90m``, which is so long ago, or ``2026-11-22T06:30:00Z``, as Unix nanoseconds.

    Raises ValueError with a sentence for the user, also for a time without its zone and for one to come.
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
        raise ValueError(f"{text!r} is still to come")
    return now_ns - nanoseconds(age)
