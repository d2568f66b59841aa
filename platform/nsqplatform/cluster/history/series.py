"""Reads one series over any period: from the files, and for the last hour from the ring in Redis."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.files import DamagedFile, HistoryFile, series_of
from nsqplatform.cluster.history.grains import DAY_S, HOURS, MINUTES, TEN_SECONDS, Grain, Values, coarsened
from nsqplatform.cluster.history.rollup import HistoryFolder
from nsqwire.units import WholeSeconds

logger = logging.getLogger(__name__)

STEPS_S = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400)
"""The steps that are chosen unless one is requested."""


def step_for(span_s: int, points: int) -> int:
    """The shortest of STEPS_S in which ``span_s`` has at most ``points`` points."""
    return next((step for step in STEPS_S if span_s <= step * points), STEPS_S[-1])


def known_part(columns: Sequence[Values]) -> tuple[int, int]:
    """The range of places with a value known in any column, half-open; (0, 0) if there is none."""
    known = np.flatnonzero((~np.isnan(np.vstack(columns))).any(axis=0))
    return (int(known[0]), int(known[-1]) + 1) if len(known) else (0, 0)


@dataclass
class Series:
    """One series. ``ring``: its last hour as in Redis; empty without one."""

    folder: HistoryFolder
    scope: str
    name: str
    ring: bytes
    now: WholeSeconds
    metrics: Sequence[str]

    def step_kept(self, since: WholeSeconds, step_s: int) -> int:
        """The shortest step, ``step_s`` or longer, in which values of that time are kept.

        It is a multiple of the grain from which it is made.
        """
        if since < self.folder.since(MINUTES, self.now):
            least = HOURS.step_s
        elif since < self.folder.since(TEN_SECONDS, self.now):
            least = MINUTES.step_s
        else:
            least = TEN_SECONDS.step_s
        grain = _grain_of(max(step_s, least)).step_s
        return -(-max(step_s, least) // grain) * grain

    def read(self, since: WholeSeconds, until: WholeSeconds, step_s: int) -> tuple[int, dict[str, Values]]:
        """The start of the first step, and for each metric a value for each step until ``until``. NaN: unknown.

        Steps begin at multiples of ``step_s``. ``step_s`` is a result of ``step_kept``.
        """
        grain = _grain_of(step_s)
        start, end = since // step_s * step_s, -(-until // step_s) * step_s
        values = self._values(grain, start, end)
        return start, {metric: coarsened(values[metric], metric, step_s // grain.step_s) for metric in self.metrics}

    def _values(self, grain: Grain, start: int, end: int) -> dict[str, Values]:
        into = {metric: np.full((end - start) // grain.step_s, np.nan, np.float32) for metric in self.metrics}
        for file_start in grain.files(start, min(end, self.now + 1)):
            self._put_file(into, grain, start, file_start)
        if grain is TEN_SECONDS:
            self._put_ring(into, start)
            return into
        # Days that are not rolled up yet are made from their hours.
        for day in MINUTES.files(max(start, self.folder.since(TEN_SECONDS, self.now)), min(end, self.now + 1)):
            if not self.folder.path(MINUTES, day).exists():
                begin, stop = max(day, start), min(day + DAY_S, end)
                fine = self._values(TEN_SECONDS, begin, stop)
                for metric, column in into.items():
                    made = coarsened(fine[metric], metric, grain.step_s // TEN_SECONDS.step_s)
                    _overlay(column, (begin - start) // grain.step_s, made)
        return into

    def _put_file(self, into: dict[str, Values], grain: Grain, start: int, file_start: int) -> None:
        path = self.folder.path(grain, file_start)
        steps = (grain.file_end(file_start) - file_start) // grain.step_s
        try:
            with HistoryFile(path, steps) as file:
                found = file.read(series_of(self.scope, self.name), self.metrics)
        except FileNotFoundError:
            return
        except DamagedFile as damage:
            logger.error("a history file is damaged", extra={"file": str(path), "error": str(damage)})
            return
        for metric, values in found.items():
            _overlay(into[metric], (file_start - start) // grain.step_s, values)

    def _put_ring(self, into: dict[str, Values], start: int) -> None:
        at, values = records.fresh(self.scope, self.ring, self.now)
        slots = at // TEN_SECONDS.step_s - start // TEN_SECONDS.step_s
        for number, metric in enumerate(records.METRICS[self.scope]):
            if metric in into:
                within = (slots >= 0) & (slots < len(into[metric]))
                into[metric][slots[within]] = values[within, number]


def _grain_of(step_s: int) -> Grain:
    """The coarsest grain that is not longer than a step."""
    return next(grain for grain in (HOURS, MINUTES, TEN_SECONDS) if grain.step_s <= step_s)


def _overlay(into: Values, offset: int, values: Values) -> None:
    """Copy the known values to the place from ``offset`` on, which may begin before ``into`` or end after it."""
    begin, end = max(offset, 0), min(offset + len(values), len(into))
    if begin < end:
        part = values[begin - offset : end - offset]
        known = ~np.isnan(part)
        into[begin:end][known] = part[known]
