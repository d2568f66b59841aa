"""The figures of a mirrored node in ``/stats``, ``/mirror`` and ``/metrics``."""

from __future__ import annotations

from typing import TypedDict

from nsqwire.units import Seconds, WholeSeconds


class MirrorFigures(TypedDict):
    """The primary's figures. ``in_sync`` has the members that are in sync.

    ``since`` is when the primary began to lead, in Unix seconds, and ``since_seconds`` for how long it has led.
    ``lag_seconds`` is the time since the follower last applied a change, while it has changes to apply.
    """

    role: str
    pair: str
    member: str
    epoch: int
    in_sync: list[str]
    under_replicated: bool
    lag_bytes: int
    lag_seconds: Seconds
    since: WholeSeconds
    since_seconds: Seconds
