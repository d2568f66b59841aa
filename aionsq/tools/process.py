"""What the tools have in common as processes: event loop, signals, addresses, and errors told in one line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import uvloop

from aionsq.connection import reason_of
from aionsq.errors import ClientError
from aionsq.options import ConnectionOptions, with_text
from nsqwire import logs
from nsqwire.errors import NSQError
from nsqwire.logs import LogLevel

O = TypeVar("O", bound=ConnectionOptions)  # noqa: E741

DEFAULT_NSQD = "127.0.0.1:4150"
DEFAULT_LOOKUPD = "127.0.0.1:4161"


class ToolFailed(Exception):
    """Ends the tool with this line on standard error."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def run(prog: str, work: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Run the tool's coroutine and return its exit status.

    ``work`` gets an event that SIGINT and SIGTERM set. What goes wrong becomes one line on standard error.
    """
    _open_standard_files()
    logs.configure(LogLevel.WARN, f"[{prog}] ")

    async def until_done() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await work(stop)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(until_done())
    except BrokenPipeError:  # whoever read our output has left, as head does
        _discard_output()
        return 1
    except OSError as error:
        _discard_output()
        note(prog, reason_of(error))
        return 1
    except ToolFailed as error:
        note(prog, str(error))
        return error.status
    except (ClientError, NSQError) as error:
        note(prog, str(error))
        return 1


def _discard_output() -> None:
    """What could not be written to standard output must not be tried, and fail, once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_standard_files() -> None:
    """Where the shell closed descriptor 0, 1 or 2, put /dev/null: the event loop's own must not take their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, so this one


def note(prog: str, text: str) -> None:
    """Tell something on standard error, in one line."""
    print(f"{prog}: {text}", file=sys.stderr, flush=True)


def with_texts(options: O, texts: Sequence[str], flag: str) -> O:
    """Apply ``name,value`` or ``name`` from a repeated flag. Raises ToolFailed."""
    for text in texts:
        name, comma, value = text.partition(",")
        try:
            options = with_text(options, name, value if comma else None)
        except ValueError as error:
            raise ToolFailed(f"{flag} {text}: {error}", status=2) from None
    return options


def lookupd_addresses() -> tuple[str, ...]:
    """Where to ask when no address flag is given: ``NSQLOOKUPD_HTTP_ADDRESSES``, or the registry's default address."""
    listed = [part.strip() for part in os.environ.get("NSQLOOKUPD_HTTP_ADDRESSES", "").split(",")]
    return tuple(part for part in listed if part) or (DEFAULT_LOOKUPD,)
