"""A chart of figures over time: its lines, its axes, and where their points are. Drawn by svg.py and png.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nsqplatform.reports.document.texts import short_moment
from nsqwire.units import Milliseconds


class Colour(NamedTuple):
    """Red, green and blue, 0 to 255."""

    red: int
    green: int
    blue: int

    @property
    def css(self) -> str:
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"


INK, MUTED, GRID, PAPER = Colour(23, 33, 31), Colour(85, 98, 95), Colour(219, 224, 221), Colour(255, 255, 255)
GREEN, BLUE, ORANGE, RED = Colour(43, 122, 61), Colour(11, 114, 133), Colour(163, 82, 0), Colour(179, 38, 30)


class Line(NamedTuple):
    """A value for each time of the chart; None is a gap."""

    label: str
    colour: Colour
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """``lines`` over ``times``, ascending. ``band`` fills the area between two lines. Times are Unix milliseconds.

    ``text_of`` formats a value of the vertical axis, which is logarithmic with ``log``.
    """

    title: str
    times: Sequence[Milliseconds]
    since: Milliseconds
    until: Milliseconds
    lines: Sequence[Line]
    text_of: Callable[[float], str]
    log: bool = False
    band: tuple[int, int] | None = None

    @property
    def has_values(self) -> bool:
        return any(value is not None for line in self.lines for value in line.values)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of the vertical axis."""
        known = [value for line in self.lines for value in line.values if value is not None]
        if not self.log:
            return 0.0, (max(known, default=0) * 1.08) or 1.0
        above = [value for value in known if value > 0] or [1.0]
        low, high = 10.0 ** math.floor(math.log10(min(above))), 10.0 ** math.ceil(math.log10(max(above)))
        return low, high if high > low else 10 * low

    def x(self, at: Milliseconds) -> float:
        """The place of a time: 0 at the left, 1 at the right."""
        return (at - self.since) / max(1, self.until - self.since)

    def y(self, value: float) -> float:
        """The place of a value: 0 at the bottom, 1 at the top. A value beyond an end is at that end."""
        low, high = self.bounds
        if self.log:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return min(1.0, max(0.0, (value - low) / (high - low)))

    @cached_property
    def levels(self) -> list[float]:
        """The labelled values of the vertical axis, ascending."""
        low, high = self.bounds
        if self.log:
            decades = round(math.log10(high / low))
            steps = (1, 2, 5) if decades <= 2 else (1,)
            levels = [low * 10**decade * step for decade in range(decades) for step in steps]
            return [*levels, high][:: max(1, decades // 6)]
        step = _round_step(high / 4)
        return [step * n for n in range(int(high / step) + 1)]

    @cached_property
    def moments(self) -> list[tuple[Milliseconds, str]]:
        """The labelled times, at most seven, at multiples of a round step."""
        span = self.until - self.since
        hour = 3_600_000
        steps = [60_000, 300_000, 900_000, hour, 2 * hour, 6 * hour, 12 * hour, 24 * hour, 168 * hour, 672 * hour]
        step = next((step for step in steps if span / step <= 7), 4 * steps[-1])
        first = -(-self.since // step) * step
        return [(at, short_moment(at)) for at in range(first, self.until + 1, step)]


def _round_step(least: float) -> float:
    """Return the lowest of 1, 2 and 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * 0.999)
