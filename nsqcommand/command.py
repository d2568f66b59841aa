"""``nsq SUBCOMMAND …``: finds the subcommand and calls it. Only subcommands that need Django import it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from nsqcommand.subcommands import GROUPS, SUBCOMMANDS, Subcommand, find
from nsqcommand.versions import versions
from nsqdaemon.command_line import USAGE
from nsqdaemon.descriptors import occupy_standard_descriptors
from nsqdaemon.streams import escape_unencodable_output
from nsqdaemon.variable import InvalidVariable

NOT_INSTALLED = 1
EXAMPLES = (
    ("nsq up", "start the platform"),
    ("nsq pub orders hello", "publish a message"),
    ("nsq tail --topic orders", "print a topic's messages"),
    ("nsq help tail", "what tail can do"),
)


def usage() -> str:
    """The help text: the installed subcommands by heading, and the distributions that install the others."""
    installed = {name for name, subcommand in SUBCOMMANDS.items() if subcommand.is_installed}
    width = max(map(len, SUBCOMMANDS))
    lines = ["usage: nsq SUBCOMMAND [options]", "       nsq --version"]
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
    width = max(len(command) for command, _ in EXAMPLES)
    lines += ["", "Examples:", *(f"  {command:<{width}}  {meaning}" for command, meaning in EXAMPLES)]
    return "\n".join([*lines, "", "nsq help SUBCOMMAND lists a subcommand's options; NSQ's own names work too."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``argv`` (default: the process's arguments, without the program's name) and return the exit status."""
    occupy_standard_descriptors()
    escape_unencodable_output()
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, has exited
        _discard_output()
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _discard_output()
        print("nsq: the output cannot be written: no space left on device", file=sys.stderr)
        return 1
    return status


def _discard_output() -> None:
    """Discard unwritten output, so that Python does not try again to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        # `nsq help tail` is `nsq tail --help`, and `nsq help` is `nsq --help`.
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] in ("--version", "-version"):
        print(versions())
        return 0
    name, *rest = arguments
    subcommand = find(name)
    if subcommand is None:
        print(unknown(name), file=sys.stderr)
        return USAGE
    if not subcommand.is_installed:
        print(f"nsq: {name} is not installed: pip install {subcommand.distribution}", file=sys.stderr)
        return NOT_INSTALLED
    return run(name, subcommand, rest)


def run(name: str, subcommand: Subcommand, rest: Sequence[str]) -> int:
    """Call an installed subcommand; returns its exit status."""
    try:
        return subcommand.load()(rest)
    except InvalidVariable as error:
        print(f"nsq {name}: {error}", file=sys.stderr)
        return USAGE


def unknown(name: str) -> str:
    """Return the error message for an unknown subcommand, with the most similar name."""
    if name.startswith("-"):
        return f"nsq: unknown option {name!r}; nsq --help lists the subcommands"
    nearest = get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "nsq --help lists them"
    return f"nsq: unknown subcommand {name!r}; {hint}"
