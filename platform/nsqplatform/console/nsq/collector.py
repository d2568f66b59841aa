"""``nsq collector``: polls every broker once a second, for all browsers and the archive."""

from __future__ import annotations

from collections.abc import Sequence

from nsqdaemon.command_line import CommandParser
from nsqplatform.clusters.declaration import DEFAULT
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.prepare import load_django


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq collector",
        description="Poll every broker of a cluster once a second, for all browsers and the archive.",
        examples=[
            ("nsq collector", "poll the default cluster"),
            ("nsq collector --cluster berlin", "poll another cluster of NSQ_CLUSTERS"),
        ],
    )
    made.add_argument("--cluster", default=DEFAULT, metavar="NAME", help="a cluster of NSQ_CLUSTERS (%(default)s)")
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Exits with status 2 for a cluster that is not declared."""
    made = parser()
    options = made.parse_args(argv)
    use_home(options)
    load_django()
    from nsqplatform.cluster.collector.process import run
    from nsqplatform.clusters.current import NoSuchCluster

    try:
        return run(options.cluster)
    except NoSuchCluster as error:
        made.error(str(error))
