"""``nsq channels``: list, create, pause, unpause, rewind, empty and delete channels over a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import print_table
from aionsq.tools.verb_flags import VerbFlag
from nsqcluster import Action, Survey, perform, rewind, survey
from nsqcluster.rows import ChannelRow, stored_count, unfinished_count
from nsqdaemon.moments import past_ns
from nsqwire.counted import counted

PROG = "nsq channels"

VERBS = {
    "list": "list channels with their depths and counters, of all or of the given topics (the default)",
    "create": "create channels of a topic on every node that has the topic",
    "pause": "stop delivering messages to the consumers of channels",
    "unpause": "resume delivery",
    "rewind": "redeliver messages accepted since --since, within each node's --retention",
    "empty": "delete all messages of channels, including those in flight and deferred, except dead ones",
    "delete": "delete channels with all their messages, and disconnect their consumers",
}


def moment(text: str) -> str:
    """Return a time in the past, or an age, as it was given. Raises ValueError."""
    past_ns(text, time.time_ns())
    return text


SINCE = VerbFlag(
    name="--since",
    verbs=("rewind",),
    help="a time, as in 2026-11-22T06:30:00Z, or an age, as in 90m",
    read=moment,
    default="",
    metavar="WHEN",
    required="rewind requires --since: --since=90m, or --since=2026-11-22T06:30:00Z",
)
FLAGS = (SINCE,)


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="List the channels of a cluster's topics, and change them on every node that has them.",
        verbs=VERBS,
        names="[TOPIC [CHANNEL ...]]",
        epilog="`list` takes topics; every other verb takes one topic and one or more of its channels.\n\n"
        "Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), 2 for an invalid\n"
        "command line.",
        examples=[
            ("nsq channels list orders", "the channels of one topic"),
            ("nsq channels create orders audit billing", "two channels"),
            ("nsq channels rewind orders billing --since 90m", "redeliver the last 90 minutes"),
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
        return command.run(PROG, show(options, command.topics(options)))
    topic, names = command.topic_and_channels(options)
    if options.verb == "rewind":
        return command.run(PROG, rewind_channels(options, topic, names))
    action = Action(options.verb)
    if options.verb in command.DESTRUCTIVE:
        found = command.run(PROG, checked_survey(options, topic, names))
        command.confirm(options, [loss(action, topic, name, found) for name in names])
    return command.run(PROG, act(options, action, topic, names))


async def show(options: Options, topics: Sequence[str]) -> int:
    """Print the channels of ``topics``, or of all topics if there are none. Returns the exit status."""
    found = await survey(options.cluster)
    rows = [row for row in found.channel_rows() if not topics or row["topic"] in topics]
    missing = sorted(set(topics) - {row["name"] for row in found.topic_rows()})
    if options.json:
        command.print_json("channels", rows, found.failures)
    else:
        columns = [("topic", False), ("channel", False), ("depth", True), ("in flight", True), ("deferred", True)]
        columns += [
            ("dead", True),
            ("requeued", True),
            ("timed out", True),
            ("messages", True),
            ("clients", True),
            ("nodes", True),
        ]
        print_table(
            [*columns, ("state", False)],
            [
                (
                    row["topic"],
                    row["name"],
                    f"{row['depth']:,}",
                    f"{row['in_flight_count']:,}",
                    f"{row['deferred_count']:,}",
                    f"{row['dead_count']:,}",
                    f"{row['requeue_count']:,}",
                    f"{row['timeout_count']:,}",
                    f"{row['message_count']:,}",
                    f"{row['client_count']:,}",
                    f"{len(row['nodes']):,}",
                    command.paused_state(row["nodes"]),
                )
                for row in rows
            ],
            "" if missing or found.failures else "no channels",
        )
    status = command.report_failures(options, found.failures)
    if missing:
        answered = command.that_answered(found.failures)
        process.note(PROG, f"no node or nsqlookupd{answered} has topic {', '.join(missing)}")
        return 1
    return status


async def checked_survey(options: Options, topic: str, names: Sequence[str]) -> Survey:
    """Survey the topic's channels. Raises ToolFailed if every server answered and none has one of the channels."""
    found = await survey(options.cluster, topic)
    known = {row["name"] for row in found.channel_rows()}
    for name in names:
        if not found.failures and name not in known:
            there = f"it has {', '.join(sorted(known))}" if known else "it has no channels, or the topic does not exist"
            raise ToolFailed(f"no node or nsqlookupd has channel {name} of topic {topic}; {there}")
    return found


def loss(action: Action, topic: str, name: str, found: Survey) -> str:
    """Describe what the action deletes, as the end of a sentence that begins with "This will"."""
    row = next((row for row in found.channel_rows() if row["name"] == name), None)
    unknown = command.and_unknown(found)
    if row is None:
        return f"{action} channel {name} of topic {topic}{unknown}"
    where = f"on {counted(len(row['nodes']), 'node')}" if row["nodes"] else "known to nsqlookupd only"
    messages = counted(stored_count(row) if action is Action.DELETE else unfinished_count(row), "message")
    clients = counted(row["client_count"], "consumer")
    gone = f", and disconnect {clients}" if action is Action.DELETE and row["client_count"] else ""
    return f"{action} channel {name} of topic {topic} {where}, with {messages}{states(action, row)}{gone}{unknown}"


def states(action: Action, row: ChannelRow) -> str:
    """Return `` (1 in flight, 2 deferred, 3 dead)``; empty if the channel has no messages."""
    parts = [f"{row['in_flight_count']:,} in flight", f"{row['deferred_count']:,} deferred"]
    if not unfinished_count(row):
        parts = []
    if row["dead_count"]:
        parts.append(f"{row['dead_count']:,} dead" + ("" if action is Action.DELETE else ", which stay"))
    return f" ({', '.join(parts)})" if parts else ""


async def rewind_channels(options: Options, topic: str, names: Sequence[str]) -> int:
    """Rewind channels on all nodes, and print the results. Returns the exit status."""
    results: list[ActionResult] = []
    for name in names:
        what = {"topic": topic, "channel": name}
        results.append(await command.carry_out(what, rewind(options.cluster, topic, name, SINCE.of(options.flags))))
    return command.report(options, results)


async def act(options: Options, action: Action, topic: str, names: Sequence[str]) -> int:
    """Carry out ``action`` on channels on all nodes, and print the results. Returns the exit status."""
    results: list[ActionResult] = []
    for name in names:
        what = {"topic": topic, "channel": name}
        results.append(await command.carry_out(what, perform(options.cluster, action, topic, name)))
    return command.report(options, results)
