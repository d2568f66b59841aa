"""The parser of a subcommand of ``nsq``. Its help, its completion and its man page are made from it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, NoReturn

USAGE: Final = 2
"""Exit status for an invalid command line."""


class Example(NamedTuple):
    """A command as a user types it, and what it does."""

    command: str
    meaning: str


class CommandParser(argparse.ArgumentParser):
    """Reports an invalid command line in one line on standard error, with status 2.

    ``examples`` are pairs of a command and what it does. ``verbs``, by name with their help, are what the first
    argument may be. ``values`` are what an option may have as its value, by option, where argparse does not know them.
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self.examples = [Example(*example) for example in examples]
        self.verbs: Mapping[str, str] = {}
        self.values: dict[str, Sequence[str]] = {}

    @property
    def synopsis(self) -> str:
        """The usage in one line, without the list of options."""
        if self.usage is not None:
            return self.usage % {"prog": self.prog}
        # argparse removes nothing but the program's name from this formatter's line.
        formatter = argparse.HelpFormatter(self.prog, width=10_000)
        positionals = [action for action in self._get_positional_actions() if action.help != argparse.SUPPRESS]
        formatter.add_usage(None, positionals, [], prefix="")
        return " ".join([*formatter.format_help().split(), "[options]"])

    def format_help(self) -> str:
        """Return the help, which ends with the examples."""
        text = super().format_help()
        if not self.examples:
            return text
        width = max(len(example.command) for example in self.examples)
        lines = [f"  {example.command:<{width}}  {example.meaning}" for example in self.examples]
        return "\n".join([text.rstrip("\n"), "", "examples:", *lines, ""])

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}{self._nearest_option(message)}\n")

    def _nearest_option(self, message: str) -> str:
        """A hint at the option that is spelt like the first unknown one, if there is one."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message or not unknown.startswith("--"):
            return ""
        options = [option for action in self._actions for option in action.option_strings]
        near = get_close_matches(unknown.split()[0].partition("=")[0], options, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near else ""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Write the message to standard error, which may be closed, and exit."""
        if message and sys.stderr is not None:
            sys.stderr.write(message)
        raise SystemExit(status)
