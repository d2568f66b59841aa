"""``nsq dead``: list, show, requeue and remove the dead messages of channels over a cluster."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict, cast, get_args

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import print_table
from aionsq.tools.verb_flags import VerbFlag, positive
from nsqcluster import ClusterUnreachable, NotInCluster, Survey, dead, survey
from nsqcluster.messages import ChosenDead, DeathReason, PeekedMessage
from nsqcluster.stats import ChannelStats
from nsqdaemon.command_line import USAGE
from nsqdaemon.moments import past_ns
from nsqwire.counted import counted

PROG: Final = "nsq dead"

VERBS: Final = {
    "list": "list the channels with dead messages, of all or of the given topics (the default)",
    "show": "show the dead messages of a channel, oldest first, and change nothing",
    "requeue": "deliver the dead messages of channels again, as new ones",
    "remove": "delete the dead messages of channels",
}
BODY_CHARACTERS: Final = 60
"""Characters of a body that the table shows."""
DEAD_REASONS: Final = get_args(DeathReason)


def reason_of(text: str) -> DeathReason:
    """One of the reasons, which argparse has checked."""
    return cast(DeathReason, text)


def past_ms(text: str) -> int:
    """Parse a time in the past, or an age, into Unix milliseconds. Raises ValueError."""
    return past_ns(text, time.time_ns()) // 1_000_000


REASON: Final = VerbFlag[DeathReason | None](
    name="--reason",
    verbs=("requeue", "remove"),
    help="only those that died for this reason",
    read=reason_of,
    default=None,
    choices=DEAD_REASONS,
)
SINCE: Final = VerbFlag[int | None](
    name="--since",
    verbs=("requeue", "remove"),
    help="only those that died since a time, as in 2026-11-22T06:30:00Z, or an age, as in 90m",
    read=past_ms,
    default=None,
    metavar="WHEN",
)
RATE: Final = VerbFlag(
    name="--rate",
    verbs=("requeue",),
    help="messages per second of each channel on each node (default: all at once)",
    read=positive,
    default=0,
    metavar="N",
)
SHOWN: Final = 20
LIMIT: Final = VerbFlag(
    name="--limit",
    verbs=("show",),
    help=f"messages of each node (default: {SHOWN})",
    read=positive,
    default=SHOWN,
    metavar="N",
)
FLAGS: Final = (REASON, SINCE, RATE, LIMIT)


class DeadRow(TypedDict):
    """One channel with dead messages. ``nodes`` has their number by node."""

    topic: str
    channel: str
    dead_count: int
    by_reason: dict[str, int]
    nodes: dict[str, int]


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="List the dead messages of a cluster's channels, deliver them again, and remove them.",
        verbs=VERBS,
        names="[TOPIC [CHANNEL ...]]",
        epilog="`list` takes topics, `show` a topic and a channel, every other verb a topic and one or more of its\n"
        "channels. A message is dead once it has failed --max-attempts times, or if a policy says so; Go's nsqd\n"
        "has none.\n\n"
        "Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), 2 for an invalid\n"
        "command line.",
        examples=[
            ("nsq dead", "the channels with dead messages, and the reasons"),
            ("nsq dead show orders billing", "bodies, reasons and times"),
            ("nsq dead requeue orders billing --rate 100", "deliver all again, 100 a second on each node"),
            ("nsq dead remove orders billing --reason expired", "delete those that were too old"),
        ],
        confirms=True,
        flags=FLAGS,
    )


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    return command.main(argv, parser(), run_verb)


def run_verb(options: Options) -> int:
    """Run the verb and return the exit status. Raises ToolFailed for arguments that it does not take."""
    if options.verb == "list":
        return command.run(PROG, show_channels(options, command.topics(options)))
    topic, channels = command.topic_and_channels(options)
    if options.verb == "show":
        if len(channels) > 1:
            raise ToolFailed("show takes one channel", status=USAGE)
        return command.run(PROG, show_messages(options, topic, channels[0]))
    if options.verb == "remove":
        found = command.run(PROG, survey(options.cluster, topic))
        command.confirm(options, [loss(options, topic, channel, found) for channel in channels])
    return command.run(PROG, act(options, topic, channels))


def dead_rows(found: Survey) -> list[DeadRow]:
    """The channels with dead messages, sorted by topic and name."""
    parts: defaultdict[tuple[str, str], dict[str, ChannelStats]] = defaultdict(dict)
    for node, stats in sorted(found.stats.items()):
        for topic in stats.topics:
            for channel in topic.channels:
                if channel.dead_count:
                    parts[topic.topic_name, channel.channel_name][node] = channel
    return [
        DeadRow(
            topic=topic,
            channel=name,
            dead_count=sum(each.dead_count for each in nodes.values()),
            by_reason={
                reason: sum(getattr(each.dead_by_reason, reason) for each in nodes.values()) for reason in DEAD_REASONS
            },
            nodes={node: each.dead_count for node, each in nodes.items()},
        )
        for (topic, name), nodes in sorted(parts.items())
    ]


async def show_channels(options: Options, topics: Sequence[str]) -> int:
    """Print the channels with dead messages, of ``topics`` or of all topics. Returns the exit status."""
    found = await survey(options.cluster)
    rows = [row for row in dead_rows(found) if not topics or row["topic"] in topics]
    missing = sorted(set(topics) - {row["name"] for row in found.topic_rows()})
    if options.json:
        command.print_json("channels", rows, found.failures)
    else:
        columns = [("topic", False), ("channel", False), ("dead", True)]
        print_table(
            [*columns, *((reason, True) for reason in DEAD_REASONS), ("nodes", True)],
            [
                (
                    row["topic"],
                    row["channel"],
                    f"{row['dead_count']:,}",
                    *(f"{count:,}" for count in row["by_reason"].values()),
                    f"{len(row['nodes']):,}",
                )
                for row in rows
            ],
            "" if missing or found.failures else "no dead messages",
        )
    status = command.report_failures(options, found.failures)
    if missing:
        answered = command.that_answered(found.failures)
        process.note(PROG, f"no node or nsqlookupd{answered} has topic {', '.join(missing)}")
        return 1
    return status


async def show_messages(options: Options, topic: str, channel: str) -> int:
    """Print dead messages of a channel. Returns the exit status. Raises ToolFailed."""
    try:
        found = await dead.read(options.cluster, topic, channel, limit=LIMIT.of(options.flags))
    except (NotInCluster, ClusterUnreachable) as error:
        raise ToolFailed(str(error)) from None
    if options.json:
        rows = [document(node, message) for node, message in found.messages]
        print(json.dumps({"messages": rows, "total": found.total, "errors": found.failures}, indent=2), flush=True)
    else:
        columns = [("node", False), ("id", False), ("died", False), ("reason", False), ("failures", True)]
        print_table(
            [*columns, ("bytes", True), ("body", False)],
            [(node, *cells(message)) for node, message in found.messages],
            "" if found.failures else "no dead messages",
        )
        if found.total > len(found.messages):
            process.note(PROG, f"{len(found.messages):,} of {found.total:,} are shown; --limit shows more of each node")
    return command.report_failures(options, found.failures)


def cells(message: PeekedMessage) -> list[str]:
    """The cells of a message after its node."""
    death = message.death
    died = ["", "", ""] if death is None else [time_text(death.died), death.reason, f"{death.failures:,}"]
    return [message.id, *died, f"{message.size:,}", body_text(b64decode(message.body), message.size)]


def time_text(at_ns: int) -> str:
    """Such as ``2026-11-22T06:30:00Z``."""
    return f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def body_text(body: bytes, size: int) -> str:
    """The start of a body; bytes that are no printable text are escaped."""
    text = body.decode("utf-8", "backslashreplace")
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:BODY_CHARACTERS])
    return shown if len(text) <= BODY_CHARACTERS and len(body) == size else f"{shown}…"


def document(node: str, message: PeekedMessage) -> dict[str, object]:
    """A message for scripts: times in Unix nanoseconds, the body in base64."""
    death = message.death
    return {
        "node": node,
        "id": message.id,
        "timestamp": message.timestamp,
        "attempts": message.attempts,
        "reason": death and death.reason,
        "failures": death and death.failures,
        "first_failure": death and death.first_failure,
        "died": death and death.died,
        "client_id": death and death.client_id,
        "headers": message.headers,
        "size": message.size,
        "body": message.body,
        "truncated": message.truncated,
    }


def loss(options: Options, topic: str, channel: str, found: Survey) -> str:
    """Describe what is removed, as the end of a sentence that begins with "This will"."""
    rows = [row for row in dead_rows(found) if (row["topic"], row["channel"]) == (topic, channel)]
    reason = REASON.of(options.flags)
    count = sum(row["dead_count"] if reason is None else row["by_reason"][reason] for row in rows)
    at_most = "up to " if SINCE.of(options.flags) is not None else ""
    which = f" of reason {reason}" if reason else ""
    messages = counted(count, "dead message")
    return f"remove {at_most}{messages}{which} from channel {channel} of topic {topic}{command.and_unknown(found)}"


async def act(options: Options, topic: str, channels: Sequence[str]) -> int:
    """Requeue or remove the dead messages, and print the results. Returns the exit status."""
    chosen = ChosenDead(REASON.of(options.flags), SINCE.of(options.flags))
    results: list[ActionResult] = []
    for channel in channels:
        if options.verb == "remove":
            work = dead.remove(options.cluster, topic, channel, chosen)
        else:
            work = dead.requeue(options.cluster, topic, channel, chosen, rate=RATE.of(options.flags))
        results.append(await command.carry_out({"topic": topic, "channel": channel}, work))
    return command.report(options, results)
