"""Durations as Go writes them: ``300ms``, ``1h30m``, ``1.743µs``."""

import re
from datetime import timedelta
from typing import Final

_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu: Go accepts both
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_MAX_NS: Final = 2**63 - 1


def parse_duration(text: str) -> timedelta:
    """Read Go's notation: numbers with units, or ``0``, with an optional sign.

    Fractions of a microsecond are dropped. A positive duration becomes at least one microsecond, because zero often
    means no limit. Raises ValueError with a message for the user, also above 292 years, the limit of Go's 64-bit
    nanoseconds.
    """
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return timedelta(0)
    total_ns, position = 0.0, 0
    while match := _PART.match(rest, position):
        total_ns += float(match[1]) * _NS[match[2]]
        position = match.end()
    if position != len(rest) or not rest:
        if rest.isdecimal():
            raise ValueError(f"the duration {text!r} needs a unit, for example {rest}ms or {rest}s")
        raise ValueError(f"{text!r} is not a duration such as 300ms, 2s or 1h30m")
    if total_ns > _GO_MAX_NS:
        raise ValueError(f"the duration {text!r} is too long")
    microseconds = round(total_ns) // 1_000
    return timedelta(microseconds=sign * (microseconds or (total_ns > 0)))


def nanoseconds(duration: timedelta) -> int:
    """The duration in nanoseconds, exactly."""
    return (duration // timedelta(microseconds=1)) * 1_000


def format_duration(ns: int) -> str:
    """Write nanoseconds as Go's ``Duration.String``: ``1.743µs``, ``250ms``, ``1m0s``, ``1h2m3.5s``, ``0s``."""
    if ns < 0:
        return "-" + format_duration(-ns)
    if ns == 0:
        return "0s"
    for limit, unit in ((1_000, "ns"), (1_000_000, "µs"), (1_000_000_000, "ms")):
        if ns < limit:
            return _decimal(ns, _NS[unit]) + unit
    minutes, seconds_ns = divmod(ns, _NS["m"])
    hours, minutes = divmod(minutes, 60)
    front = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return front + _decimal(seconds_ns, _NS["s"]) + "s"


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
