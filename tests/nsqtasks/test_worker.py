"""Workers in processes of their own: what they run, and how they stop."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.harness.daemon import Broker
from tests.harness.process import Process
from tests.harness.waiting import wait_until
from tests.nsqtasks.conftest import Project, in_flight

Start = Callable[..., Process]


def test_a_worker_runs_tasks_and_stores_their_results(project: Project, start: Start) -> None:
    """Those that were enqueued before it started, of each queue and priority, and those that come later."""
    enqueue = (
        "fail.enqueue('no paper'); add_later.using(queue_name='emails', priority=7).enqueue(1, 2);"
        "attempt.using(priority=-5).enqueue('word')"
    )
    project.python(enqueue)
    start()
    project.wait_until_successful(2)
    project.python("add.enqueue(3, 4)")
    project.wait_until_successful(3)
    wait_until(lambda: not project.rows("SELECT id FROM task WHERE finished_at IS NULL"), "all tasks have finished")
    columns = "task_path, status, return_value, attempts, json_array_length(errors), id"
    fail, add_later, attempt, add = project.rows(f"SELECT {columns} FROM task ORDER BY enqueued_at")
    assert fail[:5] == ("shop.tasks.fail", "FAILED", None, 1, 1)
    assert add_later[:5] == ("shop.tasks.add_later", "SUCCESSFUL", "3", 1, 0)
    assert attempt[:5] == ("shop.tasks.attempt", "SUCCESSFUL", f'[1, "{attempt[5]}", "word"]', 1, 0)
    assert add[:5] == ("shop.tasks.add", "SUCCESSFUL", "7", 1, 0)


def test_tasks_of_a_high_priority_run_first(project: Project, start: Start, broker: Broker) -> None:
    """While one task has the only slot, the others arrive."""
    project.python("wait_for_file.enqueue('blocker')")
    worker = start("--concurrency=1")
    project.wait_for_line("blocker begins")
    project.python(
        "trace.using(priority=-1).enqueue('low')\ntrace.enqueue('middle')\ntrace.using(priority=5).enqueue('high')"
    )
    broker_topics = ["tasks.default.low", "tasks.default.high"]
    wait_until(lambda: all(in_flight(broker, topic) == 1 for topic in broker_topics), "the tasks in flight")
    project.go("blocker")
    for name in ("low", "middle"):
        project.wait_for_line(f"{name} ends")
    begun = [line for line in project.lines() if line.endswith("begins")]
    assert begun[0] == "blocker begins"
    assert begun.index("high begins") < begun.index("low begins"), begun
    assert worker.terminate() == 0


def test_a_worker_that_is_stopped_finishes_its_tasks_and_begins_no_others(
    project: Project, start: Start, broker: Broker
) -> None:
    """SIGTERM. The messages of waiting tasks return to the broker, where the next worker takes them."""
    project.python("wait_for_file.enqueue('long')")
    worker = start("--concurrency=1")
    project.wait_for_line("long begins")
    project.python("trace.using(priority=5).enqueue('waiting')")
    wait_until(lambda: in_flight(broker, "tasks.default.high") == 1, "the waiting task in flight")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("SIGTERM: stopping after 1 running tasks")
    assert worker.is_running
    project.go("long")
    assert worker.wait_for_exit() == 0, worker.output
    assert project.lines() == ["long begins", "long ends"]
    start()
    project.wait_for_line("waiting ends")
    project.wait_until_successful(2)
    assert project.rows("SELECT DISTINCT attempts FROM task") == [(1,)]


def test_a_stop_has_a_limit(project: Project, start: Start) -> None:
    project.python("wait_for_file.enqueue('long')")
    worker = start("--stop-timeout=0.1")
    project.wait_for_line("long begins")
    assert worker.terminate() == 1
    assert "--stop-timeout: ending while tasks run" in worker.output


def test_a_task_runs_after_its_time_even_beyond_the_brokers_longest_deferral(
    make_project: Callable[[Broker], Project], start_broker
) -> None:
    """The broker defers for at most half a second, again and again."""
    broker = start_broker("--max-req-timeout=500ms")
    project = make_project(broker)
    project.python(
        "from datetime import timedelta; from django.utils import timezone\n"
        "trace.using(run_after=timezone.now() + timedelta(seconds=3)).enqueue('later')",
        MAX_REQ_TIMEOUT_S="0.5",
    )
    with project.worker(MAX_REQ_TIMEOUT_S="0.5"):
        project.wait_for_line("later ends")
    assert project.rows("SELECT count(*) FROM task WHERE started_at >= run_after") == [(1,)]


@pytest.fixture
def start_broker(tmp_path):
    brokers = []

    def start(*flags: str) -> Broker:
        data = tmp_path / "nsqd"
        data.mkdir()
        brokers.append(Broker(data, *flags))
        return brokers[-1].launch()

    yield start
    for broker in brokers:
        broker.close()


def test_a_task_longer_than_the_message_timeout_runs_once(
    make_project: Callable[[Broker], Project], start_broker
) -> None:
    """It is touched; and where a touch comes too late, its record keeps a second worker off it."""
    broker = start_broker("--msg-timeout=2s")
    project = make_project(broker)
    project.python("wait_for_file.enqueue('long')")
    with project.worker(), project.worker():
        project.wait_for_line("long begins")
        started = "SELECT id FROM task WHERE started_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-5 seconds')"
        wait_until(lambda: project.rows(started), "the task runs longer than the timeout")
        project.go("long")
        project.wait_until_successful(1)
        wait_until(lambda: in_flight(broker, "tasks.default") == 0, "the message is finished")
    assert project.lines() == ["long begins", "long ends"]


def test_messages_that_are_no_tasks_are_dropped(project: Project, start: Start, broker: Broker) -> None:
    """With a log line; the next task runs."""
    for body in (b"hello", b"[]", b'{"id": 1, "priority": 0}', b'{"id": "unknown", "priority": 0}', b"\xff"):
        broker.post("/pub", body, topic="tasks.default")
    project.python("trace.enqueue('task')")
    worker = start()
    project.wait_for_line("task ends")
    worker.wait_for_log(r"is dropped: b'hello' is not a task's message")
    worker.wait_for_log("task unknown is not run: it has no record")
    wait_until(lambda: broker.topics()["tasks.default"]["channels"][0]["in_flight_count"] == 0, "no message is left")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--queue-name=letters"], "--queue-name letters: the backend's QUEUES are default, emails"),
        (["--backend=immediate"], "--backend immediate: TASKS has no backend of nsqtasks with this name"),
        (["--concurrency=0"], "argument --concurrency: '0' is not a whole number of 1 or more"),
        (["--stop-timeout=soon"], "argument --stop-timeout: 'soon' is not a number of seconds"),
        ([], "the table nsqtasks_taskrecord is missing: run manage.py migrate"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, words, message) -> None:
    """On a database without tables, with no broker."""
    project = Project.without_broker(tmp_path)
    done = subprocess.run(
        project.command("nsq_worker", *words),
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_named_with_what_to_do(tmp_path) -> None:
    """Both by check and by the worker, although the application imports its tasks."""
    project = Project.without_broker(tmp_path)
    wrong = {"MORE_OPTIONS": '{"nsqd_tcp_addresses": [], "lease": 5}'}
    for command in ("check", "nsq_worker"):
        done = project.manage(command, status=1, **wrong)
        assert "(nsqtasks.E002) TASKS[\"default\"]: The option 'nsqd_tcp_addresses' is missing." in done.stderr
        assert 'HINT: Set it to the addresses of the brokers, such as ["127.0.0.1:4150"].' in done.stderr
        assert "(nsqtasks.E004) TASKS[\"default\"]: The option 'lease' is 5." in done.stderr
        assert "Traceback" not in done.stderr
