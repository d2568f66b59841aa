"""``nsq SUBCOMMAND …``: finds the subcommand and calls it. Only subcommands that need Django import it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches

from nsqcommand.subcommands import GROUPS, SUBCOMMANDS, find
from nsqdaemon.streams import escape_unencodable_output
from nsqdaemon.variable import InvalidVariable

UNKNOWN_SUBCOMMAND = 2
NOT_INSTALLED = 1
INVALID_VARIABLE = 2


def usage() -> str:
    """The help text: the installed subcommands by heading, and the distributions that install the others."""
    installed = {name for name, subcommand in SUBCOMMANDS.items() if subcommand.is_installed}
    width = max(map(len, SUBCOMMANDS))
    lines = ["usage: nsq SUBCOMMAND [options]"]
    for heading, group in GROUPS.items():
        shown = [f"  {name:<{width}}  {group[name].help}" for name in group if name in installed]
        if shown:
            lines += ["", f"{heading}:", *shown]
    missing: dict[str, list[str]] = {}
    for name, subcommand in SUBCOMMANDS.items():
        if name not in installed:
            missing.setdefault(subcommand.distribution, []).append(name)
    if missing:
        width = max(map(len, missing))
        lines += ["", "Not installed:", *(f"  {each:<{width}}  {', '.join(missing[each])}" for each in sorted(missing))]
    return "\n".join([*lines, "", "nsq SUBCOMMAND --help lists a subcommand's options; NSQ's own names work too."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``argv`` (default: the process's arguments, without the program's name) and return the exit status."""
    escape_unencodable_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, *rest = arguments
    subcommand = find(name)
    if subcommand is None:
        print(unknown(name), file=sys.stderr)
        return UNKNOWN_SUBCOMMAND
    if not subcommand.is_installed:
        print(f"nsq: {name} is not installed: pip install {subcommand.distribution}", file=sys.stderr)
        return NOT_INSTALLED
    try:
        return subcommand.load()(rest)
    except InvalidVariable as error:
        print(f"nsq {name}: {error}", file=sys.stderr)
        return INVALID_VARIABLE


def unknown(name: str) -> str:
    """Return the error message for an unknown subcommand, with the most similar name."""
    nearest = get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "nsq --help lists them"
    return f"nsq: unknown subcommand {name!r}; {hint}"
