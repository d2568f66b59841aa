"""``nsq policies`` as a process, with real brokers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aionsq.tools.policies import values_of
from nsqcluster.policies import text_of
from tests.aionsq.fleets import Fleet, nsq
from tests.platform.go_nsq import GoCluster


async def one_node(fleet: Fleet, broker: int, *words: str) -> None:
    """Run the command on one of the brokers only."""
    done = await nsq("policies", *words, f"--nsqd-http-address={fleet.brokers[broker].http_address}")
    assert done.status == 0, done.errors


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


async def test_a_policy_is_set_listed_and_deleted_on_every_node(fleet: Fleet) -> None:
    """By KEY=VALUE and by JSON, with a pattern of channels or without; as a table and as JSON."""
    both = ", ".join(fleet.nodes)
    done = await fleet.nsq("policies", "set", "orders.*", "max_attempts=5", "retry_delay=1s..5m", "--channel=billing")
    assert (done.status, done.errors) == (0, "")
    assert done.output == f"policy of topics orders.*, channels billing: set on {both}\n"
    done = await fleet.nsq("policies", "set", "*", '{"max_attempts": 9}')
    assert done.output == f"policy of topics *: set on {both}\n"
    listed = await fleet.nsq("policies")
    assert (listed.status, listed.errors) == (0, "")
    assert rows(listed.output) == [
        ["topics", "channels", "policy", "nodes", "state"],
        ["*", "*", "max_attempts=9", "2"],
        ["orders.*", "billing", "max_attempts=5", "retry_delay=1s..5m", "2"],
    ]
    (row,) = (await fleet.nsq("policies", "list", "orders.*", "--json")).document["policies"]
    values = {"max_attempts": 5, "retry_delay": "1s..5m"}
    assert (row["channel_pattern"], row["policy"], row["drift"]) == ("billing", values, False)
    assert row["nodes"] == [{"node": node, "policy": values} for node in fleet.nodes]
    deleted = await fleet.nsq("policies", "delete", "*", "--yes", "--json")
    (action,) = deleted.document["actions"]
    assert (deleted.status, action["action"], action["topic_pattern"], action["outcome"]) == (0, "delete", "*", "done")
    assert len((await fleet.nsq("policies", "--json")).document["policies"]) == 1


async def test_nodes_that_differ_are_shown_and_mended(fleet: Fleet) -> None:
    """Without --yes, the changes are listed and nothing is done."""
    first, second = (broker.http_address for broker in fleet.brokers)
    await one_node(fleet, 0, "set", "orders.*", "max_attempts=5")
    await one_node(fleet, 1, "set", "orders.*", "max_attempts=1")
    await one_node(fleet, 0, "set", "mail", "max_attempts=2")
    await one_node(fleet, 1, "set", "old", "max_attempts=3")
    states = {line[0]: " ".join(line[4:]) for line in rows((await fleet.nsq("policies")).output)[1:]}
    assert states["mail"] == f"differs: missing on {second}"
    assert states["old"] == f"differs: missing on {first}"
    assert states["orders.*"].startswith("differs: max_attempts=")
    shown = await fleet.nsq("policies", "mend", f"--from={first}")
    assert (shown.status, shown.errors.splitlines()) == (
        2,
        [
            f"nsq policies: would set the policy of topics mail to max_attempts=2 on {second}",
            f"nsq policies: would set the policy of topics orders.* to max_attempts=5 on {second}",
            f"nsq policies: would delete the policy of topics old on {second}",
            "nsq policies: nothing was done: confirmation requires a terminal; --yes skips it",
        ],
    )
    mended = await fleet.nsq("policies", "mend", "mail", f"--from={first}", "--yes")
    assert (mended.status, mended.output) == (0, f"policy of topics mail: mended on {second}\n")
    assert (await fleet.nsq("policies", "mend", f"--from={first}", "--yes")).status == 0
    listed = (await fleet.nsq("policies", "--json")).document["policies"]
    assert [(row["topic_pattern"], row["policy"], row["drift"]) for row in listed] == [
        ("mail", {"max_attempts": 2}, False),
        ("orders.*", {"max_attempts": 5}, False),
    ]
    again = await fleet.nsq("policies", "mend", f"--from={first}")
    assert (again.status, again.output) == (0, f"all nodes that answer have the policies of {first}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "orders.*", "max_attempts=many"], "max_attempts: must be a whole number from 0 to"),
        (["set", "orders.*", "max_atempts=5"], "max_atempts: unknown key"),
        (["set", "a b", "max_attempts=5"], "topic_pattern: a pattern has 1 to 64 of the characters"),
        (["delete", "mail", "--yes"], "no node has a policy of topics mail; there are none"),
        (["mend", "--from=nowhere:1"], "there is no node nowhere:1; those with policies are 127.0.0.1:"),
        (["list", "mail"], "no node has a policy of topics mail"),
    ],
)
async def test_a_refusal_is_one_line_and_status_1(fleet: Fleet, words: list[str], said: str) -> None:
    """It names the key that the nodes refuse."""
    ended = await fleet.nsq("policies", *words)
    assert (ended.status, ended.output) == (1, "")
    assert said in ended.errors
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set"], "set requires a pattern of topics and one or more KEY=VALUE"),
        (["set", "orders.*"], "set requires a pattern of topics and one or more KEY=VALUE"),
        (["set", "orders.*", "5"], "'5' is not KEY=VALUE"),
        (["set", "orders.*", "{5"], "'{5' is not JSON"),
        (["set", "orders.*", "a=5", "a=6"], "a is given twice"),
        (["set", "orders.*", "a=5", "--from=x:1"], "--from is for mend, not for set"),
        (["delete"], "delete requires a pattern of topics"),
        (["delete", "a", "b"], "delete takes one pattern of topics, not also 'b'"),
        (["mend"], "mend requires --from=NODE"),
        (["mend", "--from=x:1", "--channel=c"], "--channel requires a pattern of topics"),
        (["list", "--channel=c"], "--channel is for set, delete and mend, not for list"),
    ],
)
async def test_a_mistake_is_one_line_and_status_2(words: list[str], said: str) -> None:
    """No request is sent."""
    ended = await nsq("policies", *words)
    assert (ended.status, ended.output, ended.errors.count("\n")) == (2, "", 1)
    assert ended.errors.startswith(f"nsq policies: {said}")


async def test_nodes_of_go_are_named_and_the_others_changed(fleet: Fleet, go_fleet: GoCluster) -> None:
    """Status 0; without a node that has policies, the action fails in one line."""
    node = go_fleet.nodes[0].address
    done = await fleet.nsq("policies", "set", "orders.*", "max_attempts=5", f"--nsqd-http-address={node}")
    assert (done.status, done.output.count("127.0.0.1")) == (0, 2)
    assert done.errors == (
        f"nsq policies: set policy of topics orders.*: not on nsqd {node}: this node has no policies (nsqd)\n"
    )
    listed = await fleet.nsq("policies", "--json", f"--nsqd-http-address={node}")
    assert (listed.status, listed.errors) == (0, f"nsq policies: nsqd {node}: this node has no policies (nsqd)\n")
    document = listed.document
    assert (document["without_policies"], [row["drift"] for row in document["policies"]]) == ([node], [False])
    for words in (["list"], ["set", "a", "max_attempts=1"], ["delete", "a", "--yes"], ["mend", f"--from={node}"]):
        refused = await nsq("policies", *words, f"--lookupd-http-address={go_fleet.registry.address}")
        assert (refused.status, refused.output, refused.errors.count("\n")) == (1, "", 1)
        assert "no node of the cluster has policies: Go's nsqd has none" in refused.errors


async def test_a_node_that_is_down_is_named_and_the_other_changed(fleet: Fleet) -> None:
    """Status 1, for the list, a change and a mending."""
    first, second = (broker.http_address for broker in fleet.brokers)
    await one_node(fleet, 0, "set", "orders.*", "max_attempts=5")
    flags = [f"--nsqd-http-address={node}" for node in (first, second)]
    await fleet.brokers[1].terminate()
    for words in (["list"], ["set", "a", "max_attempts=1"], ["mend", f"--from={first}"]):
        ended = await nsq("policies", *words, *flags)
        assert ended.status == 1, words
        assert f"nsqd {second}: connection refused" in ended.errors
        assert ended.output
    asked = await nsq("policies", "delete", "a", *flags)
    assert f"on {first}; it may be on others, because there was no answer from nsqd {second}" in asked.errors


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=3)


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), JSON, min_size=1, max_size=1))
def test_what_is_listed_can_be_set(values: dict[str, Any]) -> None:
    """A value is JSON, and otherwise a text; a text that looks like JSON is in quotes."""
    assert values_of([text_of(values)]) == values
