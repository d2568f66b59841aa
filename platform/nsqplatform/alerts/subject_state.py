"""The state of one subject of a rule: within the threshold, pending (beyond it, but not for long enough), or firing.

No clock and no I/O: times are arguments, in Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nsqwire.units import Seconds

GAP_S = 30.0
"""If the value of a subject is unknown for longer than this, its hold time starts again."""


class Event(Enum):
    FIRED = "fired"
    RESOLVED = "resolved"


@dataclass(slots=True)
class SubjectState:
    """The state of a pending or firing subject. ``began``: when it went beyond the threshold. ``known``: time of the
    last known value. ``well_since``: when a firing subject came back within the threshold; None while it is beyond."""

    began: Seconds
    known: Seconds
    firing: bool = False
    well_since: Seconds | None = None


def step(
    state: SubjectState | None,
    beyond: bool | None,
    *,
    now: Seconds,
    hold_s: float,
    resolve_after_s: float,
    may_fire: bool = True,
) -> tuple[SubjectState | None, Event | None]:
    """Return the next state, given whether the value is ``beyond`` the threshold (None: unknown).

    An unknown value changes nothing. If ``may_fire`` is false, the subject stays pending.
    """
    if beyond is None:
        return state, None
    if state is None:
        if not beyond:
            return None, None
        state = SubjectState(began=now, known=now)
    elif not 0 <= now - state.known <= GAP_S:
        state.well_since = None
        if not state.firing:
            state.began = now
    state.known = now
    if not state.firing:
        if not beyond:
            return None, None
        if now - state.began >= hold_s and may_fire:
            state.firing = True
            return state, Event.FIRED
        return state, None
    if beyond:
        state.well_since = None
        return state, None
    if state.well_since is None:
        state.well_since = now
    if now - state.well_since >= resolve_after_s:
        return None, Event.RESOLVED
    return state, None
