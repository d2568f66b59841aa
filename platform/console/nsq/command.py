"""``nsq SUBCOMMAND …``: finds the subcommand and hands over. Django loads only where a subcommand needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches

from console.nsq.registry import GROUPS, SUBCOMMANDS, find

UNKNOWN_SUBCOMMAND = 2


def usage() -> str:
    width = max(map(len, SUBCOMMANDS))
    lines = ["usage: nsq SUBCOMMAND [options]"]
    for heading, group in GROUPS.items():
        lines += ["", f"{heading}:", *(f"  {name:<{width}}  {subcommand.help}" for name, subcommand in group.items())]
    return "\n".join(
        [*lines, "", "nsq SUBCOMMAND --help lists a subcommand's options; NSQ's own names will do as well."]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``argv`` (default: the process's arguments, without the program's name) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, *rest = arguments
    subcommand = find(name)
    if subcommand is None:
        print(unknown(name), file=sys.stderr)
        return UNKNOWN_SUBCOMMAND
    return subcommand.load()(rest)


def unknown(name: str) -> str:
    nearest = get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "nsq --help lists them"
    return f"nsq: unknown subcommand {name!r}; {hint}"
