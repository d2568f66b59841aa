"""``nsq SUBCOMMAND …``: finds the subcommand and hands over. Django loads only where a subcommand needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches

from console.nsq.registry import SUBCOMMANDS

UNKNOWN_SUBCOMMAND = 2


def usage() -> str:
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:<{width}}  {subcommand.help}" for name, subcommand in SUBCOMMANDS.items()]
    return "\n".join(
        ["usage: nsq SUBCOMMAND [options]", "", *lines, "", "nsq SUBCOMMAND --help lists a subcommand's options."]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``argv`` (default: the process's arguments, without the program's name) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, *rest = arguments
    subcommand = SUBCOMMANDS.get(name)
    if subcommand is None:
        print(unknown(name), file=sys.stderr)
        return UNKNOWN_SUBCOMMAND
    return subcommand.load()(rest)


def unknown(name: str) -> str:
    nearest = get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "nsq --help lists them"
    return f"nsq: unknown subcommand {name!r}; {hint}"
