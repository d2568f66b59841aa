"""Running reports: on request and by schedule, with results, notifications and failures."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.database import url_of
from tests.harness.processes import descendants
from tests.harness.waiting import wait_until
from tests.platform.live_messages import messages_sent

pytestmark = [pytest.mark.database, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / each) for each in (".", "platform", "analytics", "integrations")]
PARAMETERS = {"window": "1h", "period": "1h", "until": "2026-03-14T01:00:00Z"}
PATIENCE_S = 300.0
"""A JVM starts in seconds, or in minutes on a busy machine. The deadline only ends tests that fail."""
REQUEST = {"job": "latency", "parameters": PARAMETERS}


class Worker:
    """A Celery worker, or beat, as ``nsq`` starts it, on this test's database, Redis and folders."""

    def __init__(self, log: Path, subcommand: str = "worker", **environment: str) -> None:
        from django.conf import settings
        from django.db import connection

        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nsqplatform.console.nsq", subcommand],
                env=os.environ
                | {
                    "DJANGO_SETTINGS_MODULE": "nsqplatform.console.settings",
                    "PYTHONPATH": os.pathsep.join(SOURCES),
                    "NSQ_HOME": str(settings.NSQ.home),
                    "DATABASE_URL": url_of(connection.settings_dict),
                    "REDIS_URL": settings.REDIS_URL,
                    "NSQ_ARCHIVE": settings.NSQ_ARCHIVE,
                    "NSQ_REPORTS": settings.NSQ_REPORTS,
                }
                | environment,
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def jobs(self) -> list[psutil.Process]:
        """The processes of its current runs, JVMs included."""
        return descendants(self.process.pid)

    def has_java(self) -> bool:
        return descendants(self.process.pid, name="java") != []

    def end(self, sent: int) -> None:
        self.process.send_signal(sent)
        self.process.wait(30)


@pytest.fixture
def worker(redis, transactional_db, tmp_path: Path) -> Iterator[Any]:
    """Starts workers; they are stopped after the test."""
    started: list[Worker] = []

    def start(subcommand: str = "worker", **environment: str) -> Worker:
        started.append(Worker(tmp_path / f"{subcommand}.log", subcommand, **environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.fixture
def sink() -> Iterator[tuple[str, list[Any]]]:
    """A web server that keeps the JSON posted to it; ``/refused`` answers 403 with a long text."""
    posted: list[Any] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            said = b"no_service " * 100 if self.path == "/refused" else b""
            self.send_response(403 if said else 200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", posted
    server.shutdown()
    server.server_close()


@pytest.fixture
def sent_runs(redis) -> Iterator[list[dict[str, Any]]]:
    """Every run message that the websocket's group receives."""
    with messages_sent(redis, "run") as runs:
        yield runs


@pytest.mark.spark
# Daphne reads the download piece by piece; the test client has to collect it.
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_run_now_shows_progress_and_then_the_percentiles(caller, worker, sent_runs, archive: list[int]):
    """From the request to the table and its CSV, by a real worker and a real Spark."""
    operator = caller("operator")
    status, run = operator("POST", "reports/runs", REQUEST)
    assert (status, run["state"], run["requested_by"], run["progress"]) == (201, "queued", "operator", 0)
    path = f"reports/runs/{run['id']}"
    assert operator("GET", f"{path}/result")[1] == {"message": f"run {run['id']} has no result: it is queued"}

    worker()  # runs that were requested earlier are executed too
    run = wait_until(
        lambda: (found := operator("GET", path)[1])["state"] not in ("queued", "running") and found,
        "the run is over",
        within_s=PATIENCE_S,
    )

    assert (run["state"], run["error"], run["rows"], run["progress"]) == ("succeeded", None, 1, 1)
    assert run["created_at"] <= run["started_at"] <= run["finished_at"]
    wait_until(lambda: sent_runs[-1]["state"] == "succeeded", "browsers receive the end")
    progress = [each["progress"] for each in sent_runs]
    assert progress == sorted(progress)
    assert {each["state"] for each in sent_runs} == {"queued", "running", "succeeded"}
    assert "merging histograms" in [stage["name"] for stage in sent_runs[-1]["stages"]]

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

    status, part = operator("GET", f"{path}/result?columns=p99_ms,topic")
    assert ([column["name"] for column in part["columns"]], part["rows"]) == (
        ["p99_ms", "topic"],
        [[row["p99_ms"], "orders"]],
    )
    status, answer = operator("GET", f"{path}/result?columns=p98_ms")
    assert (status, answer["message"][:47]) == (422, "columns: there is no column 'p98_ms'; there are")
    assert next(each["name"] for each in run["stages"]) == "starting Spark"
    assert "merging histograms" in [each["name"] for each in run["stages"]]

    whole = operator.raw("GET", f"{path}/result.parquet")
    assert whole["Content-Disposition"] == f'attachment; filename="latency-{run["id"]}.parquet"'
    [same] = pq.read_table(io.BytesIO(b"".join(whole))).to_pylist()
    assert (same["topic"], same["count"], same["p99_ms"]) == ("orders", 1500, row["p99_ms"])

    download = operator.raw("GET", f"{path}/result.csv")
    assert download["Content-Disposition"] == f'attachment; filename="latency-{run["id"]}.csv"'
    [line] = csv.DictReader(io.StringIO(b"".join(download).decode()))
    assert (line["window_start"], line["count (messages)"]) == ("2026-03-14T00:00:00+00:00", "1500")
    assert float(line["p99_ms"]) == row["p99_ms"]


def test_a_queued_report_is_cancelled_at_once_and_never_runs(caller, redis):
    """It needs no worker."""
    from nsqplatform.reports import runner

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]

    assert operator("POST", f"reports/runs/{run['id']}/cancel")[1]["state"] == "cancelled"
    runner.execute(run["id"])
    assert operator("GET", f"reports/runs/{run['id']}")[1]["started_at"] is None


def test_a_run_that_cannot_succeed_says_why(caller, redis, tmp_path: Path):
    """The run has the job's error message."""
    from nsqplatform.reports import runner

    operator = caller("operator")
    run = operator("POST", "reports/runs", REQUEST)[1]

    runner.execute(run["id"])

    run = operator("GET", f"reports/runs/{run['id']}")[1]
    message = f"there is no archive at {tmp_path}/archive/samples: has the collector run?"
    assert (run["state"], run["error"], run["rows"]) == ("failed", message, None)
    assert message in run["log_tail"]


def schedule_of(caller: Any, **values: Any) -> int:
    """The id of a new schedule of the latency report."""
    body = {"name": "hourly", "job": "latency", "parameters": PARAMETERS, "every_seconds": 3600}
    status, schedule = caller("admin")("POST", "reports/schedules", body | values)
    assert status == 201, schedule
    return int(schedule["id"])


def runs_of(schedule_id: int) -> list[Any]:
    from nsqplatform.reports.models import ReportRun

    return list(ReportRun.objects.filter(report=schedule_id).order_by("pk"))


def states_of(schedule_id: int) -> list[str]:
    return [run.state for run in runs_of(schedule_id)]


def test_beat_queues_due_reports(caller, worker, redis):
    """A due report is put into the queue that workers read."""
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    report_id = schedule_of(caller, every_seconds=60)
    # A second instead of the minute that the API requires: the test cannot wait so long.
    each_second = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.filter(report__isnull=False).update(interval=each_second)

    beat = worker("beat")

    def queued() -> set[tuple[str, int]]:
        assert beat.process.poll() is None, f"beat has ended: {beat.log.read_text()}"
        messages = [json.loads(message) for message in redis.lrange("dispatch", 0, -1)]
        asked = [(message["headers"]["task"], json.loads(base64.b64decode(message["body"]))[1]) for message in messages]
        return {(task, kwargs.get("report_id")) for task, kwargs in asked if abs(kwargs["asked_at"] - time.time()) < 60}

    wait_until(lambda: ("reports.run_scheduled", report_id) in queued(), "the report is due", within_s=PATIENCE_S)


def test_due_times_that_waited_for_a_dispatcher_make_one_run(caller, worker, redis):
    """Nine due times without a dispatcher: one run, and the schedule shows the number of the other eight."""
    from nsqplatform.reports import tasks

    report_id = schedule_of(caller, overlap="cancel")
    began = time.time()
    for minute in range(9):
        tasks.run_scheduled.delay(report_id, asked_at=began - 60 * (9 - minute))
    worker("dispatcher")

    viewer = caller("viewer")

    def schedule() -> Any:
        [found] = viewer("GET", "reports/schedules")[1]["schedules"]
        return found

    wait_until(
        lambda: redis.llen("dispatch") == 0 and schedule()["skipped_count"] == 8,
        "all nine are handled",
        within_s=PATIENCE_S,
    )
    assert states_of(report_id) == ["queued"]
    found = schedule()
    assert found["last_skip_reason"] == "it waited for the dispatcher, and a later run replaces it"
    assert found["last_skipped_at"] < began * 1000 <= found["last_run_at"] + 1
    tasks.run_scheduled(report_id, asked_at=time.time())  # the next one is in time
    assert states_of(report_id) == ["cancelled", "queued"]


def test_a_due_report_is_left_out_while_its_last_run_is_not_over(caller, redis):
    """The default policy, skip: two runs at a time would only slow each other down."""
    from nsqplatform.reports import tasks

    report_id = schedule_of(caller)
    tasks.run_scheduled(report_id)
    tasks.run_scheduled(report_id)
    [run] = runs_of(report_id)
    assert (run.requested_by, run.parameters, run.state) == ("schedule hourly", PARAMETERS, "queued")
    [schedule] = caller("viewer")("GET", "reports/schedules")[1]["schedules"]
    assert (schedule["skipped_count"], schedule["last_skip_reason"]) == (1, "the previous run had not finished")
    assert schedule["last_run_at"] <= schedule["last_skipped_at"]

    tasks.run_report(run.pk)  # there is no archive: it fails
    tasks.run_scheduled(report_id)
    assert states_of(report_id) == ["failed", "queued"]
    operator = caller("operator")
    newest, older = operator("GET", f"reports/runs?schedule={report_id}")[1]["runs"]
    assert operator("GET", f"reports/runs?before={newest['id']}&limit=1")[1]["runs"] == [older]
    assert operator("GET", "reports/runs?state=failed")[1]["runs"] == [older]
    assert operator("GET", "reports/runs?job=other")[1]["runs"] == []


def test_a_due_report_waits_for_its_last_run_where_the_schedule_queues(caller, redis):
    """It does not start before the other has ended, whoever delivers it, and is then queued automatically."""
    from nsqplatform.reports import tasks

    report_id = schedule_of(caller, overlap="queue")
    tasks.run_scheduled(report_id)
    tasks.run_scheduled(report_id)
    first, second = runs_of(report_id)
    tasks.run_report(second.pk)
    assert states_of(report_id) == ["queued", "queued"]

    redis.delete("reports")
    tasks.run_report(first.pk)
    [message] = redis.lrange("reports", 0, -1)
    assert json.loads(message)["headers"]["argsrepr"] == repr((second.pk,))
    tasks.run_report(second.pk)
    assert states_of(report_id) == ["failed", "failed"]


def test_a_due_report_takes_the_place_of_its_last_run_where_the_schedule_cancels(caller, redis):
    from nsqplatform.reports import tasks

    report_id = schedule_of(caller, overlap="cancel")
    tasks.run_scheduled(report_id)
    tasks.run_scheduled(report_id)
    assert states_of(report_id) == ["cancelled", "queued"]


def test_a_failed_scheduled_run_is_retried_later_and_then_notified(caller, redis, sink, settings):
    """Each delay is twice the previous one; the webhook receives only the last failure, as text and as fields."""
    from datetime import timedelta

    from django.utils.timezone import now

    from nsqplatform.reports import tasks
    from nsqplatform.reports.models import ReportRun

    settings.NSQ_SITE = "https://nsq.example.org"
    url, posted = sink
    hook = {"notify_on": "failure", "notify_webhook": url}
    report_id = schedule_of(caller, retries=2, retry_after_s=100, **hook)
    tasks.run_scheduled(report_id)
    for attempt, wait_s in ((1, 100), (2, 200)):
        tasks.run_report(runs_of(report_id)[-1].pk)
        again = runs_of(report_id)[-1]
        assert (again.state, again.attempt) == ("queued", attempt + 1)
        assert timedelta(seconds=wait_s - 30) < again.not_before - now() <= timedelta(seconds=wait_s)
        tasks.run_report(again.pk)
        assert states_of(report_id)[-1] == "queued"  # not before its time
        ReportRun.objects.filter(pk=again.pk).update(not_before=now())
    redis.delete("dispatch")
    tasks.run_report(again.pk)
    assert states_of(report_id) == ["failed", "failed", "failed"]

    [message] = redis.lrange("dispatch", 0, -1)
    assert json.loads(message)["headers"]["task"] == "reports.notify"
    tasks.notify(again.pk, "webhook")
    [body] = posted
    assert (body["schedule"], body["run"], body["state"], body["attempt"]) == ("hourly", again.pk, "failed", 3)
    assert "there is no archive" in body["error"]
    assert body["path"] == f"/reports/runs/{again.pk}"
    assert body["text"].splitlines() == [
        "Report hourly failed",
        f"Run {again.pk} (latency, attempt 3): {body['error']}",
        f"https://nsq.example.org/reports/runs/{again.pk}",
    ]


def test_a_webhook_that_refuses_delays_no_e_mail(caller, redis, sink, mailoutbox):
    """E-mail and webhook are independent; the webhook's answer is stored, cut if it is long."""
    from nsqplatform.outbound import Undelivered
    from nsqplatform.reports import tasks

    url = sink[0].replace("/hook", "/refused")
    report_id = schedule_of(caller, notify_on="failure", notify_webhook=url, notify_email="ann@example.org")
    tasks.run_scheduled(report_id)
    [run] = runs_of(report_id)
    redis.delete("dispatch")
    tasks.run_report(run.pk)

    asked = [json.loads(base64.b64decode(json.loads(each)["body"]))[0] for each in redis.lrange("dispatch", 0, -1)]
    assert sorted(asked) == [[run.pk, "email"], [run.pk, "webhook"]]
    with pytest.raises(Undelivered) as refused:
        tasks.notify.run(run.pk, "webhook")
    assert str(refused.value) == "answers 403 Forbidden"
    assert len(str(refused.value)) < 400
    tasks.notify.run(run.pk, "email")
    assert len(mailoutbox) == 1


def test_a_schedules_address_gets_an_email(caller, redis, mailoutbox):
    from nsqplatform.reports import tasks

    mail = {"notify_on": "completion", "notify_email": "ann@example.org, bob@example.org"}
    report_id = schedule_of(caller, **mail)
    tasks.run_scheduled(report_id)
    [run] = runs_of(report_id)
    tasks.run_report(run.pk)
    tasks.notify(run.pk, "email")

    [letter] = mailoutbox
    assert (letter.subject, letter.to) == ("Report hourly failed", ["ann@example.org", "bob@example.org"])
    assert "there is no archive" in letter.body


def test_results_are_removed_after_their_retention(caller, redis, tmp_path: Path):
    """The run stays and says so; newer results stay, and those of clusters that are not declared; those left by a
    crashed job do not."""
    from datetime import timedelta

    from django.utils.timezone import now

    from nsqplatform.reports import tasks
    from nsqplatform.reports.models import ReportRun

    def run(state: str, days: int) -> int:
        made = ReportRun.objects.create(
            job="latency", state=state, keep_days=7, finished_at=now() - timedelta(days=days)
        )
        (tmp_path / "reports" / str(made.pk)).mkdir(parents=True)
        return int(made.pk)

    old, young, failed = run("succeeded", 8), run("succeeded", 6), run("failed", 1)
    running = ReportRun.objects.create(job="latency", state="running")
    undeclared = ReportRun.everywhere.create(
        job="latency", state="succeeded", keep_days=7, finished_at=now() - timedelta(days=8), cluster="elsewhere"
    )
    (tmp_path / "reports" / str(undeclared.pk)).mkdir()
    orphans = [f"{old}.0badcafe.writing", f"{young}.0badcafe.writing.old", f"{running.pk + 1}.0badcafe.writing"]
    for name in (*orphans, f"{running.pk}.0badcafe.writing"):
        (tmp_path / "reports" / name).mkdir()
    tasks.drop_expired_results()

    left = {folder.name for folder in (tmp_path / "reports").iterdir()}
    assert left == {str(young), str(undeclared.pk), f"{running.pk}.0badcafe.writing"}
    viewer = caller("viewer")
    assert viewer("GET", f"reports/runs/{old}")[1]["result_dropped_at"] is not None
    status, answer = viewer("GET", f"reports/runs/{old}/result")
    assert (status, answer["message"]) == (
        404,
        f"the result of run {old} was removed: its results are kept for 7 days",
    )
    assert viewer("GET", f"reports/runs/{failed}")[1]["result_kept_until"] is None


def test_a_run_has_an_estimate_of_its_remaining_time(caller, redis):
    """It is based on the current stage of the last run with the same parameters; without one, on its own progress."""
    from datetime import timedelta

    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun
    from nsqplatform.reports.time_left import earlier_run, seconds_left

    began = now().replace(microsecond=0)

    def stages(*starts: tuple[str, int]) -> list[dict[str, Any]]:
        return [
            {"name": name, "started_at": int(began.timestamp() * 1000) + 1000 * s, "fraction": 0} for name, s in starts
        ]

    run = ReportRun(job="latency", parameters=PARAMETERS, state="running", started_at=began, progress=0.05)
    run.save()
    at = began + timedelta(seconds=30)
    assert seconds_left(run, earlier_run(run), at=at) is None
    run.progress = 0.25
    assert seconds_left(run, earlier_run(run), at=at) == 90

    ReportRun.objects.all().delete()
    ReportRun.objects.create(
        job="latency",
        parameters=PARAMETERS,
        state="succeeded",
        started_at=began,
        finished_at=began + timedelta(seconds=300),
        stages=stages(("starting Spark", 0), ("reading 7 days", 20), ("merging histograms", 200)),
    )
    ReportRun.objects.create(job="latency", parameters={}, state="succeeded", finished_at=began)
    run.pk = None
    run.stages = stages(("starting Spark", 0), ("reading 7 days", 25))
    run.save()
    assert seconds_left(run, earlier_run(run), at=at) == 280 - 5
    assert seconds_left(run, earlier_run(run), at=began + timedelta(seconds=900)) == 100  # a long stage before the last
    run.stages = stages(("another stage", 0))
    assert seconds_left(run, earlier_run(run), at=at) == 90
    run.fail(error="no", at=at)
    assert run.left_s is None


def test_a_stage_is_listed_once_however_much_of_it_is_done(caller, redis):
    """The run says what it does now; its list of stages has each with its start."""
    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun

    run = ReportRun.objects.create(job="latency", state="running", started_at=now())
    said = ["starting Spark", "reading 30 days", "reading 14 of 30 days", "merging histograms (3 of 9 tasks)"]
    for stage in said:
        run.advance(progress=0.1, stage=stage, log_tail="", at=now())
        assert run.stage == stage
    assert [each["name"] for each in run.stages] == ["starting Spark", "reading 30 days", "merging histograms"]


def test_a_stage_that_was_over_before_the_next_save_is_listed(caller, redis):
    """With the time of its report, so that a short stage counts in the time that is left of later runs."""
    from django.utils.timezone import now

    from nsqplatform.reports.job_process import JobOutput
    from nsqplatform.reports.models import ReportRun
    from nsqplatform.reports.runner import advance

    run = ReportRun.objects.create(job="latency", state="running", started_at=now())
    output = JobOutput("starting Spark")
    advance(run, output, "")
    for fraction, stage in ((0.1, "reading 7 days"), (0.6, "merging histograms"), (0.9, "writing the result")):
        output.take({"event": "progress", "fraction": fraction, "stage": stage})
    advance(run, output, "")
    assert [(each["name"], each["fraction"]) for each in run.stages] == [
        ("starting Spark", 0.0),
        ("reading 7 days", 0.1),
        ("merging histograms", 0.6),
        ("writing the result", 0.9),
    ]
    assert (run.stage, run.progress) == ("writing the result", 0.9)


def test_a_run_has_an_estimate_although_the_clock_is_set_back(caller, redis):
    """Based on its own progress, and on an earlier run during which the clock was set back."""
    from datetime import timedelta

    from django.utils.timezone import now

    from nsqplatform.reports.models import ReportRun
    from nsqplatform.reports.time_left import seconds_left

    began = now()
    stage = {"name": "starting Spark", "started_at": int(began.timestamp() * 1000), "fraction": 0}
    run = ReportRun(job="latency", state="running", started_at=began, progress=0.25, stages=[stage])
    earlier = ReportRun(job="latency", state="succeeded", finished_at=began - timedelta(hours=1), stages=[stage])
    for other in (None, earlier):
        run.left_s = seconds_left(run, other, at=began - timedelta(seconds=30 if other is None else 0))
        run.save()
        assert run.left_s == 0


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"job": "latencies"}, "there is no job 'latencies'; there are latency, throughput"),
        ({"job": "latency", "parameters": {"window": "7m"}}, "window: '7m' is not one of 5m, 1h, 1d"),
        ({"job": "latency", "parameters": {"topic": "or\0ders"}}, "topic: it contains the character U+0000"),
        ({"job": "latency", "parameters": {"window": ["5m"]}}, "parameters.window"),
        ({"parameters": {}}, "job: Field required"),
    ],
)
def test_an_invalid_run_is_refused_by_name(caller, body: dict[str, Any], complaint: str):
    """With 422, and no run is created."""
    operator = caller("operator")

    status, answer = operator("POST", "reports/runs", body)

    assert status == 422
    assert complaint in answer["message"]
    assert operator("GET", "reports/runs")[1] == {"runs": []}
    assert operator("GET", "reports/runs/1")[0] == 404
