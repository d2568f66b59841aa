"""``/debug/pprof``: profiles of a Python process, at the paths that Go programs use.

The responses are text for people. Long work is done in portions, so that the service continues, and every response has
a limited size.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import CodeType, FrameType
from typing import Any, Final

from nsqdaemon.http.messages import HTML_HEADER, HTTPError, Request, Response, text_response
from nsqdaemon.http.router import Handler, Router

MAX_SECONDS: Final = 300.0
_DEFAULT_SECONDS: Final = 30.0
_PERIOD_S: Final = 0.01
_MAX_ROWS: Final = 100
_MAX_DEPTH: Final = 64
_OBJECTS_AT_ONCE: Final = 50_000

_PAGES: Final = {
    "goroutine": "stacks of all tasks and threads",
    "profile": "CPU profile; ?seconds=30, and &format=folded for a flame graph",
    "heap": "objects by type; ?seconds=10 traces allocations for 10 s, which slows the process down",
    "threadcreate": "the threads",
    "block": "nothing: Python has no profile of blocking",
    "cmdline": "the command line",
    "symbol": "nothing: the profiles contain names, not addresses",
}


def add_profiling(router: Router, *, index: str) -> None:
    """Add the endpoints; ``index`` is the path of the list of them, ``/debug/pprof`` with or without a slash."""
    profiling = _Profiling()
    router.add("GET", index, _index, quiet=True)
    pages: dict[str, Handler] = {
        "goroutine": profiling.goroutine,
        "profile": profiling.profile,
        "heap": profiling.heap,
        "threadcreate": profiling.threads,
        "block": lambda request: text_response("Python has no profile of blocking.\n"),
        "cmdline": lambda request: text_response("\0".join([sys.executable, *sys.argv]).encode(errors="replace")),
        "symbol": _symbol,
    }
    for name, handler in pages.items():
        router.add("GET", f"/debug/pprof/{name}", handler, quiet=True)
    router.add("POST", "/debug/pprof/symbol", _symbol, quiet=True)


def _index(request: Request) -> Response:
    rows = "".join(f'<li><a href="/debug/pprof/{name}">{name}</a>: {what}</li>\n' for name, what in _PAGES.items())
    page = f"<!doctype html>\n<title>/debug/pprof/</title>\n<h1>/debug/pprof/</h1>\n<ul>\n{rows}</ul>\n"
    return Response(200, page.encode(), (HTML_HEADER,))


def _symbol(request: Request) -> Response:
    return text_response("num_symbols: 0\n")


class _Profiling:
    """The endpoints that measure; one measurement at a time."""

    def __init__(self) -> None:
        self._measuring = False

    def goroutine(self, request: Request) -> Response:
        """All tasks and threads with their stacks; equal stacks are grouped, as Go does."""
        tasks = Counter("\n".join(_task_lines(task)) for task in asyncio.all_tasks())
        parts = [f"tasks: {tasks.total()}\n"]
        parts += [f"\n{count} x {stack}\n" for stack, count in tasks.most_common(_MAX_ROWS)]
        if len(tasks) > _MAX_ROWS:
            parts.append(f"\n{len(tasks) - _MAX_ROWS} more stacks are left out\n")
        return text_response("".join(parts) + "\n" + _thread_stacks())

    def threads(self, request: Request) -> Response:
        """All threads with their stacks."""
        return text_response(_thread_stacks())

    async def profile(self, request: Request) -> Response:
        """A CPU profile of the event loop, which continues to work."""
        seconds = _seconds(request, _DEFAULT_SECONDS)
        async with self._measurement():
            sampler = _Sampler()
            sampler.start()
            try:
                await asyncio.sleep(seconds)
            finally:
                sampler.stop()
        return text_response(sampler.folded() if request.params.get("format") == "folded" else sampler.table())

    async def heap(self, request: Request) -> Response:
        """The garbage collector's objects by type; with ``seconds``, also the lines that allocated memory meanwhile."""
        traced = ""
        if "seconds" in request.params:
            import tracemalloc  # imported here and below because it is slow and rarely needed

            seconds = _seconds(request, _DEFAULT_SECONDS)
            async with self._measurement():
                tracemalloc.start()
                try:
                    await asyncio.sleep(seconds)
                    traced = _allocations(seconds)
                finally:
                    tracemalloc.stop()
        objects = gc.get_objects()
        total = len(objects)
        types: Counter[type] = Counter()
        for start in range(0, total, _OBJECTS_AT_ONCE):
            types.update(map(type, objects[start : start + _OBJECTS_AT_ONCE]))
            await asyncio.sleep(0)
        del objects
        lines = [f"{sys.getallocatedblocks()} blocks allocated, {total} objects known to the garbage collector\n"]
        lines += [f"{n:>10}  {t.__module__}.{t.__qualname__}" for t, n in types.most_common(_MAX_ROWS)]
        return text_response(traced + "\n".join(lines) + "\n")

    @asynccontextmanager
    async def _measurement(self) -> AsyncIterator[None]:
        import tracemalloc

        if self._measuring or tracemalloc.is_tracing():
            raise HTTPError(409, "PROFILE_RUNNING")
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False


def _seconds(request: Request, default: float) -> float:
    text = request.params.get("seconds")
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_SECONDS:
        raise HTTPError(400, "INVALID_ARG_SECONDS")
    return seconds


def _task_lines(task: asyncio.Task[Any]) -> Iterator[str]:
    """The stack of a task, outermost call first."""
    yield "task"
    awaiting: Any = task.get_coro()
    for _ in range(_MAX_DEPTH):
        frame = next((f for name in _FRAMES if (f := getattr(awaiting, name, None)) is not None), None)
        if frame is not None:
            yield _place(frame.f_code, frame.f_lineno)
        following = next((a for name in _AWAITS if (a := getattr(awaiting, name, None)) is not None), None)
        if following is None:
            if frame is None and awaiting is not None:
                yield f"    awaits {type(awaiting).__name__}"
            return
        awaiting = following


_FRAMES: Final = ("cr_frame", "gi_frame", "ag_frame")
_AWAITS: Final = ("cr_await", "gi_yieldfrom", "ag_await")


def _place(code: CodeType, line: int) -> str:
    return f"    {code.co_qualname} ({code.co_filename}:{line})"


def _thread_stacks() -> str:
    frames = sys._current_frames()
    parts = [f"threads: {len(frames)}\n"]
    for thread in threading.enumerate()[:_MAX_ROWS]:
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            stack = traceback.extract_stack(frame, limit=-_MAX_DEPTH)
            parts.append(f"\nthread {thread.name}{' (daemon)' if thread.daemon else ''}\n")
            parts += [f"    {each.name} ({each.filename}:{each.lineno})\n" for each in stack]
    return "".join(parts)


def _allocations(seconds: float) -> str:
    import tracemalloc

    lines = [f"memory allocated within {seconds:g} s and not freed, by line of code\n"]
    for each in tracemalloc.take_snapshot().statistics("lineno")[:_MAX_ROWS]:
        frame = each.traceback[0]
        lines.append(f"{each.size:>12} bytes in {each.count:>8} blocks  {frame.filename}:{frame.lineno}")
    return "\n".join(lines) + "\n\n"


class _Sampler:
    """Records the main thread's stack every 10 ms of processor time, as Go's profiler does.

    A signal interrupts the main thread between any two bytecodes. Samples of a second thread would mostly show the main
    thread waiting, because the second one runs mostly then. A tracing profiler would slow down each call.
    """

    def __init__(self) -> None:
        self._samples: Counter[tuple[CodeType, ...]] = Counter()
        self._started_at = self._elapsed_s = self._busy_s = 0.0

    def start(self) -> None:
        """Start the measurement. Call it in the main thread."""
        signal.signal(signal.SIGPROF, self._note)
        signal.siginterrupt(signal.SIGPROF, False)
        self._started_at, self._busy_s = time.monotonic(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _PERIOD_S, _PERIOD_S)

    def stop(self) -> None:
        """End the measurement."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._elapsed_s, self._busy_s = time.monotonic() - self._started_at, time.process_time() - self._busy_s
        # A signal may still be pending; SIGPROF's default action would end the process.
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._samples[_stack(frame)] += 1

    def table(self) -> str:
        """The functions, with their samples alone and including the functions they called."""
        own: Counter[CodeType] = Counter()
        total: Counter[CodeType] = Counter()
        for stack, count in self._samples.items():
            own[stack[-1]] += count
            for code in set(stack):
                total[code] += count
        lines = [
            f"{self._busy_s:.3f} s of processor time in {self._elapsed_s:.3f} s, {self._samples.total()} samples\n",
            "   self   total  function",
        ]
        ordered = sorted(total, key=lambda code: (-own[code], -total[code]))
        lines += [f"{own[code]:7} {total[code]:7} {_place(code, code.co_firstlineno)}" for code in ordered[:_MAX_ROWS]]
        return "\n".join(lines) + "\n"

    def folded(self) -> str:
        """``outermost;…;innermost samples``, which flame graph tools read."""
        rows = []
        for stack, count in self._samples.most_common():
            names = ";".join(f"{code.co_filename.rpartition('/')[2]}:{code.co_name}" for code in stack)
            rows.append(f"{names} {count}\n")
        return "".join(rows)


def _stack(frame: FrameType | None) -> tuple[CodeType, ...]:
    codes: list[CodeType] = []
    while frame is not None and len(codes) < _MAX_DEPTH:
        codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(reversed(codes))
