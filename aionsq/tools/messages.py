"""``nsq messages``: cancel or defer published messages, by their ids."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.verb_flags import VerbFlag, duration
from nsqcluster import ClusterUnreachable, NotInCluster
from nsqcluster.recalls import Recalled, RecalledMessage, cancel_messages, defer_messages
from nsqdaemon.command_line import USAGE

PROG = "nsq messages"

VERBS = {
    "cancel": "deliver messages no more, in all channels where no consumer has them",
    "defer": "deliver messages that wait or are deferred after another delay",
}
_ID = re.compile("[0-9a-f]{16}")
WANTED = {"cancel": "cancelled", "defer": "deferred"}

BY = VerbFlag(
    name="--by",
    verbs=("defer",),
    help="the delay from now on, as in 10m",
    read=duration,
    default=timedelta(0),
    metavar="DURATION",
    required="defer requires --by, such as --by=10m",
)
FLAGS = (BY,)


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="Cancel or defer published messages, by the ids that `nsq pub --ids` prints.",
        verbs=VERBS,
        names="TOPIC ID ...",
        epilog="Every node that has the topic is asked; the outcome in each channel is printed.\n\n"
        "Exit status: 0 if it was done in every channel, 1 if a consumer has had one of the messages already,\n"
        "if a message is on no node, or if a node or nsqlookupd failed, 2 for an invalid command line.",
        examples=[
            ("nsq messages cancel orders 0040000000000007", "deliver a message no more"),
            ("nsq messages defer orders 0040000000000007 --by 10m", "ten minutes from now"),
        ],
        confirms=False,
        flags=FLAGS,
    )


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    return command.main(argv, parser(), run_verb)


def run_verb(options: Options) -> int:
    """Run the verb and return the exit status. Raises ToolFailed for arguments that it does not take."""
    topic, *ids = options.names or ("",)
    if not ids:
        raise ToolFailed(f"{options.verb} requires a topic and one or more ids", status=USAGE)
    name = command.checked_name("topic", topic)
    for each in ids:
        if not _ID.fullmatch(each):
            raise ToolFailed(f"{each!r} is no message id: 16 hexadecimal digits, as in 0040000000000007", status=USAGE)
    return command.run(PROG, recall(options, name, ids))


async def recall(options: Options, topic: str, ids: Sequence[str]) -> int:
    """Act on the messages and print what became of each. Returns the exit status. Raises ToolFailed."""
    try:
        if options.verb == "cancel":
            done = await cancel_messages(options.cluster, topic, ids)
        else:
            done = await defer_messages(options.cluster, topic, ids, BY.of(options.flags))
    except (NotInCluster, ClusterUnreachable) as error:
        raise ToolFailed(str(error)) from None
    if options.json:
        messages = [
            {"id": each.id, "node": each.node, "topic": each.topic, "channels": each.channels} for each in done.messages
        ]
        print(json.dumps({"messages": messages, "not_found": done.not_found, "errors": done.failures}, indent=2))
    else:
        for each in done.messages:
            print(f"{each.id} on {each.node}: {outcomes(each)}")
    return report(options, done)


def outcomes(message: RecalledMessage) -> str:
    """Such as ``billing cancelled, mail in flight``."""
    if message.topic is not None:
        return f"{message.topic} in the topic"
    return ", ".join(f"{channel} {outcome.replace('_', ' ')}" for channel, outcome in message.channels.items())


def report(options: Options, done: Recalled) -> int:
    """Print what failed on standard error. Returns the exit status."""
    status = command.report_failures(options, done.failures)
    if done.not_found:
        unasked = f" ({', '.join(done.without)} cannot: Go's nsqd)" if done.without else ""
        answered = command.that_answered(done.failures)
        process.note(PROG, f"on no node{answered}, or finished in all channels{unasked}: {', '.join(done.not_found)}")
    wanted = WANTED[options.verb]
    complete = all({each.topic or wanted, *each.channels.values()} == {wanted} for each in done.messages)
    return int(status or not complete or bool(done.not_found))
