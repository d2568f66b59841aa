"""``nsq doctor``: checks whether this machine has what the platform needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.checks import Finding, examine
from nsqplatform.console.nsq.options import add_home, use_home

MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "missing": ("✗", "red")}


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq doctor",
        description="Check this machine and report what is missing, with the consequences.",
        examples=[
            ("nsq doctor", "a table"),
            ("nsq doctor --home /srv/nsq --json", "of another data folder, for a script"),
        ],
    )
    made.add_argument("--json", action="store_true", help="print a list of {name, state, found, cost}")
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Print the findings. Exit 1 if something that the platform needs is missing."""
    options = parser().parse_args(argv)
    use_home(options)
    findings = list(examine())
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        show(findings)
    return int(any(finding.state == "missing" for finding in findings))


def show(findings: Sequence[Finding]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for title in ("", "check", "found"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        mark, colour = MARKS[finding.state]
        words = Text(finding.found)
        if finding.cost:
            words.append(f"\n→ {finding.cost}", style=colour)
        table.add_row(Text(mark, style=colour), Text(finding.name, style="bold"), words)
    console.print(table)
    missing = sum(finding.state == "missing" for finding in findings)
    notes = sum(finding.state == "note" for finding in findings)
    if missing:
        console.print(f"\n{missing} required, missing.", style="red")
    elif notes:
        console.print(f"\nReady, with {notes} drawback{'s' if notes > 1 else ''}.", style="yellow")
    else:
        console.print("\nAll checks passed.", style="green")
