"""Evaluates all rules against each snapshot. No clock and no I/O: times are arguments, in unix seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from nsqplatform.alerts.catalogue import Metric, Scope
from nsqplatform.alerts.models import Alert, Rule
from nsqplatform.alerts.readings import (
    Matching,
    Sight,
    Subject,
    detail_of,
    holders_of,
    is_beyond,
    subject_of,
)
from nsqplatform.alerts.standing import Event, Standing, step
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Row, Table
from nsqplatform.cluster.store import DamagedFiles

logger = logging.getLogger(__name__)

SETTLING_S = 10.0
"""Time after the start of the collector or of a node in which snapshots are incomplete and not evaluated."""
FIRING_MOST = 1000
"""Limit of firing alerts of one rule. Further subjects stay pending until one of them is resolved."""
FORGOTTEN_S = 3600.0
"""A subject is gone after this time if none of its nodes answers."""


@dataclass(frozen=True)
class Fired:
    """An alert that fired at ``at``; its metric went beyond the threshold at ``began``. Both are unix seconds."""

    rule: Rule
    subject: Subject
    value: float | None
    detail: str
    holders: Sequence[str]
    began: float
    at: float


@dataclass(frozen=True)
class Resolved:
    """A firing alert that was resolved at ``at``, in unix seconds."""

    rule_id: int
    subject: Subject
    resolution: str
    at: float


@dataclass
class FiringAlert:
    """A firing alert: subject, the subject's nodes when it fired, time of firing (unix seconds), the subject's last
    row."""

    subject: Subject
    held_by: Sequence[str]
    at: float
    row: Row | None = None

    @property
    def holders(self) -> Sequence[str]:
        """The subject's nodes when it was last seen."""
        return self.held_by if self.row is None else holders_of(self.row)


@dataclass
class Following:
    """One enabled rule, with the state of its pending and firing subjects. The keys are those of the snapshot's
    rows."""

    rule: Rule
    matching: Matching
    standings: dict[str, Standing] = field(default_factory=dict)
    burning: dict[str, FiringAlert] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """Indices of the matching rows (``keys``) in the snapshot's table, as of ``generation``."""
    generation: int = -1
    is_full: bool = False

    def drop(self, key: str) -> None:
        self.standings.pop(key, None)
        self.burning.pop(key, None)


def patterns_of(rule: Rule) -> tuple[str, str, str]:
    return rule.topic_pattern, rule.channel_pattern, rule.node_pattern


class Engine:
    """Takes rules and snapshots; returns the alerts that fired or were resolved."""

    def __init__(self, *, settling_s: float = SETTLING_S, firing_most: int = FIRING_MOST) -> None:
        self._settling_s = settling_s
        self._firing_most = firing_most
        self._rules: dict[int, Following] = {}
        self._began: float | None = None
        self._lives: dict[str, tuple[int, float]] = {}
        """Start time of each node's process, as the node reports it, and the time of the first snapshot that has it."""
        self._generations: dict[str, int] = {}
        self._keys: dict[str, list[str]] = {}

    # ---- what to evaluate

    def follow(self, rules: Iterable[Rule], *, now: float) -> list[Resolved]:
        """Set the rules; disabled ones are ignored. Returns, as resolved, the firing alerts of rules that were deleted
        or disabled or that watch another metric now."""
        wanted = {rule.pk: rule for rule in rules if rule.enabled}
        over: list[Resolved] = []
        for number, following in list(self._rules.items()):
            rule = wanted.get(number)
            if rule is None or rule.watched != following.rule.watched:
                over += [
                    Resolved(number, burning.subject, Alert.Resolution.RULE, now)
                    for burning in following.burning.values()
                ]
                del self._rules[number]
        for number, rule in wanted.items():
            known = self._rules.get(number)
            if known is None:
                self._rules[number] = Following(rule, Matching(rule))
                continue
            if patterns_of(known.rule) != patterns_of(rule):
                known.matching, known.generation = Matching(rule), -1
            known.rule = rule
        return over

    def restore(
        self, firing: Iterable[Alert], pending: Mapping[int, Mapping[str, float]], *, now: float, known: float
    ) -> list[Resolved]:
        """Take over the alerts of a previous collector. Call it after :meth:`follow`.

        ``pending``: by rule and key, when the subject went beyond the threshold, as stored at ``known``. Times are unix
        seconds. Returns, as resolved, the firing alerts of rules that no longer exist or that watch another metric.
        """
        over: list[Resolved] = []
        for alert in firing:
            subject = Subject(alert.topic, alert.channel, alert.node)
            following = self._rules.get(alert.rule_id or 0)
            if following is None or (alert.scope, alert.metric) != (following.rule.scope, following.rule.metric):
                over.append(Resolved(alert.rule_id or 0, subject, Alert.Resolution.RULE, now))
                continue
            following.standings[alert.subject] = Standing(alert.began_at.timestamp(), now, firing=True)
            following.burning[alert.subject] = FiringAlert(subject, alert.holders, alert.fired_at.timestamp())
        for number, standings in pending.items():
            if number in self._rules:
                for key, began in standings.items():
                    self._rules[number].standings.setdefault(key, Standing(began, known))
        return over

    def close(self, closed: Iterable[tuple[int, str, float]]) -> None:
        """Remove alerts that people closed: rule, key and time in unix seconds. Alerts that fired later stay."""
        for number, key, at in closed:
            following = self._rules.get(number)
            if following is not None and key in following.burning and following.burning[key].at <= at:
                following.drop(key)

    # ---- results

    def pending(self) -> dict[int, dict[str, float]]:
        """The pending subjects of each rule, with the times at which they went beyond the threshold."""
        found = {
            number: {key: standing.began for key, standing in following.standings.items() if not standing.firing}
            for number, following in self._rules.items()
        }
        return {number: keys for number, keys in found.items() if keys}

    def firing(self) -> list[tuple[Rule, int]]:
        """The number of firing alerts of each rule."""
        return [(following.rule, len(following.burning)) for following in self._rules.values()]

    def evaluate(
        self, snapshot: Snapshot, damaged_files: DamagedFiles | None = None, *, now: float
    ) -> Iterator[list[Fired | Resolved]]:
        """Evaluate one rule at a time and yield its results, so that the caller can do other work in between.

        ``damaged_files``: those of the archive; None if their number is not known.
        """
        if self._began is None:
            self._began = now
        unsettled = self._unsettled(snapshot, now)
        if now - self._began < self._settling_s:
            return
        sight = Sight(snapshot, unsettled, damaged_files)
        for scope in get_args(Scope):
            keys = list(sight.rows(scope))
            if keys != self._keys.get(scope):
                self._generations[scope] = self._generations.get(scope, 0) + 1
                self._keys[scope] = keys
        columns: dict[Metric, np.ndarray] = {}
        for number, following in list(self._rules.items()):
            if self._rules.get(number) is following:  # not removed during the evaluation
                yield list(self._evaluate(following, sight, columns, now))

    def _unsettled(self, snapshot: Snapshot, now: float) -> set[str]:
        """The nodes that started or were discovered less than ``settling_s`` ago."""
        lives: dict[str, tuple[int, float]] = {}
        for key, row in snapshot.nodes.items():
            known = self._lives.get(key)
            lives[key] = known if known and known[0] == row["start_time"] else (row["start_time"], now)
        self._lives = lives
        return {key for key, (_, since) in lives.items() if now - since < self._settling_s}

    def _evaluate(
        self, following: Following, sight: Sight, columns: dict[Metric, np.ndarray], now: float
    ) -> Iterator[Fired | Resolved]:
        rule, metric = following.rule, following.rule.watched
        rows = sight.rows(metric.scope)
        if following.generation != self._generations[metric.scope]:
            self._match(following, rows)
            yield from self._drop_others(following, rows, now)
        column = columns.get(metric)
        if column is None:
            column = columns[metric] = sight.column(metric)
        for key in dict.fromkeys([*self._suspects(following, column), *following.standings]):
            row = rows.get(key)
            if row is None:
                yield from self._absent(following, key, sight, now)
                continue
            reading = sight.read(metric, row)
            event = self._step(following, key, is_beyond(rule, reading), now)
            if key in following.burning:
                following.burning[key].row = row
            if event is Event.FIRED:
                subject, value = subject_of(metric.scope, row), None if metric.is_flag else reading.value
                yield self._fired(following, key, subject, holders_of(row), value, detail_of(metric, row), now)
            elif event is Event.RESOLVED:
                yield self._over(following, key, Alert.Resolution.CLEARED, now)

    def _match(self, following: Following, rows: Table) -> None:
        following.keys = [*following.matching.subjects(rows)]
        wanted, places = set(following.keys), enumerate(rows)
        following.places = np.array([place for place, key in places if key in wanted], dtype=np.intp)
        following.generation = self._generations[following.rule.watched.scope]

    @staticmethod
    def _suspects(following: Following, column: np.ndarray) -> list[str]:
        """The keys that may be beyond the threshold; a fast filter. It misses none, because a snapshot's sums are never
        less than the shares of the nodes that answer."""
        values, threshold = column[following.places], following.rule.threshold
        beyond = values > threshold if following.rule.comparison == Rule.Comparison.ABOVE else values < threshold
        return [following.keys[place] for place in np.nonzero(beyond)[0].tolist()]

    def _step(self, following: Following, key: str, beyond: bool | None, now: float) -> Event | None:
        rule = following.rule
        self._tell_if_full(following)
        standing, event = step(
            following.standings.get(key),
            beyond,
            now=now,
            hold_s=rule.hold_s,
            resolve_after_s=rule.resolve_after_s,
            may_fire=not following.is_full,
        )
        if standing is not None:
            following.standings[key] = standing
        else:
            following.standings.pop(key, None)
        return event

    def _tell_if_full(self, following: Following) -> None:
        is_full = len(following.burning) >= self._firing_most
        if is_full and not following.is_full:
            logger.warning("a rule fires too often: no more of it for now", extra={"rule": following.rule.name})
        following.is_full = is_full

    def _absent(self, following: Following, key: str, sight: Sight, now: float) -> Iterator[Fired | Resolved]:
        """Handle a subject that is not in the snapshot: it was removed, or all of its nodes are down."""
        standing = following.standings[key]
        if following.rule.metric == "down":
            # Registries remove a node that is down; the node is still missing.
            if self._step(following, key, True, now) is Event.FIRED:
                yield self._fired(following, key, Subject("", "", key), (), None, "", now)
            return
        if not standing.firing:
            following.drop(key)
            return
        nodes, holders = sight.snapshot.nodes, following.burning[key].holders
        is_gone = bool(holders) and all(node in nodes and node not in sight.silent for node in holders)
        is_over = self._step(following, key, False if is_gone else None, now) is Event.RESOLVED
        if is_over or now - standing.known > FORGOTTEN_S:
            yield self._over(following, key, Alert.Resolution.GONE, now)

    def _drop_others(self, following: Following, rows: Table, now: float) -> Iterator[Resolved]:
        """Resolve alerts of existing subjects that the rule's patterns no longer match."""
        matching = set(following.keys)
        for key in [key for key in following.standings if key in rows and key not in matching]:
            if key in following.burning:
                yield self._over(following, key, Alert.Resolution.RULE, now)
            following.drop(key)

    @staticmethod
    def _fired(
        following: Following,
        key: str,
        subject: Subject,
        holders: Sequence[str],
        value: float | None,
        detail: str,
        now: float,
    ) -> Fired:
        following.burning[key] = FiringAlert(subject, holders, now)
        return Fired(following.rule, subject, value, detail, holders, following.standings[key].began, now)

    @staticmethod
    def _over(following: Following, key: str, resolution: str, now: float) -> Resolved:
        subject = following.burning[key].subject
        following.drop(key)
        return Resolved(following.rule.pk, subject, resolution, now)
