"""``nsq topics``: list, create, pause, unpause, empty and delete topics over a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from difflib import get_close_matches

from aionsq.cluster import Action, perform
from aionsq.survey import Survey, TopicRow, held_by, survey
from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import Deed, Options
from aionsq.tools.flags import ToolFailed

PROG = "nsq topics"

VERBS = {
    "list": "what each topic holds (what is done without a verb); of these topics only, if any are named",
    "create": "make topics known to every nsqlookupd, or make them on each nsqd given",
    "pause": "keep what is published from going on to the channels",
    "unpause": "let it go on again",
    "empty": "destroy what no channel has been given yet",
    "delete": "destroy topics with their channels and all of their messages",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = command.parse(
        argv,
        prog=PROG,
        description="Look at a cluster's topics, and act on them wherever they are.",
        verbs=VERBS,
        names="[TOPIC ...]",
        epilog="Exit status: 0 if all went well, 1 if a node or nsqlookupd failed (each is named), 2 for a mistake in "
        "the command line.",
    )
    try:
        names = list(dict.fromkeys(command.checked_name("topic", name) for name in options.names))
        if options.verb == "list":
            return command.run(PROG, show(options, names))
        if not names:
            raise ToolFailed(f"{options.verb} which topic? name one or more", status=command.USAGE)
    except ToolFailed as error:
        process.note(PROG, str(error))
        return error.status
    action = Action(options.verb)
    if options.verb in command.DESTRUCTIVE:
        found = command.run(PROG, look(options, names))
        command.confirm(options, [loss(action, name, each) for name, each in zip(names, found, strict=True)])
    return command.run(PROG, act(options, action, names))


async def show(options: Options, names: Sequence[str]) -> int:
    found = await survey(options.cluster)
    rows = [row for row in found.topic_rows() if not names or row["name"] in names]
    if options.json:
        command.print_json("topics", rows, found.failures)
    else:
        columns = [("topic", False), ("depth", True), ("in channels", True), ("channels", True), ("messages", True)]
        command.print_table(
            [*columns, ("nodes", True), ("state", False)],
            [
                (
                    row["name"],
                    f"{row['depth']:,}",
                    f"{row['channel_depth']:,}",
                    f"{row['channel_count']:,}",
                    f"{row['message_count']:,}",
                    f"{len(row['nodes']):,}",
                    command.paused_state(row["nodes"]),
                )
                for row in rows
            ],
            "" if names or found.failures else "no topics",
        )
    status = command.tell_failures(options, found.failures)
    if missing := sorted(set(names) - {row["name"] for row in rows}):
        process.note(PROG, f"no node or nsqlookupd has {', '.join(missing)}")
        return 1
    return status


async def look(options: Options, names: Sequence[str]) -> list[Survey]:
    """What each topic holds. Raises ToolFailed where everybody answered and nobody has one."""
    found = await asyncio.gather(*(survey(options.cluster, name) for name in names))
    for name, each in zip(names, found, strict=True):
        if not each.failures and not each.topic_rows():
            raise ToolFailed(f"no node or nsqlookupd has topic {name}{await meant(options, name)}")
    return list(found)


async def meant(options: Options, name: str) -> str:
    """A hint at a topic of nearly this name."""
    near = get_close_matches(name, [row["name"] for row in (await survey(options.cluster)).topic_rows()], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def loss(action: Action, name: str, found: Survey) -> str:
    """What goes if the action is done, as the rest of a sentence that begins with "this will"."""
    row: TopicRow | None = next(iter(found.topic_rows()), None)
    unknown = command.and_unknown(found)
    if row is None:
        return f"{action} topic {name}{unknown}"
    where = f"on {command.count(len(row['nodes']), 'node')}" if row["nodes"] else "known to nsqlookupd only"
    if action is Action.EMPTY:
        return f"{action} topic {name} {where}: {command.count(row['depth'], 'message')} that no channel has{unknown}"
    parts = [f"{row['depth']:,} in the topic itself"]
    parts += [f"{held_by(each):,} in channel {each['name']}" for each in found.channel_rows()]
    total = command.count(row["depth"] + row["channel_depth"], "message")
    held = total if row["channel_count"] == 0 else f"{total} ({', '.join(parts)})"
    return f"{action} topic {name} {where}, with {command.count(row['channel_count'], 'channel')} and {held}{unknown}"


async def act(options: Options, action: Action, names: Sequence[str]) -> int:
    deeds: list[Deed] = []
    for name in names:
        deeds.append(await command.carry_out({"topic": name}, perform(options.cluster, action, name, None)))
    return command.report(options, deeds)
