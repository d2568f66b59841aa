"""The processes of reports: cancelled, killed and stopped ones leave nothing, and scheduled tasks do not wait for them.

They execute no statement that the tests of runs do not execute: they have no mark ``database``.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import descendants, is_gone
from tests.harness.waiting import wait_until
from tests.reports.test_runs import PATIENCE_S, REQUEST, schedule_of, sink, states_of, worker

pytestmark = pytest.mark.timeout(900)

__all__ = ["sink", "worker"]


@pytest.mark.spark
def test_a_running_report_is_cancelled_with_all_its_processes(caller, worker, archive, tmp_path: Path):
    """The job and its JVM are gone, no result is left, and the worker takes the next run."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    at_work = worker(NSQ_SPARK_IDLE_S="0")
    wait_until(at_work.has_java, "a JVM is up", within_s=PATIENCE_S)
    jobs = at_work.jobs()

    status, cancelling = operator("POST", f"reports/runs/{run['id']}/cancel")

    assert (status, cancelling["stage"]) == (200, "cancelling")
    wait_until(lambda: operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "cancelled", "it is cancelled")
    wait_until(lambda: all(map(is_gone, jobs)), "its processes are gone")
    assert list((tmp_path / "reports").iterdir()) == []
    status, answer = operator("POST", f"reports/runs/{run['id']}/cancel")
    assert (status, answer["message"]) == (409, f"run {run['id']} was cancelled and cannot be cancelled")


def test_a_run_over_its_time_limit_is_stopped(caller, redis, archive, tmp_path: Path):
    from nsqplatform.reports import runner
    from nsqplatform.reports.models import ReportRun

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    ReportRun.objects.filter(pk=run["id"]).update(time_limit_s=1)  # the API requires ten or more

    runner.execute(run["id"])

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    assert (run["state"], run["error"]) == ("failed", "the run took longer than its limit of 1 s")
    assert list((tmp_path / "reports").glob("*")) == []


@pytest.mark.spark
def test_a_worker_killed_in_the_middle_leaves_a_failed_run_and_nothing_else(caller, worker, archive, tmp_path: Path):
    """kill -9 of the worker only: its job ends by itself, and the next worker closes the run."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    killed = worker()
    wait_until(killed.has_java, "a JVM is up", within_s=PATIENCE_S)
    jobs = killed.jobs()

    killed.end(signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, jobs)), "its processes are gone")
    assert operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "running"
    worker()

    closed = wait_until(
        lambda: (found := operator("GET", f"reports/runs/{run['id']}")[1])["state"] == "failed" and found,
        "it is closed",
        within_s=PATIENCE_S,
    )
    assert closed["error"] == "the worker died during the run"
    assert list((tmp_path / "reports").iterdir()) == []


@pytest.mark.spark
def test_a_worker_killed_while_spark_starts_leaves_no_java(caller, worker, archive, tmp_path: Path):
    """Also if the run's temporary files are removed meanwhile: Java cannot report its port then, and goes on."""
    caller("operator")("POST", "reports/runs", REQUEST)
    killed = worker(NSQ_SPARK_IDLE_S="0")
    submit = "org.apache.spark.deploy.SparkSubmit"
    wait_until(lambda: descendants(killed.process.pid, word=submit), "Spark's JVM starts", within_s=PATIENCE_S)
    jobs = killed.jobs()
    killed.end(signal.SIGKILL)
    for scratch in (tmp_path / "reports").glob("*.scratch"):
        shutil.rmtree(scratch)
    wait_until(lambda: all(map(is_gone, jobs)), "its processes are gone")


def test_a_stopping_worker_does_not_wait_for_its_report(caller, worker, archive, tmp_path: Path):
    """It ends within seconds, and the run has the reason."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    stopped = worker()
    wait_until(
        lambda: operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "running", "it runs", within_s=PATIENCE_S
    )

    stopped.end(signal.SIGTERM)

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    assert (run["state"], run["error"]) == ("failed", "the worker was stopped during the run")
    assert list((tmp_path / "reports").glob("*")) == []


def test_due_tasks_run_while_reports_occupy_all_threads(caller, worker, redis, archive, sink, tmp_path: Path):
    """Two endless reports occupy the worker; a schedule, a notification and the cleanup do not wait for them."""
    from django.utils.timezone import now

    from nsqplatform.reports import tasks
    from nsqplatform.reports.models import ReportRun

    operator = caller("operator")
    long = [operator("POST", "reports/runs", REQUEST)[1]["id"] for _ in range(2)]
    at_work = worker()
    wait_until(
        lambda: [operator("GET", f"reports/runs/{id}")[1]["state"] for id in long] == ["running"] * 2,
        "both",
        within_s=PATIENCE_S,
    )
    jobs = wait_until(lambda: len(found := at_work.jobs()) >= 2 and found, "both have a process", within_s=PATIENCE_S)
    for job in jobs:
        job.suspend()
    try:
        report_id = schedule_of(caller, notify_on="failure", notify_webhook=sink[0])
        failed = ReportRun.objects.create(report_id=report_id, job="latency", state="failed", finished_at=now())
        left = tmp_path / "reports" / str(failed.pk)
        left.mkdir()
        worker("dispatcher")

        tasks.run_scheduled.delay(report_id)
        tasks.notify.delay(failed.pk, "webhook")
        tasks.drop_expired_results.delay()

        wait_until(lambda: states_of(report_id) == ["failed", "queued"], "the due report has its run")
        wait_until(lambda: [body["run"] for body in sink[1]] == [failed.pk], "the webhook is notified")
        wait_until(lambda: not left.exists(), "what the failed run left is gone")
        assert [operator("GET", f"reports/runs/{id}")[1]["state"] for id in long] == ["running"] * 2
    finally:
        for job in jobs:
            job.resume()


def test_a_run_whose_worker_was_killed_is_closed_without_a_worker(caller, worker, redis, tmp_path: Path):
    """Beat notices that the process is gone, and removes the run's incomplete result."""
    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun

    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    started = {"state": "running", "started_at": now(), "worker_seen_at": now()}
    run = ReportRun.objects.create(job="latency", worker=f"{socket.gethostname()}:{gone.pid}", **started)
    (tmp_path / "reports" / f"{run.pk}.0badcafe.writing").mkdir(parents=True)

    worker("beat")

    operator = caller("operator")
    path = f"reports/runs/{run.pk}"
    wait_until(lambda: operator("GET", path)[1]["state"] == "failed", "it is closed", within_s=PATIENCE_S)
    assert operator("GET", path)[1]["error"] == "the worker died during the run"
    assert list((tmp_path / "reports").iterdir()) == []
