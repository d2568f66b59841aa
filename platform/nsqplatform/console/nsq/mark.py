"""``nsq mark``: posts, lists and deletes the marks on the platform's charts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from nsqdaemon.command_line import CommandParser
from nsqplatform.clusters.declaration import DEFAULT
from nsqplatform.console.nsq.administrator import administrator
from nsqplatform.console.nsq.options import add_home, use_existing_home
from nsqplatform.console.nsq.prepare import load_django_quietly

if TYPE_CHECKING:
    from nsqplatform.marks.models import Mark

PROG: Final = "nsq mark"
FAILED: Final = 1
LISTED: Final = 20
EPILOG: Final = """\
The command uses the platform's database directly, with the settings of the environment, and has an administrator's
rights. In the audit trail it is the user of the operating system, via the command line. From another machine, post to
/api/v1/marks with a token."""


def moment(text: str) -> datetime:
    """Parse a time with its zone; an invalid one is an error of the command line."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a time with a zone, such as 2026-03-14T15:00Z")


def parser() -> CommandParser:
    made = CommandParser(
        prog=PROG,
        description="Mark a time on the charts of the platform, such as that of a deployment.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=[
            ('nsq mark "deploy 1.2"', "on all charts, now"),
            (
                "nsq mark --topic 'orders*' --at 2026-03-14T15:00Z \"new consumers\"",
                "on those of some topics, earlier",
            ),
            ("nsq mark --list", "the newest marks, with their ids"),
            ("nsq mark --delete 7", "delete one"),
        ],
    )
    add_home(made)
    made.add_argument("--cluster", default=DEFAULT, metavar="NAME", help="a cluster of NSQ_CLUSTERS (%(default)s)")
    made.add_argument(
        "--topic", default="*", metavar="PATTERN", help="glob of the topics whose charts it is on (%(default)s)"
    )
    made.add_argument("--at", type=moment, metavar="TIME", help="with its zone (default: now)")
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("text", metavar="TEXT", nargs="?", help="what happened, at most 200 characters")
    what.add_argument("--list", action="store_true", help=f"print the newest {LISTED} marks")
    what.add_argument("--delete", type=int, metavar="ID", help="delete a mark")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    command = parser()
    options = command.parse_args(argv)
    use_existing_home(options, command)
    load_django_quietly()
    from django.core.exceptions import ValidationError
    from django.db import DatabaseError
    from django.http import Http404
    from pydantic import ValidationError as MalformedMark

    from nsqplatform.clusters import current

    try:
        current.set_for_process(options.cluster)
        run(options)
    except current.NoSuchCluster as error:
        command.error(f"--cluster: {error}")
    except MalformedMark as error:
        command.error(
            "; ".join(f"{each['loc'][0]}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors())
        )
    except ValidationError as error:
        command.error("; ".join(error.messages))
    except Http404 as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILED
    except DatabaseError as error:
        print(f"{PROG}: cannot use the database: {error}; nsq up creates it", file=sys.stderr)
        return FAILED
    return 0


def run(options: argparse.Namespace) -> None:
    from nsqplatform.marks import services
    from nsqplatform.marks.models import Mark
    from nsqplatform.marks.schemas import MarkIn

    if options.list:
        for mark in Mark.objects.all()[:LISTED]:
            print(line(mark))
    elif options.delete is not None:
        services.delete(mark_id=options.delete, by=administrator(), remote_address="")
    else:
        asked = MarkIn(text=options.text, at=None, topic_pattern=options.topic)
        mark = services.post(
            text=asked.text, at=options.at, topic_pattern=asked.topic_pattern, by=administrator(), remote_address=""
        )
        print(line(mark))


def line(mark: Mark) -> str:
    """Such as ``7  2026-03-14T15:00:00Z  orders.*  deploy 1.2  ana``."""
    return f"{mark.pk}  {mark.at:%Y-%m-%dT%H:%M:%SZ}  {mark.topic_pattern}  {mark.text}  {mark.created_by}"
