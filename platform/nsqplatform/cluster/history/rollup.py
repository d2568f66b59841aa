"""Copies the contents of the rings in Redis to files before they are overwritten, and makes coarser files from these.

``keep`` runs every ten minutes (CELERY_BEAT_SCHEDULE). It adds the records of the last hour to the hours' files in
steps of 10 s; when a day is over, it makes the day's file by minute and adds the day to the month's file by hour; and
it removes old files. The rings hold an hour, so a run that is up to 50 minutes late loses nothing. Every step may be
repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from redis import Redis

from nsqplatform.cluster.history import files, records
from nsqplatform.cluster.history.files import METRICS, DamagedFile, HistoryFile, Rows, group_size, path_of, series_of
from nsqplatform.cluster.history.grains import DAY_S, GRAINS, HOURS, MINUTES, TEN_SECONDS, Grain, Values, coarsened
from nsqplatform.cluster.store import HISTORY
from nsqwire.units import WholeSeconds

logger = logging.getLogger(__name__)

COMPLETE_AFTER_S = 60
"""Time after the end of an hour, in seconds, until its last records are in the rings."""


@dataclass(frozen=True)
class HistoryFolder:
    """The location of the files, and for how many days those of each grain are kept."""

    root: Path
    days: Mapping[str, int]

    def path(self, grain: Grain, start: int) -> Path:
        return path_of(self.root, grain, start)

    def since(self, grain: Grain, now: WholeSeconds) -> WholeSeconds:
        """The earliest time for which values of a grain are kept."""
        return now - self.days[grain.name] * DAY_S


def keep(redis: Redis, folder: HistoryFolder, now: WholeSeconds) -> None:
    """Bring the files up to ``now``. Raises OSError if a file cannot be written, and RedisError.

    Of a damaged file, only the row groups that cannot be read are lost; the damage is logged once per file.
    """
    _drop_old(folder, now)  # first, because it may free the space that the rest needs
    for hour in TEN_SECONDS.files(now - 3600, now):
        _keep_hour(redis, folder, hour, now)
    for day in MINUTES.files(now - folder.days[TEN_SECONDS.name] * DAY_S, now - COMPLETE_AFTER_S - DAY_S + 1):
        if not folder.path(MINUTES, day).exists():
            _roll_up(folder, day, now)


# ---- an hour, from the rings


def _keep_hour(redis: Redis, folder: HistoryFolder, hour: int, now: WholeSeconds) -> None:
    path, steps = folder.path(TEN_SECONDS, hour), 3600 // TEN_SECONDS.step_s
    with ExitStack() as stack:
        before = _opened(stack, path, steps)
        if before is not None and before.written_at > hour + 3600 + COMPLETE_AFTER_S:
            return
        names = sorted({*_series_with_rings(redis), *(before.series if before else ())})
        if not names:
            return

        def groups() -> Iterator[Rows]:
            for batch in _batches(names):
                rows = Rows(batch, _unknown(len(batch), steps))
                if before is not None:
                    _put(rows, before.rows(batch[0], batch[-1]))
                _put_rings(rows, redis, hour, now)
                yield rows

        files.write(path, steps, groups(), at=now)


def _series_with_rings(redis: Redis) -> Iterator[str]:
    """The series that have a ring."""
    for key in redis.scan_iter(f"{HISTORY()}*", count=1000):
        if (found := records.scope_and_name(key.decode())) is not None:
            yield series_of(*found)


def _put_rings(rows: Rows, redis: Redis, hour: int, now: WholeSeconds) -> None:
    known = [
        (place, scope, name)
        for place, (scope, _, name) in enumerate(series.partition(":") for series in rows.series)
        if scope in records.METRICS
    ]
    rings = cast(list[bytes | None], redis.mget([records.key_of(scope, name) for _, scope, name in known]))
    for (place, scope, _), ring in zip(known, rings, strict=True):
        if ring is None:
            continue
        at, values = records.fresh(scope, ring, now)
        slots = (at - hour) // TEN_SECONDS.step_s
        within = (slots >= 0) & (slots < 3600 // TEN_SECONDS.step_s)
        for number, metric in enumerate(records.METRICS[scope]):
            rows.values[metric][place, slots[within]] = values[within, number]


# ---- a day, from its hours


def _roll_up(folder: HistoryFolder, day: int, now: WholeSeconds) -> None:
    """Make the day's file by minute. The month's file comes first: without the day's file, both are made again."""
    with ExitStack() as stack:
        hours = {}
        for hour in TEN_SECONDS.files(day, day + DAY_S):
            if (file := _opened(stack, folder.path(TEN_SECONDS, hour), 3600 // TEN_SECONDS.step_s)) is not None:
                hours[(hour - day) // TEN_SECONDS.step_s] = file
        names = sorted({series for file in hours.values() for series in file.series})
        if not names:
            return
        _add_to_month(folder, day, names, hours, now)
        minutes = (
            Rows(rows.series, {metric: coarsened(values, metric, 6) for metric, values in rows.values.items()})
            for rows in _days(names, hours)
        )
        files.write(folder.path(MINUTES, day), DAY_S // MINUTES.step_s, minutes, at=now)


def _days(names: Sequence[str], hours: Mapping[int, _Before]) -> Iterator[Rows]:
    """The day's values in steps of 10 s, a row group at a time. ``hours``: by the place of their first step."""
    for batch in _batches(names):
        rows = Rows(batch, _unknown(len(batch), DAY_S // TEN_SECONDS.step_s))
        for offset, file in hours.items():
            _put(rows, file.rows(batch[0], batch[-1]), offset)
        yield rows


def _add_to_month(
    folder: HistoryFolder, day: int, names: Sequence[str], hours: Mapping[int, _Before], now: WholeSeconds
) -> None:
    start = HOURS.file_start(day)
    path, steps = folder.path(HOURS, start), (HOURS.file_end(start) - start) // HOURS.step_s
    added: dict[str, tuple[dict[str, Values], int]] = {}
    for rows in _days(names, hours):
        hourly = {metric: coarsened(coarsened(values, metric, 6), metric, 60) for metric, values in rows.values.items()}
        added |= {series: (hourly, place) for place, series in enumerate(rows.series)}
    with ExitStack() as stack:
        before = _opened(stack, path, steps)
        everything = sorted({*names, *(before.series if before else ())})

        def groups() -> Iterator[Rows]:
            for batch in _batches(everything):
                rows = Rows(batch, _unknown(len(batch), steps))
                if before is not None:
                    _put(rows, before.rows(batch[0], batch[-1]))
                for place, series in enumerate(batch):
                    if series in added:
                        hourly, row = added[series]
                        for metric, values in hourly.items():
                            offset = (day - start) // HOURS.step_s
                            rows.values[metric][place, offset : offset + 24] = values[row]
                yield rows

        files.write(path, steps, groups(), at=now)


# ---- common parts


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The names of each row group of a file."""
    size = group_size(len(names))
    return (names[begin : begin + size] for begin in range(0, len(names), size))


def _unknown(rows: int, steps: int) -> dict[str, Values]:
    return {metric: np.full((rows, steps), np.nan, np.float32) for metric in METRICS}


def _put(rows: Rows, known: Rows, offset: int = 0) -> None:
    """Copy the values of the series that both have, to the steps from ``offset``."""
    places = {series: place for place, series in enumerate(rows.series)}
    taken = [(row, places[series]) for row, series in enumerate(known.series) if series in places]
    if not taken:
        return
    source, target = np.array(taken).T
    for metric, values in known.values.items():
        rows.values[metric][target, offset : offset + values.shape[1]] = values[source]


class _Before:
    """An existing file. Its damaged parts have no rows."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self.series, self.written_at = file.series, file.written_at
        self._is_logged = False

    def rows(self, first: str, last: str) -> Rows:
        try:
            return self._file.rows(first, last)
        except DamagedFile as damage:
            if not self._is_logged:
                _log(damage, self._file.path)
            self._is_logged = True
            return Rows([], {})


def _opened(stack: ExitStack, path: Path, steps: int) -> _Before | None:
    """The file, or None if there is none or its names cannot be read."""
    try:
        return _Before(stack.enter_context(HistoryFile(path, steps)))
    except FileNotFoundError:
        return None
    except DamagedFile as damage:
        _log(damage, path)
        return None


def _log(damage: DamagedFile, path: Path) -> None:
    logger.error("a history file is damaged", extra={"file": str(path), "error": str(damage)})


def _drop_old(folder: HistoryFolder, now: WholeSeconds) -> None:
    for grain in GRAINS:
        for path in (folder.root / grain.name).glob("*.parquet"):
            start = grain.start_of(path.name)
            with suppress(FileNotFoundError):
                is_left_over = start is None and path.name.startswith("_") and path.stat().st_mtime < now - DAY_S
                if is_left_over or (start is not None and grain.file_end(start) <= folder.since(grain, now)):
                    path.unlink()
