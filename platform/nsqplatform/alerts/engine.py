"""Evaluates all rules against each snapshot. No clock and no I/O: times are arguments, in Unix seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from nsqplatform.alerts.bands import Bands
from nsqplatform.alerts.catalogue import Metric, Scope
from nsqplatform.alerts.models import Alert, Rule
from nsqplatform.alerts.readings import (
    Matching,
    MetricReader,
    Subject,
    holders_of,
    is_beyond,
    objective_table,
    subject_of,
)
from nsqplatform.alerts.subject_state import Event, SubjectState, step
from nsqplatform.alerts.unusual import RecentMeans, Unusual, are_unusual
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Row, Table
from nsqplatform.cluster.store import DamagedFiles
from nsqplatform.objectives.burns import Burns
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

SETTLING_S = 10.0
"""Time after the start of the collector or of a node. Snapshots are incomplete during it, and are not evaluated."""
MAX_FIRING = 1000
"""Limit of firing alerts of one rule. Further subjects stay pending until one of them is resolved."""
FORGOTTEN_S = 3600.0
"""A subject counts as gone after this time if none of its nodes answers."""


@dataclass(frozen=True)
class Fired:
    """An alert that fired at ``at``; its metric went beyond the threshold at ``began``. Both are Unix seconds."""

    rule: Rule
    subject: Subject
    value: float | None
    detail: str
    holders: Sequence[str]
    began: Seconds
    at: Seconds


@dataclass(frozen=True)
class Resolved:
    """A firing alert that was resolved at ``at``, in Unix seconds."""

    rule_id: int
    subject: Subject
    resolution: str
    at: Seconds


@dataclass
class FiringAlert:
    """A firing alert: its subject, the subject's nodes when it fired, the time at which it fired (Unix seconds), and
    the subject's last row."""

    subject: Subject
    nodes_when_fired: Sequence[str]
    at: Seconds
    row: Row | None = None

    @property
    def holders(self) -> Sequence[str]:
        """The subject's nodes when it was last seen."""
        return self.nodes_when_fired if self.row is None else holders_of(self.row)


@dataclass
class RuleState:
    """One enabled rule, with the state of its pending and firing subjects. The keys are those of the snapshot's
    rows."""

    rule: Rule
    matching: Matching
    subjects: dict[str, SubjectState] = field(default_factory=dict)
    firing: dict[str, FiringAlert] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """Indices of the matching rows (``keys``) in the snapshot's table, as of ``generation``."""
    generation: int = -1
    is_full: bool = False
    is_failing: bool = False
    """Whether its last evaluation raised an exception."""

    def drop(self, key: str) -> None:
        self.subjects.pop(key, None)
        self.firing.pop(key, None)


def patterns_of(rule: Rule) -> tuple[str, ...]:
    return rule.topic_pattern, rule.channel_pattern, rule.node_pattern, rule.objective_pattern


class Engine:
    """Takes rules and snapshots; returns the alerts that fired or were resolved."""

    def __init__(self, *, settling_s: float = SETTLING_S, max_firing: int = MAX_FIRING) -> None:
        self._settling_s = settling_s
        self._max_firing = max_firing
        self._rules: dict[int, RuleState] = {}
        self._began: Seconds | None = None
        self._lives: dict[str, tuple[int, float]] = {}
        """Start time of each node's process, as the node reports it, and the time of the first snapshot that has it."""
        self._generations: dict[str, int] = {}
        self._keys: dict[str, list[str]] = {}
        self._means = RecentMeans()

    # ---- what to evaluate

    def set_rules(self, rules: Iterable[Rule], *, now: Seconds) -> list[Resolved]:
        """Set the rules; disabled ones are ignored. Returns the firing alerts that this resolves: those of rules that
        were deleted, disabled, or changed to another metric."""
        wanted = {rule.pk: rule for rule in rules if rule.enabled}
        over: list[Resolved] = []
        for number, rule_state in list(self._rules.items()):
            rule = wanted.get(number)
            if rule is None or rule.watched != rule_state.rule.watched:
                over += [
                    Resolved(number, alert.subject, Alert.Resolution.RULE, now) for alert in rule_state.firing.values()
                ]
                del self._rules[number]
        for number, rule in wanted.items():
            known = self._rules.get(number)
            if known is None:
                self._rules[number] = RuleState(rule, Matching(rule))
                continue
            if patterns_of(known.rule) != patterns_of(rule):
                known.matching, known.generation = Matching(rule), -1
            known.rule = rule
        return over

    def restore(
        self, firing: Iterable[Alert], pending: Mapping[int, Mapping[str, Seconds]], *, now: Seconds, known: Seconds
    ) -> list[Resolved]:
        """Restore the alerts of a previous collector. Call it after :meth:`set_rules`.

        ``pending`` maps rule and key to the time at which the subject went beyond the threshold, as stored at
        ``known``. Times are Unix seconds. Returns the firing alerts that this resolves: those of rules that no longer
        exist or that watch another metric.
        """
        over: list[Resolved] = []
        for alert in firing:
            subject = Subject(alert.topic, alert.channel, alert.node, alert.objective)
            rule_state = self._rules.get(alert.rule_id or 0)
            if rule_state is None or (alert.scope, alert.metric) != (rule_state.rule.scope, rule_state.rule.metric):
                over.append(Resolved(alert.rule_id or 0, subject, Alert.Resolution.RULE, now))
                continue
            rule_state.subjects[alert.subject] = SubjectState(alert.began_at.timestamp(), now, firing=True)
            rule_state.firing[alert.subject] = FiringAlert(subject, alert.holders, alert.fired_at.timestamp())
        for number, times in pending.items():
            if number in self._rules:
                for key, began in times.items():
                    self._rules[number].subjects.setdefault(key, SubjectState(began, known))
        return over

    def close(self, closed: Iterable[tuple[int, str, float]]) -> None:
        """Remove alerts that people closed: rule, key and time in Unix seconds. Alerts that fired later stay."""
        for number, key, at in closed:
            rule_state = self._rules.get(number)
            if rule_state is not None and key in rule_state.firing and rule_state.firing[key].at <= at:
                rule_state.drop(key)

    # ---- results

    def pending(self) -> dict[int, dict[str, float]]:
        """The pending subjects of each rule, with the times at which they went beyond the threshold."""
        found = {
            number: {key: state.began for key, state in rule_state.subjects.items() if not state.firing}
            for number, rule_state in self._rules.items()
        }
        return {number: keys for number, keys in found.items() if keys}

    def firing(self) -> list[tuple[Rule, int]]:
        """The number of firing alerts of each rule."""
        return [(rule_state.rule, len(rule_state.firing)) for rule_state in self._rules.values()]

    def failing(self) -> list[Rule]:
        """The rules whose last evaluation failed."""
        return [rule_state.rule for rule_state in self._rules.values() if rule_state.is_failing]

    def evaluate(
        self,
        snapshot: Snapshot,
        damaged_files: DamagedFiles | None = None,
        burns: Burns | None = None,
        bands: Bands | None = None,
        *,
        now: Seconds,
    ) -> Iterator[list[Fired | Resolved]]:
        """Evaluate one rule at a time and yield its results, so that the caller can do other work in between.

        ``damaged_files``: those of the archive; None if their number is not known. ``burns``: of the objectives; None
        if they are not known. ``bands``: those of past weeks; None if they are not known.
        """
        if self._began is None:
            self._began = now
        unsettled = self._unsettled(snapshot, now)
        if now - self._began < self._settling_s:
            return
        unusual = None if bands is None else Unusual(bands, self._means, now)
        reader = MetricReader(snapshot, unsettled, damaged_files, objective_table(burns, now=now), unusual)
        self._add_means(reader, now)
        for scope in get_args(Scope):
            keys = list(reader.rows(scope))
            if keys != self._keys.get(scope):
                self._generations[scope] = self._generations.get(scope, 0) + 1
                self._keys[scope] = keys
        columns: dict[Metric, np.ndarray] = {}
        for number, rule_state in list(self._rules.items()):
            if self._rules.get(number) is rule_state:  # not removed during the evaluation
                yield self._results(rule_state, reader, columns, now)

    def _results(
        self, rule_state: RuleState, reader: MetricReader, columns: dict[Metric, np.ndarray], now: Seconds
    ) -> list[Fired | Resolved]:
        """Evaluate a rule. If that fails, return the results so far, and log why once."""
        results: list[Fired | Resolved] = []
        try:
            results.extend(self._evaluate(rule_state, reader, columns, now))
        except Exception:  # the other rules are to be evaluated
            if not rule_state.is_failing:
                logger.exception("a rule cannot be evaluated", extra={"rule": rule_state.rule.name})
            rule_state.is_failing = True
        else:
            rule_state.is_failing = False
        return results

    def _add_means(self, reader: MetricReader, now: Seconds) -> None:
        """Add the values of the snapshot to the means of the metrics that are compared with past weeks."""
        metrics = {state.rule.watched for state in self._rules.values() if state.rule.watched.is_anomaly}
        self._means.keep(metrics)
        for metric in metrics:
            if self._means.is_due(metric, now):
                self._means.add(metric, reader.rows(metric.scope).names, reader.known_values(metric), now)

    def _unsettled(self, snapshot: Snapshot, now: Seconds) -> set[str]:
        """The nodes that started or were discovered less than ``settling_s`` ago."""
        lives: dict[str, tuple[int, float]] = {}
        for key, row in snapshot.nodes.items():
            known = self._lives.get(key)
            lives[key] = known if known and known[0] == row["start_time"] else (row["start_time"], now)
        self._lives = lives
        return {key for key, (_, since) in lives.items() if now - since < self._settling_s}

    def _evaluate(
        self, rule_state: RuleState, reader: MetricReader, columns: dict[Metric, np.ndarray], now: Seconds
    ) -> Iterator[Fired | Resolved]:
        rule, metric = rule_state.rule, rule_state.rule.watched
        rows = reader.rows(metric.scope)
        if rule_state.generation != self._generations[metric.scope]:
            self._match(rule_state, rows)
            yield from self._drop_others(rule_state, rows, now)
        column = columns.get(metric)
        if column is None:
            column = columns[metric] = reader.column(metric)
        for key in dict.fromkeys([*self._candidates(rule_state, column), *rule_state.subjects]):
            row = rows.get(key)
            if row is None:
                yield from self._absent(rule_state, key, reader, now)
                continue
            reading = reader.read(metric, row)
            event = self._step(rule_state, key, is_beyond(rule, reading), now)
            if key in rule_state.firing:
                rule_state.firing[key].row = row
            if event is Event.FIRED:
                subject, value = subject_of(metric.scope, row), reader.value(metric, row, reading)
                detail = reader.detail(metric, row, rule.threshold)
                yield self._fired(rule_state, key, subject, holders_of(row), value, detail, now)
            elif event is Event.RESOLVED:
                yield self._resolved(rule_state, key, Alert.Resolution.CLEARED, now)

    def _match(self, rule_state: RuleState, rows: Table) -> None:
        rule_state.keys = [*rule_state.matching.subjects(rows)]
        wanted, places = set(rule_state.keys), enumerate(rows)
        rule_state.places = np.array([place for place, key in places if key in wanted], dtype=np.intp)
        rule_state.generation = self._generations[rule_state.rule.watched.scope]

    @staticmethod
    def _candidates(rule_state: RuleState, column: np.ndarray) -> list[str]:
        """The keys that may be beyond the threshold. This is a fast filter, which misses none: a snapshot's sum is
        never less than the sum of the shares of the nodes that answer."""
        values, rule = column[rule_state.places], rule_state.rule
        if rule.watched.is_anomaly:
            beyond = are_unusual(rule.comparison, values, rule.threshold)
        else:
            beyond = values > rule.threshold if rule.comparison == Rule.Comparison.ABOVE else values < rule.threshold
        return [rule_state.keys[place] for place in np.nonzero(beyond)[0].tolist()]

    def _step(self, rule_state: RuleState, key: str, beyond: bool | None, now: Seconds) -> Event | None:
        rule = rule_state.rule
        self._warn_if_full(rule_state)
        state, event = step(
            rule_state.subjects.get(key),
            beyond,
            now=now,
            hold_s=rule.hold_s,
            resolve_after_s=rule.resolve_after_s,
            may_fire=not rule_state.is_full,
        )
        if state is not None:
            rule_state.subjects[key] = state
        else:
            rule_state.subjects.pop(key, None)
        return event

    def _warn_if_full(self, rule_state: RuleState) -> None:
        is_full = len(rule_state.firing) >= self._max_firing
        if is_full and not rule_state.is_full:
            logger.warning(
                "limit of firing alerts reached; further subjects of the rule stay pending",
                extra={"rule": rule_state.rule.name, "limit": self._max_firing},
            )
        rule_state.is_full = is_full

    def _absent(
        self, rule_state: RuleState, key: str, reader: MetricReader, now: Seconds
    ) -> Iterator[Fired | Resolved]:
        """Handle a subject that does not exist now: it was removed, or all of its nodes are down."""
        state = rule_state.subjects[key]
        if rule_state.rule.metric == "down":
            # Registries remove a node that is down; the node is still missing.
            if self._step(rule_state, key, True, now) is Event.FIRED:
                yield self._fired(rule_state, key, Subject("", "", key), (), None, "", now)
            return
        if not state.firing:
            rule_state.drop(key)
            return
        nodes, holders = reader.snapshot.nodes, rule_state.firing[key].holders
        is_gone = bool(holders) and all(node in nodes and node not in reader.silent for node in holders)
        if rule_state.rule.scope == "objective":
            is_gone = reader.knows_objectives
        is_over = self._step(rule_state, key, False if is_gone else None, now) is Event.RESOLVED
        if is_over or now - state.known > FORGOTTEN_S:
            yield self._resolved(rule_state, key, Alert.Resolution.GONE, now)

    def _drop_others(self, rule_state: RuleState, rows: Table, now: Seconds) -> Iterator[Resolved]:
        """Resolve alerts of existing subjects that the rule's patterns no longer match."""
        matching = set(rule_state.keys)
        for key in [key for key in rule_state.subjects if key in rows and key not in matching]:
            if key in rule_state.firing:
                yield self._resolved(rule_state, key, Alert.Resolution.RULE, now)
            rule_state.drop(key)

    @staticmethod
    def _fired(
        rule_state: RuleState,
        key: str,
        subject: Subject,
        holders: Sequence[str],
        value: float | None,
        detail: str,
        now: Seconds,
    ) -> Fired:
        rule_state.firing[key] = FiringAlert(subject, holders, now)
        return Fired(rule_state.rule, subject, value, detail, holders, rule_state.subjects[key].began, now)

    @staticmethod
    def _resolved(rule_state: RuleState, key: str, resolution: str, now: Seconds) -> Resolved:
        subject = rule_state.firing[key].subject
        rule_state.drop(key)
        return Resolved(rule_state.rule.pk, subject, resolution, now)
