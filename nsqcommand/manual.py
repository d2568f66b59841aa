"""``nsq man``: manual pages, made from the parsers of the subcommands."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nsqcommand.command import EXAMPLES
from nsqcommand.command import unknown as unknown_subcommand
from nsqcommand.subcommands import GROUPS, SUBCOMMANDS, find
from nsqdaemon.command_line import CommandParser
from nsqwire.version import product_version

SUMMARY: Final = "broker, registry, web platform and tools of NSQ"
STATUS: Final = "0 on success, 1 after a failure, 2 for an invalid command line."


def parser() -> CommandParser:
    """The parser of the command."""
    made = CommandParser(
        prog="nsq man",
        description="Show the manual page of nsq or of a subcommand; without a terminal or man, print its source.",
        examples=[
            ("nsq man", "the page of nsq itself"),
            ("nsq man tail", "the page of nsq tail"),
            ("nsq man --directory ~/.local/share/man/man1", "write all pages, for man nsq-tail"),
        ],
    )
    made.add_argument("subcommand", nargs="?", metavar="SUBCOMMAND", help="a subcommand (default: nsq itself)")
    made.add_argument("--directory", type=Path, metavar="DIR", help="write the pages of all subcommands to this folder")
    return made


def main(argv: Sequence[str]) -> int:
    """Show or write pages; returns the exit status."""
    made = parser()
    options = made.parse_args(argv)
    if options.directory is not None:
        try:
            write_pages(options.directory)
        except OSError as error:
            print(f"nsq man: cannot write to {options.directory}: {error.strerror}", file=sys.stderr)
            return 1
        return 0
    page = overview()
    if options.subcommand is not None:
        subcommand = find(options.subcommand)
        if subcommand is None:
            made.error(unknown_subcommand(options.subcommand).removeprefix("nsq: "))
        if not subcommand.is_installed:
            print(f"nsq man: not installed: pip install {subcommand.distribution}", file=sys.stderr)
            return 1
        page = page_of(subcommand.parser(), subcommand.help)
    viewer = shutil.which("man")
    if viewer is None or not sys.stdout.isatty():
        print(page, end="")
        return 0
    return subprocess.run([viewer, "--local-file", "-"], input=page, text=True, check=False).returncode


def write_pages(directory: Path, distribution: str | None = None) -> None:
    """Write ``nsq.1`` and ``nsq-SUBCOMMAND.1`` of what is installed, or of one distribution. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    if distribution in (None, "nsq-common"):
        (directory / "nsq.1").write_text(overview(), encoding="utf-8")
    for name, subcommand in SUBCOMMANDS.items():
        if subcommand.is_installed and distribution in (None, subcommand.distribution):
            page = page_of(subcommand.parser(), subcommand.help)
            (directory / f"nsq-{name}.1").write_text(page, encoding="utf-8")


def overview() -> str:
    """The source of the page ``nsq(1)``."""
    lines = [*_head("nsq", SUMMARY), ".SH SYNOPSIS", ".B nsq", "SUBCOMMAND [options]", ".br", ".B nsq", r"\-\-version"]
    for heading, group in GROUPS.items():
        lines.append(f".SH {_text(heading.upper())}")
        for name, subcommand in group.items():
            lines += [".TP", f".BR nsq\\-{_text(name)} (1)", _text(subcommand.help)]
    lines += _examples(EXAMPLES)
    return "\n".join([*lines, *_section("EXIT STATUS", STATUS)]) + "\n"


def page_of(parser: CommandParser, summary: str) -> str:
    """The source of a subcommand's page, ``nsq-SUBCOMMAND(1)``. ``summary`` is its line in ``nsq --help``."""
    lines = [*_head(parser.prog.replace(" ", "-"), summary), ".SH SYNOPSIS", _text(parser.synopsis)]
    # What is left of a description with several paragraphs is laid out by hand, such as the verbs.
    description, _, laid_out = (parser.description or summary).partition("\n\n")
    lines += _section("DESCRIPTION", " ".join(description.split()))
    if laid_out:
        lines += [".PP", *_as_written(laid_out)]
    lines += _options(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, each in action.choices.items():
                lines += [*_section(name.upper(), helps.get(name, "")), *_options(each, heading=".PP")]
    if parser.epilog:
        lines += [".SH NOTES", *_as_written(parser.epilog)]
    lines += _examples(parser.examples)
    if not parser.epilog or "xit status" not in parser.epilog:
        lines += _section("EXIT STATUS", STATUS)
    return "\n".join([*lines, ".SH SEE ALSO", ".BR nsq (1)"]) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH "{_text(name.upper())}" "1" "" "nsq {product_version()}" "NSQ for Python"'
    return [title, ".SH NAME", rf"{_text(name)} \- {_text(summary)}"]


def _section(heading: str, text: str) -> list[str]:
    return [f".SH {_text(heading)}", _text(text)] if text else [f".SH {_text(heading)}"]


def _options(parser: CommandParser, heading: str = ".SH OPTIONS") -> list[str]:
    """The arguments and options, each with its help."""
    formatter = parser._get_formatter()
    lines = [heading]
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        lines += [".TP", f".B {_text(formatter._format_action_invocation(action))}"]
        lines.append(_text(" ".join(formatter._expand_help(action).split())) if action.help else r"\&")
    return lines if len(lines) > 1 else []


def _examples(examples: Iterable[tuple[str, str]]) -> list[str]:
    lines = [".SH EXAMPLES"]
    for command, meaning in examples:
        lines += [".TP", f".B {_text(command)}", _text(meaning)]
    return lines


def _as_written(text: str) -> list[str]:
    """Lines whose layout is kept."""
    return [".nf", *(_text(line) or r"\&" for line in text.strip("\n").splitlines()), ".fi"]


def _text(text: str) -> str:
    r"""Escape what troff would read as a request or replace by a typographic mark: ``\``, ``-``, ``'``, ``.``."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace('"', "\\(dq").replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith((".", " ")) else escaped
