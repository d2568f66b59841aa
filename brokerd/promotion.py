"""``nsq promote``: lets a member of a pair lead although it may lack messages, when no member is known to have all.

That is so if both machines were restarted at once, or if the member that was in sync alone is lost. The command
changes the pair's record at the arbiter, so that the member may lead; the member, which has to run, does the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from brokerd.arbiter_address import InvalidArbiter
from brokerd.mirror.pair import InvalidRecord
from brokerd.net.arbiter import Arbiter, ArbiterFailed
from brokerd.net.arbiter_access import ArbiterAccess, InvalidAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.replica import STATE, MirrorState
from brokerd.settings import SERVICE_ACCOUNT
from nsqdaemon.command_line import CommandParser

DONE, REFUSED = 0, 1
TIMEOUT_S: Final = 10.0

EXAMPLES = (
    (
        "nsq promote --data-path /var/lib/nsq --arbiter etcd://10.0.0.9:2379/orders --accept-loss",
        "let this machine's member lead",
    ),
)
NOTES = """\
Run it on the machine of the member that has the most messages, while the member runs. Messages that only the other one
has are lost: it becomes the follower, and its files are replaced.
Exit status: 0 if the member may lead now, 1 if nothing was changed, 2 for a usage error.
"""


class NotPromoted(Exception):
    """Nothing was changed; the text says why."""


def parser() -> CommandParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="nsq promote",
        description="Let a member of a mirrored pair lead although it may lack messages.",
        epilog=NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=EXAMPLES,
    )
    parser.add_argument("--data-path", metavar="PATH", help="the member's data path")
    parser.add_argument(
        "--arbiter",
        metavar="URL",
        help="the members' arbiter: etcd://HOST:PORT[,HOST:PORT]/NAME or kubernetes://NAMESPACE/NAME",
    )
    parser.add_argument(
        "--arbiter-ca-file", metavar="FILE", default="", help="the members' --arbiter-ca-file, for etcds://"
    )
    parser.add_argument("--arbiter-user-file", metavar="FILE", default="", help="the members' --arbiter-user-file")
    parser.add_argument(
        "--arbiter-service-account",
        metavar="DIRECTORY",
        default=SERVICE_ACCOUNT,
        help="the members' --arbiter-service-account, for kubernetes:// (default: %(default)s)",
    )
    parser.add_argument(
        "--accept-loss", action="store_true", help="messages that only the other member has may be lost"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Promote the member. Returns the exit status."""
    command = parser()
    options = command.parse_args(argv)
    if options.data_path is None or options.arbiter is None:
        command.error("--data-path and --arbiter are needed")
    try:
        access = ArbiterAccess.of_files(
            options.arbiter_ca_file, options.arbiter_user_file, options.arbiter_service_account
        )
        arbiter = arbiter_at(options.arbiter, timeout_s=TIMEOUT_S, access=access)
    except InvalidAccess as error:
        command.error(str(error))
    except InvalidArbiter as error:
        command.error(f"--arbiter: {error}")
    try:
        print(asyncio.run(promote(Path(options.data_path), arbiter, accepts_loss=options.accept_loss)))
    except (NotPromoted, ArbiterFailed, InvalidRecord, OSError, ValueError) as error:
        print(f"nsq promote: {error}", file=sys.stderr)
        return REFUSED
    return DONE


async def promote(data_path: Path, arbiter: Arbiter, *, accepts_loss: bool) -> str:
    """Let the member of a data path lead. Returns what was done.

    Raises NotPromoted, ArbiterFailed, InvalidRecord, OSError, and ValueError if the member's state cannot be read.
    """
    state = MirrorState.read(data_path)
    if not state.epoch:
        raise NotPromoted(f"{data_path} has never been in a pair: its {STATE} is missing or has no term")
    found = await arbiter.read_settled()
    if found.record is None or found.record.pair != state.pair:
        raise NotPromoted(
            "the arbiter has another pair of that name" if found.record else "the arbiter has no such pair"
        )
    if found.leader is not None:
        raise NotPromoted(f"member {found.leader} leads")
    if found.record.may_lead(state.member, state.boot):
        raise NotPromoted(f"member {state.member} is in sync and leads by itself once it runs")
    in_sync = ", ".join(sorted(found.record.in_sync))
    if not accepts_loss:
        raise NotPromoted(
            f"member {state.member} may lack messages that were acknowledged; {in_sync} was in sync. "
            "Start that one if you can, or accept the loss with --accept-loss"
        )
    record = found.record.with_in_sync({state.member: state.boot})
    if await arbiter.write_without_lead(record, found.revision) is None:
        raise NotPromoted("somebody has changed the record of the pair; try again")
    return f"member {state.member} may lead"
