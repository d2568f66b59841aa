"""Progress of a run as JSON lines on standard output, which the platform reads (docs/analytics.md)."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from nsqanalytics.events import Event
from nsqanalytics.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.3
_steps = itertools.count()
"""Numbers the steps of this process; each has a job group of its own."""


class Cancelled(Exception):
    """The run was cancelled."""


class Progress:
    """Prints events, one line each. The printed fraction never decreases.

    Once ``cancelled`` is set, :meth:`at` and :meth:`following` raise Cancelled.
    """

    def __init__(self, out: TextIO) -> None:
        self.cancelled = threading.Event()
        self._out = out
        self._lock = threading.Lock()
        self._fraction = 0.0
        self._stage = ""

    def at(self, fraction: float, stage: str) -> None:
        """Report that ``fraction`` (0..1) of the run is done and that ``stage`` is running. Prints only changes."""
        if self.cancelled.is_set():
            raise Cancelled("the run was cancelled")
        with self._lock:
            fraction = max(round(fraction, 3), self._fraction)
            if (fraction, stage) == (self._fraction, self._stage):
                return
            self._fraction, self._stage = fraction, stage
            self._print({"event": "progress", "fraction": fraction, "stage": stage})

    def done(self, rows: int) -> None:
        """Report the end of the run, with the number of rows of its result."""
        with self._lock:
            self._print({"event": "done", "rows": rows})

    def failed(self, kind: str, message: str) -> None:
        """Report the failure of the run."""
        with self._lock:
            self._print({"event": "failed", "kind": kind, "message": message})

    def _print(self, event: Event) -> None:
        self._out.write(json.dumps(event, ensure_ascii=False) + "\n")
        self._out.flush()

    @contextmanager
    def following(
        self, spark: SparkSession, stage: str | Callable[[float], str], expected_stages: int, start: float, end: float
    ) -> Iterator[None]:
        """While the body runs Spark jobs, report a fraction between ``start`` and ``end`` from Spark's task counts.

        ``stage`` is shown with the number of tasks that are done; or it returns the text for the share (0..1) of the
        step that is done.

        Spark plans while it runs, so the number of stages is unknown: ``expected_stages`` is the usual number. If there
        are more, the fraction stays at ``end``. A Spark Connect server provides no task counts.
        """
        first, last = (stage, stage) if isinstance(stage, str) else (stage(0.0), stage(1.0))
        self.at(start, first)
        if is_connect(spark):
            yield
            self.at(end, last)
            return
        context = spark.sparkContext
        # Spark remembers a thousand jobs. In a group of its own, a step does not count the tasks of earlier ones.
        group = f"nsq-step-{next(_steps)}"
        context.setJobGroup(group, first)
        tracker = context.statusTracker()
        finished = threading.Event()

        stages_of: dict[int, list[int]] = {}
        done: dict[int, int] = {}

        def report() -> None:
            # Each query is a round trip to the JVM: results that cannot change any more are kept.
            for job_id in tracker.getJobIdsForGroup(group):
                if job_id not in stages_of and (job := tracker.getJobInfo(job_id)):
                    stages_of[job_id] = list(job.stageIds)
            stages = float(len(done))
            tasks = completed = sum(done.values())
            for stage_id in {stage for known in stages_of.values() for stage in known} - done.keys():
                info = tracker.getStageInfo(stage_id)
                if info and info.numTasks and info.numCompletedTasks:
                    stages += info.numCompletedTasks / info.numTasks
                    tasks += info.numTasks
                    completed += info.numCompletedTasks
                    if info.numCompletedTasks == info.numTasks:
                        done[stage_id] = info.numTasks
            share = min(1.0, stages / expected_stages)
            if not isinstance(stage, str):
                text = stage(share)
            else:
                text = f"{stage} ({completed} of {tasks} tasks)" if tasks else stage
            self.at(start + (end - start) * share, text)

        def poll() -> None:
            while not finished.wait(_POLL_S):
                try:
                    report()
                except Exception:  # Spark is shutting down: the body's own exception has the reason
                    return

        follower = threading.Thread(target=poll, name="progress", daemon=True)
        follower.start()
        try:
            yield
        finally:
            finished.set()
            follower.join()
        self.at(end, last)
