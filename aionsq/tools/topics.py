"""``nsq topics``: list, create, pause, unpause, empty and delete topics over a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from difflib import get_close_matches

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import print_table
from nsqcluster import Action, Survey, perform, survey
from nsqcluster.rows import TopicRow, stored_count
from nsqdaemon.command_line import USAGE
from nsqwire.counted import counted

PROG = "nsq topics"

VERBS = {
    "list": "list topics with their depths and counters, all or the given ones (the default)",
    "create": "create topics in every nsqlookupd, or on each nsqd given",
    "pause": "stop passing published messages to the channels",
    "unpause": "resume passing messages to the channels",
    "empty": "delete messages that no channel has received yet",
    "delete": "delete topics with their channels and all their messages",
}


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="List a cluster's topics, and change them on every node that has them.",
        verbs=VERBS,
        names="[TOPIC ...]",
        epilog="Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), 2 for an invalid "
        "command line.",
        examples=[
            ("nsq topics", "every topic's depths and counters, and its nodes"),
            ("nsq topics pause orders", "on every node that has it"),
            ("nsq topics delete orders --yes", "without asking for confirmation"),
        ],
        confirms=True,
    )


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    return command.main(argv, parser(), run_verb)


def run_verb(options: Options) -> int:
    """Run the verb and return the exit status. Raises ToolFailed for arguments that it does not take."""
    names = command.topics(options)
    if options.verb == "list":
        return command.run(PROG, show(options, names))
    if not names:
        raise ToolFailed(f"{options.verb} requires one or more topics", status=USAGE)
    action = Action(options.verb)
    if options.verb in command.DESTRUCTIVE:
        found = command.run(PROG, checked_survey(options, names))
        command.confirm(options, [loss(action, name, each) for name, each in zip(names, found, strict=True)])
    return command.run(PROG, act(options, action, names))


async def show(options: Options, names: Sequence[str]) -> int:
    """Print the topics ``names``, or all if there are none. Returns the exit status."""
    found = await survey(options.cluster)
    rows = [row for row in found.topic_rows() if not names or row["name"] in names]
    if options.json:
        command.print_json("topics", rows, found.failures)
    else:
        columns = [("topic", False), ("depth", True), ("in channels", True), ("dead", True), ("channels", True)]
        print_table(
            [*columns, ("messages", True), ("nodes", True), ("state", False)],
            [
                (
                    row["name"],
                    f"{row['depth']:,}",
                    f"{row['channel_depth']:,}",
                    f"{row['dead_count']:,}",
                    f"{row['channel_count']:,}",
                    f"{row['message_count']:,}",
                    f"{len(row['nodes']):,}",
                    command.paused_state(row["nodes"]),
                )
                for row in rows
            ],
            "" if names or found.failures else "no topics",
        )
    status = command.report_failures(options, found.failures)
    if missing := sorted(set(names) - {row["name"] for row in rows}):
        answered = command.that_answered(found.failures)
        process.note(PROG, f"no node or nsqlookupd{answered} has {', '.join(missing)}")
        return 1
    return status


async def checked_survey(options: Options, names: Sequence[str]) -> list[Survey]:
    """Survey each topic. Raises ToolFailed if every server answered and none has one of the topics."""
    found = await asyncio.gather(*(survey(options.cluster, name) for name in names))
    for name, each in zip(names, found, strict=True):
        if not each.failures and not each.topic_rows():
            raise ToolFailed(f"no node or nsqlookupd has topic {name}{await meant(options, name)}")
    return list(found)


async def meant(options: Options, name: str) -> str:
    """Return a hint at a topic with a similar name, or an empty text."""
    near = get_close_matches(name, [row["name"] for row in (await survey(options.cluster)).topic_rows()], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def loss(action: Action, name: str, found: Survey) -> str:
    """Describe what the action deletes, as the end of a sentence that begins with "This will"."""
    row: TopicRow | None = next(iter(found.topic_rows()), None)
    unknown = command.and_unknown(found)
    if row is None:
        return f"{action} topic {name}{unknown}"
    where = f"on {counted(len(row['nodes']), 'node')}" if row["nodes"] else "known to nsqlookupd only"
    if action is Action.EMPTY:
        messages = f"{counted(row['depth'], 'message')} that no channel has received"
        return f"{action} topic {name} {where}: {messages}{unknown}"
    parts = [f"{row['depth']:,} in the topic itself"]
    for each in found.channel_rows():
        dead = f", {each['dead_count']:,} of them dead" if each["dead_count"] else ""
        parts.append(f"{stored_count(each):,} in channel {each['name']}{dead}")
    total = counted(row["depth"] + row["channel_depth"] + row["dead_count"], "message")
    messages = total if row["channel_count"] == 0 else f"{total} ({', '.join(parts)})"
    return f"{action} topic {name} {where}, with {counted(row['channel_count'], 'channel')} and {messages}{unknown}"


async def act(options: Options, action: Action, names: Sequence[str]) -> int:
    """Carry out ``action`` on topics on all nodes, and print the results. Returns the exit status."""
    results: list[ActionResult] = []
    for name in names:
        results.append(await command.carry_out({"topic": name}, perform(options.cluster, action, name, None)))
    return command.report(options, results)
