"""Running reports: by hand and by schedule, to a result, to a message, or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PARAMETERS = {"window": "1h", "period": "1h", "until": "2026-03-14T01:00:00Z"}
REQUEST = {"job": "latency", "parameters": PARAMETERS}


class Worker:
    """A Celery worker, or beat, as ``nsq`` starts it, on this test's database, Redis and folders."""

    def __init__(self, log: Path, subcommand: str = "worker") -> None:
        from django.conf import settings
        from django.db import connection

        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "console.nsq", subcommand],
                env=os.environ
                | {
                    "DJANGO_SETTINGS_MODULE": "console.settings",
                    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
                    "NSQ_HOME": str(settings.NSQ.home),
                    "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
                    "REDIS_URL": settings.REDIS_URL,
                    "NSQ_ARCHIVE": settings.NSQ_ARCHIVE,
                    "NSQ_REPORTS": settings.NSQ_REPORTS,
                },
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def jobs(self) -> list[psutil.Process]:
        """The processes of the runs it is at, JVMs included."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def end(self, sent: int) -> None:
        self.process.send_signal(sent)
        self.process.wait(30)


@pytest.fixture
def worker(redis, transactional_db, tmp_path: Path) -> Iterator[Any]:
    """Starts workers; they are gone after the test."""
    started: list[Worker] = []

    def start(subcommand: str = "worker") -> Worker:
        started.append(Worker(tmp_path / f"{subcommand}.log", subcommand))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.fixture
def told(redis) -> Iterator[list[dict[str, Any]]]:
    """Every RUN that a browser on the websocket's group would be sent."""
    import asyncio

    from channels.layers import get_channel_layer

    heard: list[dict[str, Any]] = []
    over, ready = threading.Event(), threading.Event()

    async def listen() -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add("cluster", channel)
        ready.set()
        while not over.is_set():
            try:
                event = await asyncio.wait_for(layer.receive(channel), 0.3)
            except TimeoutError:
                continue
            message = json.loads(event["text"])
            if message["type"] == "run":
                heard.append(message["run"])
        await layer.close_pools()

    listener = threading.Thread(target=lambda: asyncio.run(listen()), daemon=True)
    listener.start()
    assert ready.wait(10)
    yield heard
    over.set()
    listener.join(10)


@pytest.mark.spark
# Daphne reads the download piece by piece; the test client has to gather it.
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_run_now_shows_progress_and_then_the_percentiles(caller, worker, told, archive: list[int], wait_until):
    """From the request to the table and its CSV, by a real worker and a real Spark."""
    operator = caller("operator")
    status, run = operator("POST", "reports/runs", REQUEST)
    assert (status, run["state"], run["requested_by"], run["progress"]) == (201, "queued", "operator", 0)
    path = f"reports/runs/{run['id']}"
    assert operator("GET", f"{path}/result")[1] == {"message": f"run {run['id']} has no result: it is queued"}

    worker()  # what was asked for before it came is done too
    run = wait_until(
        lambda: (found := operator("GET", path)[1])["state"] not in ("queued", "running") and found,
        "the run is over",
        150,
    )

    assert (run["state"], run["error"], run["rows"], run["progress"]) == ("succeeded", None, 1, 1)
    assert run["created_at"] <= run["started_at"] <= run["finished_at"]
    wait_until(lambda: told[-1]["state"] == "succeeded", "the browsers are told of the end")
    progress = [each["progress"] for each in told]
    assert progress == sorted(progress)
    assert {each["state"] for each in told} == {"queued", "running", "succeeded"}
    assert any(each["stage"].startswith("merge histograms") for each in told)

    status, result = operator("GET", f"{path}/result")
    assert (status, result["total"], len(result["rows"])) == (200, 1, 1)
    row = dict(zip([column["name"] for column in result["columns"]], result["rows"][0], strict=True))
    assert (row["window_start"], row["topic"], row["channel"], row["count"]) == (
        *(1773446400000, "orders", "billing"),
        1500,
    )
    for name, q in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        exact_ms = sorted(archive)[math.ceil(q * len(archive)) - 1] / 1e6
        assert row[name] == pytest.approx(exact_ms, rel=0.011)
    assert operator("GET", f"{path}/result?offset=1")[1]["rows"] == []

    download = operator.raw("GET", f"{path}/result.csv")
    assert download["Content-Disposition"] == f'attachment; filename="latency-{run["id"]}.csv"'
    [line] = csv.DictReader(io.StringIO(b"".join(download).decode()))
    assert (line["window_start"], line["count"]) == ("2026-03-14T00:00:00+00:00", "1500")
    assert float(line["p99_ms"]) == row["p99_ms"]


@pytest.mark.spark
def test_a_running_report_is_cancelled_with_all_its_processes(caller, worker, archive, wait_until, tmp_path: Path):
    """The job and its JVM are gone, no result is left, and the worker takes the next run."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    at_work = worker()
    wait_until(lambda: any(job.name() == "java" for job in at_work.jobs()), "a JVM is up", 60)
    jobs = at_work.jobs()

    status, cancelling = operator("POST", f"reports/runs/{run['id']}/cancel")

    assert (status, cancelling["stage"]) == (200, "cancelling")
    wait_until(lambda: operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "cancelled", "it is cancelled")
    wait_until(lambda: not any(job.is_running() and job.status() != "zombie" for job in jobs), "its processes are gone")
    assert list((tmp_path / "reports").iterdir()) == []
    status, answer = operator("POST", f"reports/runs/{run['id']}/cancel")
    assert (status, answer["message"]) == (409, f"run {run['id']} is cancelled and cannot be cancelled")


def test_a_queued_report_is_cancelled_at_once_and_never_runs(caller, redis):
    """There is no worker to wait for."""
    from reports import runner

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]

    assert operator("POST", f"reports/runs/{run['id']}/cancel")[1]["state"] == "cancelled"
    runner.execute(run["id"])
    assert operator("GET", f"reports/runs/{run['id']}")[1]["started_at"] is None


def test_a_run_that_cannot_succeed_says_why(caller, redis, tmp_path: Path):
    """The sentence of the job, on the run."""
    from reports import runner

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]

    runner.execute(run["id"])

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    message = f"there is no archive at {tmp_path}/archive/samples: has the collector run?"
    assert (run["state"], run["error"], run["rows"]) == ("failed", message, None)
    assert message in run["log_tail"]


def test_a_run_over_its_time_limit_is_stopped(caller, redis, archive, tmp_path: Path):
    from reports import runner

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]

    runner.execute(run["id"], time_limit=timedelta(seconds=1))

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    assert (run["state"], run["error"]) == ("failed", "the run took longer than its limit of 0:00:01")
    assert list((tmp_path / "reports").glob("*")) == []


@pytest.mark.spark
def test_a_worker_killed_in_the_middle_leaves_a_failed_run_and_nothing_else(
    caller, worker, archive, wait_until, tmp_path: Path
):
    """kill -9 of the worker alone: its job dies by itself, and the next worker closes the run."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    killed = worker()
    wait_until(lambda: any(job.name() == "java" for job in killed.jobs()), "a JVM is up", 60)
    jobs = killed.jobs()

    killed.end(signal.SIGKILL)
    wait_until(lambda: not any(job.is_running() and job.status() != "zombie" for job in jobs), "its processes are gone")
    assert operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "running"
    worker()

    closed = wait_until(
        lambda: (found := operator("GET", f"reports/runs/{run['id']}")[1])["state"] == "failed" and found,
        "it is closed",
        60,
    )
    assert closed["error"] == "the worker died in the middle of the run"
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_worker_told_to_stop_does_not_wait_for_its_report(caller, worker, archive, wait_until, tmp_path: Path):
    """It ends within seconds, and says so on the run."""
    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]
    stopped = worker()
    wait_until(lambda: operator("GET", f"reports/runs/{run['id']}")[1]["state"] == "running", "it runs", 60)

    stopped.end(signal.SIGTERM)

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    assert (run["state"], run["error"]) == ("failed", "the worker was stopped in the middle of the run")
    assert list((tmp_path / "reports").glob("*")) == []


def test_beat_asks_for_what_is_due_and_looks_after_the_dead(caller, worker, redis, wait_until):
    """A due report is put into the queue that workers read; closing dead runs is on its list, every 30 s."""
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    operator = caller("operator")
    schedule = {"name": "often", "job": "latency", "parameters": {}, "every_seconds": 60}
    report_id = operator("POST", "reports/schedules", schedule)[1]["id"]
    # A second instead of the minute that the API allows: the test cannot wait so long.
    each_second = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.filter(report__isnull=False).update(interval=each_second)

    worker("beat")

    def queued() -> set[tuple[str, str]]:
        headers = [json.loads(message)["headers"] for message in redis.lrange("celery", 0, -1)]
        return {(header["task"], header["kwargsrepr"]) for header in headers}

    wait_until(lambda: ("reports.run_scheduled", repr({"report_id": report_id})) in queued(), "the report is due", 60)
    kept = PeriodicTask.objects.get(task="reports.fail_abandoned_runs")
    assert (kept.enabled, kept.interval.every) == (True, 30)


def test_a_due_report_runs_unless_its_last_run_is_not_over(caller, redis):
    """Beat's task makes a run with the report's parameters; two at a time would only slow each other."""
    from reports import tasks
    from reports.models import Report, ReportRun

    operator = caller("operator")
    schedule = {"name": "hourly", "job": "latency", "parameters": PARAMETERS, "every_seconds": 3600}
    report_id = operator("POST", "reports/schedules", schedule)[1]["id"]

    tasks.run_scheduled(report_id)
    [run] = operator("GET", "reports/runs")[1]["runs"]
    assert (run["requested_by"], run["parameters"], run["state"]) == ("schedule hourly", PARAMETERS, "failed")

    waiting = ReportRun.objects.create(report=Report.objects.get(), job="latency", requested_by="schedule hourly")
    tasks.run_scheduled(report_id)
    assert [each["id"] for each in operator("GET", "reports/runs")[1]["runs"]] == [waiting.pk, run["id"]]

    assert operator("GET", f"reports/runs?before={waiting.pk}&limit=1")[1]["runs"] == [run]
    assert operator("GET", "reports/runs?job=other")[1]["runs"] == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"job": "latencies"}, "there is no job 'latencies'; there are latency"),
        ({"job": "latency", "parameters": {"window": "7m"}}, "window: '7m' is not one of 5m, 1h, 1d"),
        ({"job": "latency", "parameters": {"window": ["5m"]}}, "parameters.window"),
        ({"parameters": {}}, "job: Field required"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused_by_name(caller, body: dict[str, Any], complaint: str):
    """422, and no run is made."""
    operator = caller("operator")

    status, answer = operator("POST", "reports/runs", body)

    assert status == 422
    assert complaint in answer["message"]
    assert operator("GET", "reports/runs")[1] == {"runs": []}
    assert operator("GET", "reports/runs/1")[0] == 404
