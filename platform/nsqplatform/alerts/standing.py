"""How a rule stands with one of its subjects: well, beyond its threshold for a while (pending), firing.

No clock and no I/O: times are unix seconds and come in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

GAP_S = 30.0
"""After so long without word of a subject, nobody knows what it was like in between: hold times begin anew."""


class Event(Enum):
    FIRED = "fired"
    RESOLVED = "resolved"


@dataclass(slots=True)
class Standing:
    """Of a subject that is not well. ``began``: when it went beyond the threshold; ``known``: when it was last known
    how it is; ``well_since``: while it fires, since when it is back."""

    began: float
    known: float
    firing: bool = False
    well_since: float | None = None


def step(
    standing: Standing | None,
    beyond: bool | None,
    *,
    now: float,
    hold_s: float,
    resolve_after_s: float,
    may_fire: bool = True,
) -> tuple[Standing | None, Event | None]:
    """What becomes of it now that it is ``beyond`` its threshold, or is not, or (None) nobody can tell.

    Without knowledge nothing changes. ``may_fire`` false leaves it pending, however long it holds.
    """
    if beyond is None:
        return standing, None
    if standing is None:
        if not beyond:
            return None, None
        standing = Standing(began=now, known=now)
    elif not 0 <= now - standing.known <= GAP_S:
        standing.well_since = None
        if not standing.firing:
            standing.began = now
    standing.known = now
    if not standing.firing:
        if not beyond:
            return None, None
        if now - standing.began >= hold_s and may_fire:
            standing.firing = True
            return standing, Event.FIRED
        return standing, None
    if beyond:
        standing.well_since = None
        return standing, None
    if standing.well_since is None:
        standing.well_since = now
    if now - standing.well_since >= resolve_after_s:
        return None, Event.RESOLVED
    return standing, None
