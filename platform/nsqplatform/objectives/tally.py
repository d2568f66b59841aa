"""Counts good and bad messages of objectives from the readings of nodes. No clock and no I/O.

The counters of a node only grow, so the messages between two readings are their difference, exactly. They belong to the
minute of the later reading, as in reports. If the readings are more than GAP_S apart, because the node or the collector
was away, it is unknown when the messages were finished: they are spread evenly over the time between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.matrix import Ints
from nsqplatform.objectives.burn import DAY_S, HOUR_S, MINUTE_S, Counted
from nsqplatform.objectives.counters import Counters, Key
from nsqplatform.objectives.models import Objective
from nsqplatform.patterns import matcher
from nsqwire.units import Seconds

GAP_S = 60.0
START_GRACE_S = 60.0
"""The messages of a node that was not known before are counted if its process started at most this long ago."""


class Step(NamedTuple):
    """An objective's step: its id, the start in Unix seconds, and the length."""

    objective: int
    at: int
    step_s: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """What a node had counted of an objective's channels at one time. ``numbers`` has a row for each of ``keys``: its
    good and bad messages, all finished ones, and failures."""

    boot: str
    taken_at: Seconds
    """Unix seconds."""
    keys: Sequence[Key]
    numbers: Ints


@dataclass
class Watched:
    """An objective that is being counted, from ``since`` on (Unix seconds)."""

    objective: Objective
    since: Seconds
    uncounted: dict[str, Seconds] = field(default_factory=dict)
    """The nodes with matching channels that cannot be counted, and when they were last read (Unix seconds)."""

    def __post_init__(self) -> None:
        self._topic = matcher(self.objective.topic_pattern)
        self._channel = matcher(self.objective.channel_pattern)
        self._known: dict[Key, bool] = {}

    def matches(self, key: Key) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) > 100_000:
                self._known.clear()  # drops removed names
            known = self._known[key] = bool(self._topic(key[0]) and self._channel(key[1]))
        return known

    def chosen(self, keys: Sequence[Key]) -> NDArray[np.bool_]:
        return np.fromiter(map(self.matches, keys), bool, len(keys))


class Tally:
    """The last reading of each node, and the counts that are not stored yet.

    A minute is closed when a reading of a later one has been added. Counts of a closed minute are stored with all
    that its readings counted, and with the last of these readings (``lasts``), so that the readings since then can be
    added again after a crash, and the first of them is compared with the right one.
    """

    def __init__(self) -> None:
        self.watched: dict[int, Watched] = {}
        self._last: dict[str, Counters] = {}
        self._closing: dict[str, Counters] = {}
        """The last reading of each node that is older than the minute of its newest one."""
        self._stored: dict[tuple[int, str], Totals] = {}
        """By objective and node, the totals that an earlier collector has stored."""
        self._latest: Seconds | None = None
        self._open: defaultdict[int, defaultdict[Step, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        """By the minute of the reading, the good and bad messages of each step."""

    @property
    def latest(self) -> Seconds | None:
        """The time of the newest reading, in Unix seconds; None if there is none."""
        return self._latest

    def set_objectives(self, objectives: Iterable[Objective], *, now: Seconds) -> None:
        """Set what is counted. An objective without counts is counted from the newest reading on; ``now`` is the time
        of the next one."""
        watched: dict[int, Watched] = {}
        for each in objectives:
            known = self.watched.get(each.pk)
            if known is not None and known.objective.revision == each.revision:
                known.objective = each
                watched[each.pk] = known
                continue
            since = each.counted_until
            if since is None:
                since = now if self._latest is None else self._latest
            watched[each.pk] = Watched(each, since)
            self._forget(each.pk)
        for gone in self.watched.keys() - watched.keys():
            self._forget(gone)
        self.watched = watched

    def _forget(self, objective: int) -> None:
        for steps in self._open.values():
            for step in [step for step in steps if step.objective == objective]:
                del steps[step]
        self._stored = {key: totals for key, totals in self._stored.items() if key[0] != objective}

    def continue_from(self, stored: Mapping[tuple[int, str], Totals]) -> None:
        """Compare the first reading of each node with these totals, by objective and node."""
        self._stored = dict(stored)

    def has_stored(self, node: str) -> bool:
        """Whether the first reading of the node is compared with stored totals."""
        return any(each == node for _, each in self._stored)

    def lasts(self, until: Seconds) -> dict[tuple[int, str], Totals]:
        """The totals of each objective and node in the last reading before this time, without those that have none."""
        found = {}
        for node, newest in self._last.items():
            last = newest if newest.taken_at < until else self._closing.get(node)
            if last is not None:
                for number, watched in self.watched.items():
                    totals = totals_of(watched.objective.limit_ns, last, watched.chosen(last.keys))
                    if totals.keys:
                        found[number, node] = totals
        return found

    def add(self, counters: Counters) -> None:
        """Add a node's reading. Readings of a node are added in the order in which they were taken."""
        before = self._last.get(counters.node)
        self._last[counters.node] = counters
        if before is not None and minute_of(before.taken_at) < minute_of(counters.taken_at):
            self._closing[counters.node] = before
        if self._latest is None or counters.taken_at > self._latest:
            self._latest = counters.taken_at
        for each in self.watched.values():
            if any(map(each.matches, counters.uncounted)):
                each.uncounted[counters.node] = counters.taken_at
        for each in self.watched.values():
            if counters.taken_at >= each.since:
                self._count(each, before, counters)

    def _count(self, watched: Watched, last: Counters | None, after: Counters) -> None:
        objective, chosen = watched.objective, watched.chosen(after.keys)
        before = self._stored.pop((objective.pk, after.node), None)
        if last is not None:
            before = totals_of(objective.limit_ns, last, watched.chosen(last.keys))
        elif before is None and after.started_at < after.taken_at - START_GRACE_S:
            return  # its messages may be old
        if not chosen.any():
            return
        counted = finished_since(before, totals_of(objective.limit_ns, after, chosen))
        if not counted.total:
            return
        since = after.started_at if before is None else before.taken_at
        if before is not None and before.boot != after.boot:
            since = max(since, after.started_at)
        steps = self._open[minute_of(after.taken_at)]
        for at, step_s, part in spread(counted, since, after.taken_at):
            if at + step_s > watched.since or at == minute_of(after.taken_at):
                sums = steps[Step(objective.pk, at, step_s)]
                sums[0] += part.good
                sums[1] += part.bad

    def closed(self) -> tuple[int, dict[Step, Counted]]:
        """The start of the current minute in Unix seconds, and the counts of all readings before it."""
        until = minute_of(self._latest or 0.0)
        return until, self._sum(minute for minute in self._open if minute < until)

    def everything(self) -> dict[Step, Counted]:
        """The counts of all readings that are not stored yet."""
        return self._sum(self._open)

    def drop(self, until: Seconds) -> None:
        """Drop the counts of readings before this time: they are stored."""
        for minute in [minute for minute in self._open if minute < until]:
            del self._open[minute]

    def _sum(self, minutes: Iterable[int]) -> dict[Step, Counted]:
        found: defaultdict[Step, list[int]] = defaultdict(lambda: [0, 0])
        for minute in minutes:
            for step, (good, bad) in self._open[minute].items():
                found[step][0] += good
                found[step][1] += bad
        return {step: Counted(good, bad) for step, (good, bad) in found.items()}

    def uncounted_nodes(self, objective: int) -> list[str]:
        """The nodes of the last minute with matching channels that cannot be counted."""
        recent = (self._latest or 0.0) - GAP_S
        return sorted(node for node, at in self.watched[objective].uncounted.items() if at >= recent)


def totals_of(limit_ns: int | None, counters: Counters, chosen: NDArray[np.bool_]) -> Totals:
    """The totals of the chosen channels.

    With a limit, good and bad messages are those finished within it, and later; without one, deliveries that finished,
    and that failed.
    """
    good, bad = counters.finished, counters.failures
    if limit_ns is not None:
        good = counters.finished_within(limit_ns)
        bad = counters.finished - good
    numbers = np.column_stack([good, bad, counters.finished, counters.failures])[chosen]
    keys = [key for key, is_chosen in zip(counters.keys, chosen.tolist(), strict=True) if is_chosen]
    return Totals(boot=counters.boot, taken_at=counters.taken_at, keys=keys, numbers=numbers)


def finished_since(before: Totals | None, after: Totals) -> Counted:
    """The good and bad messages since ``before``; all of them if the node was not known.

    A new process counts from zero, and so does a channel that is new or was created again, whose counters fell.
    """
    change = after.numbers
    if before is not None and before.boot == after.boot:
        bases = before.numbers
        if list(before.keys) != list(after.keys):
            known = {key: place for place, key in enumerate(before.keys)}
            places = np.array([known.get(key, len(known)) for key in after.keys], np.int64)
            bases = np.vstack([bases, np.zeros((1, 4), np.int64)])[places]
        is_again = np.any(after.numbers < bases, axis=1, keepdims=True)
        change = np.where(is_again, after.numbers, after.numbers - bases)
    good, bad = change[:, :2].sum(axis=0).tolist()
    return Counted(good, bad)


def minute_of(at: Seconds) -> int:
    """The start of the minute of a time; both in Unix seconds."""
    return int(at // MINUTE_S) * MINUTE_S


def spread(counted: Counted, since: Seconds, until: Seconds) -> Iterator[tuple[int, int, Counted]]:
    """Divide messages that finished in (since, until] among steps: start and length in seconds, and messages.

    All are in the minute of ``until`` if that is at most GAP_S after ``since``. Otherwise each step has its share by
    time, in whole messages whose sum is exact; the steps are hours if the gap is longer than a day.
    """
    if until - since <= GAP_S:
        yield minute_of(until), MINUTE_S, counted
        return
    step_s = MINUTE_S if until - since <= DAY_S else HOUR_S
    first = int(since // step_s) * step_s
    before = Counted()
    for at in range(first, int(until // step_s) * step_s + step_s, step_s):
        share = min(1.0, (at + step_s - since) / (until - since))
        upto = counted if at + step_s >= until else Counted(int(counted.good * share), int(counted.bad * share))
        part = Counted(upto.good - before.good, upto.bad - before.bad)
        before = upto
        if part.total:
            yield at, step_s, part
