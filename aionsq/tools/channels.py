"""``nsq channels``: list, create, pause, unpause, rewind, empty and delete channels over a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from aionsq.cluster import Action, perform, rewind
from aionsq.survey import Survey, held_by, survey
from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import Deed, Options
from aionsq.tools.flags import ToolFailed

PROG = "nsq channels"

VERBS = {
    "list": "what each channel holds (what is done without a verb); of these topics only, if any are named",
    "create": "make channels of a topic, on every node that has it",
    "pause": "keep the messages of channels from their consumers",
    "unpause": "let them go on again",
    "rewind": "deliver again what channels were given since --since, as far as each node's --retention reaches",
    "empty": "destroy the messages of channels, those in flight and deferred too",
    "delete": "destroy channels with all of their messages, and disconnect their consumers",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = command.parse(
        argv,
        prog=PROG,
        description="Look at the channels of a cluster's topics, and act on them wherever they are.",
        verbs=VERBS,
        names="[TOPIC [CHANNEL ...]]",
        epilog="`list` takes topics; every other verb takes one topic and one or more of its channels.\n\n"
        "Exit status: 0 if all went well, 1 if a node or nsqlookupd failed (each is named), 2 for a mistake in\n"
        "the command line.",
    )
    try:
        topic, *rest = [command.checked_name("topic", name) for name in options.names[:1]] or [""]
        if options.verb == "list":
            topics = [command.checked_name("topic", name) for name in options.names]
            return command.run(PROG, show(options, list(dict.fromkeys(topics))))
        rest = [command.checked_name("channel", name) for name in options.names[1:]]
        if not topic or not rest:
            raise ToolFailed(f"{options.verb} which channel? name a topic and its channels", status=command.USAGE)
    except ToolFailed as error:
        process.note(PROG, str(error))
        return error.status
    names = list(dict.fromkeys(rest))
    if options.verb == "rewind":
        return command.run(PROG, go_back(options, topic, names))
    action = Action(options.verb)
    if options.verb in command.DESTRUCTIVE:
        found = command.run(PROG, look(options, topic, names))
        command.confirm(options, [loss(action, topic, name, found) for name in names])
    return command.run(PROG, act(options, action, topic, names))


async def show(options: Options, topics: Sequence[str]) -> int:
    found = await survey(options.cluster)
    rows = [row for row in found.channel_rows() if not topics or row["topic"] in topics]
    missing = sorted(set(topics) - {row["name"] for row in found.topic_rows()})
    if options.json:
        command.print_json("channels", rows, found.failures)
    else:
        columns = [("topic", False), ("channel", False), ("depth", True), ("in flight", True), ("deferred", True)]
        columns += [("requeued", True), ("timed out", True), ("messages", True), ("clients", True), ("nodes", True)]
        command.print_table(
            [*columns, ("state", False)],
            [
                (
                    row["topic"],
                    row["name"],
                    f"{row['depth']:,}",
                    f"{row['in_flight_count']:,}",
                    f"{row['deferred_count']:,}",
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
    status = command.tell_failures(options, found.failures)
    if missing:
        process.note(PROG, f"no node or nsqlookupd has topic {', '.join(missing)}")
        return 1
    return status


async def look(options: Options, topic: str, names: Sequence[str]) -> Survey:
    """What the topic's channels hold. Raises ToolFailed where everybody answered and nobody has one of them."""
    found = await survey(options.cluster, topic)
    known = {row["name"] for row in found.channel_rows()}
    for name in names:
        if not found.failures and name not in known:
            there = f"it has {', '.join(sorted(known))}" if known else "it has none, or there is no such topic"
            raise ToolFailed(f"no node or nsqlookupd has channel {name} of topic {topic}; {there}")
    return found


def loss(action: Action, topic: str, name: str, found: Survey) -> str:
    """What goes if the action is done, as the rest of a sentence that begins with "this will"."""
    row = next((row for row in found.channel_rows() if row["name"] == name), None)
    unknown = command.and_unknown(found)
    if row is None:
        return f"{action} channel {name} of topic {topic}{unknown}"
    where = f"on {command.count(len(row['nodes']), 'node')}" if row["nodes"] else "known to nsqlookupd only"
    held = command.count(held_by(row), "message")
    inside = f" ({row['in_flight_count']:,} in flight, {row['deferred_count']:,} deferred)" if held_by(row) else ""
    clients = command.count(row["client_count"], "consumer")
    gone = f", and disconnect {clients}" if action is Action.DELETE and row["client_count"] else ""
    return f"{action} channel {name} of topic {topic} {where}, with {held}{inside}{gone}{unknown}"


async def go_back(options: Options, topic: str, names: Sequence[str]) -> int:
    deeds: list[Deed] = []
    for name in names:
        what = {"topic": topic, "channel": name}
        deeds.append(await command.carry_out(what, rewind(options.cluster, topic, name, options.since)))
    return command.report(options, deeds)


async def act(options: Options, action: Action, topic: str, names: Sequence[str]) -> int:
    deeds: list[Deed] = []
    for name in names:
        what = {"topic": topic, "channel": name}
        deeds.append(await command.carry_out(what, perform(options.cluster, action, topic, name)))
    return command.report(options, deeds)
