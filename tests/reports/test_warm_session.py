"""The Spark session that a worker keeps between reports."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from nsqplatform.reports import warm_session
from nsqplatform.reports.warm_session import WARM_SESSION, SessionProcess
from tests.harness.processes import descendants, is_gone
from tests.harness.waiting import wait_until
from tests.reports.test_runs import PATIENCE_S, REQUEST, worker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

__all__ = ["worker"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes any time to remove what a report left. A session is replaced only if it does not end."""
    monkeypatch.setattr(warm_session, "READY_WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(warm_session, "LOG_WITHIN_S", PATIENCE_S)


@pytest.fixture
def run(caller) -> Callable[..., Any]:
    """Requests a report and executes it in this process, as a worker does; returns the run at its end."""
    operator = caller("operator")

    def execute(**values: Any) -> Any:
        from nsqplatform.reports import runner
        from nsqplatform.reports.models import ReportRun

        requested = operator("POST", "reports/runs", REQUEST)[1]
        ReportRun.objects.filter(pk=requested["id"]).update(**values)
        runner.execute(requested["id"])
        return operator("GET", f"reports/runs/{requested['id']}")[1]

    return execute


def javas() -> list[psutil.Process]:
    """The Java processes of this worker's sessions. Other tests in this process may have left one of their own."""
    sessions = descendants(os.getpid(), word="serve")
    return [java for session in sessions for java in descendants(session.pid, name="java")]


def stages(run: Any) -> list[str]:
    return [stage["name"] for stage in run["stages"]]


def in_background(execute: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Call it in another thread, which has a database connection of its own."""
    from django.db import connection

    returned: list[Any] = []

    def call() -> None:
        try:
            returned.append(execute())
        finally:
            connection.close()

    thread = threading.Thread(target=call)
    thread.start()
    return thread, returned


def running(caller: Any) -> Any:
    """The one run that runs."""
    return next((run for run in caller("GET", "reports/runs")[1]["runs"] if run["state"] == "running"), None)


@pytest.mark.database
def test_reports_share_a_session_and_a_cancelled_one_leaves_it(run, caller, archive, tmp_path: Path, monkeypatch):
    """The first starts Spark; the others do not. Java is stopped until the cancellation, so that it is in time."""
    first = run()
    [java] = javas()
    second = run()

    def cancel(self: SessionProcess, run_id: int) -> None:
        sends(self, run_id)
        java.resume()

    sends = SessionProcess.cancel
    monkeypatch.setattr(SessionProcess, "cancel", cancel)
    monkeypatch.setattr(warm_session, "CANCEL_WITHIN_S", PATIENCE_S)
    wait_until(lambda: WARM_SESSION.is_free, "the session has removed what the report left", within_s=PATIENCE_S)
    java.suspend()
    other = caller("admin")
    thread, cancelled = in_background(run)
    found = wait_until(lambda: running(other), "a report runs", within_s=PATIENCE_S)
    assert other("POST", f"reports/runs/{found['id']}/cancel")[1]["stage"] == "cancelling"
    thread.join()
    third = run()

    assert [each["state"] for each in (first, second, third)] == ["succeeded"] * 3
    assert [each["state"] for each in cancelled] == ["cancelled"]
    assert stages(first)[0] == "starting Spark"
    assert stages(second)[0] == stages(third)[0] == "waiting for Spark"
    assert not {*stages(second), *stages(third)} & {"starting Spark", "stopping Spark"}
    assert javas() == [java]
    left = {path.name for path in (tmp_path / "reports").iterdir()}
    assert left == {str(each["id"]) for each in (first, second, third)}


def test_a_report_whose_session_is_killed_runs_again_in_a_process_of_its_own(run, archive, monkeypatch):
    """kill -9 of Java, as by a machine that runs out of memory. The next report has a new session."""
    run()
    [java] = javas()

    def submit(self: SessionProcess, job: Any) -> None:
        submits(self, job)
        java.kill()

    submits = SessionProcess.submit
    with monkeypatch.context() as patched:
        patched.setattr(SessionProcess, "submit", submit)
        again = run()

    assert (again["state"], again["error"], again["rows"]) == ("succeeded", None, 1)
    assert "The Spark session ended. The report runs again in a process of its own." in again["log_tail"]
    assert "starting Spark" in stages(again)
    assert run()["state"] == "succeeded"
    [replaced] = javas()
    assert replaced != java


def test_a_session_that_does_not_answer_is_killed(run, archive):
    """The report over its time limit fails, and the session is gone."""
    run()
    [java] = javas()
    session = java.parent()
    assert session is not None
    wait_until(lambda: WARM_SESSION.is_free, "the session has removed what the report left", within_s=PATIENCE_S)
    session.suspend()

    stopped = run(time_limit_s=1)

    assert (stopped["state"], stopped["error"]) == ("failed", "the run took longer than its limit of 1 s")
    wait_until(lambda: is_gone(java) and is_gone(session), "the session is gone", within_s=PATIENCE_S)
    assert not WARM_SESSION.is_free


def test_an_idle_session_ends(run, archive, settings: Any):
    WARM_SESSION.end()
    settings.NSQ_SPARK_IDLE_S = 1
    assert run()["state"] == "succeeded"

    wait_until(lambda: javas() == [], "Java has ended", within_s=PATIENCE_S)


def test_without_an_idle_time_each_report_has_a_process_of_its_own(run, archive, settings: Any):
    WARM_SESSION.end()
    settings.NSQ_SPARK_IDLE_S = 0

    only = run()

    assert (only["state"], stages(only)[0]) == ("succeeded", "starting Spark")
    assert javas() == []


def test_an_opened_form_lets_the_worker_start_spark(caller, worker, archive):
    """Without a worker, nothing happens. A worker that is stopped ends its session."""
    operator = caller("operator")
    assert caller("viewer")("POST", "reports/session")[0] == 403
    assert operator("POST", "reports/session")[0] == 204
    at_work = worker()

    def started() -> list[psutil.Process]:
        assert operator("POST", "reports/session")[0] == 204
        return descendants(at_work.process.pid, name="java")

    [java] = wait_until(started, "Spark has started", within_s=PATIENCE_S)
    at_work.end(signal.SIGTERM)

    wait_until(lambda: is_gone(java), "Java has ended", within_s=PATIENCE_S)
