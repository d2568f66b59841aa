"""The rows for pages in a browser on a cluster of many topics: first rows, long tasks, frames, beside an empty page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from playwright.sync_api import Browser

from bench.family import lower_priority
from bench.measure import Options, Row
from bench.platform import settled_platform
from bench.processes import LoadProcesses
from bench.server import Server
from bench.simulated import topic_name
from bench.visits import Visit, browser, idle_tasks, visit

NODES, CHANNELS = 4, 3
SETTLED_POLLS = 5
SETTLE_SECONDS = 4.0
"""Pause between the first rows and the measured idling: a page fetches the other pages three seconds after it opens."""
EMPTY = ("empty page", "/ping", "body")
"""A static page of the same server."""
PAGES = (
    ("overview", "/", ".boards li"),
    ("topics", "/topics", "tbody tr[aria-rowindex]"),
    ("channels", "/channels", "tbody tr[aria-rowindex]"),
    ("clients", "/clients", "tbody tr[aria-rowindex]"),
    ("one topic", f"/topics/{topic_name(0)}", "tbody tr[aria-rowindex]"),
)
"""Name, path, and a selector of what the page's first rows contain."""


def pages(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure the pages of ``nsqadmin`` in Chromium, on a simulated cluster of which every figure changes each second.

    Each page is opened ``--rounds`` times with an empty cache, alternating with the others and the empty page. The last
    time, it idles for ``--seconds``, and is scrolled.
    """
    size = {"nodes": NODES, "topics": options.topics, "channels": CHANNELS, "clients": options.topics * CHANNELS}
    with settled_platform(size, SETTLED_POLLS) as (server, cluster, cookie), browser() as running:
        for each in (server, cluster):
            lower_priority(each.pid)  # an operator's browser usually runs on another machine
        name, _, value = cookie.partition("=")
        yield from measured(options, running, server, (name, value))


def measured(options: Options, running: Browser, server: Server, cookie: tuple[str, str]) -> Iterator[Row]:
    host, port = server.http

    def visited(path: str, selector: str, settle_seconds: float = 0.5, idle_seconds: float = 0.0) -> Visit:
        url = f"http://{host}:{port}{path}"
        done = visit(running, url, cookie, selector, settle_seconds, idle_seconds)
        if idle_seconds:
            done.idle_tasks_ms = idle_tasks(running, url, cookie, selector, settle_seconds, idle_seconds)
        return done

    visits: dict[str, list[Visit]] = defaultdict(list)
    visited(*EMPTY[1:])  # the first page of a browser is slow
    for remaining in reversed(range(options.rounds)):
        idle_seconds = 0.0 if remaining else options.seconds
        for name, path, selector in PAGES:
            visits[name].append(visited(path, selector, SETTLE_SECONDS, idle_seconds))
        visits[EMPTY[0]].append(visited(*EMPTY[1:], idle_seconds=idle_seconds))
    for name, each in visits.items():
        yield row(options, name, each, visits[EMPTY[0]])


def row(options: Options, name: str, visits: list[Visit], empty: list[Visit]) -> Row:
    """``visits``: several of one page, the last of which idled and scrolled; ``empty``: those of the empty page."""
    last = visits[-1]
    idling, scrolling = last.idling, last.scrolling
    assert idling is not None
    assert scrolling is not None
    first_rows = median(each.first_rows_ms for each in visits)
    return Row(
        name=f"pages, {name}",
        what=f"{options.topics:,} topics × {CHANNELS} channels on {NODES} nodes, all changing each second",
        twin=options.twin,
        size=0,
        also={
            "first rows ms": first_rows,
            "first rows, empty page = 1": first_rows / median(each.first_rows_ms for each in empty),
            "load: long tasks ms": median(sum(each.loading.long_tasks_ms) for each in visits),
            "load: longest task ms": median(max(each.loading.long_tasks_ms, default=0.0) for each in visits),
            "load: longest task, processor ms": median(each.loading.longest_task_processor_ms for each in visits),
            "load: processor ms": median(each.loading.processor_ms for each in visits),
            "idle: long tasks": len(last.idle_tasks_ms),
            "idle: longest task ms": max(last.idle_tasks_ms, default=0.0),
            "idle: long tasks, with a debugger": len(idling.long_tasks_ms),
            "idle: longest task, processor ms": idling.longest_task_processor_ms,
            "idle: processor ms/s": idling.processor_ms / idling.seconds,
            "scroll: worst frame ms": max(last.frames_ms),
            "scroll: median frame ms": median(last.frames_ms),
            "scroll: longest task, processor ms": scrolling.longest_task_processor_ms,
            "scroll: processor ms/frame": scrolling.processor_ms / len(last.frames_ms),
            "first snapshot kB": last.snapshot_bytes / 1000,
        },
    )
