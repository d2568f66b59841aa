"""The difference of two pictures, for those who look at one view of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cluster.picture import EVERYTHING, Picture, View
from cluster.rows import Changes, Columns, Delta
from cluster.table import Table

NUMBERS = {
    "nodes": (
        "topic_count",
        "channel_count",
        "client_count",
        "depth",
        "lost_message_count",
        "publish_rate",
        "finish_rate",
    ),
    "topics": (
        "depth",
        "backend_depth",
        "message_count",
        "message_bytes",
        "channel_count",
        "client_count",
        "in_flight_count",
        "publish_rate",
        "byte_rate",
        "oldest_age_ms",
    ),
    "channels": (
        "depth",
        "backend_depth",
        "in_flight_count",
        "deferred_count",
        "requeue_count",
        "timeout_count",
        "message_count",
        "client_count",
        "publish_rate",
        "finish_rate",
        "requeue_rate",
        "timeout_rate",
        "oldest_age_ms",
        "p50_ms",
        "p99_ms",
        "p50_range_ms",
        "p99_range_ms",
    ),
}
"""What may change without the row being told anew."""
WORDS = {
    "nodes": (
        "hostname",
        "broadcast_address",
        "tcp_port",
        "http_port",
        "version",
        "state",
        "error",
        "health",
        "start_time",
    ),
    "topics": ("name", "paused"),
    "channels": ("name", "paused"),
}
NO_ROWS = Table("nodes", {})


class Deltas:
    """What browsers that hold ``before`` need to hold ``after``, each as far as it looks."""

    def __init__(self, before: Picture, after: Picture) -> None:
        self._before = before
        self._after = after
        self._nodes = changes(before.nodes, after.nodes, with_shares=False)  # the same for all

    def of(self, view: View) -> Delta:
        """Whoever looks at everything is not told how the shares of single nodes change: they are half of all there is
        to tell, and no page shows them of more than one topic or node."""
        was, now = self._before.part(view), self._after.part(view)
        topics, channels = (
            changes(was[kind], now[kind], with_shares=view != EVERYTHING) for kind in ("topics", "channels")
        )
        return {
            "type": "delta",
            "version": self._after.version,
            "base": self._before.version,
            "taken_at": self._after.taken_at,
            "nodes": self._nodes,
            "topics": topics,
            "channels": channels,
        }


def changes(before: Table, after: Table, *, with_shares: bool) -> Changes:
    """New rows, and those whose words changed, whole; of the others the columns in which any of them changed."""
    drop: list[str] = []
    stay: Sequence[int] = range(len(after))
    was, now = before, after
    if before.names != after.names:
        drop = [key for key in before if key not in after.places]
        stay = [place for place, key in enumerate(after) if key in before.places]
        now = after.only(stay)
        was = before.only([before.places[key] for key in now])
    if anew := reworded(was, now):
        rest = [place for place in range(len(now)) if place not in anew]
        stay = [stay[place] for place in rest]
        was, now = was.only(rest), now.only(rest)
    put = after.only(sorted({*range(len(after))}.difference(stay))) if len(stay) < len(after) else NO_ROWS
    return {"put": put.columns, "set": renumbered(was, now, with_shares=with_shares), "drop": drop}


def reworded(was: Table, now: Table) -> set[int]:
    """The places of rows whose words changed, or which nodes hold them, or which of these paused them."""
    anew: set[int] = set()
    if len(now):
        for name in WORDS[now.kind]:
            anew.update(differing(was.columns[name], now.columns[name]))
        anew.update(differing(was.held_by, now.held_by))
    return anew


def renumbered(was: Table, now: Table, *, with_shares: bool) -> Columns:
    """The columns in which a number changed, of the rows in which one did; and which rows these are."""
    if not len(now):
        return {}
    names = (*NUMBERS[now.kind], "nodes") if with_shares else NUMBERS[now.kind]
    places: set[int] = set()
    changed: list[str] = []
    for name in names:
        old, new = was.columns[name], now.columns[name]
        if old != new:
            changed.append(name)
            if len(places) < len(now):
                places.update(differing(old, new))
    if not changed:
        return {}
    told = now if len(places) == len(now) else now.only(sorted(places))
    return {"keys": [*told], **{name: told.columns[name] for name in changed}}


def differing(was: Sequence[Any], now: Sequence[Any]) -> Iterable[int]:
    """Where two columns differ."""
    if was == now:
        return ()
    return [place for place, (old, new) in enumerate(zip(was, now, strict=True)) if old != new]
