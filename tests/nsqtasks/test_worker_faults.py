"""kill -9 of workers and of the broker, and a broker that is away, lose no task."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.harness.daemon import Broker
from tests.harness.process import Process
from tests.harness.waiting import wait_until
from tests.nsqtasks.conftest import Project, in_flight

Start = Callable[..., Process]


def test_a_second_signal_ends_a_worker_at_once_and_its_task_runs_again(project: Project, start: Start) -> None:
    """The worker says so, with the ids of the tasks."""
    project.python("wait_for_file.enqueue('long')")
    worker = start(LEASE_S="3")
    project.wait_for_line("long begins")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("a second signal stops at once")
    worker.signal_until(signal.SIGTERM, "a second signal: ending while tasks run, which run again later: ")
    assert worker.wait_for_exit() == 1
    project.go("long")
    start(LEASE_S="3")
    project.wait_for_line("long ends")
    assert project.lines() == ["long begins", "long begins", "long ends"]


def test_a_signal_that_arrives_twice_is_one(project: Project, start: Start) -> None:
    """``timeout`` sends it to the process and to its group: the running task ends first."""
    project.python("wait_for_file.enqueue('long')")
    worker = start()
    project.wait_for_line("long begins")
    worker.signal_twice()
    worker.wait_for_log("a second signal stops at once")
    project.go("long")
    assert worker.wait_for_exit() == 0
    assert project.lines() == ["long begins", "long ends"]


def test_workers_that_are_killed_lose_no_task(project: Project, start: Start) -> None:
    """Two workers run tasks; each is killed while it runs some, and others take over when the lease is over."""
    names = [f"task-{number}" for number in range(8)]
    project.python(f"for name in {names}: wait_for_file.enqueue(name)")
    workers = [start("--concurrency=4", LEASE_S="3") for _ in range(2)]
    for name in names:
        project.wait_for_line(f"{name} begins")
    for worker in workers:
        worker.kill()
    for name in names:
        project.go(name)
    start("--concurrency=4", LEASE_S="3")
    for name in names:
        project.wait_for_line(f"{name} ends")
    project.wait_until_successful(len(names))


def test_a_broker_that_is_killed_loses_no_task_and_none_runs_twice(
    project: Project, start: Start, broker: Broker
) -> None:
    """The broker delivers the messages of running tasks again; the records say that they run, or have run."""
    names = [f"task-{number}" for number in range(4)]
    project.python(
        f"for name in {names}: wait_for_file.enqueue(name)\n"
        "from datetime import timedelta; from django.utils import timezone\n"
        "trace.using(run_after=timezone.now() + timedelta(seconds=2)).enqueue('deferred')\n"
        "for number in range(20): trace.using(priority=-1).enqueue(f'waiting-{number}')"
    )
    start("--concurrency=4")
    start("--concurrency=4")
    for name in names:
        project.wait_for_line(f"{name} begins")
    broker.kill()
    broker.launch()
    for name in names:
        project.go(name)
    names += ["deferred", *(f"waiting-{number}" for number in range(20))]
    project.wait_until_successful(len(names))
    assert sorted(project.lines()) == sorted(f"{name} {what}" for name in names for what in ("begins", "ends"))
    assert project.rows("SELECT DISTINCT attempts FROM task") == [(1,)]
    wait_until(lambda: not any(in_flight(broker, topic) for topic in broker.topics()), "all messages are finished")


def test_tasks_enqueued_while_the_broker_is_away_run_when_it_is_back(
    project: Project, start: Start, broker: Broker
) -> None:
    """Enqueuing succeeds, with a warning. A worker that waits for the broker publishes them."""
    broker.kill()
    code = "import logging; logging.basicConfig(); trace.enqueue('first'); trace.using(priority=9).enqueue('second')"
    done = project.manage("shell", "--no-imports", "-c", f"from shop.tasks import *; {code}", PUBLISH_TIMEOUT_S="0.2")
    assert done.stderr.count("is not published yet, a worker will publish it: ") == 1, done.stderr
    worker = start(PUBLISH_TIMEOUT_S="0.2")
    worker.wait_for_log("cannot connect to nsqd .*; retrying every 2 s")
    broker.launch()
    project.wait_for_line("first ends")
    project.wait_for_line("second ends")
    project.wait_until_successful(2)
