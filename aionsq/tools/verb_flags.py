"""Flags that only some verbs of a command take, such as ``--since`` of ``nsq channels rewind``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from nsqdaemon.command_line import CommandParser
from nsqwire.durations import parse_duration

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class VerbFlag(Generic[T]):
    """A flag of ``verbs``. With another verb, it is a usage error.

    ``read`` parses its value, and raises ValueError. ``required`` is the error if the flag is missing; empty if it may
    be, which gives ``default``.
    """

    name: str
    verbs: tuple[str, ...]
    help: str
    read: Callable[[str], T]
    default: T
    metavar: str | None = None
    choices: Sequence[str] | None = None
    required: str = ""

    @property
    def for_verbs(self) -> str:
        """Such as ``for set, delete and mend``."""
        *others, last = self.verbs
        return f"for {', '.join(others)} and {last}" if others else f"for {last}"

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Let a parser take it."""
        parser.add_argument(
            self.name,
            dest=self.name,
            metavar=self.metavar,
            choices=self.choices,
            help=f"{self.for_verbs}: {self.help}",
        )

    def value_in(self, given: argparse.Namespace, parser: CommandParser) -> T:
        """Its value in what ``parser`` has parsed. Exits with 2 on an error."""
        text: str | None = getattr(given, self.name)
        if text is None:
            if self.required and given.verb in self.verbs:
                parser.error(self.required)
            return self.default
        if given.verb not in self.verbs:
            parser.error(f"{self.name} is {self.for_verbs}, not for {given.verb}")
        try:
            return self.read(text)
        except ValueError as error:
            parser.error(f"{self.name}: {error}")

    def of(self, values: Mapping[str, Any]) -> T:
        """Its value among those of a command line, by name."""
        return cast(T, values[self.name])


def positive(text: str) -> int:
    """Parse a whole number above 0. Raises ValueError."""
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise ValueError(f"{number} is not positive")
    return number


def duration(text: str) -> timedelta:
    """Parse a duration that is not negative. Raises ValueError."""
    found = parse_duration(text)
    if found < timedelta(0):
        raise ValueError(f"{text} is negative")
    return found
