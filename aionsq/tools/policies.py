"""``nsq policies``: list, set, delete and mend the policies of a cluster's nodes."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from typing import Any

from aionsq.tools import cluster_command as command
from aionsq.tools import process
from aionsq.tools.cluster_command import ActionResult, Options
from aionsq.tools.flags import ToolFailed
from aionsq.tools.tables import Cell, print_table
from aionsq.tools.verb_flags import VerbFlag
from nsqcluster import ClusterUnreachable, NotInCluster, Result
from nsqcluster.policies import (
    NO_POLICIES,
    NONE_HAS_POLICIES,
    Mending,
    Patterns,
    Policies,
    PolicyRow,
    Values,
    delete_policy,
    mend,
    mendings,
    read_policies,
    set_policy,
    text_of,
    value_of,
)
from nsqdaemon.command_line import USAGE

PROG = "nsq policies"

VERBS = {
    "list": "list policies with their values, and how nodes differ, all or those of given topic patterns (the default)",
    "set": "set the policy of a pattern of topics on every node; it replaces an earlier one of the same patterns",
    "delete": "delete the policy of a pattern of topics on every node",
    "mend": "make the policies of all nodes those of one node, --from: set what the others lack or have with\n"
    "          other values, and delete what this node lacks; all policies, or the one of a pattern of topics",
}

CHANNEL = VerbFlag[str | None](
    name="--channel",
    verbs=("set", "delete", "mend"),
    help="a pattern of channels (default: *, all)",
    read=str,
    default=None,
    metavar="GLOB",
)
FROM = VerbFlag(
    name="--from",
    verbs=("mend",),
    help="a node, as shown by nsq nodes",
    read=str,
    default="",
    metavar="NODE",
    required="mend requires --from=NODE, whose policies the other nodes get",
)
FLAGS = (CHANNEL, FROM)


def parser() -> command.ClusterParser:
    """The parser of the command."""
    return command.parser_of(
        prog=PROG,
        description="List the policies of a cluster's nodes, and change them on every node. A policy sets what the\n"
        "channels that match its patterns (* and ?) do, such as after how many failed deliveries a message dies.",
        verbs=VERBS,
        names="[PATTERN [KEY=VALUE ...]]",
        epilog="A VALUE is JSON, and otherwise a text: max_attempts=5 retry_delay=1s..5m. One JSON object can\n"
        "stand for all of them. The nodes check keys and values. Go's nsqd has no policies, and is reported.\n\n"
        "Exit status: 0 on success, 1 if a node or nsqlookupd failed (each is reported), if the nodes refuse a\n"
        "policy or none has policies, 2 for an invalid command line.",
        examples=[
            ("nsq policies", "policies, their values, and how nodes differ"),
            ("nsq policies set 'orders*' max_attempts=5", "on every node"),
            ("nsq policies mend --from 127.0.0.1:4151", "give all nodes the policies of one"),
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
    topic, *rest = options.names or [""]
    patterns = Patterns(topic, CHANNEL.of(options.flags) or "*")
    if options.verb == "set":
        if not topic or not rest:
            raise ToolFailed("set requires a pattern of topics and one or more KEY=VALUE", status=USAGE)
        return command.run(
            PROG, report_change(options, patterns, set_policy(options.cluster, patterns, values_of(rest)))
        )
    if rest:
        raise ToolFailed(f"{options.verb} takes one pattern of topics, not also {rest[0]!r}", status=USAGE)
    if options.verb == "mend":
        return mend_nodes(options, patterns if topic else None)
    if not topic:
        raise ToolFailed("delete requires a pattern of topics", status=USAGE)
    found = command.run(PROG, checked_policies(options))
    command.confirm(options, [loss(found, patterns)])
    return command.run(PROG, report_change(options, patterns, delete_policy(options.cluster, patterns)))


def values_of(words: Sequence[str]) -> Values:
    """Parse ``KEY=VALUE …``, or one JSON object. Raises ToolFailed."""
    if len(words) == 1 and words[0].startswith("{"):
        values = value_of(words[0])
        if not isinstance(values, dict):
            raise ToolFailed(f"{words[0]!r} is not JSON", status=USAGE)
        return values
    values = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not key or not separator:
            raise ToolFailed(f"{word!r} is not KEY=VALUE", status=USAGE)
        if key in values:
            raise ToolFailed(f"{key} is given twice", status=USAGE)
        values[key] = value_of(text)
    return values


async def show(options: Options) -> int:
    """Print the policies, or those of the topic patterns that were given. Returns the exit status."""
    found = await checked_policies(options)
    rows = [row for row in found.rows() if not options.names or row["topic_pattern"] in options.names]
    missing = sorted(set(options.names) - {row["topic_pattern"] for row in rows})
    if options.json:
        print(json.dumps({"policies": rows, "without_policies": found.without, "errors": found.failures}, indent=2))
    else:
        print_table(
            [("topics", False), ("channels", False), ("policy", False), ("nodes", True), ("state", False)],
            [
                (
                    row["topic_pattern"],
                    row["channel_pattern"],
                    text_of(row["policy"]),
                    f"{sum(each['policy'] is not None for each in row['nodes']):,}",
                    state(row),
                )
                for row in rows
            ],
            "" if missing or found.failures else "no policies",
        )
    for node in found.without:
        process.note(PROG, f"nsqd {node}: {NO_POLICIES}")
    status = command.report_failures(options, found.failures)
    if missing:
        answered = command.that_answered(found.failures)
        process.note(PROG, f"no node{answered} has a policy of topics {', '.join(missing)}")
        return 1
    return status


async def checked_policies(options: Options) -> Policies:
    """Read the policies of all nodes. Raises ToolFailed if no node can have any, or none is known."""
    try:
        found = await read_policies(options.cluster)
    except ClusterUnreachable as error:
        raise ToolFailed(str(error)) from None
    if not found.by_node and not found.failures:
        raise ToolFailed(NONE_HAS_POLICIES if found.without else "the cluster has no nodes")
    return found


def state(row: PolicyRow) -> Cell:
    """How nodes differ from the values that are shown; empty if they do not."""
    if not row["drift"]:
        return Cell("")
    others = [each for each in row["nodes"] if each["policy"] != row["policy"]]
    texts = [
        f"missing on {each['node']}" if each["policy"] is None else f"{text_of(each['policy'])} on {each['node']}"
        for each in others
    ]
    return Cell(f"differs: {'; '.join(texts)}", "yellow")


def loss(found: Policies, patterns: Patterns) -> str:
    """Describe a deletion, as the end of a sentence that begins with "This will".

    Raises ToolFailed if all nodes answered and none has the policy.
    """
    holders = [node for node, of in found.by_node.items() if patterns in of]
    if not holders and not found.failures:
        known = "; ".join(str(Patterns(row["topic_pattern"], row["channel_pattern"])) for row in found.rows())
        raise ToolFailed(
            f"no node has a policy of {patterns}; {f'there are those of {known}' if known else 'there are none'}"
        )
    silent = ", ".join(f"{each['target']} {each['node']} ({each['detail']})" for each in found.failures)
    unknown = f"; it may be on others, because there was no answer from {silent}" if silent else ""
    return f"delete the policy of {patterns} on {', '.join(holders) or 'every node'}{unknown}"


async def report_change(options: Options, patterns: Patterns, work: Coroutine[Any, Any, list[Result]]) -> int:
    """Await a change of one policy, and print its results. Returns the exit status."""
    return command.report(options, [await command.carry_out(described(patterns), work)])


def described(patterns: Patterns) -> dict[str, str]:
    """The patterns by the names that results have in JSON."""
    return {"topic_pattern": patterns.topic, "channel_pattern": patterns.channel}


def mend_nodes(options: Options, only: Patterns | None) -> int:
    """Make the policies of all nodes, or one, those of one node, after a confirmation. Returns the exit status."""
    if only is None and CHANNEL.of(options.flags) is not None:
        raise ToolFailed("--channel requires a pattern of topics", status=USAGE)
    source = FROM.of(options.flags)
    found = command.run(PROG, checked_policies(options))
    try:
        plans = mendings(found, source, only)
    except NotInCluster as error:
        raise ToolFailed(str(error)) from None
    if plans:
        command.confirm(options, [effect(plan) for plan in plans])
    elif not options.json:
        print(f"all nodes that answer have the policies of {source}", flush=True)
    status = command.run(PROG, carry_out(options, found, plans)) if plans or options.json else 0
    return command.report_failures(options, found.failures) or status


def effect(plan: Mending) -> str:
    """Describe a change, as the end of a sentence that begins with "This will"."""
    where = ", ".join(plan.nodes)
    if plan.values is None:
        return f"delete the policy of {plan.patterns} on {where}"
    return f"set the policy of {plan.patterns} to {text_of(plan.values)} on {where}"


async def carry_out(options: Options, found: Policies, plans: Sequence[Mending]) -> int:
    """Carry out the changes, and print their results. Returns the exit status."""
    results: list[ActionResult] = []
    for plan in plans:
        results.append(await command.carry_out(described(plan.patterns), mend(options.cluster, found, plan)))
    return command.report(options, results)
