"""The Celery application of the tests, whose workers are processes of their own.

Settings come from the environment: ``BROKER``, ``BACKEND``, ``RUNS`` (a folder with a file for each run of a task) and
``OPTIONS`` (transport options, JSON).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from uuid import uuid4

from celery import Celery, Task
from kombu import Exchange, Queue

import nsqkombu  # noqa: F401

app = Celery("task_app", broker=os.environ["BROKER"], backend=os.environ.get("BACKEND") or None)
app.conf.update(
    broker_transport_options=json.loads(os.environ.get("OPTIONS", "{}")),
    broker_connection_retry_on_startup=True,
    task_default_queue="tasks",
    task_queues=(
        Queue("tasks", Exchange("tasks"), routing_key="tasks"),
        Queue("urgent", Exchange("urgent"), routing_key="urgent"),
        Queue("media", Exchange("media", type="topic"), routing_key="media.#"),
    ),
    task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5},
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "1")),
)


def record(name: str) -> None:
    """Leave a file that says that a task ran; it survives a kill -9."""
    path = Path(os.environ["RUNS"]) / f"{name}.{os.getpid()}.{uuid4().hex[:8]}"
    path.with_suffix(".new").write_text(str(time.time()))
    path.with_suffix(".new").rename(path)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="note")
def note(name: str) -> str:
    record(f"note-{name}")
    return name


@app.task(acks_late=True, name="slow")
def slow(name: str, seconds: float) -> str:
    record(f"began-{name}")
    time.sleep(seconds)
    record(f"ended-{name}")
    return name


@app.task(acks_late=True, name="wait_for")
def wait_for(name: str, path: str) -> str:
    """Run until a file exists."""
    record(f"began-{name}")
    while not Path(path).exists():
        time.sleep(0.02)
    record(f"ended-{name}")
    return name


@app.task(bind=True, max_retries=5, name="third_time")
def third_time(self: Task, name: str) -> int:
    """Succeed at the third attempt."""
    record(f"try-{name}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)
