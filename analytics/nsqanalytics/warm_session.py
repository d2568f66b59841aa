"""``python -m nsqanalytics serve``: a Spark session that runs jobs one after another, for the process that started it.

Requests are JSON lines on standard input:

    {"run": 7, "job": "latency", "archive": "…", "output": "…", "parameters": {…}}     run a job
    {"cancel": 7}                                                                      cancel it
    {"prepare": true}                                                                  start Spark before the first job

Answers are JSON lines on standard output (nsqanalytics/events.py). Those to a job are the events of ``run``, or
``declined``. After ``ready``, the session has removed what the job left; after ``ended``, it ends. Spark's log is on
standard error, where the line ``end_of_log(7)`` follows the log of run 7.

Each job has a Spark session of its own, with its settings and temporary views, on the Spark context that all share. The
process ends when standard input does, even by kill -9 of the other side; after some time without a job; when it has run
many jobs or for long, so that nothing accumulates; when it or the machine runs out of memory; or if Java has ended.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import psutil

from nsqanalytics import failures
from nsqanalytics.class_archive import class_archive
from nsqanalytics.events import SessionEvent
from nsqanalytics.java import find_java
from nsqanalytics.job_list import find_job
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import BadParameter
from nsqanalytics.progress import Progress
from nsqanalytics.run import Declined, own_output, run
from nsqanalytics.session import end_with_java, is_small, java_watched, own_java, set_for_size, spark_session
from nsqwire.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_S = 600.0
MOST_JOBS = 50
LONGEST_S = 3600.0
MOST_MEMORY_BYTES = 2_500_000_000
"""Resident memory of this process and Java, whose heap is by default at most 2 GiB."""
LEAST_AVAILABLE_BYTES = 300_000_000
"""Memory of the machine that other processes can get."""
_CHECK_S = 1.0
_CANCEL_AGAIN_S = 0.2


def end_of_log(run_id: int) -> str:
    """Return the line on standard error that ends the log of a run."""
    return f"analytics: end of the log of run {run_id}"


@dataclass(frozen=True)
class JobRequest:
    """A request to run a job."""

    run: int
    job: str
    place: Locations
    parameters: dict[str, str]

    @classmethod
    def of(cls, line: dict[str, Any]) -> JobRequest:
        """Raises KeyError, TypeError or ValueError for a line that is no request."""
        place = Locations(str(line["archive"]), str(line["output"]), str(line.get("namespace", "nsq")))
        return cls(int(line["run"]), str(line["job"]), place, dict(line["parameters"]))


class WarmSession:
    """The Spark session, and the job that it runs."""

    def __init__(
        self, out: TextIO, idle_s: float, spark: SparkSession | None = None, most_jobs: int = MOST_JOBS
    ) -> None:
        """It ends after ``idle_s`` without a job, and after ``most_jobs``.

        ``spark`` is used if it is given. Otherwise, Spark is started when it is needed.
        """
        self._out = out
        self._idle_s = idle_s
        self._most_jobs = most_jobs
        self._began = self._last_used = time.monotonic()
        self._jobs = 0
        self._ending = ""
        """A reason to end, found while a job ran."""
        self._requests: queue.SimpleQueue[JobRequest | None] = queue.SimpleQueue()
        self._running: tuple[JobRequest, Progress] | None = None
        self._cancelled: set[int] = set()
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._spark = spark

    def read(self, lines: Iterator[str]) -> None:
        """Take requests, until their source ends."""
        for line in lines:
            try:
                given = json.loads(line)
                if "cancel" in given:
                    self._cancel(int(given["cancel"]))
                else:
                    self._requests.put(None if given.get("prepare") else JobRequest.of(given))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                print(f"analytics: not a request: {line.strip()[:200]!r} ({error!r})", file=sys.stderr)

    def serve(self) -> None:
        """Run the requested jobs, until there is a reason to end."""
        with self._open:
            reason = self._reason_to_end()
            while not reason:
                try:
                    request = self._requests.get(timeout=_CHECK_S)
                except queue.Empty:
                    reason = self._reason_to_end()
                    continue
                if request is None:
                    self._prepare()
                else:
                    self._run(request)
                # One check for both answers: without "ready" the session must end, even if memory is free again.
                if not (reason := self._reason_to_end()):
                    self._print({"event": "ready"})
            self._print({"event": "ended", "reason": reason})

    def _prepare(self) -> None:
        if self._spark is None:
            try:
                self._start()
            except Exception as error:
                self._ending = f"Spark cannot be started: {failures.explained(error)[1]}"
        self._last_used = time.monotonic()

    def _start(self) -> SparkSession:
        self._spark = self._open.enter_context(spark_session("nsq reports", size=0, is_warm=True))
        return self._spark

    def _run(self, request: JobRequest) -> None:
        progress = Progress(self._out)
        with self._lock:
            self._running = request, progress
            if request.run in self._cancelled:
                progress.cancelled.set()
        try:
            job = find_job(request.job)
            parameters = job.checked(request.parameters)
            run(job, request.place, parameters, progress, lambda size: self.for_job(size, request.run, progress))
        except BadParameter as error:
            progress.failed("other", str(error))
        except Declined:
            self._print({"event": "declined"})
        finally:
            with self._lock:
                self._running = None
            print(end_of_log(request.run), file=sys.stderr, flush=True)
        self._jobs += 1
        self._tidy()
        self._last_used = time.monotonic()

    @contextmanager
    def for_job(self, size_of: Callable[[], int], run_id: int, progress: Progress) -> Iterator[SparkSession]:
        """Provide a session for one job that reads ``size_of()`` bytes. Raises Declined if another process suits it
        better."""
        if self._spark is None:
            progress.at(0.0, "starting Spark")
        size = size_of()
        if is_small(size):
            started = self._spark or self._start()
            with java_watched():
                spark = started.newSession()
                set_for_size(spark, size)
                with _cancellable(spark, run_id, progress):
                    yield spark
        elif self._spark is None:
            # This process is as good as another one. Its Java would not be good for the next, smaller job.
            self._ending = "its Spark was started for one large job"
            with spark_session("nsq report", size=size) as spark, _cancellable(spark, run_id, progress):
                yield spark
        else:
            raise Declined

    def _cancel(self, run_id: int) -> None:
        with self._lock:
            self._cancelled.add(run_id)
            if self._running is not None and self._running[0].run == run_id:
                self._running[1].cancelled.set()

    def _tidy(self) -> None:
        """Remove the stored rows that a job left. Its temporary views have gone with its own session."""
        if self._spark is None or self._java_has_ended():
            return
        try:
            self._spark.catalog.clearCache()
            # Spark removes broadcast and shuffled data when Java finds that nothing refers to it.
            jvm: Any = self._spark.sparkContext._jvm
            getattr(jvm, "java.lang.System").gc()
        except Exception as error:
            self._ending = f"what a job left cannot be removed: {failures.explained(error)[1]}"
            return
        if self._jobs == 1 and (classes := class_archive(find_java(os.environ), os.environ)) is not None:
            classes.create_in_background()

    def _reason_to_end(self) -> str:
        """The reason to end now, between two jobs; empty if there is none."""
        now = time.monotonic()
        if self._java_has_ended():
            return "Java has ended"
        if self._ending:
            return self._ending
        if self._jobs >= self._most_jobs:
            return f"it has run {counted(self._jobs, 'job')}"
        if now - self._began > LONGEST_S:
            return f"it is {LONGEST_S:g} s old"
        if now - self._last_used > self._idle_s:
            return f"no job for {self._idle_s:g} s"
        if self._spark is not None:
            if (used := resident_bytes()) > MOST_MEMORY_BYTES:
                return f"it uses {used / 1e6:,.0f} MB of memory"
            if (left := psutil.virtual_memory().available) < LEAST_AVAILABLE_BYTES:
                return f"the machine has {left / 1e6:,.0f} MB of memory left"
        return ""

    def _java_has_ended(self) -> bool:
        return self._spark is not None and (java := own_java()) is not None and java.poll() is not None

    def _print(self, event: SessionEvent) -> None:
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()


@contextmanager
def _cancellable(spark: SparkSession, run_id: int, progress: Progress) -> Iterator[None]:
    """Once the run is cancelled, end the Spark jobs of this block."""
    context, tag, over = spark.sparkContext, f"nsq-run-{run_id}", threading.Event()

    def end_jobs() -> None:
        while not over.wait(_CANCEL_AGAIN_S):
            # Again and again: the run may have been between two Spark jobs.
            if progress.cancelled.is_set():
                context.cancelJobsWithTag(tag)

    # A tag, because each step of a run has a job group of its own (nsqanalytics/progress.py).
    context.addJobTag(tag)
    canceller = threading.Thread(target=end_jobs, name="cancel", daemon=True)
    canceller.start()
    try:
        yield
    finally:
        over.set()
        canceller.join()
        context.removeJobTag(tag)


def resident_bytes() -> int:
    """Return the resident memory of this process and its descendants."""
    me = psutil.Process()
    used = 0
    for process in (me, *me.children(recursive=True)):
        try:
            used += process.memory_info().rss
        except psutil.Error:  # it has ended, or is a zombie
            continue
    return used


def serve(idle_s: float, most_jobs: int) -> int:
    """Run the jobs that standard input requests, and return the exit status of the command."""
    session = WarmSession(own_output(), idle_s, most_jobs=most_jobs)

    def read() -> None:
        session.read(iter(sys.stdin.readline, ""))
        # The other side has ended.
        end_with_java()

    threading.Thread(target=read, name="requests", daemon=True).start()
    session.serve()
    return 0
