"""``nsq nodes``: list a cluster's nodes, tombstone topics on one of them, and drain nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import Cell, print_table
from nsqcluster import Survey, cancel_drain, drain, survey, tombstone
from nsqcluster.rows import NodeRow

PROG = "nsq nodes"

VERBS = {
    "list": "list nodes with their state and totals, all or the given ones (the default)",
    "tombstone": "remove topics from one node: hide the node from the topics' consumers, and delete the topics there",
    "drain": "let nodes run empty and end: they take no new messages, and their consumers finish what is there",
    "undrain": "let nodes that drain register and take messages again",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = command.parse(
        argv,
        prog=PROG,
        description="List a cluster's nodes, remove topics from one of them, and drain nodes.",
        verbs=VERBS,
        names="[NODE [TOPIC ...]]",
        epilog="`list`, `drain` and `undrain` take nodes; `tombstone` takes one node and one or more topics. A node\n"
        "is given as HOST:PORT, its broadcast address and HTTP port, as shown by `list`. A node that drains has\n"
        "left nsqlookupd: `list` shows it with --nsqd-http-address.\n\n"
        "Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), 2 for an invalid\n"
        "command line.",
    )
    if options.verb == "list":
        return command.run(PROG, show(options))
    if options.verb in ("drain", "undrain"):
        return drain_nodes(options)
    try:
        topics = list(dict.fromkeys(command.checked_name("topic", name) for name in options.names[1:]))
        if not topics:
            raise ToolFailed("tombstone requires a node and one or more topics", status=command.USAGE)
        if not options.cluster.lookupd:
            raise ToolFailed(
                "nsqlookupd stores tombstones: --lookupd-http-address is required (nsq topics delete works without)",
                status=command.USAGE,
            )
    except ToolFailed as error:
        process.note(PROG, str(error))
        return error.status
    node = options.names[0]
    found = command.run(PROG, checked_survey(options, node, topics))
    command.confirm(options, [loss(topic, node, found) for topic in topics])
    return command.run(PROG, act(options, node, topics))


async def show(options: Options) -> int:
    """Print the nodes, or those that were named. Returns the exit status."""
    found = await survey(options.cluster)
    rows = [row for row in found.node_rows() if not options.names or row["id"] in options.names]
    if options.json:
        command.print_json("nodes", rows, found.failures)
    else:
        columns = [("node", False), ("hostname", False), ("version", False), ("up for", True), ("topics", True)]
        print_table(
            [*columns, ("channels", True), ("clients", True), ("depth", True), ("state", False)],
            [
                (
                    row["id"],
                    row["hostname"],
                    row["version"],
                    up_for(row),
                    f"{row['topic_count']:,}",
                    f"{row['channel_count']:,}",
                    f"{row['client_count']:,}",
                    f"{row['depth']:,}",
                    state(row),
                )
                for row in rows
            ],
            "" if options.names or found.failures else "no nodes",
        )
    status = command.report_failures(options, found.failures)
    if missing := sorted(set(options.names) - {row["id"] for row in rows}):
        process.note(PROG, f"no such node: {', '.join(missing)}")
        return 1
    return status


def up_for(row: NodeRow) -> str:
    """Return for how long a node has been running, as ``[D days, ]H:MM:SS``; empty if unknown."""
    if not row["start_time"]:
        return ""
    return str(timedelta(seconds=max(int(time.time()) - row["start_time"], 0)))


def state(row: NodeRow) -> Cell:
    """``OK`` or the node's error, and the topics for which it is tombstoned."""
    if row["error"] is not None:
        return Cell(f"down: {row['error']}", "red")
    hidden = f"tombstoned for {', '.join(row['tombstones'])}" if row["tombstones"] else ""
    if row["health"] != "OK":
        return Cell("; ".join(filter(None, (row["health"], hidden))), "red")
    return Cell(f"OK; {hidden}", "yellow") if hidden else Cell("OK")


def drain_nodes(options: Options) -> int:
    """Drain the nodes, or cancel it. Returns the exit status."""
    nodes = list(dict.fromkeys(options.names))
    if not nodes:
        process.note(PROG, f"{options.verb} requires one or more nodes")
        return command.USAGE
    if options.verb == "drain":
        command.confirm(options, [f"drain node {node}: its process ends when no message is left" for node in nodes])
    return command.run(PROG, act_on_nodes(options, nodes))


async def act_on_nodes(options: Options, nodes: Sequence[str]) -> int:
    """Drain the nodes, or cancel it, and print the results. Returns the exit status."""
    do = drain if options.verb == "drain" else cancel_drain
    return command.report(
        options, [await command.carry_out({"node": node}, do(options.cluster, node)) for node in nodes]
    )


async def checked_survey(options: Options, node: str, topics: Sequence[str]) -> Survey:
    """Survey the cluster. Raises ToolFailed if every server answered and the node, or a topic on it, does not exist."""
    found = await survey(options.cluster, channels=False)
    if found.failures and node not in found.nodes:
        return found
    if node not in found.nodes:
        near = get_close_matches(node, found.nodes, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the nodes are: {', '.join(sorted(found.nodes)) or 'none'}"
        raise ToolFailed(f"no such node: {node}; {hint}")
    reported = {topic.topic_name for topic in found.nodes[node].topics}
    described = found.nodes[node].producer
    listed = set(described.topics if described else ())
    for topic in topics:
        if found.nodes[node].error is None and topic not in reported | listed:
            raise ToolFailed(f"node {node} has no topic {topic}")
    return found


def loss(topic: str, node: str, found: Survey) -> str:
    """Describe what the tombstone deletes, as the end of a sentence that begins with "This will"."""
    action = f"tombstone node {node} for topic {topic}, and delete the topic there"
    stats = found.nodes.get(node)
    each = next((each for each in (stats.topics if stats else ()) if each.topic_name == topic), None)
    if each is None:
        return action + command.and_unknown(found)
    messages = each.depth + sum(channel.stored_count for channel in each.channels)
    return f"{action}, with {command.count(len(each.channels), 'channel')} and {command.count(messages, 'message')}"


async def act(options: Options, node: str, topics: Sequence[str]) -> int:
    """Tombstone ``topics`` on ``node``, and print the results. Returns the exit status."""
    results: list[ActionResult] = []
    for topic in topics:
        what = {"topic": topic, "node": node}
        results.append(await command.carry_out(what, tombstone(options.cluster, topic, node)))
    return command.report(options, results)
