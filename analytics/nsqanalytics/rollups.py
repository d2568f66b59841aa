"""Rollups: ACTIVITY by hour and by day, stored beside the samples, so that reports need not read all samples.

``<root>/rollups/hourly/date=…/hour=…/<mark>.parquet`` and ``…/daily/date=…/<mark>.parquet``. An hour's rollup is
computed from its own samples and those of the last two hours before it that have any: the last reading before the hour
may be the only one of its hour, and whether it counts then depends on the reading before it. Later hours have no
influence, so an hour can be rolled up as soon as it is over.

An hour's mark consists of three digests of contents (nsqanalytics/content.py), its own and those of the two hours
before: ``<hour>-<before>-<before that>``. A rollup is valid as long as these digests are current. When a file arrives
late, the rollup is no longer read, and the next run replaces it. The rollup of an hour without samples remains valid,
because retention removes samples and nothing can replace the rollup. A day is computed from its hours, and its mark is
a digest of their marks.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from nsqanalytics.archive import samples_path
from nsqanalytics.content import current, digest_of
from nsqanalytics.counting.ends import Rules
from nsqanalytics.files import FEW_BYTES, FEW_ROWS, SHORTEST_FILE_BYTES, File, Folder, fingerprint
from nsqanalytics.locations import archive_missing, is_local, spark_uri
from nsqanalytics.schema import SCHEMA_VERSION, spark_schema
from nsqanalytics.session import is_on_this_machine
from nsqanalytics.span import DAY, HOUR, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nsqanalytics.counting.of_files import Wanted

ROLLUP_VERSION = f"6.{SCHEMA_VERSION}"
HOURS_BEFORE = 2
"""The number of earlier hours with samples that an hour is computed from, in addition to its own."""
FILES_COUNTED = 8
"""The number of footers that are read to estimate the rows of an hour."""
_UNSEEN = "0" * 16
_LONG_AGO = datetime.fromtimestamp(0, UTC)
UNFINISHED = "_writing-"
UNFINISHED_AGE = timedelta(hours=2)


def rollups_path(root: str, grain: str) -> str:
    """Return the folder of the rollups by ``grain`` of the archive ``root``."""
    return f"{root.rstrip('/')}/rollups/{grain}"


@dataclass(frozen=True)
class Hour:
    """An hour, the last two hours with samples before it, newest first, and its valid rollup, if there is one.

    An hour whose samples were removed, by retention or because they are damaged, has its rollup and no hours before it.
    """

    start: datetime
    before: tuple[datetime, ...]
    mark: str
    rollup: File | None


class Rollups:
    """The files of an archive and of its rollups, as listed at the start of a run."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.folder = Folder(samples_path(root))
        self.samples = self.folder.partitions()
        self._row_counts: dict[str, int] = {}
        self._hourly = Folder(rollups_path(root, "hourly"))
        self._daily = Folder(rollups_path(root, "daily"), daily=True)
        self._days = _with_contents(self._daily)
        self._rolled = _with_contents(self._hourly)
        starts = list(self.samples)
        hours: dict[datetime, Hour] = {}
        for start, files in self._rolled.items():
            if start not in self.samples:
                newest = max(files, key=lambda file: (file.changed_at or _LONG_AGO, file.name))
                hours[start] = Hour(start, (), newest.name.removesuffix(".parquet"), newest)
        digests: dict[datetime, str] = {}
        self._current = {start: current(self.folder, files) for start, files in self.samples.items()}
        for at, start in enumerate(starts):
            content = digest_of(self._current[start])
            digests[start] = fingerprint(ROLLUP_VERSION, start.isoformat(), str(content))
            before = tuple(reversed(starts[max(0, at - HOURS_BEFORE) : at]))
            marks = [digests[each] for each in (start, *before)] + [_UNSEEN] * (HOURS_BEFORE - len(before))
            rollup = _valid(self._rolled.get(start, []), marks)
            hours[start] = Hour(start, before, "-".join(marks), rollup)
        self.hours = {start: hours[start] for start in sorted(hours)}

    def files_of(self, hours: Iterable[Hour]) -> list[tuple[datetime, list[File]]]:
        """Return the sample files from which these hours are computed, by hour; not those that compaction replaced."""
        seen = {near for hour in hours for near in (hour.start, *hour.before)}
        return [(near, self._current[near]) for near in sorted(seen)]

    def size_of(self, hours: Iterable[Hour]) -> int:
        """Return the approximate bytes of content of the samples from which these hours are computed."""
        return _content_bytes(self.files_of(hours))

    def size_between(self, since: datetime, until: datetime) -> int:
        """Return the approximate bytes of content that a report of these hours reads: their rollups, or their
        samples."""
        hours = self.between(since - HOUR, until)
        rolled_up = sum(hour.rollup.content_bytes for hour in hours if hour.rollup is not None)
        return rolled_up + self.size_of(hour for hour in hours if hour.rollup is None)

    def sweep_unfinished(self, now: datetime) -> None:
        """Remove the folders that killed runs have left beside the rollups, UNFINISHED_AGE after their last write."""
        for folder in (self._hourly, self._daily):
            written: dict[str, datetime] = {}
            for info in folder.system.get_file_info(FileSelector(folder.root, recursive=True, allow_not_found=True)):
                top = info.path.removeprefix(folder.root).strip("/").partition("/")[0]
                if top.startswith(UNFINISHED) and info.mtime is not None:
                    written[top] = max(info.mtime, written.get(top, info.mtime))
            for top, last in written.items():
                if now - last > UNFINISHED_AGE:
                    folder.system.delete_dir(f"{folder.root}/{top}")

    def between(self, since: datetime, until: datetime) -> list[Hour]:
        """Return the hours that begin in [since, until), ascending."""
        starts = list(self.hours)
        return [self.hours[s] for s in starts[bisect_left(starts, since) : bisect_left(starts, until)]]

    def day(self, start: datetime) -> tuple[str, File | None]:
        """Return a day's mark (empty if an hour of it is not rolled up) and its valid rollup, if there is one."""
        hours = self.between(start, start + DAY)
        if not hours or any(hour.rollup is None for hour in hours):
            return "", None
        mark = fingerprint(ROLLUP_VERSION, *(hour.rollup.name for hour in hours if hour.rollup))
        return mark, next((file for file in self._days.get(start, []) if file.name == f"{mark}.parquet"), None)

    def countable(self, span: Span, window: timedelta = HOUR) -> Span:
        """Return the part of the span that can be counted in windows of this length.

        An hour whose samples were removed can only be counted as a whole. In shorter windows it cannot be counted: the
        part begins after such hours and ends before them, and those between hours with samples are gaps in it.
        """
        if window < HOUR:
            return self._sampled_part(span)
        since, until = (end.replace(minute=0, second=0, microsecond=0) for end in (span.since, span.until))
        first = since + HOUR if self._has_only_rollup(since) and since < span.since else span.since
        return Span(first, max(first, until if self._has_only_rollup(until) else span.until))

    def _sampled_part(self, span: Span) -> Span:
        starts = self._starts_in(span)
        sampled = [start for start in starts if start in self.samples]
        first, last = (sampled[0], sampled[-1]) if sampled else (span.until, span.until)
        since = max([span.since, *(at + HOUR for at in starts if at < first and self._has_only_rollup(at))])
        until = min([span.until, *(at for at in starts if at > last and self._has_only_rollup(at))])
        return Span(since, max(since, until))

    def has_lost_samples(self, span: Span) -> bool:
        """Whether the hours of the span have rollups, and the samples of all of them were removed."""
        starts = self._starts_in(span)
        return bool(starts) and all(map(self._has_only_rollup, starts))

    def _starts_in(self, span: Span) -> list[datetime]:
        first = span.since.replace(minute=0, second=0, microsecond=0)
        return [hour.start for hour in self.between(first, span.until)]

    def _has_only_rollup(self, start: datetime) -> bool:
        """Whether an hour has a rollup and its samples were removed."""
        return start in self.hours and start not in self.samples

    def read(self, spark: SparkSession, span: Span, *, daily: bool = False) -> DataFrame:
        """Return ACTIVITY of a countable span, from rollups of days (if ``daily``) and hours where possible.

        Hours that are not rolled up, and those that the span begins or ends in, are computed from samples. Each row's
        window is a day, an hour, or the part of an hour that lies in the span; such a part begins where the span does.
        """
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        from nsqanalytics.transforms.activity import ACTIVITY
        from nsqanalytics.transforms.windows import cuts

        since, until = span.since, span.until
        files: list[File] = []
        rest: list[Hour] = []
        done: set[datetime] = set()
        for hour in self.between(since - HOUR, until):
            if hour.start + HOUR <= since:
                continue
            start = hour.start.replace(hour=0)
            if start in done:
                continue
            if daily and start >= since and start + DAY <= until and (day := self.day(start)[1]) is not None:
                files.append(day)
                done.add(start)
            elif hour.rollup is not None and hour.start >= since and hour.start + HOUR <= until:
                files.append(hour.rollup)
            elif hour.start in self.samples:
                rest.append(hour)
        parts = []
        if files:
            stored = spark.read.schema(ACTIVITY).parquet(*(self._uri(file.path) for file in files))
            parts.append(_divided(stored, sum(file.content_bytes for file in files)))
        if rest:
            made = self._made(spark, rest, cuts(span, HOUR))
            parts.append(made.where((F.col("window_start") >= F.lit(since)) & (F.col("window_start") < F.lit(until))))
        return reduce(DataFrame.unionByName, parts) if parts else spark.createDataFrame([], ACTIVITY)

    def columns_of(self, file: File, columns: Sequence[str]) -> pa.Table | None:
        """Return these columns of the rollup of an hour, without Spark; None if it has no rows.

        Raises OSError, or pyarrow's ArrowException if the file is damaged.
        """
        with pq.ParquetFile(file.path, filesystem=self._hourly.system) as parquet:
            return parquet.read(columns=list(columns)) if parquet.metadata.num_rows else None

    def make_hours(self, spark: SparkSession, hours: list[Hour]) -> int:
        """Roll up the hours, replacing their earlier rollups; return the number of rows."""
        from pyspark.sql import functions as F

        date, hour_of_day = F.to_date("window_start"), F.date_format("window_start", "HH")
        rows = self._made(spark, hours).withColumns({"date": date, "hour": hour_of_day})
        marks = {hour.start: hour.mark for hour in hours}
        made = self._put(rows.repartition("date", "hour"), ["date", "hour"], self._hourly, "hourly", marks)
        for hour in hours:
            self._hourly.delete(
                file for file in self._rolled.get(hour.start, []) if file.name != f"{hour.mark}.parquet"
            )
        return made

    def make_days(self, spark: SparkSession, days: dict[datetime, str]) -> int:
        """Roll up the days from their hours, all of which are rolled up; return the number of rows."""
        from pyspark.sql import functions as F

        from nsqanalytics.transforms.activity import ACTIVITY, rolled_up

        stored = [h.rollup for day in days for h in self.between(day, day + DAY) if h.rollup is not None]
        hourly = spark.read.schema(ACTIVITY).parquet(*(self._uri(file.path) for file in stored))
        hourly = _divided(hourly, sum(file.content_bytes for file in stored))
        rows = rolled_up(hourly, DAY, min(days)).withColumn("date", F.to_date("window_start"))
        made = self._put(rows.repartition("date"), ["date"], self._daily, "daily", days)
        for day, mark in days.items():
            self._daily.delete(file for file in self._days.get(day, []) if file.name != f"{mark}.parquet")
        return made

    def _made(self, spark: SparkSession, hours: list[Hour], cuts: Sequence[datetime] = ()) -> DataFrame:
        """Return ACTIVITY of these hours from samples: each hour from its own and those of its ``before`` hours only.

        An hour that contains one of ``cuts`` has rows for both of its parts.
        """
        from nsqanalytics.counting.of_files import Wanted

        contexts = [(hour.start, (hour.start, *hour.before)) for hour in hours]
        return self._activity(spark, self.files_of(hours), Rules(HOUR, tuple(cuts), contexts), Wanted())

    def activity(self, spark: SparkSession, span: Span, rules: Rules, wanted: Wanted) -> DataFrame:
        """Return ACTIVITY of the samples of the hours that the span lies in, all of them together."""
        from nsqanalytics.transforms.activity import ACTIVITY

        hours = self._sampled_between(span.since, span.until)
        return self._activity(spark, hours, rules, wanted) if hours else spark.createDataFrame([], ACTIVITY)

    def _activity(
        self, spark: SparkSession, hours: list[tuple[datetime, list[File]]], rules: Rules, wanted: Wanted
    ) -> DataFrame:
        from nsqanalytics.computation import activity, activity_of_files, fits_tasks
        from nsqanalytics.counting.sample_files import SampleFiles

        row_counts = {start: self._rows(of_hour) for start, of_hour in hours}
        if is_on_this_machine(spark) and fits_tasks(rules.contexts, row_counts):
            files = {start: [(file.path, self._uri_of(file)) for file in of_hour] for start, of_hour in hours}
            return activity_of_files(spark, SampleFiles(samples_path(self._root), files), rules, wanted, row_counts)
        return activity(self._read_samples(spark, hours), rules, wanted, fits_one_task=self._are_few(hours))

    def read_samples(self, spark: SparkSession, since: datetime, until: datetime) -> DataFrame:
        """Return the SAMPLE rows of the hours that [since, until) lies in."""
        hours = self._sampled_between(since, until)
        return self._read_samples(spark, hours) if hours else spark.createDataFrame([], spark_schema())

    def size_of_samples(self, since: datetime, until: datetime) -> int:
        """Return the approximate bytes of content of the samples of the hours that [since, until) lies in."""
        return _content_bytes(self._sampled_between(since, until))

    def _are_few(self, hours: list[tuple[datetime, list[File]]]) -> bool:
        """Whether one task has the time and the memory for all samples of these files."""
        if _content_bytes(hours) > FEW_BYTES:
            return False
        return sum(self._rows(files) for _, files in hours) <= FEW_ROWS

    def _rows(self, files: list[File]) -> int:
        """Return the number of rows of an hour's files: of many files, the largest are counted, and others estimated
        by their bytes. Opening hundreds of files of polls would take longer than reading an hour."""
        by_size = sorted(files, key=lambda file: (file.size, file.name), reverse=True)
        counted = {file: self._row_count(file) for file in by_size[:FILES_COUNTED]}
        densest = max((rows / file.size for file, rows in counted.items() if file.size), default=0.0)
        return sum(counted.values()) + int(densest * sum(file.size for file in by_size[FILES_COUNTED:]))

    def _row_count(self, file: File) -> int:
        """Return the number of rows in a file's footer; 0 for a damaged file, which Spark names when it reads it."""
        if file.path not in self._row_counts:
            try:
                metadata = pq.read_metadata(file.path, filesystem=self.folder.system)
                self._row_counts[file.path] = int(metadata.num_rows)
            except (pa.ArrowException, OSError):
                self._row_counts[file.path] = 0
        return self._row_counts[file.path]

    def _sampled_between(self, since: datetime, until: datetime) -> list[tuple[datetime, list[File]]]:
        return [(at, files) for at, files in self._current.items() if since - HOUR < at < until]

    def _read_samples(self, spark: SparkSession, hours: list[tuple[datetime, list[File]]]) -> DataFrame:
        are_few = self._are_few(hours)
        # Only the listed hours: Spark fails for an archive with files elsewhere. Opening a file takes longer than
        # reading it: of a compacted hour, only the compacted file is opened.
        paths = [path for start, files in hours for path in self._paths(start, files)]
        reader = spark.read.schema(spark_schema()).option("basePath", samples_path(self._root))
        rows = reader.option("pathGlobFilter", "*.parquet").parquet(*paths)
        return rows.coalesce(1) if are_few else rows

    def _paths(self, start: datetime, files: list[File]) -> list[str]:
        """Return the paths for Spark to read these files of an hour: the folder if it has no others, else each file."""
        if len(files) == len(self.samples[start]):
            return [self._uri(files[0].path.rpartition("/")[0])]
        return [self._uri(file.path) for file in files]

    def _put(self, rows: DataFrame, by: list[str], folder: Folder, grain: str, marks: dict[datetime, str]) -> int:
        """Write one file per partition to a temporary folder, and rename each to its place and mark.

        An hour without rows gets an empty rollup; otherwise every run would compute it again. Returns the number of
        rows.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        aside = f"{UNFINISHED}{secrets.token_hex(6)}"
        written = Observation()
        uri = f"{rollups_path(self._root, grain)}/{aside}"
        staged = Folder(uri, daily="hour" not in by)
        try:
            with _times_in_microseconds(rows.sparkSession):
                rows.observe(written, F.count(F.lit(1)).alias("rows")).write.partitionBy(*by).parquet(uri)
            made = staged.partitions()
            for start, mark in marks.items():
                place = f"{folder.root}/date={start:%Y-%m-%d}" + (f"/hour={start:%H}" if "hour" in by else "")
                [file] = made.get(start) or [self._empty(staged)]
                folder.move(file.path, f"{place}/{mark}.parquet")
        finally:
            staged.remove()
        return int(written.get["rows"])

    @staticmethod
    def _empty(staged: Folder) -> File:
        path = f"{staged.root}/{secrets.token_hex(6)}.parquet"
        staged.system.create_dir(staged.root, recursive=True)
        nothing = pa.table({"window_start": pa.array([], pa.timestamp("us", tz="UTC"))})
        pq.write_table(nothing, path, filesystem=staged.system)
        return File(path, path.rpartition("/")[2], 0, None)

    def _uri_of(self, file: File) -> str:
        """Return the URI of a file in errors."""
        scheme = "file" if is_local(self._root) else self._root.partition("://")[0]
        return f"{scheme}://{quote(file.path, safe='/=')}"

    def _uri(self, path: str) -> str:
        return spark_uri(self._root, path)


def existing_rollups(root: str) -> Rollups:
    """List an archive. Raises ArchiveMissing if it has neither samples nor rollups."""
    rollups = Rollups(root)
    if not rollups.hours:
        raise archive_missing(samples_path(root))
    return rollups


@contextmanager
def _times_in_microseconds(spark: SparkSession) -> Iterator[None]:
    """Let Spark write times that have statistics and that Iceberg knows, not of Parquet's old type INT96."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(name, before or "INT96")


def _content_bytes(hours: Iterable[tuple[datetime, Iterable[File]]]) -> int:
    return sum(file.content_bytes for _, files in hours for file in files)


def _divided(rows: DataFrame, size: int) -> DataFrame:
    """Return rows read from files with ``size`` bytes of content: in one partition if they are few, so that no step has
    to exchange rows between tasks."""
    return rows.coalesce(1) if size <= FEW_BYTES else rows


def _with_contents(folder: Folder) -> dict[datetime, list[File]]:
    """Return the files by hour or day, without those that are empty: Spark reads no row from them and no error."""
    listed = {
        start: [file for file in files if file.size >= SHORTEST_FILE_BYTES]
        for start, files in folder.partitions().items()
    }
    return {start: files for start, files in listed.items() if files}


def _valid(rollups: list[File], marks: list[str]) -> File | None:
    """Return the rollup with these digests. The digest of an hour that no longer has samples matches any."""
    for file in rollups:
        named = file.name.removesuffix(".parquet").split("-")
        if len(named) == len(marks) and all(mark in (name, _UNSEEN) for name, mark in zip(named, marks, strict=True)):
            return file
    return None


def stale_hours(rollups: Rollups, since: datetime, until: datetime) -> list[Hour]:
    """Return the hours that have ended by ``until`` and have no valid rollup."""
    return [hour for hour in rollups.between(since, until) if hour.rollup is None and hour.start + HOUR <= until]


def stale_days(rollups: Rollups, since: datetime, until: datetime) -> dict[datetime, str]:
    """Return day -> mark, for the days that have ended by ``until``, whose hours are all rolled up, and that have no
    valid rollup."""
    stale: dict[datetime, str] = {}
    for start in sorted({hour.start.replace(hour=0) for hour in rollups.between(since, until)}):
        mark, rollup = rollups.day(start)
        if mark and rollup is None and start >= since and start + DAY <= until.astimezone(UTC):
            stale[start] = mark
    return stale
