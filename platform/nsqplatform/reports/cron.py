"""Cron lines: parsing, and the times at which they are due in a time zone.

Five fields, ``minute hour day-of-month month day-of-week``, or ``@hourly``, ``@daily`` and the like. Sunday is 0 or 7.
As in Celery, and unlike in crontab(5), a day must match both day fields.

When clocks change, the rules are those of Debian's cron. A line whose minute or hour begins with ``*`` follows the
clock: ``*/30 * * * *`` is due each half hour, also in the repeated hour. Other lines are due once
a day at each of their times: in a repeated hour, the first time; in a skipped hour, later by as much as the clock was
set forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_WAIT_DAYS = 366 * 41
"""Within this time, 29 February falls on each day of the week."""


class BadCron(ValueError):
    """A line that is invalid or never due; the message has the reason."""


@dataclass(frozen=True)
class Cron:
    """A parsed cron line. Days of the week are 0 (Sunday) to 6."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days_of_month: frozenset[int]
    months: frozenset[int]
    days_of_week: frozenset[int]
    follows_clock: bool
    """True: due whenever the clock shows a matching time; false: once a day at each time."""

    @classmethod
    def parse(cls, line: str) -> Cron:
        """Parse a line or a macro such as ``@daily``. Raises BadCron."""
        line = line.strip()
        if line.startswith("@"):
            if line.lower() not in MACROS:
                raise BadCron(f"there is no {line}; there are {', '.join(MACROS)}")
            line = MACROS[line.lower()]
        fields = line.split()
        if len(fields) != 5:
            raise BadCron(
                f"five fields are needed (minute hour day-of-month month day-of-week), there are {len(fields)}"
            )
        minute, hour, day_of_month, month, day_of_week = fields
        return cls(
            minutes=tuple(sorted(_values("minute", minute, 0, 59))),
            hours=tuple(sorted(_values("hour", hour, 0, 23))),
            days_of_month=_values("day of month", day_of_month, 1, 31),
            months=_values("month", month, 1, 12, _MONTHS),
            days_of_week=frozenset(day % 7 for day in _values("day of week", day_of_week, 0, 7, _DAYS)),
            follows_clock=minute.startswith("*") or hour.startswith("*"),
        )

    def next_after(self, moment: datetime, zone: tzinfo) -> datetime:
        """The first due time after ``moment``, in UTC. Raises BadCron if there is none."""
        day = moment.astimezone(zone).date()
        for _ in range(_LONGEST_WAIT_DAYS):
            if self._is_on(day):
                later = [at for at in self._times(day, zone) if at > moment]
                if later:
                    return min(later)
            day += timedelta(days=1)
        raise BadCron("it is never due: there is no such day")

    def _is_on(self, day: date) -> bool:
        return day.month in self.months and day.day in self.days_of_month and day.isoweekday() % 7 in self.days_of_week

    def _times(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                first = datetime.combine(day, time(hour, minute), zone)
                if self.follows_clock:
                    for reading in (first, first.replace(fold=1)):
                        at = reading.astimezone(UTC)
                        if at.astimezone(zone).replace(tzinfo=None) == reading.replace(tzinfo=None, fold=0):
                            yield at
                else:
                    yield first.astimezone(UTC)

    def fields(self) -> dict[str, str]:
        """The line as fields of django-celery-beat's table, which supports neither 7 nor names such as ``@daily``."""
        return {
            "minute": _listed(self.minutes, 60),
            "hour": _listed(self.hours, 24),
            "day_of_month": _listed(self.days_of_month, 31),
            "month_of_year": _listed(self.months, 12),
            "day_of_week": _listed(self.days_of_week, 7),
        }


def _values(field: str, text: str, least: int, most: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    """The numbers that a field matches. A range may wrap around: ``22-2`` is 22, 23, 0, 1, 2."""
    found: set[int] = set()
    for part in text.lower().split(","):
        grammar = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", part)
        if grammar is None:
            raise BadCron(
                f"{field}: {part!r} is neither *, a number, a range such as 1-5, nor one of these with /steps"
            )
        star, low, high, steps = grammar.groups()
        if steps is not None and (int(steps) == 0 or (star is None and high is None)):
            raise BadCron(f"{field}: {part!r}: steps need * or a range, and at least 1")
        if star:
            # 7 is Sunday, like 0.
            numbers = list(range(least, 7 if field == "day of week" else most + 1))
        else:
            first = _number(field, low, least, most, names)
            last = first if high is None else _number(field, high, least, most, names)
            if first <= last:
                numbers = list(range(first, last + 1))
            else:
                end = 6 if field == "day of week" else most
                numbers = [*range(first, end + 1), *range(least, last + 1)]
        found.update(numbers[:: int(steps or 1)])
    return frozenset(found)


def _number(field: str, text: str, least: int, most: int, names: tuple[str, ...]) -> int:
    if text.isascii() and text.isdigit():
        number = int(text)
        if not least <= number <= most:
            raise BadCron(f"{field}: {number} is not from {least} to {most}")
        return number
    if text[:3] not in names:
        raise BadCron(f"{field}: {text!r} is not a number from {least} to {most}")
    return names.index(text[:3]) + (1 if names is _MONTHS else 0)


def _listed(numbers: tuple[int, ...] | frozenset[int], all_of_them: int) -> str:
    return "*" if len(numbers) == all_of_them else ",".join(map(str, sorted(numbers)))
