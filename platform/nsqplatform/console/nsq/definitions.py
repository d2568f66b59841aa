"""``nsq definitions``: exports the platform's definitions, and reviews and applies a file of them."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nsqdaemon.command_line import CommandParser
from nsqplatform.clusters.declaration import DEFAULT
from nsqplatform.console.nsq.administrator import administrator
from nsqplatform.console.nsq.options import add_home, use_existing_home
from nsqplatform.console.nsq.prepare import load_django_quietly
from nsqwire.counted import counted

if TYPE_CHECKING:
    from nsqplatform.definitions.changes import Change
    from nsqplatform.definitions.services import Review

PROG: Final = "nsq definitions"
FAILED: Final = 1
DIFFERS: Final = 3
"""Of ``check``. 2 is an invalid command line, as everywhere."""
MARKS: Final = {"create": "+", "change": "~", "remove": "-", "keep": "?"}
EPILOG: Final = """\
FILE is - for standard input or output. Exit status: 0 on success; 1 on an error; 2 for an invalid command line; 3 if
check finds that something would change.

The command uses the platform's database and cluster directly, with the settings of the environment, and has an
administrator's rights. In the audit trail it is the user of the operating system, via the command line."""


class CannotRun(Exception):
    """The command fails with this text."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = (command := parser()).parse_args(argv)
    use_existing_home(options, command)
    load_django_quietly()
    from django.core.exceptions import ValidationError
    from django.db import DatabaseError
    from redis.exceptions import RedisError

    from nsqplatform.clusters import current
    from nsqplatform.definitions.errors import InvalidDefinitions, NotAllKnown
    from nsqplatform.redis_errors import redis_failure

    try:
        current.set_for_process(options.cluster)
        return export(options, command) if options.verb == "export" else import_file(options)
    except current.NoSuchCluster as error:
        command.error(f"--cluster: {error}")
    except InvalidDefinitions as refused:
        for field, text in refused.faults:
            print(f"{PROG}: {options.file}: {f'{field}: ' if field else ''}{text}", file=sys.stderr)
    except ValidationError as error:
        print(f"{PROG}: {'; '.join(error.messages)}", file=sys.stderr)
    except (CannotRun, NotAllKnown, OSError) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
    except DatabaseError as error:
        print(f"{PROG}: cannot use the database: {error}; nsq up creates it", file=sys.stderr)
    except RedisError as error:
        print(f"{PROG}: {redis_failure(error)}; nsq up starts Redis", file=sys.stderr)
    return FAILED


def parser() -> CommandParser:
    made = CommandParser(
        prog=PROG,
        description="Export topics, channels, policies, notifiers, objectives, alert rules, silences, schedules, "
        "masks, shared views and people as one TOML file, and review or apply such a file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=[
            ("nsq definitions export nsq.toml", "write a file"),
            ("nsq definitions check nsq.toml", "print what applying it would change"),
            ("nsq definitions apply nsq.toml", "make the changes"),
        ],
    )
    add_home(made)
    made.add_argument("--cluster", default=DEFAULT, metavar="NAME", help="a cluster of NSQ_CLUSTERS (%(default)s)")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    exporting = verbs.add_parser("export", help="write the definitions to FILE")
    exporting.add_argument("file", metavar="FILE", nargs="?", default="-", help="(default: standard output)")
    exporting.add_argument("--only", default="", metavar="SECTIONS", help="names of sections, separated by commas")
    exporting.add_argument(
        "--secrets",
        action="store_true",
        help="write webhook URLs in full, which may contain keys; only you can read the file",
    )
    for verb, summary in (("check", "print what applying FILE would change"), ("apply", "make the changes")):
        importing = verbs.add_parser(verb, help=summary)
        importing.add_argument("file", metavar="FILE")
        importing.add_argument("--prune", action="store_true", help="remove what the file's sections do not have")
    return made


def export(options: argparse.Namespace, command: CommandParser) -> int:
    """Write the definitions. Section names are checked here, because the parser would need Django to know them."""
    from django.core.exceptions import ValidationError

    from nsqplatform.definitions.document import to_toml
    from nsqplatform.definitions.services import export as exported
    from nsqplatform.definitions.services import sections_in

    try:
        only = sections_in(options.only)
    except ValidationError as error:
        command.error(f"--only: {'; '.join(error.messages)}")
    text = to_toml(exported(by=administrator(), secrets=options.secrets, only=only))
    if options.file == "-":
        sys.stdout.write(text)
    elif options.secrets:
        write_private(Path(options.file), text)
    else:
        Path(options.file).write_text(text, encoding="utf-8")
    return 0


def private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, also if others could read it before. Raises OSError."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # not a pipe or /dev/stdout
            os.fchmod(file.fileno(), 0o600)
        file.write(text)


def import_file(options: argparse.Namespace) -> int:
    from nsqplatform.definitions.services import import_definitions

    dry_run = options.verb == "check"
    review = import_definitions(
        text=read(options.file), by=administrator(), dry_run=dry_run, prune=options.prune, remote_address=""
    )
    show(review)
    if dry_run:
        return DIFFERS if review.would_change else 0
    return 0 if review.outcome == "done" else FAILED


def read(file: str) -> str:
    """The text of the file. Raises CannotRun, and OSError."""
    try:
        return sys.stdin.buffer.read().decode() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CannotRun(f"{file}: the file is not UTF-8") from None


def show(review: Review) -> None:
    """Print a line for each change, and their numbers."""
    for change in review.changes:
        print(line(change))
    for server in review.unanswered:
        print(f"! does not answer, so its topics and policies are unknown: {server}")
    numbers = {verb: sum(change.verb == verb for change in review.changes) for verb in MARKS}
    print(
        f"{numbers['create']:,} to create, {numbers['change']:,} to change, {numbers['remove']:,} to remove, "
        f"{review.unchanged:,} unchanged, {numbers['keep']:,} not in the file"
        if all(change.outcome == "planned" for change in review.changes)
        else f"{review.summary()}, {review.unchanged:,} unchanged, {numbers['keep']:,} not in the file"
    )


def line(change: Change) -> str:
    """Such as ``~ rules Backlog: threshold 100.0 → 200.0``."""
    fields = [f"{each.field} {each.before or '–'} → {each.after or '–'}" for each in change.fields]
    if change.messages:
        fields.append(f"with {counted(change.messages, 'message')}")
    failures = [f"{each['target']} {each['node']}: {each['detail']}" for each in change.results if each["detail"]]
    if change.outcome in ("partial", "failed"):
        fields += [change.outcome, *([change.detail] if change.detail else []), *failures]
    return f"{MARKS[change.verb]} {change.section} {change.name}{': ' if fields else ''}{', '.join(fields)}"
