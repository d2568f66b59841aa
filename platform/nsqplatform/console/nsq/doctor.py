"""``nsq doctor``: checks whether this machine has what the platform needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsqplatform.console.nsq.checks import Finding, examine

MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "missing": ("✗", "red")}


def main(argv: Sequence[str]) -> int:
    """Print the findings. Exit 1 if something that the platform needs is missing."""
    parser = argparse.ArgumentParser(
        prog="nsq doctor", description="Check this machine and report what is missing, with the consequences."
    )
    parser.add_argument("--json", action="store_true", help="print a list of {name, state, found, cost}")
    options = parser.parse_args(argv)
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
