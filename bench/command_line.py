"""What the commands share: usage errors, errors and signals are reported in one line, and end what was started."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Self

from bench.errors import BenchError
from bench.processes import interrupt_at_sigterm


class Parser(argparse.ArgumentParser):
    """Reports a usage error in one line."""

    def error(self, message: str) -> NoReturn:
        fail(program_of(self.prog), message, status=2)


def program_of(prog: str) -> str:
    """The module in ``python -m MODULE``."""
    return prog.rpartition(" ")[2]


def positive_count(text: str) -> int:
    with suppress(ValueError):
        if (count := int(text)) > 0:
            return count
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def directory(text: str) -> Path:
    if (path := Path(text)).is_dir():
        return path
    raise argparse.ArgumentTypeError(f"{text!r} is not a directory")


def fail(program: str, message: str, status: int = 1) -> NoReturn:
    print(f"{program}: {message}", file=sys.stderr)
    raise SystemExit(status)


@contextmanager
def errors_in_one_line(program: str) -> Iterator[None]:
    """Exit with one line on stderr after an error, SIGINT or SIGTERM in the block, which measures and prints.

    The block's ``finally`` clauses have stopped the servers then.
    """
    is_terminated = interrupt_at_sigterm().is_set
    try:
        yield
        sys.stdout.flush()
    except BenchError as error:
        fail(program, str(error))
    except OSError as error:
        # The output may be what failed: without this, Python would try to write the rest at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fail(program, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except KeyboardInterrupt:
        if is_terminated():
            fail(program, "terminated", status=143)
        fail(program, "interrupted", status=130)


class Progress:
    """Lines of progress on standard error. On a terminal, each replaces the one before."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def show(self, line: str) -> None:
        text = f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n"
        print(text, end="", file=sys.stderr, flush=True)
        self._is_shown = True

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._is_shown:
            print(file=sys.stderr)
