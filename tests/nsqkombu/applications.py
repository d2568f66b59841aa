"""The Celery application of the tests, for the test's process and for workers.

A worker's settings come from the environment: ``BROKER``, ``BACKEND``, ``OPTIONS`` (transport options as JSON) and
``RUNS``, a folder with a file for each run of a task, which survives a kill -9.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery, Task
from kombu import Exchange, Queue

import nsqkombu  # noqa: F401


def make_app(broker: str, backend: str, options: Mapping[str, Any]) -> Celery:
    app = Celery("tests", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        broker_transport_options=dict(options),
        broker_connection_retry_on_startup=True,
        task_default_queue="tasks",
        task_queues=(
            Queue("tasks", Exchange("tasks"), routing_key="tasks"),
            Queue("urgent", Exchange("work"), routing_key="work.urgent"),
            Queue("media", Exchange("media", type="topic"), routing_key="media.#"),
        ),
        # A broker that restarts on a busy machine may be away for long.
        task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5},
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_prefetch_multiplier=1,
    )
    app.task(name="add")(add)
    app.task(name="note")(note)
    app.task(name="note_late", acks_late=True)(note)
    app.task(name="wait_for", acks_late=True)(wait_for)
    app.task(name="third_time", bind=True, max_retries=None)(third_time)
    app.task(name="total")(total)
    return app


def record(name: str) -> None:
    path = Path(os.environ["RUNS"]) / f"{name}.{uuid4().hex}"
    path.touch()


def add(x: int, y: int) -> int:
    return x + y


def note(name: str) -> str:
    record(name)
    return name


def wait_for(name: str, path: str) -> str:
    """Run until a file exists."""
    record(f"begun-{name}")
    while not Path(path).exists():
        time.sleep(0.02)
    record(f"ended-{name}")
    return name


def third_time(self: Task) -> int:
    """Succeed at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


def total(numbers: list[int]) -> int:
    return sum(numbers)


if "BROKER" in os.environ:
    worker_app = make_app(os.environ["BROKER"], os.environ["BACKEND"], json.loads(os.environ["OPTIONS"]))
