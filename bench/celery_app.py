"""The Celery application of row ``celery``, and its client: ``python -m bench.celery_app COUNT`` publishes tasks."""

from __future__ import annotations

import os
import sys
import time

from celery import Celery

import nsqkombu  # noqa: F401  registers nsq://

app = Celery("bench", broker=os.environ.get("BENCH_CELERY_BROKER", "nsq://127.0.0.1:4150"))
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=8, task_default_queue="bench")

_descriptor: list[int] = []


@app.task(name="tick")
def tick() -> None:
    """Append a byte to the file of finished tasks."""
    if not _descriptor:
        _descriptor.append(os.open(os.environ["BENCH_CELERY_DONE"], os.O_WRONLY | os.O_APPEND))
    os.write(_descriptor[0], b".")


def main() -> None:
    """Publish tasks one by one; print the seconds that it took, and those of processor time."""
    count = int(sys.argv[1])
    tick.delay()  # connects
    began, spent = time.perf_counter(), time.process_time()
    for _ in range(count - 1):
        tick.delay()
    print(time.perf_counter() - began, time.process_time() - spent)


if __name__ == "__main__":
    main()
