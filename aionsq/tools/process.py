"""The common process handling of the tools: event loop, signals, logging, and errors reported in one line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from aionsq.connection import reason_of
from aionsq.tools.flags import ToolFailed, ToolFlags, WrongUsage
from aionsq.tools.platform_hint import HintFilter, with_hint
from aionsq.tools.signal_echo import SignalEcho
from nsqdaemon import logs
from nsqdaemon.command_line import USAGE
from nsqdaemon.descriptors import allow_many_descriptors, occupy_standard_descriptors
from nsqdaemon.settings import SettingsParser, load, parser_of
from nsqdaemon.streams import escape_unencodable_output
from nsqwire.errors import NSQError
from nsqwire.printable import printable
from nsqwire.version import NSQ_VERSION

F = TypeVar("F", bound=ToolFlags)

INTERRUPTED = 130


class Run:
    """One run of a tool."""

    def __init__(self, prog: str, is_subcommand: bool) -> None:
        self.prog = prog
        """The name it was called by: ``nsq_tail`` or ``nsq tail``."""
        self.is_subcommand = is_subcommand
        """Whether it was called as ``nsq tail``: missing addresses are then those of the platform on this machine."""
        self.stop = asyncio.Event()
        """Set by SIGINT and SIGTERM; the tool then finishes outstanding work and exits."""

    def note(self, text: str) -> None:
        """Print one line on standard error."""
        note(self.prog, text)


class Tool(Generic[F]):
    """A tool. Calling it runs the tool and returns its exit status.

    ``name`` is the tool's name in NSQ, used in a call without ``argv``, which takes the process's arguments.
    ``subcommand`` is its name below ``nsq``, used in a call with ``argv``. ``work`` is its coroutine function. SIGINT
    and SIGTERM set ``run.stop``; a second signal that is no echo cancels ``work``, with exit status 130. OSError and
    the exceptions of the client and the tools are reported in one line on standard error, with exit status 1 or
    ToolFailed's own.
    """

    def __init__(
        self,
        name: str,
        subcommand: str,
        flags: type[F],
        work: Callable[[F, Run], Awaitable[int]],
        summary: str,
        *,
        examples: Sequence[tuple[str, str]],
        words: str = "",
        with_words: Callable[[F, Sequence[str]], F] | None = None,
    ) -> None:
        """``summary`` is the description in ``--help``, and ``examples`` are its last part.

        With ``with_words``, the subcommand takes arguments that are not flags: ``words`` describes them, and
        ``with_words`` returns the flags that they stand for.
        """
        self.name = name
        self.flags = flags
        self._subcommand = f"nsq {subcommand}"
        self._work = work
        self._summary = summary
        self._examples = examples
        self._words = words
        self._with_words = with_words

    def parser(self) -> SettingsParser:
        """The parser of the subcommand, for its help."""
        return parser_of(
            self.flags, prog=self._subcommand, description=self._summary, words=self._words, examples=self._examples
        )

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        occupy_standard_descriptors()
        allow_many_descriptors()
        escape_unencodable_output()
        prog = self.name if argv is None else self._subcommand
        taken: list[str] | None = [] if self._with_words and argv is not None else None
        flags = load(
            self.flags,
            prog=prog,
            argv=sys.argv[1:] if argv is None else argv,
            environ=os.environ,
            version_text=f"{self.name} v{NSQ_VERSION}",
            description=self._summary,
            refuse_words=True,
            taken=taken,
            words=self._words,
            examples=self._examples,
        )
        if self._with_words and taken:
            flags = self._with_words(flags, taken)
        logs.configure(flags.log_level, flags.log_prefix.replace("<TOOL>", self.name), flags.log_format)
        if argv is not None:
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logs.StderrHandler):
                    handler.addFilter(HintFilter())
        return self._run(flags, prog, is_subcommand=argv is not None)

    def _run(self, flags: F, prog: str, *, is_subcommand: bool) -> int:
        return run_reporting_errors(prog, self._until_done(flags, prog, is_subcommand))

    async def _until_done(self, flags: F, prog: str, is_subcommand: bool) -> int:
        run = Run(prog, is_subcommand)
        work = asyncio.ensure_future(self._work(flags, run))
        loop, echo = asyncio.get_running_loop(), SignalEcho()

        def interrupted() -> None:
            if echo.is_echo(loop.time()):
                return
            if run.stop.is_set():
                work.cancel()
            run.stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)
        try:
            return await work
        except asyncio.CancelledError:
            forget_open_connections(loop)
            run.note("interrupted again: exiting without waiting for outstanding work")
            return INTERRUPTED


def run_reporting_errors(prog: str, work: Coroutine[Any, Any, int]) -> int:
    """Run ``work`` in an event loop and return its exit status.

    OSError, ToolFailed, ClientError and NSQError are reported in one line on stderr. BrokenPipeError exits with 1,
    without a line.
    """
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work)
    except BrokenPipeError:  # the reader of our output, such as head, has exited
        _discard_output()
        return 1
    except OSError as error:
        _discard_output()
        text, status = reason_of(error), 1
    except WrongUsage as error:
        text, status = str(error), USAGE if prog.startswith("nsq ") else error.status
    except ToolFailed as error:
        text, status = str(error), error.status
    except NSQError as error:
        text, status = str(error), 1
    note(prog, text)
    return status


def forget_open_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Before an exit that waits for nothing: aiohttp would log each connection that was not closed as an error."""
    loop.set_exception_handler(lambda *_: None)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop, which the extra ``tools`` installs, or else of asyncio, which is slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def note(prog: str, text: str) -> None:
    """Print one line on standard error. One of a subcommand of ``nsq`` hints at the ports of the platform."""
    line = with_hint(text) if prog.startswith("nsq ") else text
    print(f"{prog}: {printable(line)}", file=sys.stderr, flush=True)


def _discard_output() -> None:
    """Discard unwritten output, so that Python does not try again to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
