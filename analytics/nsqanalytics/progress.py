"""A run's progress as JSON lines on standard output, the form that the platform reads (docs/analytics.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from nsqanalytics.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.3
_JOB_GROUP = "nsq-report"


class Progress:
    """Prints events, one line each. The fraction never goes back, whatever is reported."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._fraction = 0.0
        self._stage = ""

    def at(self, fraction: float, stage: str) -> None:
        """``fraction`` 0..1 of the run is done and ``stage`` is being worked on; said only if something is new."""
        with self._lock:
            fraction = max(round(fraction, 3), self._fraction)
            if (fraction, stage) == (self._fraction, self._stage):
                return
            self._fraction, self._stage = fraction, stage
            self._print({"event": "progress", "fraction": fraction, "stage": stage})

    def done(self, rows: int) -> None:
        with self._lock:
            self._print({"event": "done", "rows": rows})

    def failed(self, kind: str, message: str) -> None:
        with self._lock:
            self._print({"event": "failed", "kind": kind, "message": message})

    def _print(self, event: dict[str, object]) -> None:
        self._out.write(json.dumps(event, ensure_ascii=False) + "\n")
        self._out.flush()

    @contextmanager
    def following(
        self, spark: SparkSession, stage: str, expected_stages: int, start: float, end: float
    ) -> Iterator[None]:
        """Report Spark's own task counts between ``start`` and ``end`` while the body runs Spark jobs.

        Spark plans as it goes, so how many stages will come is not known: ``expected_stages`` is what the job usually
        has. More of them leave the fraction at ``end``. Of a Spark Connect server no task counts are to be had.
        """
        self.at(start, stage)
        if is_connect(spark):
            yield
            self.at(end, stage)
            return
        context = spark.sparkContext
        context.setJobGroup(_JOB_GROUP, stage)
        tracker = context.statusTracker()
        finished = threading.Event()

        stages_of: dict[int, list[int]] = {}
        done: dict[int, int] = {}

        def report() -> None:
            # Each question is a round trip to the JVM: what cannot change any more is asked once.
            for job_id in tracker.getJobIdsForGroup(_JOB_GROUP):
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
            self.at(start + (end - start) * share, f"{stage} ({completed} of {tasks} tasks)" if tasks else stage)

        def poll() -> None:
            while not finished.wait(_POLL_S):
                try:
                    report()
                except Exception:  # Spark is going down: the body's own exception says why
                    return

        follower = threading.Thread(target=poll, name="progress", daemon=True)
        follower.start()
        try:
            yield
        finally:
            finished.set()
            follower.join()
        self.at(end, stage)
