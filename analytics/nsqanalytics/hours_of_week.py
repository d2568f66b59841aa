"""The hours of the week that two periods have in common: those in which a comparison of both is fair."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from nsqanalytics.span import HOUR, Span

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def common_hours(now: Span, before: Span) -> tuple[list[datetime], list[datetime]]:
    """Return the whole UTC hours of each period that are compared, ascending.

    An hour of the week, such as Monday 9:00, counts equally often in both: the period that has it more often
    contributes the last ones. Both lists are empty if the periods have no whole hour of the week in common.
    """
    mine, other = _by_hour_of_week(now), _by_hour_of_week(before)
    found: tuple[list[datetime], list[datetime]] = ([], [])
    for hour in mine.keys() & other.keys():
        times = min(len(mine[hour]), len(other[hour]))
        found[0].extend(mine[hour][-times:])
        found[1].extend(other[hour][-times:])
    return sorted(found[0]), sorted(found[1])


def as_text(hours: Iterable[datetime]) -> str:
    """Return the hours of the week in UTC, for people: ``Mon 9–17, Tue 0–24 twice``; all 168 are ``all``."""
    counted = Counter((hour.weekday(), hour.hour) for hour in hours)
    if len(counted) == 7 * 24 and len(set(counted.values())) == 1:
        return "all"
    parts = []
    for (day, first), times in sorted(counted.items()):
        if counted.get((day, first - 1)) == times:
            continue
        end = next(end for end in range(first + 1, 25) if counted.get((day, end)) != times)
        often = {1: "", 2: " twice"}.get(times, f" {times} times")
        parts.append(f"{DAYS[day]} {first}–{end}{often}")
    return ", ".join(parts)


def _by_hour_of_week(span: Span) -> dict[tuple[int, int], list[datetime]]:
    hour = span.since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    found: dict[tuple[int, int], list[datetime]] = defaultdict(list)
    while hour + HOUR <= span.until:
        if hour >= span.since:
            found[hour.weekday(), hour.hour].append(hour)
        hour += HOUR
    return found
