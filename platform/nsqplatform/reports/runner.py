"""Executes a run: the job is in a separate process, whose progress is stored in the run's row.

A thread of the worker handles progress, log, cancellation, time limit and the worker's shutdown. If the worker is
killed, the process ends at the end of its standard input, and :func:`fail_abandoned` closes the run.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from nsqplatform.clusters.rows import in_cluster_of
from nsqplatform.reports.job_process import JobOutput, RunningJob, result_folder
from nsqplatform.reports.live import broadcast_run
from nsqplatform.reports.models import ReportRun
from nsqplatform.reports.time_left import earlier_run, seconds_left
from nsqplatform.reports.warm_session import WARM_SESSION
from nsqplatform.worker_task import WrongState

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 0.5
"""Shortest interval at which progress is written to the database and sent to browsers."""
HEARTBEAT_S = 5.0

stopping = threading.Event()
"""Set when this worker has to stop. Its runs then fail; people can request them again."""


@contextmanager
def changing(run_id: int) -> Iterator[ReportRun]:
    """The locked run, which is saved and broadcast at the end. Raises ReportRun.DoesNotExist."""
    with transaction.atomic():
        run = ReportRun.objects.select_for_update().get(pk=run_id)
        yield run
        run.save()
    broadcast_run(run)


def execute(run_id: int) -> ReportRun | None:
    """Execute a queued run, and return it after its end.

    Returns None if the run is not queued (cancelled, or delivered twice) or must wait: then it is not changed. Also
    returns None if it was closed as abandoned meanwhile.
    """
    try:
        with changing(run_id) as run:
            if run.must_wait(at=timezone.now()):
                raise WrongState(f"run {run_id} must wait")
            run.start(at=timezone.now())
            # The job itself first has to import Python's modules.
            run.advance(progress=0.0, stage=WARM_SESSION.first_stage(run), log_tail="", at=timezone.now())
    except (WrongState, ReportRun.DoesNotExist) as error:
        logger.info("run not started", extra={"run": run_id, "reason": str(error)})
        return None
    try:
        job = WARM_SESSION.started(run)
    except OSError as refused:
        message = f"the job could not be started: {refused}"
        return _end(run_id, lambda run: run.fail(error=message, at=timezone.now()))
    try:
        end = _watch(run_id, job, timedelta(seconds=run.time_limit_s))
    except BaseException:
        job.kill()
        _end(run_id, lambda run: run.fail(error="the worker failed; its log has the reason", at=timezone.now()))
        raise
    return _end(run_id, end)


def fail_abandoned() -> list[ReportRun]:
    """Close the runs of the current cluster whose worker has died, and return them."""
    closed = []
    for run_id in ReportRun.objects.filter(state=ReportRun.State.RUNNING).values_list("pk", flat=True):
        try:
            with changing(run_id) as run:
                if not run.is_abandoned(at=timezone.now()):
                    raise WrongState("its worker is alive")
                run.fail(error="the worker died during the run", at=timezone.now())
                _tidy(run_id, keep_result=False)  # before its end is broadcast
        except (WrongState, ReportRun.DoesNotExist):
            continue
        closed.append(run)
    return closed


def drop_expired_results() -> list[int]:
    """Remove expired results, files of runs without a result, and files that no run is writing any more; return the ids
    of the runs whose results were removed. The folder has the results of all clusters."""
    dropped = []
    for run in ReportRun.everywhere.filter(state=ReportRun.State.SUCCEEDED, result_dropped_at=None).iterator():
        kept_until = run.result_kept_until
        if kept_until is not None and kept_until < timezone.now():
            with in_cluster_of(ReportRun, run.pk) as found:
                if not found:
                    continue
                shutil.rmtree(result_folder(run.pk), ignore_errors=True)
                with changing(run.pk) as gone:
                    gone.result_dropped_at = timezone.now()
            dropped.append(run.pk)
    root = Path(settings.NSQ_REPORTS)
    left = {int(folder.name): folder for folder in root.glob("[0-9]*") if folder.name.isdecimal()}
    resultless = (ReportRun.State.FAILED, ReportRun.State.CANCELLED)
    for run_id in ReportRun.everywhere.filter(pk__in=left, state__in=resultless).values_list("pk", flat=True):
        shutil.rmtree(left[run_id], ignore_errors=True)
    # A job that outlived its worker may have written after its run was closed.
    unfinished = {*ReportRun.everywhere.filter(state__in=ReportRun.UNFINISHED).values_list("pk", flat=True)}
    for aside in root.glob("[0-9]*.writing*"):
        number = aside.name.partition(".")[0]
        if number.isdecimal() and int(number) not in unfinished:
            shutil.rmtree(aside, ignore_errors=True)
    return dropped


def advance(run: ReportRun, output: JobOutput, log_tail: str) -> None:
    """Store what the job has reported since the last call. Raises WrongState unless the run is running."""
    for report in output.take_reports():
        run.advance(progress=report.progress, stage=report.stage, log_tail=log_tail, at=report.at)
    run.advance(progress=output.progress, stage=output.stage, log_tail=log_tail, at=timezone.now())


End = Callable[[ReportRun], None]


def _watch(run_id: int, job: RunningJob, time_limit: timedelta) -> End:
    """Watch the job until it ends or must be stopped. Return a function that sets the run's final state."""
    deadline = time.monotonic() + time_limit.total_seconds()
    output = job.output
    saved_at, lines_read = time.monotonic(), output.lines
    earlier = earlier_run(ReportRun.objects.get(pk=run_id))
    while not job.is_over(within_s=SAVE_EVERY_S):
        moment = time.monotonic()
        if ReportRun.objects.filter(pk=run_id, cancel_requested=True).exists():
            job.kill()
            return lambda run: run.cancelled(at=timezone.now())
        if stopping.is_set():
            job.kill()
            return lambda run: run.fail(error="the worker was stopped during the run", at=timezone.now())
        if moment > deadline:
            job.kill()
            return lambda run: run.fail(
                error=f"the run took longer than its limit of {time_limit.total_seconds():g} s", at=timezone.now()
            )
        if output.lines != lines_read or moment - saved_at > HEARTBEAT_S:
            saved_at, lines_read = moment, output.lines
            with changing(run_id) as run:
                if not run.cancel_requested:  # "cancelling" stays on the page until the end
                    advance(run, output, output.log_tail())
                    run.left_s = seconds_left(run, earlier, at=timezone.now())
    rows, error, log_tail = output.rows, output.error, output.log_tail()

    def end(run: ReportRun) -> None:
        advance(run, output, log_tail)
        if rows is not None and error is None:
            run.succeed(rows=rows, at=timezone.now())
        else:
            run.fail(error=error or "the job ended without a result; see its log", at=timezone.now())

    return end


def _end(run_id: int, end: End) -> ReportRun | None:
    """End the run and return it; None if it was closed already."""
    try:
        with changing(run_id) as run:
            end(run)
            _tidy(run_id, keep_result=run.state == ReportRun.State.SUCCEEDED)  # before its end is broadcast
    except WrongState as error:  # closed as abandoned, after a long pause of this worker
        logger.warning("a run ended after it was closed as abandoned", extra={"run": run_id, "reason": str(error)})
        _tidy(run_id, keep_result=run.state == ReportRun.State.SUCCEEDED)
        return None
    logger.info("run finished", extra={"run": run_id, "state": run.state, "error": run.error})
    return run


def _tidy(run_id: int, *, keep_result: bool) -> None:
    """Remove unfinished and scratch files, and the result unless ``keep_result``."""
    folder = Path(result_folder(run_id))
    for leftover in (*folder.parent.glob(f"{run_id}.*"), *(() if keep_result else (folder,))):
        shutil.rmtree(leftover, ignore_errors=True)
