"""``nsq nodes``: list a cluster's nodes, tombstone topics on one of them, drain nodes, and hand over pairs."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import Cell, print_table
from aionsq.tools.verb_flags import VerbFlag, duration
from nsqcluster import Result, Survey, cancel_drain, drain, hand_over, survey, tombstone
from nsqcluster.rows import DrainRow, MirrorRow, NodeRow
from nsqcluster.sums import over_topics
from nsqdaemon.command_line import USAGE
from nsqwire.counted import counted
from nsqwire.durations import format_duration

PROG = "nsq nodes"

VERBS = {
    "list": "list nodes with their state and totals, all or the given ones (the default)",
    "tombstone": "remove topics from one node: hide the node from the topics' consumers, and delete the topics there",
    "drain": "let nodes run empty and end: they take no new messages, and their consumers finish what is there",
    "undrain": "let nodes that drain register and take messages again",
    "handover": "of mirrored nodes: let the follower lead, and the primary follow",
}

TIMEOUT = VerbFlag[timedelta | None](
    name="--timeout",
    verbs=("drain",),
    help="the process ends after this time although messages are left, as in 10m; 0s: when the node is empty (default: "
    "the node's --drain-timeout)",
    read=duration,
    default=None,
    metavar="DURATION",
)
PUBLISHES = VerbFlag[bool | None](
    name="--publishes",
    verbs=("drain",),
    help="what the node does with publishes (default: the node's --drain-publishes)",
    read="take".__eq__,
    default=None,
    choices=("take", "refuse"),
)
FLAGS = (TIMEOUT, PUBLISHES)


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="List a cluster's nodes, remove topics from one of them, drain nodes, and hand over mirrored ones.",
        verbs=VERBS,
        names="[NODE [TOPIC ...]]",
        epilog="`list`, `drain`, `undrain` and `handover` take nodes; `tombstone` takes one node and one or more\n"
        "topics. A node is given as HOST:PORT, its broadcast address and HTTP port, as shown by `list`. A node that\n"
        "drains has left nsqlookupd: `list` shows it with --nsqd-http-address.\n\n"
        "Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), 2 for an invalid\n"
        "command line.",
        examples=[
            ("nsq nodes", "versions, clients and depths, and errors of nodes that are down"),
            ("nsq nodes tombstone 127.0.0.1:4151 orders", "hide a node from the topic's consumers"),
            ("nsq nodes drain 127.0.0.1:4151 --timeout 10m", "let a node run empty, and end"),
            ("nsq nodes handover 127.0.0.1:4151", "let the follower of a mirrored node lead"),
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
        return command.run(PROG, show(options))
    if options.verb in ("drain", "undrain", "handover"):
        return change_nodes(options)
    topics = list(dict.fromkeys(command.checked_name("topic", name) for name in options.names[1:]))
    if not topics:
        raise ToolFailed("tombstone requires a node and one or more topics", status=USAGE)
    if not options.cluster.lookupd:
        raise ToolFailed(
            "nsqlookupd stores tombstones: --lookupd-http-address is required (nsq topics delete works without)",
            status=USAGE,
        )
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
            [(row["id"], *figures(row), state(row)) for row in rows],
            "" if options.names or found.failures else "no nodes",
        )
    status = command.report_failures(options, found.failures)
    if missing := sorted(set(options.names) - {row["id"] for row in rows}):
        process.note(PROG, f"no such node: {', '.join(missing)}")
        return 1
    return status


def figures(row: NodeRow) -> Sequence[str]:
    """The cells between the node and its state; empty ones for the second address of a pair, whose figures are those of
    the first."""
    if row["same_as"] is not None:
        return [""] * 7
    counts = row["topic_count"], row["channel_count"], row["client_count"], row["depth"]
    return row["hostname"], version(row), up_for(row), *(f"{count:,}" for count in counts)


def version(row: NodeRow) -> str:
    """``brokerd 0.1.0``, or the version of a node that has no release of ours."""
    return f"brokerd {row['release']}" if row["release"] else row["version"]


def up_for(row: NodeRow) -> str:
    """Return for how long a node has been running, as ``[D days, ]H:MM:SS``; empty if unknown."""
    if not row["start_time"]:
        return ""
    return str(timedelta(seconds=max(int(time.time()) - row["start_time"], 0)))


def state(row: NodeRow) -> Cell:
    """``OK``, ``draining`` or the node's error, its pair, and the topics for which it is tombstoned."""
    if row["error"] is not None:
        return Cell(f"down: {row['error']}", "red")
    if row["drain"] is not None:
        return Cell(draining(row["drain"]), "yellow")
    if row["same_as"] is not None:
        return Cell(f"the same mirrored node as {row['same_as']}")
    hidden = f"tombstoned for {', '.join(row['tombstones'])}" if row["tombstones"] else ""
    paired = pair_state(row["mirror"]) if row["mirror"] is not None else ""
    if row["health"] != "OK":
        return Cell("; ".join(filter(None, (row["health"], paired, hidden))), "red")
    is_alone = row["mirror"] is not None and row["mirror"]["under_replicated"]
    text = "; ".join(filter(None, ("OK", paired, hidden)))
    return Cell(text, "yellow" if hidden or is_alone else "")


def pair_state(mirror: MirrorRow) -> str:
    """Such as ``member 3f9a01bc leads term 2, follower in sync``, with the lag if there is one.

    The row may have the address of the follower, which passes requests on: the member says who leads.
    """
    leads = f"member {mirror['member']} leads term {mirror['epoch']}"
    if mirror["under_replicated"]:
        return f"{leads}, under-replicated: no follower is in sync"
    lag = f", {mirror['lag_bytes']:,} bytes behind" if mirror["lag_bytes"] else ""
    return f"{leads}, follower in sync{lag}"


def draining(state: DrainRow) -> str:
    """Such as ``draining: 12 messages left, ends within 9m54s``."""
    ends = ""
    if state["ends_within"] is not None:
        ends = f", ends within {format_duration(round(state['ends_within']) * 1_000_000_000)}"
    publishes = ", takes publishes" if state["takes_publishes"] else ""
    return f"draining: {counted(state['messages'], 'message')} left{ends}{publishes}"


def change_nodes(options: Options) -> int:
    """Drain the nodes, cancel it, or hand them over. Returns the exit status. Raises ToolFailed without nodes."""
    nodes = list(dict.fromkeys(options.names))
    if not nodes:
        raise ToolFailed(f"{options.verb} requires one or more nodes", status=USAGE)
    if options.verb == "drain":
        found = command.run(PROG, surveyed(options, nodes))
        command.confirm(options, [end_of(node, options, found) for node in nodes])
    elif options.verb == "handover":
        found = command.run(PROG, surveyed(options, nodes))
        command.confirm(options, [takeover_of(node, found) for node in nodes])
    return command.run(PROG, act_on_nodes(options, nodes))


async def surveyed(options: Options, nodes: Sequence[str]) -> Survey:
    """Survey the cluster. Raises ToolFailed for a node that is not in it and does not answer.

    A node that drains is in no registry, so it is asked itself.
    """
    found = await survey(options.cluster, channels=False)
    if unknown := [node for node in nodes if node not in found.nodes]:
        asked = await survey(replace(options.cluster, lookupd=(), nsqd=unknown), channels=False)
        for node in unknown:
            if node not in asked.nodes or asked.nodes[node].error is not None:
                raise ToolFailed(no_such_node(node, found))
        found.nodes.update(asked.nodes)
    return found


def end_of(node: str, options: Options, found: Survey) -> str:
    """Describe what the drain does, as the end of a sentence that begins with "This will"."""
    stats = found.nodes[node]
    messages = sum(topic.depth + sum(channel.stored_count for channel in topic.channels) for topic in stats.topics)
    timeout = TIMEOUT.of(options.flags)
    if timeout is None:
        limit = "or after its --drain-timeout"
    else:
        limit = f"or after {timeout.total_seconds():g} s" if timeout else "however long that takes"
    left = "" if stats.error is not None else f", with {counted(messages, 'message')}"
    return f"drain node {node}{left}: its process ends when no message is left, {limit}"


def takeover_of(node: str, found: Survey) -> str:
    """Describe what the hand-over does, as the end of a sentence that begins with "This will".

    Raises ToolFailed if the node answered and has no mirror.
    """
    stats = found.nodes[node].stats
    if stats is not None and stats.mirror is None:
        raise ToolFailed(f"node {node} has no mirror")
    consumers = "its consumers" if stats is None else f"its {counted(over_topics('client_count', stats), 'consumer')}"
    return (
        f"hand over node {node} to its follower: {consumers} and its producers have to connect again, and messages of "
        "the last FINs may be delivered again"
    )


def no_such_node(node: str, found: Survey) -> str:
    """Return the error for an unknown node, with the nodes that there are."""
    near = get_close_matches(node, found.nodes, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the nodes are: {', '.join(sorted(found.nodes)) or 'none'}"
    return f"no such node: {node}; {hint}"


async def act_on_nodes(options: Options, nodes: Sequence[str]) -> int:
    """Drain the nodes, cancel it, or hand them over, and print the results. Returns the exit status."""

    def do(node: str) -> Coroutine[Any, Any, list[Result]]:
        if options.verb == "undrain":
            return cancel_drain(options.cluster, node)
        if options.verb == "handover":
            return hand_over(options.cluster, node)
        timeout = TIMEOUT.of(options.flags)
        timeout_s = None if timeout is None else timeout.total_seconds()
        return drain(options.cluster, node, timeout_s=timeout_s, takes_publishes=PUBLISHES.of(options.flags))

    return command.report(options, [await command.carry_out({"node": node}, do(node)) for node in nodes])


async def checked_survey(options: Options, node: str, topics: Sequence[str]) -> Survey:
    """Survey the cluster. Raises ToolFailed if every server answered and the node, or a topic on it, does not exist."""
    found = await survey(options.cluster, channels=False)
    if found.failures and node not in found.nodes:
        return found
    if node not in found.nodes:
        raise ToolFailed(no_such_node(node, found))
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
    return f"{action}, with {counted(len(each.channels), 'channel')} and {counted(messages, 'message')}"


async def act(options: Options, node: str, topics: Sequence[str]) -> int:
    """Tombstone ``topics`` on ``node``, and print the results. Returns the exit status."""
    results: list[ActionResult] = []
    for topic in topics:
        what = {"topic": topic, "node": node}
        results.append(await command.carry_out(what, tombstone(options.cluster, topic, node)))
    return command.report(options, results)
