"""Celery on NSQ: workers as processes against a real broker, with retries, chords, revocation and kills."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from celery import chord, group
from celery.exceptions import TaskRevokedError

from tests.harness.daemon import Broker
from tests.harness.process import Process
from tests.harness.processes import descendants
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.nsqkombu.conftest import Workers

pytestmark = pytest.mark.timeout(300)  # starts of workers on a busy machine


@pytest.fixture(scope="module")
def workers(start_workers: Callable[..., Workers]) -> Workers:
    """One worker, which the tests of this file share that end none."""
    workers = start_workers()
    workers.start("shared", "--task-events")
    return workers


@pytest.fixture
def name() -> str:
    return f"t{uuid4().hex[:12]}"


def result(answer: Any) -> Any:
    return answer.get(timeout=DEADLINE_S, interval=0.02)


def signature(workers: Workers, task: str, *arguments: Any, **options: Any) -> Any:
    return workers.app.signature(task, args=arguments, options=options)


def kill(worker: Process) -> None:
    """Kill a worker and the processes of its pool, as the end of its machine would."""
    children = descendants(worker.process.pid)
    worker.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue  # it ends with its parent
    psutil.wait_procs(children, timeout=DEADLINE_S)


def ran(workers: Workers, *names: str) -> Callable[[], bool]:
    return lambda: set(names) <= workers.runs().keys()


# --- results, retries, routing


def test_a_task_has_its_result(workers: Workers) -> None:
    """Published by this process, run by the worker's."""
    assert result(workers.app.send_task("add", (2, 3))) == 5


def test_a_task_with_a_countdown_waits_in_the_broker(workers: Workers, broker: Broker) -> None:
    """The worker does not know it yet: it neither fills the prefetch window nor a timer of the worker."""
    answer = workers.app.send_task("add", (2, 3), countdown=3600)
    wait_until(lambda: broker.topics()["tasks"]["channels"][0]["deferred_count"] >= 1, "the task is deferred")
    inspect = workers.app.control.inspect(timeout=DEADLINE_S, limit=1)
    assert inspect.scheduled() == {"shared@localhost": []}
    workers.app.control.broadcast("revoke", {"task_id": answer.id}, reply=True, limit=1, timeout=DEADLINE_S)


def test_a_task_is_retried_after_its_countdown(workers: Workers) -> None:
    """A retry is a new message, deferred by the broker."""
    assert result(workers.app.send_task("third_time")) == 2


@pytest.mark.parametrize(
    "options", [{"queue": "urgent"}, {"queue": "media", "routing_key": "media.video"}, {"queue": "other"}]
)
def test_tasks_are_routed_to_queues(
    workers: Workers, start_workers: Callable[..., Workers], options: dict[str, str]
) -> None:
    """By name, through a topic exchange, and to a queue that a worker adds while it runs."""
    if options["queue"] == "other":
        replies = workers.app.control.add_consumer("other", reply=True, limit=1, timeout=DEADLINE_S)
        assert "ok" in replies[0]["shared@localhost"]
    assert result(workers.app.send_task("add", (2, 3), **options)) == 5


def test_a_chord_runs_its_body_once_all_tasks_are_done(workers: Workers) -> None:
    """With a result backend. This one's body is started by a task that retries until the results are there."""
    header = [signature(workers, "add", number, number) for number in range(6)]
    assert result(chord(header, app=workers.app)(signature(workers, "total"))) == 30


def test_a_group_of_many_tasks_is_complete(workers: Workers) -> None:
    """More than the prefetch window, in batches of publishes and of acknowledgements."""
    answers = group([signature(workers, "add", number, 1) for number in range(60)], app=workers.app)()
    assert sorted(answers.get(timeout=DEADLINE_S, interval=0.05)) == list(range(1, 61))


# --- remote control and events


def test_a_revoked_task_does_not_run(workers: Workers, name: str) -> None:
    """Each worker remembers what was revoked, and discards the task when it arrives."""
    answer = workers.app.send_task("note", (name,), queue=name)
    control = workers.app.control
    replies = control.broadcast("revoke", {"task_id": answer.id}, reply=True, limit=1, timeout=DEADLINE_S)
    assert "ok" in replies[0]["shared@localhost"]
    control.add_consumer(name, reply=True, limit=1, timeout=DEADLINE_S)  # only now does the worker receive it
    with pytest.raises(TaskRevokedError):
        result(answer)
    assert name not in workers.runs()


def test_workers_answer_to_remote_control(workers: Workers) -> None:
    """Commands go to every worker, through ephemeral topics and channels."""
    control = workers.app.control
    assert control.broadcast("ping", reply=True, limit=1, timeout=DEADLINE_S) == [{"shared@localhost": {"ok": "pong"}}]
    queues = control.inspect(timeout=DEADLINE_S, limit=1).active_queues()["shared@localhost"]
    assert {queue["name"] for queue in queues} >= {"tasks", "urgent", "media"}


def test_a_monitor_has_the_events_of_workers(workers: Workers, broker: Broker) -> None:
    """As ``celery events`` and Flower read them."""
    seen: list[dict[str, Any]] = []
    with workers.app.connection_for_read() as connection:
        receiver = workers.app.events.Receiver(connection, handlers={"task-succeeded": seen.append})
        with receiver.consumer_context() as (listening, _, _):
            answer = workers.app.send_task("add", (20, 3))
            while not any(event["uuid"] == answer.id for event in seen):
                listening.drain_events(timeout=DEADLINE_S)
    assert seen[-1]["result"] == "23"
    assert "celeryev" not in broker.topics()  # events are in memory only


# --- workers that end


def test_a_task_of_a_killed_worker_runs_elsewhere(
    start_workers: Callable[..., Workers], tmp_path: Path, name: str
) -> None:
    """With acks_late. The broker delivers it again after the message timeout."""
    workers = start_workers(msg_timeout=2)
    gate = tmp_path / "gate"
    first = workers.start("first", f"--queues={name}")
    answer = workers.app.send_task("wait_for", (name, str(gate)), queue=name)
    wait_until(ran(workers, f"begun-{name}"), "the task began")
    kill(first)
    assert f"ended-{name}" not in workers.runs()
    workers.start("second", f"--queues={name}")
    wait_until(lambda: workers.runs()[f"begun-{name}"] >= 2, "the task began again")
    gate.touch()
    assert result(answer) == name


def test_a_worker_that_stops_finishes_its_tasks_and_returns_the_others(
    start_workers: Callable[..., Workers], tmp_path: Path, broker: Broker, name: str
) -> None:
    """What it had received and not begun is there for other workers at once, not after the message timeout."""
    workers = start_workers(msg_timeout=600)
    gate = tmp_path / "gate"
    first = workers.start("stopping", f"--queues={name}", "--prefetch-multiplier=3")
    answers = [workers.app.send_task("wait_for", (f"{name}-{n}", str(gate)), queue=name) for n in range(6)]
    wait_until(lambda: broker.topics()[name]["channels"][0]["in_flight_count"] == 6, "all are with the worker")
    wait_until(lambda: len(workers.runs()) == 2, "two of them began")
    begun = {run.removeprefix("begun-") for run in workers.runs()}
    first.signal(signal.SIGTERM)
    first.wait_for_log("Warm shutdown")
    gate.touch()
    assert first.wait_for_exit() == 0
    assert {run.removeprefix("ended-") for run in workers.runs() if run.startswith("ended")} >= begun
    workers.start("next", f"--queues={name}")
    assert sorted(result(answer) for answer in answers) == sorted(f"{name}-{n}" for n in range(6))


def test_a_task_that_is_longer_than_the_message_timeout_keeps_its_message(
    start_workers: Callable[..., Workers], tmp_path: Path, brokerd: Broker, name: str
) -> None:
    """The worker touches it: its deadline moves, again and again, without a redelivery."""
    workers = start_workers(msg_timeout=30)
    gate = tmp_path / "gate"
    workers.start("touching", f"--queues={name}", "--pool=threads")
    answer = workers.app.send_task("wait_for", (name, str(gate)), queue=name)
    wait_until(ran(workers, f"begun-{name}"), "the task began")

    def deadline() -> tuple[int, int]:
        (message,) = brokerd.get(f"/channel/peek?topic={name}&channel={name}&state=in_flight")["messages"]
        return message["deadline"], message["attempts"]

    first, _ = deadline()
    _, attempts = wait_until(lambda: deadline() if deadline()[0] > first else None, "the message was touched")
    assert attempts == 1
    gate.touch()
    assert result(answer) == name
    assert workers.runs() == {f"begun-{name}": 1, f"ended-{name}": 1}


def test_no_task_is_lost_when_worker_and_broker_are_killed(
    start_workers: Callable[..., Workers], brokerd: Broker, name: str
) -> None:
    """Tasks that wait, that are deferred and that a worker has; published before, between and after the kills."""
    workers = start_workers(msg_timeout=2)
    sent: list[str] = []

    def send(count: int, **options: Any) -> None:
        for _ in range(count):
            sent.append(f"{name}-{len(sent)}")
            workers.app.send_task("note_late", (sent[-1],), queue=name, **options)

    send(20)
    send(10, countdown=1)
    first = workers.start("killed", f"--queues={name}")
    wait_until(lambda: len(workers.runs()) >= 5, "some ran")
    kill(first)
    send(20)
    brokerd.kill()
    publishing = threading.Thread(target=send, args=(10,))
    publishing.start()
    brokerd.launch()
    publishing.join(DEADLINE_S)
    assert not publishing.is_alive()
    second = workers.start("second", f"--queues={name}")
    wait_until(lambda: len(workers.runs()) >= 30, "more ran")
    brokerd.kill()
    brokerd.launch()
    send(10, countdown=1)
    wait_until(ran(workers, *sent), "every task ran")
    assert second.is_running
    assert len(sent) == 70
