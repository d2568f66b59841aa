"""Every read and every action on a cluster whose node requires TLS and a client certificate."""

from __future__ import annotations

import pytest

from nsqcluster import (
    Action,
    Client,
    Cluster,
    Discovery,
    NodeStats,
    NotInCluster,
    NotReached,
    RequestFailed,
    Result,
    outcome_of,
    perform,
    reads,
    rewind,
    survey,
    tls_context,
    tombstone,
)
from nsqcluster.actions import NO_REWIND
from nsqcluster.discovery import UnknownTopic, nodes_of
from tests.harness.waiting import until
from tests.nsqcluster.conftest import StrictCluster

pytestmark = pytest.mark.parametrize("given", [False, True], ids=["registry", "given node"])


def outcomes(results: list[Result]) -> set[tuple[str, str]]:
    return {(each["target"], each["outcome"]) for each in results}


async def node_stats(cluster: StrictCluster, topic: str) -> NodeStats:
    async with cluster.cluster().client() as client:
        answers = await reads.stats(client, {"node": cluster.nsqd}, topic=topic, include_clients=True)
    assert answers.failures == {}
    return answers.found["node"]


async def created(strict: StrictCluster, cluster: Cluster, topic: str, channel: str) -> None:
    """Create a topic with a channel on the node, and wait until the registry lists it."""
    strict.publish(topic, b"first")
    results = await perform(cluster, Action.CREATE, topic, channel)
    assert outcome_of(results) == "done", results

    async def is_listed() -> bool:
        async with strict.cluster().client() as client:
            answers = await reads.lookups(client, [strict.lookupd], topic)
        return any(answer.producers and channel in answer.channels for answer in answers.found.values())

    await until(is_listed)


async def test_reads(strict: StrictCluster, given: bool) -> None:
    """All resources of registry and node are read and typed."""
    cluster, topic = strict.cluster(given=given), f"reads-{given}"
    await created(strict, cluster, topic, "archive")
    async with cluster.client() as client:
        listed = (await reads.registered_nodes(client, [strict.lookupd])).found
        assert [*nodes_of(listed)] == [strict.nsqd]
        assert topic in (await reads.registered_topics(client, [strict.lookupd])).found[strict.lookupd].names
        channels = await reads.registered_channels(client, [strict.lookupd], topic)
        assert channels.found[strict.lookupd].names == ["archive"]
        info = (await reads.infos(client, [strict.nsqd])).found[strict.nsqd]
        assert f"{info.broadcast_address}:{info.http_port}" == strict.nsqd
        assert info.max_deflate_level > 0
    stats = await node_stats(strict, topic)
    assert (stats.version, stats.health, bool(stats.start_time)) == (info.version, "OK", True)
    found = stats.channel(topic, "archive")
    assert found is not None
    assert found.clients == []


async def test_discovery(strict: StrictCluster, given: bool) -> None:
    """Topics, producers, nodes, statistics and inactive topics are found without a failure."""
    cluster, topic = strict.cluster(given=given), f"discovery-{given}"
    await created(strict, cluster, topic, "archive")
    failures: list[RequestFailed] = []
    async with cluster.client() as client:
        discovery = Discovery(client, cluster, failures.extend)
        assert topic in await discovery.topics()
        [node] = await discovery.producers(topic)
        assert (node.id, node.address) == (strict.nsqd, strict.nsqd)
        assert [(each.id, topic in each.producer.topics) for each in await discovery.nodes()] == [(strict.nsqd, True)]
        [(_, stats)] = await discovery.stats([node], topic=topic, channel="archive")
        assert stats.channel(topic, "archive") is not None
        assert await discovery.inactive([topic]) == {}
        with pytest.raises(UnknownTopic):
            await discovery.producers("nowhere")
    assert failures == []


async def test_survey(strict: StrictCluster, given: bool) -> None:
    """Rows of nodes, topics and channels have the node's figures."""
    cluster, topic = strict.cluster(given=given), f"survey-{given}"
    await created(strict, cluster, topic, "archive")
    found = await survey(cluster, topic)
    assert found.failures == []
    assert [(row["id"], row["state"]) for row in found.node_rows()] == [(strict.nsqd, "up")]
    assert [(row["name"], row["message_count"]) for row in found.topic_rows()] == [(topic, 1)]
    assert [(row["name"], len(row["nodes"])) for row in found.channel_rows()] == [("archive", 1)]


async def test_pausing_and_unpausing(strict: StrictCluster, given: bool) -> None:
    """A channel, and the topic itself."""
    cluster, topic = strict.cluster(given=given), f"pausing-{given}"
    await created(strict, cluster, topic, "archive")
    for action, is_paused in ((Action.PAUSE, True), (Action.UNPAUSE, False)):
        for channel in ("archive", None):
            assert outcomes(await perform(cluster, action, topic, channel)) == {("nsqd", "done")}
        [stats] = (await node_stats(strict, topic)).topics
        assert [stats.paused, stats.channels[0].paused] == [is_paused, is_paused]


async def test_emptying(strict: StrictCluster, given: bool) -> None:
    """The messages of the channel, and of the topic, are gone."""
    cluster, topic = strict.cluster(given=given), f"emptying-{given}"
    await created(strict, cluster, topic, "archive")
    strict.publish(topic, b"second", b"third")

    async def has_arrived() -> bool:
        channel = (await node_stats(strict, topic)).channel(topic, "archive")
        return channel is not None and channel.depth == 3

    await until(has_arrived)
    for channel in ("archive", None):
        assert outcomes(await perform(cluster, Action.EMPTY, topic, channel)) == {("nsqd", "done")}
    [stats] = (await node_stats(strict, topic)).topics
    assert [stats.depth, stats.channels[0].depth] == [0, 0]


async def test_rewinding(strict: StrictCluster, given: bool) -> None:
    """Ours says how many messages are delivered again; Go's cannot rewind."""
    cluster, topic = strict.cluster(given=given), f"rewinding-{given}"
    await created(strict, cluster, topic, "archive")
    [result] = await rewind(cluster, topic, "archive", "1h")
    if strict.implementation == "go":
        assert (result["outcome"], result["detail"]) == ("failed", NO_REWIND)
    else:
        assert result["outcome"] == "done"
        assert "message" in result["detail"]


async def test_tombstoning(strict: StrictCluster, given: bool) -> None:
    """The topic is deleted on the node, and tombstoned in the registry if there is one."""
    cluster, topic = strict.cluster(given=given), f"tombstoning-{given}"
    await created(strict, cluster, topic, "archive")
    expected = {("nsqd", "done")} if given else {("nsqlookupd", "done"), ("nsqd", "done")}
    assert outcomes(await tombstone(cluster, topic, strict.nsqd)) == expected
    assert (await node_stats(strict, topic)).topics == []


async def test_deleting(strict: StrictCluster, given: bool) -> None:
    """A channel, then its topic, from the registry and from the node."""
    cluster, topic = strict.cluster(given=given), f"deleting-{given}"
    await created(strict, cluster, topic, "archive")
    expected = {("nsqd", "done")} if given else {("nsqlookupd", "done"), ("nsqd", "done")}
    assert outcomes(await perform(cluster, Action.DELETE, topic, "archive")) == expected
    assert (await node_stats(strict, topic)).topics[0].channels == []
    assert outcomes(await perform(cluster, Action.DELETE, topic, None)) == expected
    assert (await node_stats(strict, topic)).topics == []
    if given:
        with pytest.raises(NotInCluster):
            await perform(cluster, Action.DELETE, topic, None)


async def test_without_the_certificates_the_node_fails_by_name(strict: StrictCluster, given: bool) -> None:
    """An unknown authority, and a missing client certificate; without verification the authority does not matter."""
    certificates = strict.certificates
    unknown = Client(tls=tls_context(cert=certificates.client_cert, key=certificates.client_key))
    nobody = Client(tls=tls_context(root_ca_file=certificates.authority))
    trusting = Client(tls=tls_context(cert=certificates.client_cert, key=certificates.client_key, skip_verify=True))
    async with unknown, nobody, trusting:
        failure = (await reads.infos(unknown, [strict.nsqd])).failures[strict.nsqd]
        assert isinstance(failure, NotReached)
        assert failure.reason.startswith("TLS: ")
        assert "certificate" in failure.reason
        assert strict.nsqd in (await reads.infos(nobody, [strict.nsqd])).failures
        assert strict.nsqd in (await reads.infos(trusting, [strict.nsqd])).found
