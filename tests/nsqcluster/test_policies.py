"""Policies of a cluster: of two brokers, beside nodes of Go that have none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqcluster import Cluster, ClusterUnreachable, NotInCluster, Result, outcome_of
from nsqcluster.policies import (
    NO_POLICIES,
    Mending,
    Patterns,
    PolicyRefused,
    channel_policies,
    delete_policy,
    mend,
    mendings,
    read_policies,
    set_policy,
)
from tests.harness.daemon import Broker
from tests.platform.go_nsq import GoCluster

ORDERS = Patterns("orders.*")
BILLING = Patterns("orders.*", "billing")
FIVE = {"max_attempts": 5, "retry_delay": "1s..5m"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    """Two, of which the first has the lower id."""
    started = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        started.append(Broker(tmp_path / name, "--broadcast-address=127.0.0.1", keep_ports=True).launch())
    yield sorted(started, key=lambda broker: broker.http_address)
    for broker in started:
        broker.stop()


@pytest.fixture
def go() -> Iterator[GoCluster]:
    cluster = GoCluster()
    yield cluster
    for each in cluster.everything:
        each.stop()


def cluster_of(brokers: list[Broker], *more: str, **options: Any) -> Cluster:
    return Cluster(nsqd=(*(broker.http_address for broker in brokers), *more), **options)


def ids(brokers: list[Broker]) -> list[str]:
    return [broker.http_address for broker in brokers]


def by_node(results: list[Result]) -> dict[str, tuple[str, str]]:
    return {each["node"]: (each["outcome"], each["detail"]) for each in results}


async def test_a_policy_is_set_read_and_deleted_on_all_nodes(brokers: list[Broker]) -> None:
    """Replacing it replaces all of its keys; the row has the values of each node."""
    cluster = cluster_of(brokers)
    for values in ({"max_attempts": 3}, FIVE):
        done = await set_policy(cluster, BILLING, values)
        assert by_node(done) == dict.fromkeys(ids(brokers), ("done", ""))
    await set_policy(cluster, Patterns("*"), {"max_attempts": 9})
    found = await read_policies(cluster)
    assert (found.failures, found.without) == ([], [])
    assert [(row["topic_pattern"], row["channel_pattern"], row["drift"]) for row in found.rows()] == [
        ("*", "*", False),
        ("orders.*", "billing", False),
    ]
    assert found.rows()[1]["policy"] == FIVE
    assert found.rows()[1]["nodes"] == [{"node": node, "policy": FIVE} for node in ids(brokers)]
    assert outcome_of(await delete_policy(cluster, BILLING)) == "done"
    assert [row["topic_pattern"] for row in (await read_policies(cluster)).rows()] == ["*"]
    with pytest.raises(
        NotInCluster, match=r"no node of the cluster has a policy of topics orders\.\*, channels billing"
    ):
        await delete_policy(cluster, BILLING)


async def test_nodes_that_differ_or_lack_a_policy_are_mended_by_one_of_them(brokers: list[Broker]) -> None:
    """What the others lack or have with other values is set, and what the node lacks is deleted."""
    first, second = brokers
    await set_policy(cluster_of([first]), ORDERS, FIVE)
    await set_policy(cluster_of([second]), ORDERS, {"max_attempts": 1})
    await set_policy(cluster_of([first]), Patterns("mail"), {"max_attempts": 2})
    await set_policy(cluster_of([second]), Patterns("old"), {"max_attempts": 2})
    await set_policy(cluster_of(brokers), Patterns("*"), {"max_attempts": 7})
    cluster = cluster_of(brokers)
    found = await read_policies(cluster)
    assert {row["topic_pattern"]: row["drift"] for row in found.rows()} == {
        "*": False,
        "mail": True,
        "old": True,
        "orders.*": True,
    }
    assert [each["policy"] for each in found.rows()[1]["nodes"]] == [{"max_attempts": 2}, None]
    assert mendings(found, first.http_address, Patterns("mail")) == [
        Mending(Patterns("mail"), {"max_attempts": 2}, [second.http_address])
    ]
    for plan in mendings(found, first.http_address):
        assert by_node(await mend(cluster, found, plan)) == {second.http_address: ("done", "")}
    mended = await read_policies(cluster)
    assert [(row["topic_pattern"], row["policy"], row["drift"]) for row in mended.rows()] == [
        ("*", {"max_attempts": 7}, False),
        ("mail", {"max_attempts": 2}, False),
        ("orders.*", FIVE, False),
    ]
    assert mendings(mended, first.http_address) == []


async def test_no_step_of_mending_makes_a_circle_of_dead_topics(brokers: list[Broker]) -> None:
    """A policy that ends a circle is set before those that need it, and a reversed way is removed first."""
    first, second = brokers
    wanted = {
        Patterns("orders.dead"): {"dead_topic": ""},
        Patterns("orders.*"): {"dead_topic": "orders.dead"},
        Patterns("a"): {"dead_topic": "b"},
    }
    for patterns, values in wanted.items():
        await set_policy(cluster_of([first]), patterns, values)
    await set_policy(cluster_of([second]), Patterns("b"), {"dead_topic": "a"})
    cluster = cluster_of(brokers)
    found = await read_policies(cluster)
    for plan in mendings(found, first.http_address):
        assert by_node(await mend(cluster, found, plan)) == {second.http_address: ("done", "")}
    mended = await read_policies(cluster)
    assert mended.by_node[second.http_address] == wanted


async def test_a_row_shows_the_values_of_most_nodes(brokers: list[Broker], tmp_path: Path) -> None:
    """Of three nodes, the two that agree."""
    (tmp_path / "c").mkdir()
    third = Broker(tmp_path / "c", "--broadcast-address=127.0.0.1").launch()
    try:
        await set_policy(cluster_of([brokers[0]]), ORDERS, {"max_attempts": 1})
        await set_policy(cluster_of([brokers[1], third]), ORDERS, FIVE)
        (row,) = (await read_policies(cluster_of([*brokers, third]))).rows()
        assert (row["policy"], row["drift"]) == (FIVE, True)
    finally:
        third.stop()


@pytest.mark.parametrize(
    ("patterns", "values", "field", "text"),
    [
        (ORDERS, {"max_attempts": -1}, "policy.max_attempts", "must be a whole number from 0 to"),
        (ORDERS, {"retry_delay": "5m..1s"}, "policy.retry_delay", "MIN must be above 0 and at most MAX"),
        (ORDERS, {"max_atempts": 1}, "policy.max_atempts", "unknown key"),
        (ORDERS, {}, "policy", "a policy is a JSON object"),
        (Patterns("a b"), FIVE, "topic_pattern", "a pattern has 1 to 64 of the characters"),
        (Patterns("a", "[x]"), FIVE, "channel_pattern", "a pattern has 1 to 64 of the characters"),
    ],
)
async def test_a_policy_that_the_nodes_refuse(
    brokers: list[Broker], patterns: Patterns, values: dict[str, Any], field: str, text: str
) -> None:
    """The error has the field, or the key that the node names; nothing has changed."""
    with pytest.raises(PolicyRefused) as refused:
        await set_policy(cluster_of(brokers), patterns, values)
    assert refused.value.field == field
    assert text in refused.value.text
    assert (await read_policies(cluster_of(brokers))).rows() == []


async def test_a_node_of_go_says_that_it_has_none(brokers: list[Broker], go: GoCluster) -> None:
    """The others are changed, and differ in nothing because of it."""
    node = go.nodes[0].address
    cluster = cluster_of(brokers, node)
    done = by_node(await set_policy(cluster, ORDERS, FIVE))
    assert done == {node: ("absent", NO_POLICIES)} | dict.fromkeys(ids(brokers), ("done", ""))
    found = await read_policies(cluster)
    assert (found.without, found.failures, [row["drift"] for row in found.rows()]) == ([node], [], [False])
    assert by_node(await delete_policy(cluster, ORDERS))[node] == ("absent", NO_POLICIES)
    with pytest.raises(NotInCluster, match=f"node {node} has no policies"):
        mendings(found, node)
    with pytest.raises(NotInCluster, match=r"there is no node nowhere; those with policies are 127"):
        mendings(found, "nowhere")


async def test_a_cluster_of_go_has_no_policies(go: GoCluster) -> None:
    """Setting and deleting one is refused; the list is empty."""
    cluster = Cluster(lookupd=(go.registry.address,))
    for action in (set_policy(cluster, ORDERS, FIVE), delete_policy(cluster, ORDERS)):
        with pytest.raises(NotInCluster, match="no node of the cluster has policies: Go's nsqd has none"):
            await action
    found = await read_policies(cluster)
    assert (found.rows(), sorted(found.without)) == ([], sorted(node.address for node in go.nodes))


async def test_a_node_that_does_not_answer_is_named(brokers: list[Broker]) -> None:
    """The other is changed. An action also goes to a node that had a topic recently, though nothing lists it any more;
    the list does not have it."""
    first, second = brokers
    crashed = cluster_of([first], seen={"orders": [second.http_address]})
    await set_policy(crashed, ORDERS, FIVE)
    assert (await read_policies(cluster_of([second]))).rows()[0]["policy"] == FIVE
    assert list((await read_policies(crashed)).by_node) == [first.http_address]
    cluster = cluster_of(brokers)
    second.kill()
    done = await set_policy(cluster, ORDERS, {"max_attempts": 1})
    with pytest.raises(PolicyRefused, match="max_attempts: must be a whole number"):
        await set_policy(cluster, ORDERS, {"max_attempts": -1})
    assert (outcome_of(done), by_node(done)[second.http_address]) == ("partial", ("unreachable", "connection refused"))
    found = await read_policies(cluster)
    assert [(each["node"], each["detail"]) for each in found.failures] == [(second.http_address, "connection refused")]
    assert by_node(await mend(cluster, found, Mending(ORDERS, None, [first.http_address]))) == {
        first.http_address: ("done", ""),
        second.http_address: ("unreachable", "connection refused"),
    }
    with pytest.raises(NotInCluster, match=f"node {second.http_address}: connection refused"):
        mendings(found, second.http_address)


async def test_a_node_that_hangs_is_given_up(brokers: list[Broker], go: GoCluster) -> None:
    """After the time of a step; it may still carry the change out."""
    hanging = go.nodes[0]
    hanging.hold = threading.Event()
    done = by_node(await set_policy(cluster_of(brokers, hanging.address, step_s=0.3), ORDERS, FIVE))
    hanging.hold.set()
    assert done[hanging.address] == ("unreachable", "no answer within 0.3 s; it may still do it")
    assert [done[node][0] for node in ids(brokers)] == ["done", "done"]


async def test_a_registry_that_is_down(brokers: list[Broker], go: GoCluster) -> None:
    """It is among the results; if no node is known without it, nothing has changed."""
    go.registry.stop()
    down = go.registry.address
    done = by_node(await set_policy(cluster_of(brokers, lookupd=(down,)), ORDERS, FIVE))
    go.registry.start()
    assert done == {down: ("unreachable", "connection refused")} | dict.fromkeys(ids(brokers), ("done", ""))
    lost = Cluster(lookupd=("127.0.0.1:1",))
    for read in (read_policies(lost), set_policy(lost, ORDERS, FIVE), delete_policy(lost, ORDERS)):
        with pytest.raises(ClusterUnreachable, match="connection refused"):
            await read


async def test_what_applies_to_a_channel(brokers: list[Broker], go: GoCluster) -> None:
    """The most specific policy of each node, nothing if only the settings do, and no line for a node of Go."""
    first, second = brokers
    for broker in brokers:
        broker.post("/topic/create", topic="orders.eu")
        broker.post("/channel/create", topic="orders.eu", channel="billing")
    go.nodes[0].channel("orders.eu", "billing")
    await set_policy(cluster_of([first]), ORDERS, {"max_attempts": 9})
    await set_policy(cluster_of([first]), BILLING, FIVE)
    applied = await channel_policies(cluster_of(brokers, go.nodes[0].address), "orders.eu", "billing")
    assert applied == [
        {
            "node": first.http_address,
            "applied": {"topic_pattern": "orders.*", "channel_pattern": "billing", "policy": FIVE},
            "error": "",
        },
        {"node": second.http_address, "applied": None, "error": ""},
    ]
