"""What the tools have in common as processes: event loop, signals, the log, and errors told in one line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import uvloop

from aionsq.connection import reason_of
from aionsq.errors import ClientError
from aionsq.tools.flags import ToolFailed, ToolFlags
from nsqwire import logs
from nsqwire.descriptors import allow_many_descriptors, occupy_standard_descriptors
from nsqwire.errors import NSQError
from nsqwire.settings import load
from nsqwire.version import NSQ_VERSION

F = TypeVar("F", bound=ToolFlags)

INTERRUPTED = 130


class Run:
    """One run of a tool."""

    def __init__(self, prog: str, is_subcommand: bool) -> None:
        self.prog = prog
        """How it was called: ``nsq_tail``, or ``nsq tail``."""
        self.is_subcommand = is_subcommand
        """Called as ``nsq tail``, addresses left out are those of the platform on this machine."""
        self.stop = asyncio.Event()
        """Set by SIGINT and SIGTERM: finish what is in hand, and end."""

    def note(self, text: str) -> None:
        """Tell something on standard error, in one line."""
        note(self.prog, text)


class Tool(Generic[F]):
    """A tool: calling it runs it and gives its exit status.

    ``name`` is its name in NSQ, called without arguments it takes the process's own; ``subcommand`` is the one below
    ``nsq``, where the arguments are handed in. ``work`` is its coroutine. SIGINT and SIGTERM set ``run.stop``; a second
    one ends ``work`` at once, with status 130. What ``work`` raises becomes one line on standard error and status 1.
    """

    def __init__(
        self, name: str, subcommand: str, flags: type[F], work: Callable[[F, Run], Awaitable[int]], summary: str
    ) -> None:
        """``summary`` stands above the flags in ``--help``."""
        self.name = name
        self.flags = flags
        self._subcommand = f"nsq {subcommand}"
        self._work = work
        self._summary = summary

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        occupy_standard_descriptors()
        allow_many_descriptors()
        prog = self.name if argv is None else self._subcommand
        flags = load(
            self.flags,
            prog=prog,
            argv=sys.argv[1:] if argv is None else argv,
            environ=os.environ,
            version_text=f"{self.name} v{NSQ_VERSION}",
            description=self._summary,
            refuse_words=True,
        )
        logs.configure(flags.log_level, flags.log_prefix.replace("<TOOL>", self.name), flags.log_format)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request is no news
        return self._run(flags, prog, is_subcommand=argv is not None)

    def _run(self, flags: F, prog: str, *, is_subcommand: bool) -> int:
        return run_told(prog, self._until_done(flags, prog, is_subcommand))

    async def _until_done(self, flags: F, prog: str, is_subcommand: bool) -> int:
        run = Run(prog, is_subcommand)
        work = asyncio.ensure_future(self._work(flags, run))

        def interrupted() -> None:
            if run.stop.is_set():
                work.cancel()
            run.stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted)
        try:
            return await work
        except asyncio.CancelledError:
            run.note("interrupted again: ended without waiting for what was under way")
            return INTERRUPTED


def run_told(prog: str, work: Coroutine[Any, Any, int]) -> int:
    """Run ``work`` in an event loop and return its exit status. What it raises becomes one line on standard error."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except BrokenPipeError:  # whoever read our output has left, as head does
        _discard_output()
        return 1
    except OSError as error:
        _discard_output()
        text, status = reason_of(error), 1
    except ToolFailed as error:
        text, status = str(error), error.status
    except (ClientError, NSQError) as error:
        text, status = str(error), 1
    note(prog, text)
    return status


def note(prog: str, text: str) -> None:
    """Tell something on standard error, in one line."""
    print(f"{prog}: {text}", file=sys.stderr, flush=True)


def _discard_output() -> None:
    """What could not be written to standard output must not be tried, and fail, once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
