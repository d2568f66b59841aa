"""The rows by name, in the order of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from bench.admin import admin
from bench.bystander import bystander
from bench.celery import celery
from bench.crowds import idle
from bench.dead import dead
from bench.deferred import deferred
from bench.expired import expired
from bench.history import history
from bench.jobs import jobs
from bench.latency import latency
from bench.layers import layers
from bench.measure import Options, Row
from bench.mirror import mirror
from bench.platform import platform
from bench.policies import policies
from bench.processes import LoadProcesses, load_processes
from bench.registry import lookup
from bench.rolling import rolling
from bench.storage import backlog, start, topics
from bench.throughput import fanout, http_mpub, http_pub, mixed, pub, pub1, pub64, sub, sync
from bench.timers import timers


def pages(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """``bench.pages``, imported when it is measured: it needs Playwright, which no other row does."""
    from bench.pages import pages as measured

    yield from measured(options, processes)


ROWS: dict[str, Callable[[Options, LoadProcesses], Iterator[Row]]] = {
    "pub": pub,
    "pub1": pub1,
    "pub64": pub64,
    "sub": sub,
    "sync": sync,
    "layers": layers,
    "http": http_pub,
    "mpub": http_mpub,
    "fanout": fanout,
    "mixed": mixed,
    "idle": idle,
    "timers": timers,
    "backlog": backlog,
    "topics": topics,
    "start": start,
    "admin": admin,
    "lookup": lookup,
    "deferred": deferred,
    "dead": dead,
    "expired": expired,
    "policy": policies,
    "latency": latency,
    "bystander": bystander,
    "rolling": rolling,
    "platform": platform,
    "history": history,
    "jobs": jobs,
    "celery": celery,
    "mirror": mirror,
    "pages": pages,
}

PROCESSES = 2
"""Largest number of generator processes of a row."""


def run(name: str, options: Options) -> Iterator[Row]:
    """Yield the rows of ``name`` as they are measured, each against its own broker and data path."""
    with load_processes(options.cores, PROCESSES) as processes:
        yield from ROWS[name](options, processes)


def run_beside(name: str, options: Options) -> Iterator[Row]:
    """Like ``run``, but each row is followed by the same row with the pure-Python kernel."""
    rows, twins = list(run(name, options)), list(run(name, dataclasses.replace(options, twin=True)))
    for pair in zip(rows, twins, strict=True):
        yield from pair
