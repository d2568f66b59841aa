"""The values of a rule's metric in a snapshot, and whether they are beyond the threshold.

A snapshot's sums contain the last counts of nodes that do not answer; its rates do not. The current counts of such a
node are unknown, so a sum is taken without it. That sum is a lower bound: it can show that the value is above a
threshold, never that it is below one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from nsqplatform.alerts.catalogue import ARCHIVE, SPANS, Kind, Metric
from nsqplatform.alerts.unusual import Unusual, are_unusual
from nsqplatform.cluster.snapshots.rows import Columns
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Row, Table
from nsqplatform.cluster.store import DamagedFiles
from nsqplatform.number_format import number
from nsqplatform.objectives.burn import PAIRS
from nsqplatform.objectives.burns import Burns, columns_of
from nsqplatform.patterns import matcher
from nsqwire.units import Seconds


class Watch(Protocol):
    """A metric, a threshold and the subjects they apply to; :class:`alerts.models.Rule` is one."""

    topic_pattern: str
    channel_pattern: str
    node_pattern: str
    objective_pattern: str
    comparison: str
    threshold: float

    @property
    def watched(self) -> Metric: ...


class Reading(NamedTuple):
    """``value`` None: unknown. ``at_least``: the true value may be larger. ``is_score``: it is that of an anomaly."""

    value: float | None
    at_least: bool = False
    is_score: bool = False


UNKNOWN = Reading(None)


class MetricReader:
    """A snapshot, and its silent nodes: those that are down, and those in ``unsettled``.

    ``damaged_files``: those of the archive; None if their number is not known. ``objectives``: from objective_table;
    None if they are not known. ``unusual``: None if no bands are known.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        unsettled: Collection[str] = (),
        damaged_files: DamagedFiles | None = None,
        objectives: Table | None = None,
        unusual: Unusual | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.unusual = unusual
        self.archive = archive_table(damaged_files)
        self.knows_objectives = objectives is not None
        self.objectives = Table("nodes", {}, []) if objectives is None else objectives
        self.silent = {row["id"] for row in snapshot.nodes.rows if row["state"] == "down"} | set(unsettled)
        self.without_rates = self.silent | {row["id"] for row in snapshot.nodes.rows if row["publish_rate"] is None}

    def rows(self, scope: str) -> Table:
        return {
            "channel": self.snapshot.channels,
            "topic": self.snapshot.topics,
            "node": self.snapshot.nodes,
            "archive": self.archive,
            "objective": self.objectives,
        }[scope]

    @cached_property
    def backlogs(self) -> dict[str, int]:
        """The backlog of each topic in its channels."""
        found: dict[str, int] = {}
        columns = self.snapshot.channels.columns
        for topic, depth in zip(columns.get("topic", ()), columns.get("depth", ()), strict=True):
            found[topic] = found.get(topic, 0) + depth
        return found

    @cached_property
    def answered_backlogs(self) -> dict[str, int]:
        """The backlog of each topic in its channels, without silent nodes."""
        found: dict[str, int] = {}
        for row in self.snapshot.channels.rows:
            depth = sum(share["depth"] for share in row["nodes"] if share["node"] not in self.silent)
            found[row["topic"]] = found.get(row["topic"], 0) + depth
        return found

    def column(self, metric: Metric) -> np.ndarray:
        """The metric's value in each row, in order, including the shares of silent nodes; NaN: no value."""
        rows = self.rows(metric.scope)
        values: Sequence[float | None]
        if metric.is_anomaly:
            return self._scores(metric, rows.names, rows.columns.get(metric.field, ()))
        if metric.scope == "node":
            values = [self.read(metric, row).value for row in rows.rows]
        elif not rows:
            values = []
        elif metric.kind is Kind.AGE:
            columns_of_age = (rows.columns[name] for name in ("oldest_age_ms", "depth", "in_flight_count"))
            values = [age_s(*figures) for figures in zip(*columns_of_age, strict=True)]
        elif metric.scope == "topic" and metric.name == "depth":
            columns = zip(rows.columns["name"], rows.columns["depth"], strict=True)
            values = [depth + self.backlogs.get(name, 0) for name, depth in columns]
        else:
            values = rows.columns[metric.field]
        return _array(values)

    def known_values(self, metric: Metric) -> np.ndarray:
        """The values of an anomaly's figure in each row; NaN where a node's share is unknown."""
        rows = self.rows(metric.scope)
        values = _array(rows.columns.get(metric.field, ()))
        if self.silent or self.without_rates:
            values[[self._has_unknown(metric, row) for row in rows.rows]] = np.nan
        return values

    def value(self, metric: Metric, row: Row, reading: Reading) -> float | None:
        """The value to show for a reading: None for a flag, and the figure's value for an anomaly."""
        if metric.is_anomaly and self.unusual is not None:
            value = float(self.unusual.values(metric, [key_of(metric.scope, row)], _array([row[metric.field]]))[0])
            return None if np.isnan(value) else value
        return None if metric.is_flag else reading.value

    def detail(self, metric: Metric, row: Row, threshold: float) -> str:
        """As detail_of; of an anomaly, what is usual."""
        if metric.is_anomaly:
            return "" if self.unusual is None else self.unusual.detail(metric, key_of(metric.scope, row), threshold)
        return detail_of(metric, row)

    def _scores(self, metric: Metric, keys: Sequence[str], latest: Sequence[float | None]) -> np.ndarray:
        if self.unusual is None:
            return np.full(len(keys), np.nan)
        return self.unusual.scores(metric, keys, _array(latest))

    def _has_unknown(self, metric: Metric, row: Row) -> bool:
        # Rates are unknown for a longer time than counts.
        unknown = self.without_rates if metric.field.endswith("_rate") else self.silent
        return any(share["node"] in unknown for share in row["nodes"])

    def read(self, metric: Metric, row: Row) -> Reading:
        """The reading of the metric in a row."""
        if metric.scope == "node":
            return self._of_node(metric, row)
        if metric.scope in ("archive", "objective"):
            return Reading(row[metric.field])
        shares = row["nodes"]
        if not shares:
            return UNKNOWN  # the registries list it, but no node has it
        if metric.is_anomaly:  # past weeks have all nodes
            if self._has_unknown(metric, row):
                return UNKNOWN
            score = float(self._scores(metric, [key_of(metric.scope, row)], [row[metric.field]])[0])
            return UNKNOWN if np.isnan(score) else Reading(score, is_score=True)
        unknown = self.without_rates if metric.kind is Kind.RATE else self.silent
        if unknown and any(share["node"] in unknown for share in shares):
            return self._without_silent(metric, row)
        if metric.kind is Kind.AGE:
            return Reading(age_s(row["oldest_age_ms"], row["depth"], row["in_flight_count"]))
        if metric.scope == "topic" and metric.name == "depth":
            return Reading(row["depth"] + self.backlogs.get(row["name"], 0))
        return Reading(row[metric.field])

    def _of_node(self, metric: Metric, row: Row) -> Reading:
        if metric.name == "down":
            return Reading(float(row["state"] == "down"))
        if row["id"] in (self.without_rates if metric.kind is Kind.RATE else self.silent):
            return UNKNOWN
        if metric.name == "unhealthy":
            return Reading(float(row["health"] != "OK"))
        if metric.name == "under_replicated":
            return Reading(float(row["mirror"] is not None and row["mirror"]["under_replicated"]))
        return Reading(row[metric.field])

    def _without_silent(self, metric: Metric, row: Row) -> Reading:
        """The reading of a topic or channel, without its silent nodes."""
        if metric.kind is Kind.RATE:
            return Reading(row[metric.field], at_least=True)
        answered = [share for share in row["nodes"] if share["node"] not in self.silent]
        if metric.scope == "channel" and metric.kind is Kind.COUNT:
            return Reading(sum(share[metric.field] for share in answered), at_least=True)
        if metric.name == "depth":
            depth = sum(share["depth"] for share in answered) + self.answered_backlogs.get(row["name"], 0)
            return Reading(depth, at_least=True)
        return UNKNOWN


def _array(values: Sequence[float | None]) -> np.ndarray:
    """The values, NaN for None."""
    return np.array(values, dtype=np.float64)


def archive_table(damaged_files: DamagedFiles | None) -> Table:
    """The archive as a table of one row, which always exists: if the number of files is unknown, it is None. Like a
    node's row, it has no shares."""
    count, first = damaged_files or (None, "")
    return Table("nodes", {"damaged_file_count": [count], "first_damaged_file": [first]}, [ARCHIVE])


def objective_table(burns: Burns | None, *, now: Seconds) -> Table | None:
    """The objectives with their burn rates, which are None if they are stale; None without ``burns``."""
    if burns is None:
        return None
    return Table("nodes", {name: [*values] for name, values in columns_of(burns, now).items()}, [*burns["rates"]])


def age_s(oldest_age_ms: float | None, depth: int, in_flight_count: int) -> float | None:
    """Age of the oldest unfinished message in seconds; 0 if no message waits, None if a node does not report it."""
    if oldest_age_ms is not None:
        return oldest_age_ms / 1000
    return 0.0 if depth == in_flight_count == 0 else None


def is_beyond(watch: Watch, reading: Reading) -> bool | None:
    """Whether the reading is beyond the threshold; None if that is unknown."""
    value, at_least, is_score = reading
    if value is None:
        return None
    if is_score:
        return bool(are_unusual(watch.comparison, np.array(value), watch.threshold))
    if watch.comparison == "above":
        return value > watch.threshold or (None if at_least else False)
    return False if value >= watch.threshold else (None if at_least else True)


class Subject(NamedTuple):
    """``topic``, ``channel``, ``node`` and ``objective``; empty if not part of the scope."""

    topic: str
    channel: str
    node: str
    objective: str = ""


class Matching:
    """The rows that a rule's patterns match. Results are cached, because names rarely change between snapshots."""

    def __init__(self, watch: Watch) -> None:
        self._scope = watch.watched.scope
        self._topic = matcher(watch.topic_pattern)
        self._channel = matcher(watch.channel_pattern)
        self._node = matcher(watch.node_pattern)
        self._objective = matcher(watch.objective_pattern)
        self._known: dict[str, bool] = {}

    def subjects(self, rows: Table) -> Iterator[str]:
        """Yield the keys of the matching rows."""
        known = self._known
        if len(known) > 2 * len(rows) + 1000:
            known.clear()  # drops removed names
        for place, key in enumerate(rows):
            matches = known.get(key)
            if matches is None:
                matches = known[key] = self._matches(rows.columns, place)
            if matches:
                yield key

    def _matches(self, columns: Columns, place: int) -> bool:
        if self._scope == "archive":
            return True
        if self._scope == "objective":
            return bool(self._objective(columns["name"][place]))
        if self._scope == "node":
            return bool(self._node(columns["id"][place]) or self._node(columns["hostname"][place]))
        if self._scope == "topic":
            return bool(self._topic(columns["name"][place]))
        return bool(self._topic(columns["topic"][place]) and self._channel(columns["name"][place]))


def subject_of(scope: str, row: Row) -> Subject:
    if scope == "archive":
        return Subject("", "", "")
    if scope == "objective":
        return Subject("", "", "", row["name"])
    if scope == "node":
        return Subject("", "", row["id"])
    return Subject(row["name"], "", "") if scope == "topic" else Subject(row["topic"], row["name"], "")


def key_of(scope: str, row: Row) -> str:
    """The key of a topic's or channel's row."""
    return str(row["name"]) if scope == "topic" else f"{row['topic']}/{row['name']}"


def holders_of(row: Row) -> list[str]:
    """The nodes of a topic or channel; empty for the row of a node, of an objective or of the archive."""
    return [share["node"] for share in row.get("nodes", ())]


def detail_of(metric: Metric, row: Mapping[str, Any]) -> str:
    """For a flag, the node's message, or the member that leads; for the archive, the first damaged file and the number
    of others; for an objective, its burn rates; otherwise empty."""
    if metric.scope == "objective":
        pair = next(each for each in PAIRS if each.metric == metric.name)
        return ", ".join(f"{number(row[span])} × over {SPANS[span]}" for span in (pair.long, pair.short))
    if metric.scope == "archive":
        first, others = row["first_damaged_file"], (row["damaged_file_count"] or 0) - 1
        return f"{first} and {others:,} more" if others > 0 else str(first)
    if not metric.is_flag:
        return ""
    if metric.name == "under_replicated":
        return f"member {row['mirror']['member']} leads alone" if row["mirror"] else ""
    return str((row["error"] or "") if metric.name == "down" else row["health"])
