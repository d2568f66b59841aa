"""The output of ``nsq up``: a line for each change of a process's state, and all processes' logs with their names."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
STATE_COLOURS = {
    "running": "green",
    "starting": "yellow",
    "stopping": "yellow",
    "restarting": "red",
    "failed": "red",
    "stopped": "dim",
}


class PipeConsole(Console):
    """A console that stops the program in order if its pipe is closed; rich would exit at once."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGTERM)


class Screen:
    """Lines on standard output, coloured on a terminal unless ``NO_COLOR`` is set, plain in a pipe."""

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        self._console = PipeConsole(highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._width = max(map(len, names), default=0)
        self._colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}

    def log(self, name: str, line: str) -> None:
        """Show a line of a process's output."""
        text = Text(f"{name:<{self._width}} │ ", style=self._colours.get(name, ""))
        # The colours of a child's output are kept on a terminal and removed in a pipe.
        text.append_text(Text.from_ansi(line, style="default"))
        self._console.print(text)

    def state(self, name: str, state: str, detail: str) -> None:
        """Show a state: ``● brokerd  running     pid 12, tcp 127.0.0.1:4150, …``."""
        colour = STATE_COLOURS.get(state, "")
        self._console.print(
            Text.assemble(
                ("● ", colour), (f"{name:<{self._width}}  ", "bold"), (f"{state:<10}  ", colour), (detail, "default")
            )
        )

    def say(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style=style))
