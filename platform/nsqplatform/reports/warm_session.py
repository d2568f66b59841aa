"""The Spark session that this worker keeps between reports: a process ``python -m nsqanalytics serve``.

It runs one report at a time. A report that finds it occupied waits for a moment, and then runs in a process of its own,
as do jobs that change the archive, large reports, and all reports if Spark is on a cluster.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from nsqanalytics.job_list import JOBS
from nsqanalytics.warm_session import end_of_log
from nsqplatform.clusters import current
from nsqplatform.reports.job_process import AnalyticsProcess, JobOutput, JobProcess, RunningJob, result_folder
from nsqplatform.reports.models import ReportRun

logger = logging.getLogger(__name__)

WAIT_S = 3.0
"""How long a report waits for another one in the session. Starting Spark takes longer."""
READY_WITHIN_S = 10.0
"""How long a session may take to remove what a report left. A later one is replaced."""
CANCEL_WITHIN_S = 3.0
"""How long a session may take to end a cancelled report. After it, the session is killed."""
LOG_WITHIN_S = 2.0
END_WITHIN_S = 5.0
STARTING, WAITING = "starting Spark", "waiting for Spark"


class SessionProcess:
    """One session process, and the job that it runs."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        """Raises OSError if it cannot be started."""
        self._job: SessionJob | None = None
        self._logged: SessionJob | None = None
        """The jobs whose events and whose log are read: standard output and standard error are read independently."""
        self.has_ended = False
        """Whether it has announced its end, or ended."""
        self.has_started_spark = False
        self._is_ready = threading.Event()
        """Also set when it ends, so that no report waits for it."""
        self._is_ready.set()  # a request waits in its standard input until it can run
        self.folder = sessions_folder() / f"{_this_worker()}-{next(self._numbers)}"
        self._process = AnalyticsProcess(
            *("serve", "--idle-s", str(settings.NSQ_SPARK_IDLE_S)),
            scratch=self.folder,
            take=self._take,
            take_log=self._take_log,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it may still run or finish a job; otherwise, its output has been read."""
        return self._process.wait(0) is None

    def is_free(self, within_s: float) -> bool:
        """Wait up to ``within_s`` until it can take a job; return whether it can."""
        if not self._is_ready.wait(within_s) or self.has_ended:
            return False
        logged = self._logged
        return (logged is None or logged.log_is_complete.wait(LOG_WITHIN_S)) and self.is_alive

    def submit(self, job: SessionJob) -> None:
        """Request a job. If the process has ended, the job finds that out."""
        self._job = self._logged = job
        self._is_ready.clear()
        self._request(job.request)

    def cancel(self, run_id: int) -> None:
        self._request({"cancel": run_id})

    def prepare(self) -> None:
        """Start Spark, unless it has been started. Also postpones the end of an idle session."""
        self._request({"prepare": True})

    def kill(self) -> None:
        """Kill its whole process group, and remove its files."""
        self.has_ended = True
        self._is_ready.set()
        self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Let it end; kill it if it does not."""
        self._process.close()
        self._process.wait(END_WITHIN_S)
        self.kill()

    def _request(self, request: dict[str, Any]) -> None:
        with suppress(OSError, ValueError):  # it has ended
            self._process.write(json.dumps(request))

    def _take(self, event: Any) -> None:
        kind = event["event"]
        if kind == "ready":
            self.has_started_spark = True
            self._is_ready.set()
        elif kind == "ended":
            self.has_ended = True
            self._is_ready.set()
            logger.info("the warm Spark session ends", extra={"reason": event["reason"]})
        elif self._job is not None:
            self._job.take(event)
            self.has_started_spark |= self._job.output.progress > 0

    def _take_log(self, line: str) -> None:
        if self._logged is None:
            logger.debug("warm Spark session", extra={"line": line.rstrip()})
        elif line.rstrip("\n") == end_of_log(self._logged.run.pk):
            self._logged.log_is_complete.set()
            self._logged = None
        else:
            self._logged.output.take_log(line)


class SessionJob(RunningJob):
    """A report in the session. If the session declines it or is lost, it runs in a process of its own, once."""

    def __init__(self, run: ReportRun, session: SessionProcess, output: JobOutput, release: Callable[[], None]) -> None:
        """``release`` is called when it does not need the session any more."""
        super().__init__(output)
        self.run = run
        self.request = {
            "run": run.pk,
            "job": run.job,
            "archive": current.archive(),
            "namespace": current.namespace(),
            "output": result_folder(run.pk),
            "parameters": run.parameters,
        }
        self.log_is_complete = threading.Event()
        self._session = session
        self._release = release
        self._over = threading.Event()
        self._is_declined = False
        self._has_left = False
        self._own: JobProcess | None = None

    def take(self, event: Any) -> None:
        """Store an event of the session (nsqanalytics/events.py)."""
        self.output.take(event)
        self._is_declined = event["event"] == "declined"
        if event["event"] in ("done", "failed", "declined"):
            self._over.set()

    def is_over(self, *, within_s: float) -> bool:
        if self._own is not None:
            return self._own.is_over(within_s=within_s)
        if not self._over.wait(within_s) and self._session.is_alive:
            return False
        self.log_is_complete.wait(LOG_WITHIN_S if self._session.is_alive else 0)
        is_lost = not self._over.is_set() or self.output.kind == "java"
        self._leave(kills=is_lost)
        if not is_lost and not self._is_declined:
            return True
        if is_lost:
            logger.warning("a report has lost its Spark session", extra={"run": self.run.pk})
            self.output.take_log("The Spark session ended. The report runs again in a process of its own.\n")
        self.output.start_again(STARTING)
        self._own = JobProcess(self.run, self.output)
        return False

    def kill(self) -> None:
        if self._own is not None:
            self._own.kill()
            return
        is_cancelled = False
        if self._session.has_started_spark:
            self._session.cancel(self.run.pk)
            is_cancelled = self._over.wait(CANCEL_WITHIN_S)
        self._leave(kills=not is_cancelled)

    def _leave(self, *, kills: bool) -> None:
        if self._has_left:
            return
        self._has_left = True
        try:
            if kills:
                self._session.kill()
        finally:
            self._release()


class WarmSession:
    """The session of this worker. Threads that run reports share it."""

    def __init__(self) -> None:
        self._in_use = threading.Lock()
        """Held by the report in the session, and while the session is started or ended."""
        self._process: SessionProcess | None = None

    def first_stage(self, run: ReportRun) -> str:
        """The stage of a run until its job has reported one."""
        job = JOBS.get(run.job)
        if job is None or not job.needs_spark or job.without_spark is not None:
            return "starting"
        return WAITING if self._takes(run) and self._is_warm() else STARTING

    def started(self, run: ReportRun) -> RunningJob:
        """Start the job of a run, in the session or in a process of its own. Raises OSError if it cannot be started."""
        output = JobOutput(run.stage)
        if not self._takes(run) or not self._in_use.acquire(timeout=WAIT_S):
            return JobProcess(run, output)
        try:
            session = self._usable()
            job = SessionJob(run, session, output, self._in_use.release)
            session.submit(job)
        except BaseException:
            self._in_use.release()
            raise
        return job

    def prepare(self) -> None:
        """Have a session ready soon, unless a report uses it."""
        if not is_possible() or not self._in_use.acquire(blocking=False):
            return
        try:
            self._usable().prepare()
        finally:
            self._in_use.release()

    @property
    def is_free(self) -> bool:
        """Whether there is a session that can run a report now."""
        process = self._process
        return process is not None and process.is_free(0)

    def end(self) -> None:
        """End the session, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _takes(self, run: ReportRun) -> bool:
        job = JOBS.get(run.job)
        return is_possible() and job is not None and job.kind == "report"

    def _is_warm(self) -> bool:
        process = self._process
        return process is not None and process.has_started_spark and not process.has_ended and process.is_alive

    def _usable(self) -> SessionProcess:
        """The session, or a new one. Raises OSError if it cannot be started. The caller holds the lock."""
        if self._process is not None:
            if self._process.is_free(READY_WITHIN_S):
                return self._process
            self._process.kill()
            self._process = None
        self._process = SessionProcess()
        return self._process


def is_possible() -> bool:
    """Whether reports of this worker may use a session: Spark is on this machine, and sessions are not turned off."""
    master = settings.SPARK_MASTER or os.environ.get("SPARK_MASTER") or "local"
    return settings.NSQ_SPARK_IDLE_S > 0 and master.startswith("local") and not os.environ.get("SPARK_REMOTE")


def sessions_folder() -> Path:
    """The folder of the temporary files of sessions."""
    return Path(settings.NSQ.home) / "sessions"


def _this_worker() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def remove_left_files() -> None:
    """Remove the temporary files of workers of this machine that were killed."""
    for folder in sessions_folder().glob(f"{socket.gethostname()}-*-*"):
        pid = folder.name.split("-")[-2]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


WARM_SESSION = WarmSession()
