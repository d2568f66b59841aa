"""``nsq promote``: lets a member of a pair lead although it may lack messages, when no member may lead otherwise.

That is the case if both machines were restarted at once, if the only member in sync is lost, or if the arbiter has lost
the record of the pair. The command changes the record, or writes a new one, so that the member may lead; the member,
which has to run, then asks for the lead.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from brokerd.arbiter_address import InvalidArbiter
from brokerd.mirror.pair import InvalidRecord, PairRecord
from brokerd.net.arbiter import Arbiter, ArbiterFailed
from brokerd.net.arbiter_access import ArbiterAccess, InvalidAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.replica import STATE, MirrorState
from brokerd.settings import SERVICE_ACCOUNT, default_node_id
from brokerd.stamp_file import read_stamps
from nsqdaemon.command_line import CommandParser

DONE, REFUSED = 0, 1
TIMEOUT_S: Final = 10.0
LEFT_OUT_TERMS: Final = 1000
"""Number of terms that a new record leaves out: the other member may have seen later terms than this member."""

EXAMPLES = (
    (
        "nsq promote --data-path /var/lib/nsq --arbiter etcd://10.0.0.9:2379/orders --accept-loss",
        "let this machine's member lead",
    ),
)
NOTES = """\
Run it if nobody leads and the other member cannot lead, on the machine of the member that has the most messages, while
this member runs. Messages that only the other member has are lost: it becomes the follower, and its files are replaced.
If the arbiter has lost the record of the pair, a new one is written.
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
        raise NotPromoted(f"{data_path} is not of a pair: its {STATE} is missing or has no term")
    found = await arbiter.read_settled()
    if found.leader is not None:
        raise NotPromoted(f"member {found.leader} leads")
    record = found.record if found.record is not None else _lost_record(state)
    if record.pair != state.pair:
        raise NotPromoted("the arbiter has another pair of that name")
    if record.may_lead(state.member, state.boot, read_stamps(data_path)):
        raise NotPromoted(f"member {state.member} is in sync and leads by itself once it runs")
    if not accepts_loss:
        raise NotPromoted(_possible_loss(state.member, record))
    record = record.with_in_sync({state.member: state.boot}).with_stamp("")
    record = replace(record, epoch=max(record.epoch, state.epoch))
    if await arbiter.write_without_lead(record, found.revision) is None:
        raise NotPromoted("somebody has changed the record of the pair; try again")
    written = "" if found.record is not None else "the arbiter had no record of the pair, and has a new one now; "
    return f"{written}member {state.member} may lead"


def _lost_record(state: MirrorState) -> PairRecord:
    """The record for a pair whose arbiter has lost it. Nobody is known to be in sync.

    If ``mirror.json`` has no node id, the record gets that of a broker on this machine.
    """
    node_id = default_node_id() if state.node_id is None else state.node_id
    return PairRecord(pair=state.pair, node_id=node_id, epoch=state.epoch + LEFT_OUT_TERMS, leader=state.member)


def _possible_loss(member: str, record: PairRecord) -> str:
    """Which messages may be lost, and that --accept-loss accepts it."""
    if not record.in_sync:
        return (
            "the arbiter has no record of the pair; the other member may have messages that "
            f"member {member} lacks. If --arbiter is right, accept the loss with --accept-loss"
        )
    if others := sorted(set(record.in_sync) - {member}):
        return (
            f"member {member} may lack messages that were acknowledged; {', '.join(others)} was in sync. "
            "Start that one if you can, or accept the loss with --accept-loss"
        )
    return (
        f"member {member} may lack messages that were acknowledged: since it was in sync, its machine was restarted, "
        "or its data path replaced by an older copy. Accept the loss with --accept-loss"
    )
