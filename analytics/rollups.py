"""Rollups: ACTIVITY by hour and by day, kept beside the samples, so that a report costs what is new.

``<root>/rollups/hourly/date=…/hour=…/<fingerprint>.parquet`` and ``…/daily/date=…/<fingerprint>.parquet``. An hour is a
function of its own samples, those of the last hour before it that has any, and those of the first after it (whether
counters began again shows in the next reading). Its fingerprint is that of these files' names and sizes, so a rollup
is valid exactly as long as nothing came late: a stale one is not read, and the next run replaces it. A day is made of
its hours.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from analytics.archive import samples_path
from analytics.files import HOUR, File, Folder, described, fingerprint
from analytics.schema import SCHEMA_VERSION, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROLLUP_VERSION = f"2.{SCHEMA_VERSION}"
DAY = timedelta(days=1)


def rollups_path(root: str, grain: str) -> str:
    return f"{root.rstrip('/')}/rollups/{grain}"


@dataclass(frozen=True)
class Hour:
    """An hour with samples, what it depends on, and the rollup that is valid for it, if there is one."""

    start: datetime
    before: datetime | None
    after: datetime | None
    mark: str
    rollup: File | None


class Rollups:
    """What an archive has, as it was listed at the start of a run."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.samples = Folder(samples_path(root)).partitions()
        self._hourly = Folder(rollups_path(root, "hourly"))
        self._daily = Folder(rollups_path(root, "daily"))
        self._days = self._daily.partitions()
        rolled = self._hourly.partitions()
        starts = list(self.samples)
        self.hours: dict[datetime, Hour] = {}
        for at, start in enumerate(starts):
            before = starts[at - 1] if at else None
            after = starts[at + 1] if at + 1 < len(starts) else None
            near = [described(self.samples[hour]) if hour else "" for hour in (before, start, after)]
            mark = fingerprint(ROLLUP_VERSION, start.isoformat(), str(before), *near)
            valid = next((file for file in rolled.get(start, []) if file.name == f"{mark}.parquet"), None)
            self.hours[start] = Hour(start, before, after, mark, valid)
        self._rolled = rolled

    def between(self, since: datetime, until: datetime) -> list[Hour]:
        starts = list(self.hours)
        return [self.hours[s] for s in starts[bisect_left(starts, since) : bisect_left(starts, until)]]

    def day(self, start: datetime) -> tuple[str, File | None]:
        """A day's mark, and its rollup if it is valid; the mark is empty if an hour of it is not rolled up."""
        hours = self.between(start, start + DAY)
        if not hours or any(hour.rollup is None for hour in hours):
            return "", None
        mark = fingerprint(ROLLUP_VERSION, *(hour.mark for hour in hours))
        return mark, next((file for file in self._days.get(start, []) if file.name == f"{mark}.parquet"), None)

    def read(self, spark: SparkSession, since: datetime, until: datetime, *, daily: bool = False) -> DataFrame:
        """ACTIVITY of whole hours in [since, until), as far as possible from rollups: days where ``daily``, hours, and
        samples for the rest. Every row's window is an hour or a day."""
        from pyspark.sql import DataFrame

        from analytics.transforms.activity import ACTIVITY

        files: list[str] = []
        rest: list[Hour] = []
        done: set[datetime] = set()
        for hour in self.between(since, until):
            start = hour.start.replace(hour=0)
            if start in done:
                continue
            if daily and start >= since and start + DAY <= until and (day := self.day(start)[1]) is not None:
                files.append(day.path)
                done.add(start)
            elif hour.rollup is not None:
                files.append(hour.rollup.path)
            else:
                rest.append(hour)
        parts = []
        if files:
            parts.append(spark.read.schema(ACTIVITY).parquet(*(self._uri(path) for path in files)))
        if rest:
            parts.append(self._made(spark, rest))
        return reduce(DataFrame.unionByName, parts) if parts else spark.createDataFrame([], ACTIVITY)

    def make_hours(self, spark: SparkSession, hours: list[Hour]) -> int:
        """Roll up the hours, replacing what was there for them; return how many rows."""
        from pyspark.sql import functions as F

        rows = self._made(spark, hours).withColumns({"date": F.to_date("window_start"), "hour": F.hour("window_start")})
        marks = {hour.start: hour.mark for hour in hours}
        made = self._put(rows.repartition("date", "hour"), ["date", "hour"], self._hourly, "hourly", marks)
        for hour in hours:
            self._hourly.delete(
                file for file in self._rolled.get(hour.start, []) if file.name != f"{hour.mark}.parquet"
            )
        return made

    def make_days(self, spark: SparkSession, days: dict[datetime, str]) -> int:
        """Add up the days from their hours, which are all rolled up; return how many rows."""
        from pyspark.sql import functions as F

        from analytics.transforms.activity import ACTIVITY, rolled_up

        paths = [h.rollup.path for day in days for h in self.between(day, day + DAY) if h.rollup is not None]
        hourly = spark.read.schema(ACTIVITY).parquet(*(self._uri(path) for path in paths))
        rows = rolled_up(hourly, DAY).withColumn("date", F.to_date("window_start"))
        made = self._put(rows.repartition("date"), ["date"], self._daily, "daily", days)
        for day, mark in days.items():
            self._daily.delete(file for file in self._days.get(day, []) if file.name != f"{mark}.parquet")
        return made

    def _made(self, spark: SparkSession, hours: list[Hour]) -> DataFrame:
        """ACTIVITY of these hours from the samples, each seen with its neighbours and nothing else."""
        from pyspark.sql import functions as F

        from analytics.transforms.activity import activity
        from analytics.transforms.readings import CONTEXT

        seen = [(near, hour.start) for hour in hours for near in (hour.before, hour.start, hour.after) if near]
        # Literals, because a frame made of Python's rows costs a process of Python's in Spark.
        pairs = [F.struct(F.lit(near).alias("hour"), F.lit(of).alias(CONTEXT)) for near, of in seen]
        contexts = spark.range(1).select(F.inline(F.array(*pairs)))
        samples = spark.read.schema(spark_schema()).parquet(samples_path(self._root))
        folder = F.col("date").cast("timestamp") + F.make_dt_interval(hours=F.col("hour"))
        return activity(samples.where(folder.isin(sorted({near for near, _ in seen}))), HOUR, contexts=contexts)

    def _put(self, rows: DataFrame, by: list[str], folder: Folder, grain: str, marks: dict[datetime, str]) -> int:
        """Write aside, one file per partition, and move each to its place under its mark."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        aside = f"_writing-{secrets.token_hex(6)}"
        written = Observation()
        uri = f"{rollups_path(self._root, grain)}/{aside}"
        staged = Folder(uri)
        try:
            rows.observe(written, F.count(F.lit(1)).alias("rows")).write.partitionBy(*by).parquet(uri)
            for start, files in staged.partitions().items():
                place = f"date={start:%Y-%m-%d}" + (f"/hour={start:%H}" if "hour" in by else "")
                for file in files:
                    folder.move(file.path, f"{folder.root}/{place}/{marks[start]}.parquet")
        finally:
            staged.remove()
        return int(written.get["rows"])

    def _uri(self, path: str) -> str:
        """Spark's name of a file that Arrow listed."""
        scheme, separator, _ = self._root.partition("://")
        return f"{scheme}://{path.lstrip('/')}" if separator and scheme != "file" else path


def stale_hours(rollups: Rollups, since: datetime, until: datetime) -> list[Hour]:
    """Those over and not, or no longer, rolled up."""
    return [hour for hour in rollups.between(since, until) if hour.rollup is None and hour.start + HOUR <= until]


def stale_days(rollups: Rollups, since: datetime, until: datetime) -> dict[datetime, str]:
    """Days over, with all their hours rolled up, and not, or no longer, added up."""
    stale: dict[datetime, str] = {}
    for start in sorted({hour.start.replace(hour=0) for hour in rollups.between(since, until)}):
        mark, rollup = rollups.day(start)
        if mark and rollup is None and start >= since and start + DAY <= until.astimezone(UTC):
            stale[start] = mark
    return stale
