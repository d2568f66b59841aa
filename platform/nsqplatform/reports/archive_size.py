"""The size of the cluster's archive, and the size that is expected, for its page.

Listing a large archive takes a second, in a bucket longer, so a task does it (``reports.list_archive``). Its result is
kept in Redis. A request returns the kept one, and asks for a new one if that is older than FRESH_S.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from nsqanalytics.iceberg.state import State, read_state
from nsqanalytics.inventory import GROWING, SETTLED, Dataset, Inventory, inventory
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import is_local, local_path
from nsqanalytics.span import DAY
from nsqplatform.cluster import store
from nsqplatform.clusters import current
from nsqplatform.clusters.current import Key
from nsqplatform.reports.models import Report
from nsqplatform.reports.schemas import (
    ArchiveDatasetOut,
    ArchiveDayOut,
    ArchiveOut,
    ArchiveScheduleOut,
    IcebergOut,
    IcebergTableOut,
)
from nsqplatform.unix_time import unix_ms

FRESH_S = 60
LISTED = Key("archive_size")
LISTING = Key("archive_size:listing")
LISTING_EXPIRES_S = 900
"""After this time without an answer, a request for a listing counts as lost."""
KEPT_S = 7 * 86_400
SHOWN_DAYS = 14
_TITLES = {
    "samples": "Samples",
    "lives": "Lives of messages",
    "hourly": "Rollups by hour",
    "daily": "Rollups by day",
    "damaged": "Damaged files, set aside",
    "iceberg": "Metadata of Iceberg tables",
}


class Retention(NamedTuple):
    """How long each dataset is kept, and the schedule that says so; without one, nothing is removed."""

    schedule: Report | None
    kept: Mapping[str, timedelta | None]


def retention() -> Retention:
    """Return the retention of the enabled schedules. If there are several, the one that keeps samples shortest."""
    found = []
    for report in Report.objects.filter(job="retain", enabled=True):
        args = JOBS["retain"].checked(report.parameters)
        found.append((args.samples, args.rollups, report))
    if not found:
        return Retention(None, dict.fromkeys(GROWING))
    samples, rollups, report = min(found, key=lambda each: each[:2])
    return Retention(report, {"samples": samples, "lives": samples, "hourly": rollups, "daily": rollups})


def latest() -> tuple[ArchiveOut | None, bool]:
    """Return the last listing, if there is one, and whether a new one is to be requested now."""
    with store.connect() as redis:
        kept = redis.get(LISTED())
        found = None if kept is None else _parsed(kept)
        ttl = redis.ttl(LISTED()) if found is not None else 0
        is_fresh = found is not None and ttl > KEPT_S - FRESH_S
        wanted = not is_fresh and bool(redis.set(LISTING(), b"", nx=True, ex=LISTING_EXPIRES_S))
    return found, wanted


def _parsed(kept: bytes) -> ArchiveOut | None:
    try:
        return ArchiveOut.model_validate_json(kept)
    except ValidationError:  # another version of the platform has written it
        return None


def list_now() -> None:
    """List the archive and keep the result. If it cannot be listed, the reason is the result."""
    try:
        found = described(inventory(current.archive()), retention(), read_state(current.archive()), free_space())
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a file about the tables is damaged
        found = unlisted(str(error))
    with store.connect() as redis:
        redis.set(LISTED(), found.model_dump_json(), ex=KEPT_S)
        redis.delete(LISTING())


def unlisted(error: str = "") -> ArchiveOut:
    """Return the answer while there is no listing, or the reason why there is none."""
    return ArchiveOut(place=current.archive(), error=error, datasets=[], bytes=0, days=[])


def free_space() -> tuple[int, int] | None:
    """Return the free and the total bytes of the archive's disk; None for one that is not on this machine."""
    root = current.archive()
    if not is_local(root):
        return None
    usage = shutil.disk_usage(local_path(root))
    return usage.free, usage.total


def described(found: Inventory, kept: Retention, iceberg: State | None, disk: tuple[int, int] | None) -> ArchiveOut:
    """Return the answer for a listing."""
    later = {days: found.listed_at + days * DAY for days in (30, 90)}
    datasets = [_dataset(each, found.listed_at, kept.kept.get(each.name), later) for each in found.datasets]
    days: dict[datetime, int] = {}
    for each in found.datasets:
        for day, size in each.days.items():
            days[day] = days.get(day, 0) + size
    sizes = {at: _whole(found.size_at(later[at], kept.kept)) for at in later}
    growing = [each for each in datasets if each.grows and each.growth_bytes_per_day is not None]
    ends = [each.bytes_at_retention for each in growing]
    reached = [each.retention_reached_at for each in growing]
    constant = sum(each.bytes for each in datasets if each not in growing)
    full_at = None if disk is None else found.full_at(disk[0], kept.kept)
    return ArchiveOut(
        place=current.archive(),
        listed_at=unix_ms(found.listed_at),
        schedule=None if kept.schedule is None else ArchiveScheduleOut(id=kept.schedule.pk, name=kept.schedule.name),
        datasets=datasets,
        bytes=sum(each.bytes for each in datasets),
        growth_bytes_per_day=_sum([each.growth_bytes_per_day for each in growing]),
        bytes_in_30_days=sizes[30],
        bytes_in_90_days=sizes[90],
        bytes_at_retention=_sum([*ends, constant]) if growing else None,
        retention_reached_at=None if None in reached or not reached else max(at for at in reached if at is not None),
        days=[ArchiveDayOut(at=unix_ms(day), bytes=days[day]) for day in sorted(days)[-SHOWN_DAYS:]],
        free_bytes=None if disk is None else disk[0],
        disk_bytes=None if disk is None else disk[1],
        full_at=None if full_at is None else unix_ms(full_at),
        iceberg=None if iceberg is None else _iceberg(iceberg),
    )


def _dataset(of: Dataset, now: datetime, kept: timedelta | None, later: Mapping[int, datetime]) -> ArchiveDatasetOut:
    out = ArchiveDatasetOut(
        name=of.name,
        title=_TITLES[of.name],
        grows=of.name in GROWING,
        files=of.files,
        bytes=of.bytes,
        oldest=None if of.oldest is None else unix_ms(of.oldest),
        newest=None if of.newest is None else unix_ms(of.newest),
    )
    if not out.grows:
        return out
    out.kept_days = None if kept is None else kept / DAY
    if of.oldest is None:
        return out
    growth = of.growth(now)
    out.growth_days = len(of.counted_days(now))
    out.growth_bytes_per_day = _whole(growth)
    if growth is None:
        out.growth_known_at = unix_ms(of.oldest.replace(hour=0) + 2 * DAY + SETTLED)
    out.bytes_in_30_days, out.bytes_in_90_days = (_whole(of.size_at(at, now, kept)) for at in later.values())
    if kept is not None:
        out.retention_reached_at = unix_ms(of.oldest + kept)
        out.bytes_at_retention = None if growth is None else _whole(growth * (kept / DAY))
    return out


def _iceberg(state: State) -> IcebergOut:
    return IcebergOut(
        catalog=state.catalog,
        tried_at=unix_ms(state.tried_at),
        error=state.error,
        tables=[
            IcebergTableOut(
                name=table.name,
                files=table.files,
                rows=table.rows,
                changed_at=None if table.changed_at is None else unix_ms(table.changed_at),
            )
            for table in state.tables
        ],
    )


def _whole(size: float | None) -> int | None:
    return None if size is None else round(size)


def _sum(sizes: list[int | None]) -> int | None:
    """Return the sum, or None if a part is not known, or if there is none."""
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
