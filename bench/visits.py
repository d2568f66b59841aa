"""One visit of a page by a browser: loading, idling and scrolling, as the page's main thread sees them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict
from urllib.parse import urljoin

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from bench.errors import BenchError

VIEWPORT = {"width": 1440, "height": 900}
ROWS_SECONDS = 60.0
"""Longest time until the first rows. After it, the row fails."""
START_SECONDS = 30.0
"""Longest time until Chromium has started."""
SCROLL_FRAMES = 120
SCROLL_STEP = 333
"""Pixels for each frame: ten rows of a table."""

WATCH = """
window.bench = {tasks: [], rows: null};
{
  const add = (entries) => bench.tasks.push(...entries.map((task) => [task.startTime, task.duration]));
  const observer = new PerformanceObserver((list) => add(list.getEntries()));
  observer.observe({type: 'longtask', buffered: true});
  // A busy page may not have received the last ones yet.
  window.recorded = () => (add(observer.takeRecords()), bench);
}
new MutationObserver((_, observer) => {
  if (!document.querySelector(SELECTOR)) return;
  observer.disconnect();
  // After the frame that shows the rows. A loop of frames would take processor time that the page needs.
  requestAnimationFrame(() => setTimeout(() => { bench.rows = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""
"""Runs before the page's own scripts. ``tasks`` are the long tasks (above 50 ms) as start and duration in ms, ``rows``
is the time of the first rows, both since the navigation began."""

RECORDED = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(recorded()))))"
"""After the next frame: a busy browser reports a task some time after its end."""

SCROLL = """
([frames, step]) => new Promise((done) => {
  const box = document.querySelector('.scroll.long') ?? document.scrollingElement;
  const times = [];
  requestAnimationFrame(function next(time) {
    times.push(time);
    if (times.length > frames) return done(times.slice(1).map((later, i) => later - times[i]));
    const before = box.scrollTop;
    box.scrollTop += step;
    if (box.scrollTop === before) step = -step;
    requestAnimationFrame(next);
  });
})
"""
"""Scrolls down and up again by some pixels each frame. Returns the duration of each frame in ms."""


class Watched(TypedDict):
    """What ``WATCH`` recorded."""

    tasks: list[tuple[float, float]]
    rows: float | None


@dataclass
class Phase:
    """A part of a visit, on the page's main thread."""

    long_tasks_ms: list[float]
    """Durations of the tasks above 50 ms. On a busy machine they include waiting for a processor."""
    longest_task_processor_ms: float
    """Processor time of the task that took the most."""
    processor_ms: float
    """Processor time of all tasks."""
    seconds: float


@dataclass
class Visit:
    """What a browser measured while it opened a page and, if asked to, idled and scrolled."""

    first_rows_ms: float
    """From the start of the navigation to the frame that shows the first rows."""
    loading: Phase
    """Until ``settle_seconds`` after the first rows."""
    snapshot_bytes: int
    """Bytes of the first message of the websocket as sent; 0 without a websocket."""
    idling: Phase | None = None
    scrolling: Phase | None = None
    frames_ms: list[float] = field(default_factory=list)
    """Durations of the frames while scrolling."""
    idle_tasks_ms: list[float] = field(default_factory=list)
    """Durations of the long tasks of :func:`idle_tasks`."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium. Raises BenchError if there is none, or if it cannot be started."""
    path = executable()
    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except PlaywrightError as error:
            raise BenchError(f"{path} cannot be started: {error.message.splitlines()[0]}") from None
        try:
            yield running
        finally:
            running.close()


def executable() -> str:
    """The path of Chromium. Raises BenchError if there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise BenchError("there is no chromium on PATH")
    return path


def visit(
    running: Browser, url: str, cookie: tuple[str, str], selector: str, settle_seconds: float, idle_seconds: float
) -> Visit:
    """Open ``url`` with an empty cache, wait until ``selector`` is shown and the page has settled; idle; scroll.

    ``idle_seconds`` 0: only load. ``cookie`` is the session's name and value.
    """
    context = running.new_context(viewport=VIEWPORT)  # type: ignore[arg-type]  # a plain dict is its form
    try:
        context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": urljoin(url, "/")}])
        context.add_init_script(WATCH.replace("SELECTOR", repr(selector)))
        return measured(context, url, settle_seconds, idle_seconds)
    except PlaywrightError as error:
        raise BenchError(f"{url}: {error.message.splitlines()[0]}") from None
    finally:
        context.close()


def measured(context: BrowserContext, url: str, settle_seconds: float, idle_seconds: float) -> Visit:
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[int] = []
    session.on("Network.webSocketFrameReceived", lambda event: received.append(size_of(event["response"])))

    def load() -> None:
        page.goto(url, wait_until="commit")
        wait_for_rows(page)
        page.wait_for_timeout(settle_seconds * 1000)

    loading = observed(page, load)
    done = Visit(recorded(page)["rows"] or 0.0, loading, max(received[:1], default=0))
    session.detach()  # otherwise Chromium reports each message to this process, which takes processor time
    if idle_seconds:
        done.idling = observed(page, lambda: page.wait_for_timeout(idle_seconds * 1000))
        done.scrolling = observed(
            page, lambda: done.frames_ms.extend(page.evaluate(SCROLL, [SCROLL_FRAMES, SCROLL_STEP]))
        )
    return done


def idle_tasks(
    running: Browser, url: str, cookie: tuple[str, str], selector: str, settle_seconds: float, idle_seconds: float
) -> list[float]:
    """Return the durations in ms of the long tasks of an idle page in a browser without a debugger, as an operator has.

    Playwright's connection receives each message of a websocket, which takes processor time in two processes. It is
    closed while the page idles. ``running``: any browser of the same Playwright. Other parameters: see :func:`visit`.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _chromium(Path(folder)) as endpoint:
        try:
            connected = running.browser_type.connect_over_cdp(endpoint)
            context = connected.contexts[0]
            context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": urljoin(url, "/")}])
            context.add_init_script(WATCH.replace("SELECTOR", repr(selector)))
            page = context.pages[0]
            _set_viewport(page)
            page.goto(url, wait_until="commit")
            wait_for_rows(page)
            page.wait_for_timeout(settle_seconds * 1000)
            known = len(recorded(page)["tasks"])
            connected.close()
            time.sleep(idle_seconds)
            connected = running.browser_type.connect_over_cdp(endpoint)
            tasks = recorded(connected.contexts[0].pages[0])["tasks"][known:]
            connected.close()
        except PlaywrightError as error:
            raise BenchError(f"{url}: {error.message.splitlines()[0]}") from None
    return [duration for _, duration in tasks]


def _set_viewport(page: Page) -> None:
    """Resize the window, which a page keeps without a debugger; an emulated viewport ends with the connection."""
    width, height = page.evaluate("[outerWidth - innerWidth, outerHeight - innerHeight]")
    session = page.context.new_cdp_session(page)
    window = session.send("Browser.getWindowForTarget")["windowId"]
    bounds = {"width": VIEWPORT["width"] + width, "height": VIEWPORT["height"] + height}
    session.send("Browser.setWindowBounds", {"windowId": window, "bounds": bounds})
    session.detach()
    page.wait_for_function(f"innerWidth === {VIEWPORT['width']} && innerHeight === {VIEWPORT['height']}")


@contextmanager
def _chromium(folder: Path) -> Iterator[str]:
    """Run Chromium with its files in ``folder``; yield the debugger's address.

    Raises BenchError if it does not start.
    """
    flags = ("--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0")
    process = subprocess.Popen(
        (executable(), *flags, f"--user-data-dir={folder}", "about:blank"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, deadline = folder / "DevToolsActivePort", time.monotonic() + START_SECONDS
        while not (port.exists() and port.read_text().count("\n")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{executable()} does not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().split()[0]}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def observed(page: Page, run: Callable[[], object]) -> Phase:
    """Trace the main thread of ``page`` while ``run`` runs."""
    running = page.context.browser
    assert running is not None
    known = len(recorded(page)["tasks"]) if page.url != "about:blank" else 0
    running.start_tracing(page=page, categories=["__metadata", "toplevel"])
    began = time.monotonic()
    try:
        run()
    finally:
        trace = running.stop_tracing()
    tasks = task_times(trace)
    long_tasks_ms = [duration for _, duration in recorded(page)["tasks"][known:]]
    return Phase(long_tasks_ms, max(tasks, default=0.0), sum(tasks), time.monotonic() - began)


def task_times(trace: bytes) -> list[float]:
    """Return the processor time of each task of the pages' main threads, in ms."""
    events = json.loads(trace)["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event.get("tdur", 0) / 1000
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask" and (event["pid"], event["tid"]) in main
    ]


def wait_for_rows(page: Page) -> None:
    """Wait for the first rows, from outside: the page's security policy forbids a wait within it. Raises BenchError."""
    deadline = time.monotonic() + ROWS_SECONDS
    while recorded(page)["rows"] is None:
        if time.monotonic() > deadline:
            raise BenchError(f"{page.url} showed no rows within {ROWS_SECONDS:.0f} s")
        page.wait_for_timeout(100)


def recorded(page: Page) -> Watched:
    watched: Watched = page.evaluate(RECORDED)
    return watched


def size_of(frame: Mapping[str, str | int]) -> int:
    """Return the bytes of a websocket frame's payload, which the protocol reports as text or base64."""
    text = str(frame["payloadData"])
    return len(text.encode()) if frame["opcode"] == 1 else len(text) * 3 // 4
