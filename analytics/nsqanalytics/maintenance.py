"""The jobs that maintain the archive: rolling up, compaction and retention."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nsqanalytics import compaction, damage, tables
from nsqanalytics.iceberg.catalog import CATALOG_VARIABLE
from nsqanalytics.job_parameters import CompactParameters, RetainParameters, RollupParameters
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import replace_table
from nsqanalytics.rollups import Rollups, stale_days, stale_hours
from nsqanalytics.session import is_on_this_machine
from nsqanalytics.span import DAY
from nsqwire.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LATE = timedelta(minutes=1)
"""How long after the end of an hour a rollup waits for its last files."""

ROLLED_AT_ONCE = 48
"""Number of hours in one Spark job. It bounds the memory and disk space for sorting."""


def run_rollup(spark: SparkSession, place: Locations, args: RollupParameters, now: datetime, progress: Progress) -> int:
    """Roll up the hours that have ended and have no valid rollup, then the days whose hours are all rolled up.

    Files that arrive during this run are left to the next one.
    """
    since, until = _rolled_up_period(args, now)
    done: list[compaction.Done] = []
    damaged: list[damage.Damaged] = []

    def roll_up_hours() -> None:
        progress.at(0.1, "listing the archive")
        rollups = Rollups(place.archive)
        hours = stale_hours(rollups, since, until)
        if unreadable := damage.set_aside(rollups.folder, rollups.files_of(hours), thorough=False):
            damaged.extend(unreadable)
            rollups = Rollups(place.archive)
            hours = stale_hours(rollups, since, until)
        for at in range(0, len(hours), ROLLED_AT_ONCE):
            some = hours[at : at + ROLLED_AT_ONCE]
            start, end = (0.15 + 0.65 * share / len(hours) for share in (at, at + len(some)))
            stages = 4 if is_on_this_machine(spark) else 12
            with progress.following(
                spark, f"rolling up {counted(len(some), 'hour')}", expected_stages=stages, start=start, end=end
            ):
                rollups.make_hours(spark, some)
            done.extend((hour.start, "rolled up", len(rollups.samples[hour.start]), 1, 0, 0) for hour in some)
            spark.catalog.clearCache()

    def add_up_days() -> None:
        rollups = Rollups(place.archive)
        if days := stale_days(rollups, since, until):
            with progress.following(
                spark, f"adding up {counted(len(days), 'day')}", expected_stages=4, start=0.8, end=0.95
            ):
                rollups.make_days(spark, days)
            done.extend((day, "day added up", len(rollups.between(day, day + DAY)), 1, 0, 0) for day in days)

    damage.without_damaged_files(roll_up_hours, place.archive, damaged)
    Rollups(place.archive).sweep_unfinished(now)
    damage.without_damaged_files(add_up_days, place.archive, damaged)
    registered = _registered(place, now, progress)
    return replace_table(
        [*map(compaction.set_aside_row, damaged), *done, *registered], tables.MAINTENANCE, place.output
    )


def roll_up_nothing(place: Locations, args: RollupParameters, now: datetime, progress: Progress) -> int | None:
    """If no hour or day needs a rollup, register the archive's files and return the number of rows; otherwise return
    None."""
    since, until = _rolled_up_period(args, now)
    progress.at(0.1, "listing the archive")
    rollups = Rollups(place.archive)
    if stale_hours(rollups, since, until) or stale_days(rollups, since, until):
        return None
    return replace_table([*_registered(place, now, progress)], tables.MAINTENANCE, place.output)


def bytes_to_roll_up(place: Locations, args: RollupParameters, now: datetime) -> int:
    """Return the approximate number of bytes of samples that are to be rolled up."""
    rollups = Rollups(place.archive)
    return rollups.size_of(stale_hours(rollups, *_rolled_up_period(args, now)))


def _rolled_up_period(args: RollupParameters, now: datetime) -> tuple[datetime, datetime]:
    """Return the start, which is that of a UTC day, and the end: ``until``, by default LATE before now."""
    until = args.until or now - LATE
    return (until - args.period).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0), until


def run_compact(_: None, place: Locations, args: CompactParameters, now: datetime, progress: Progress) -> int:
    """Merge the files of each hour, without Spark. Returns the number of rows."""
    until = args.until or now
    done = compaction.compact(place.archive, args.older_than, until)
    return _maintained(itertools.chain(done, _registered(place, now, progress)), place, progress)


def run_retain(_: None, place: Locations, args: RetainParameters, now: datetime, progress: Progress) -> int:
    """Remove samples, events and rollups beyond their retention, without Spark. Returns the number of rows."""
    until = args.until or now
    leaving = (
        file.path
        for each in compaction.expired(place.archive, args.samples, args.rollups, until)
        for file in each.files
    )
    # The tables lose the files first: a query then plans none that is about to be removed.
    registered = _registered(place, now, progress, leaving)
    done = compaction.retain(place.archive, args.samples, args.rollups, until)
    return _maintained(itertools.chain(registered, done), place, progress)


def _registered(
    place: Locations, now: datetime, progress: Progress, leaving: Iterable[str] = ()
) -> Iterator[compaction.Done]:
    """Register the archive's files in the Iceberg catalog, if one is given, and yield what was done.

    ``now`` is the current time, whatever the end of the job's period is: the tables lose the hours after it.
    Files that are not registered, and a catalog that cannot be used, are also lines of the log. They do not fail the
    run.
    """
    if not (catalog := os.environ.get(CATALOG_VARIABLE)):
        return
    from nsqanalytics.iceberg.registration import NOT_REGISTERED, register

    progress.at(0.9, "registering files in the Iceberg catalog")
    for row in register(place.archive, catalog, place.namespace, now, frozenset(leaving)):
        if row[1].startswith(NOT_REGISTERED):
            print(f"analytics: {row[1]}", file=sys.stderr)
        yield row


def _maintained(done: Iterable[compaction.Done], place: Locations, progress: Progress) -> int:
    rows = []
    for row in done:
        rows.append(row)
        progress.at(0.5, f"{row[1]} {row[0]:%Y-%m-%d %H:00}")
    return replace_table(rows, tables.MAINTENANCE, place.output)
