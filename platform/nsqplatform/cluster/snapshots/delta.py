"""Deltas: the difference of two snapshots, within one view of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nsqplatform.cluster.snapshots.rows import Changes, Columns, Delta
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from nsqplatform.cluster.snapshots.table import FIGURES, KEYS, TEXTS, Table

NO_ROWS = Table("nodes", {})


class Deltas:
    """The deltas that turn ``before`` into ``after``, one for each view."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before = before
        self._after = after
        self._nodes = changes(before.nodes, after.nodes, with_shares=False)  # the same in all views

    def of(self, view: View) -> Delta:
        """The delta of one view.

        The delta of EVERYTHING omits changes in the shares of single nodes. They would double its size, and no page
        shows the shares of more than one topic or node.
        """
        was, now = self._before.part(view), self._after.part(view)
        topics, channels = (
            changes(was[kind], now[kind], with_shares=view != EVERYTHING) for kind in ("topics", "channels")
        )
        return {
            "type": "delta",
            "version": self._after.version,
            "base": self._before.version,
            "taken_at": self._after.taken_at_ms,
            "nodes": self._nodes,
            "topics": topics,
            "channels": channels,
        }


def changes(before: Table, after: Table, *, with_shares: bool) -> Changes:
    """The changes from ``before`` to ``after``. New rows, and rows whose text changed, are in ``put`` as a whole; of
    other rows, ``set`` has the columns with a changed figure."""
    drop: list[str] = []
    stay: Sequence[int] = range(len(after))
    was, now = before, after
    if before.names != after.names:
        drop = [key for key in before if key not in after.places]
        stay = [place for place, key in enumerate(after) if key in before.places]
        now = after.only(stay)
        was = before.only([before.places[key] for key in now])
    if replaced := rows_to_replace(was, now):
        rest = [place for place in range(len(now)) if place not in replaced]
        stay = [stay[place] for place in rest]
        was, now = was.only(rest), now.only(rest)
    put = after.only(sorted({*range(len(after))}.difference(stay))) if len(stay) < len(after) else NO_ROWS
    return {"put": put.columns, "set": changed_columns(was, now, with_shares=with_shares), "drop": drop}


def rows_to_replace(was: Table, now: Table) -> set[int]:
    """The places of rows whose text or nodes changed, or that a node paused or unpaused."""
    replaced: set[int] = set()
    if len(now):
        for name in TEXTS[now.kind]:
            if name in KEYS[now.kind]:
                continue
            replaced.update(differing(was.columns[name], now.columns[name]))
        replaced.update(differing(was.placements, now.placements))
    return replaced


def changed_columns(was: Table, now: Table, *, with_shares: bool) -> Columns:
    """The columns in which a figure changed, for the rows in which any figure changed; ``keys`` has the keys of these
    rows."""
    if not len(now):
        return {}
    names = [*FIGURES[now.kind], "nodes"] if with_shares else FIGURES[now.kind]
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
    rows = now if len(places) == len(now) else now.only(sorted(places))
    return {"keys": [*rows], **{name: rows.columns[name] for name in changed}}


def differing(was: Sequence[Any], now: Sequence[Any]) -> Iterable[int]:
    """The places at which two columns differ."""
    if was == now:
        return ()
    return [place for place, (old, new) in enumerate(zip(was, now, strict=True)) if old != new]
