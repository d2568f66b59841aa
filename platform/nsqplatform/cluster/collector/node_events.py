"""Records in the database when a node goes down, answers again, or has restarted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from nsqplatform.cluster.collector.database_thread import DatabaseThread
from nsqplatform.cluster.models import NodeEvent
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqwire.units import WholeSeconds

Kind = NodeEvent.Kind


class NodeState(NamedTuple):
    """``start_time`` of its process, in Unix seconds; 0 if unknown."""

    is_up: bool
    start_time: WholeSeconds
    error: str


class NodeEvents:
    """A listener of the collector. Events that could not be saved are saved with the next snapshot."""

    def __init__(self) -> None:
        self._states: dict[str, NodeState] | None = None
        self._unsaved: list[NodeEvent] = []
        self._database = DatabaseThread("node events: database")

    async def on_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        if self._states is None:
            self._states = states_of(before) if before else {}
        states = states_of(snapshot)
        at = datetime.fromtimestamp(snapshot.taken_at_ms / 1000, UTC)
        self._unsaved += changes(self._states, states, at)
        self._states |= states  # a node that is no longer listed keeps its last state
        await self._save()

    async def finish(self) -> None:
        try:
            await self._save()
        finally:
            self._database.end()

    async def _save(self) -> None:
        if unsaved := list(self._unsaved):
            await self._database.run(partial(save, unsaved))
            del self._unsaved[: len(unsaved)]


def states_of(snapshot: Snapshot) -> dict[str, NodeState]:
    return {
        row["id"]: NodeState(row["state"] == "up", row["start_time"], row["error"] or "") for row in snapshot.nodes.rows
    }


def changes(before: Mapping[str, NodeState], after: Mapping[str, NodeState], at: datetime) -> list[NodeEvent]:
    """The events between two states. A new node has one only if it is down."""
    found = []
    for node, state in after.items():
        known = before.get(node)
        if not state.is_up:
            if known is None or known.is_up:
                found.append(NodeEvent(at=at, node=node, kind=Kind.DOWN, detail=state.error[:500]))
        elif known is not None and not known.is_up:
            found.append(NodeEvent(at=at, node=node, kind=Kind.UP))
        elif known is not None and 0 < known.start_time < state.start_time:
            found.append(NodeEvent(at=at, node=node, kind=Kind.RESTARTED))
    return found


def save(events: Sequence[NodeEvent]) -> None:
    """Save events, and delete those older than ``--audit-retention``: both or none, so that no event is saved twice.

    The originals get no id, which would be one of a transaction that failed.
    """
    keep: timedelta = settings.NSQADMIN.audit_retention
    with transaction.atomic():
        NodeEvent.objects.bulk_create([copy(event) for event in events])
        if keep:
            NodeEvent.objects.filter(at__lt=timezone.now() - keep).delete()
