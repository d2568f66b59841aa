"""Tasks that leave a trace in the folder TRACES: a file with a line for each beginning and end."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django_tasks import task


@task
def add(left, right):
    return left + right


@task
async def add_later(left, right):
    return left + right


@task(takes_context=True)
def attempt(context, word):
    return [context.attempt, context.task_result.id, word]


@task
def fail(text):
    raise ValueError(text)


@task
def fail_unprintably():
    raise ValueError("a\0b\ud800")


@task
def leave():
    raise SystemExit("not the worker")


@task
def returns(kind):
    return {"set": {1}, "nan": float("nan"), "nul": "a\0b", "nothing": None}[kind]


@task
def trace(name):
    note(f"{name} begins")
    note(f"{name} ends")


@task
def wait_for_file(name):
    """Run until the file NAME.go is there, however often the task begins."""
    note(f"{name} begins")
    while not (Path(os.environ["TRACES"]) / f"{name}.go").exists():
        time.sleep(0.01)
    note(f"{name} ends")


def note(line):
    """Append a line in one write, so that lines of several processes do not mix."""
    file = os.open(Path(os.environ["TRACES"]) / "lines", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


not_a_task = note
