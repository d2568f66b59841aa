"""The table of docs/settings-platform.md, made from the declared variables. ``make docs`` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsqplatform.console.environment import VARIABLES
from nsqplatform.console.variable import Variable

PAGE = Path(__file__).parents[3] / "docs/settings-platform.md"
HEAD = "| variable | value | default | meaning |\n|---|---|---|---|\n"


def main() -> None:
    """Replace the table, which ends the page."""
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(HEAD)] + markdown(VARIABLES))


def markdown(variables: Sequence[Variable[Any]]) -> str:
    """The variables as a table."""
    rows = (
        (f"`{each.name}`", each.accepts, f"`{each.default}`" if each.default else "", each.meaning)
        for each in variables
    )
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()
