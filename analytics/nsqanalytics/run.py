"""One run of a job: in a process of its own, or in a warm session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, TypeAlias

from nsqanalytics import damage, failures
from nsqanalytics.job import AnyJob, Job, P
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Cancelled, Progress
from nsqanalytics.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sessions: TypeAlias = Callable[[Callable[[], int]], AbstractContextManager["SparkSession"]]
"""Provides a session for one job. Its argument returns the number of bytes that the job reads."""


class Declined(Exception):
    """The job is to be run in a process of its own. Nothing was done."""


def run(job: Job[P], place: Locations, parameters: P, progress: Progress, sessions: Sessions) -> bool:
    """Run a job in a session of ``sessions``, and report its end. Returns whether it succeeded.

    A failure is reported as a ``failed`` line, and with the same text on standard error. Raises Declined if the
    provider of sessions does.
    """
    try:
        rows = _rows_written(job, place, parameters, progress, sessions)
    except Declined:
        raise
    except Exception as error:
        # Spark fails in many ways once its jobs are cancelled.
        reason = Cancelled("the run was cancelled") if progress.cancelled.is_set() else error
        kind, message = failures.explained(reason)
        progress.failed(kind, message)
        print(f"analytics: {message}", file=sys.stderr)
        return False
    progress.done(rows)
    return True


def _rows_written(job: Job[P], place: Locations, parameters: P, progress: Progress, sessions: Sessions) -> int:
    failures.check_place(place)
    if not job.needs_spark:
        return job.run(None, place, parameters, datetime.now(UTC), progress)
    if job.without_spark is not None:
        done = job.without_spark(place, parameters, datetime.now(UTC), progress)
        if done is not None:
            return done
    with sessions(lambda: job.bytes_read(place, parameters, datetime.now(UTC))) as spark:
        damaged: list[damage.Damaged] = []
        rows = damage.without_damaged_files(
            lambda: job.run(spark, place, parameters, datetime.now(UTC), progress), place.archive, damaged
        )
    for hour, file, reason in damaged:
        print(f"analytics: damaged, set aside: {file.name} of {hour:%Y-%m-%d %H:00}: {reason}", file=sys.stderr)
    return rows


def own_session(job: AnyJob, progress: Progress) -> Sessions:
    """Return a provider of a session for this job alone, which is stopped after it."""

    @contextmanager
    def session(size: Callable[[], int]) -> Iterator[SparkSession]:
        progress.at(0.0, "starting Spark")
        with spark_session(f"nsq {job.name}", size=size()) as spark:
            yield spark
            progress.at(1.0, "stopping Spark")

    return session


def own_output() -> TextIO:
    """Return a stream to standard output, for JSON lines only. Whatever else writes to standard output, such as a
    library, then writes to standard error."""
    # A path's name may contain bytes that are not text.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out
