"""Progress of a tool: an updating line if stderr is a terminal and rich is installed, else a log line every minute."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec

from nsqwire.counted import counted
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

DRAW_SECONDS = 0.25
DEPTH_SECONDS = 1.0
LINE_SECONDS = 60.0
RATE_SECONDS = 5.0

Count = Callable[[], int]
Depth = Callable[[], Awaitable[int | None]]


class Rate:
    """Messages per second over the last few seconds; times are seconds of a monotonic clock."""

    def __init__(self, count: int, now: Seconds, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._seen = deque([(now, count)])

    def at(self, count: int, now: Seconds) -> float:
        """Record that ``count`` messages were done at ``now``, and return the rate."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._seconds:
            self._seen.popleft()
        began_at, began_with = self._seen[0]
        return (count - began_with) / (now - began_at) if now > began_at else 0.0


def sentence(count: int, rate: float, depth: int | None) -> str:
    """``1,234 messages, 56/s, 7,890 waiting``."""
    done = f"{counted(count, 'message')}, {rate:,.0f}/s"
    return done if depth is None else f"{done}, {depth:,} waiting"


@asynccontextmanager
async def progress(mode: str, count: Count, depth: Depth | None = None, *, prints: bool = False) -> AsyncIterator[None]:
    """Show progress while the block runs, according to ``--progress``.

    ``count`` returns the number of messages done so far, ``depth`` the number that wait, or None if unknown.
    ``prints``: the tool writes to standard output; if that is a terminal, the updating line is not shown.
    """
    if mode == "none":
        yield
        return
    on_terminal = (
        mode == "auto"
        and find_spec("rich") is not None
        and _is_terminal(sys.stderr)
        and not (prints and _is_terminal(sys.stdout))
    )
    shown = asyncio.create_task((_line_shown if on_terminal else _lines_logged)(count, depth))
    try:
        yield
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)


async def _line_shown(count: Count, depth: Depth | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    began_at = time.monotonic()
    rate = Rate(count(), began_at)
    waiting: int | None = None

    async def update() -> None:
        nonlocal waiting
        while depth is not None:
            waiting = await depth()
            await asyncio.sleep(DEPTH_SECONDS)

    def line() -> Text:
        now, done = time.monotonic(), count()
        text = sentence(done, rate.at(done, now), waiting)
        return Text.assemble((text, "bold"), (f"  {timedelta(seconds=int(now - began_at))}", "dim"))

    updating = asyncio.create_task(update())
    # Log lines go to sys.stderr, which Live prints above the progress line.
    with Live(console=console, auto_refresh=False, redirect_stdout=False, get_renderable=line) as live:
        try:
            while True:
                live.refresh()
                await asyncio.sleep(DRAW_SECONDS)
        finally:
            updating.cancel()


async def _lines_logged(count: Count, depth: Depth | None) -> None:
    rate = Rate(count(), time.monotonic(), LINE_SECONDS)
    last = None
    while True:
        await asyncio.sleep(LINE_SECONDS)
        done = count()
        per_second = rate.at(done, time.monotonic())
        text = sentence(done, per_second, await depth() if depth is not None else None)
        if text != last:  # log an unchanged state only once
            log.info("%s", text)
        last = text


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)  # the stream is None if the process was started without it
    return isatty is not None and bool(isatty())
