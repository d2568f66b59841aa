"""Tables of the commands that list. They are drawn by rich, which the extra ``tools`` installs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aionsq.tools.flags import ToolFailed
from nsqwire.printable import printable

Colour = Literal["", "yellow", "red"]


@dataclass(frozen=True)
class Cell:
    """A text with a colour, which a terminal shows."""

    text: str
    colour: Colour = ""


def print_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str | Cell]], nothing: str) -> None:
    """``columns`` are headings, each with whether its column has numbers. Without rows, print ``nothing`` on stderr.

    Raises ToolFailed if rich is not installed.
    """
    if not rows:
        if nothing:
            print(nothing, file=sys.stderr)
        return
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        raise ToolFailed("tables need rich: pip install 'nsq-client[tools]'; --json prints without it") from None
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, is_number in columns:
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
        table.add_row(*(Text(printable(cell.text), style=cell.colour) for cell in cells))
    console.print(table)
