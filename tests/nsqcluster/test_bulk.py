"""Actions on many topics or channels at once: the results are those of single actions, on Go's servers too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from nsqcluster import Action, Bulk, Cluster, ClusterUnreachable, Name, NotInCluster, perform, reads, tombstone
from nsqcluster.bulk import Results
from tests.harness.daemon import Broker, Registry
from tests.harness.waiting import until, wait_until
from tests.platform.go_nsq import GoNode

ACTIONS = [action for action in Action if action is not Action.CREATE]


class Fleet:
    """A registry and a broker of ours, and a node that answers as Go's nsqd, which is given by its address."""

    def __init__(self, data: Path) -> None:
        self.registry = Registry().launch()
        self.broker = Broker(
            data, f"--lookupd-tcp-address={self.registry.tcp_address}", "--broadcast-address=127.0.0.1"
        ).launch()
        self.go = GoNode("go")
        self._numbers = count()

    def cluster(self, *, with_go: bool = False) -> Cluster:
        return Cluster(lookupd=(self.registry.http_address,), nsqd=(self.go.address,) if with_go else ())

    def posts(self) -> list[str]:
        """The paths that were POSTed to the broker until now, from its log, which arrives later than the answers."""
        last = f"/until/{next(self._numbers)}"
        self.broker.request("GET", last)
        wait_until(lambda: any(last in line for line in self.broker.log), "the log has arrived")
        return re.findall(r" POST (/[a-z]+/[a-z]+)", "\n".join(self.broker.log))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Started once for the module; each test uses topics of its own."""
    started = Fleet(tmp_path_factory.mktemp("broker"))
    yield started
    started.broker.stop()
    started.registry.stop()
    started.go.stop()


async def created(fleet: Fleet, *names: Name) -> None:
    """Create topics and channels on the broker, and wait until the registry lists them."""
    for topic, channel in names:
        fleet.broker.post("/topic/create", topic=topic)
        if channel:
            fleet.broker.post("/channel/create", topic=topic, channel=channel)

    async def are_listed() -> bool:
        async with fleet.cluster().client() as http:
            for topic, channel in names:
                answers = await reads.lookups(http, [fleet.registry.http_address], topic)
                listed = [each for answer in answers.found.values() for each in answer.channels]
                if not answers.found or (channel and channel not in listed):
                    return False
        return True

    await until(are_listed)


async def alone(cluster: Cluster, action: Action, name: Name) -> Results:
    """The results of a single action, or its error."""
    try:
        return await perform(cluster, action, *name)
    except (NotInCluster, ClusterUnreachable) as error:
        return error


def text(results: Results) -> str:
    """Results or an error, with the number of the topic left out, so that those of two topics can be compared."""
    return re.sub(r"-[0-9]+", "", repr(results))


@pytest.mark.parametrize("with_go", [False, True], ids=["ours", "mixed"])
@pytest.mark.parametrize("channel", [None, "billing"], ids=["topics", "channels"])
@pytest.mark.parametrize("action", ACTIONS)
async def test_results_are_those_of_single_actions(
    fleet: Fleet, action: Action, channel: str | None, with_go: bool
) -> None:
    """On topics of the broker, of a Go node, of both, and of none."""
    prefix = f"same-{action}-{channel}-{with_go}".replace("-", ".")
    names = [Name(f"{prefix}-{number}", channel) for number in range(8)]
    # Two of each kind: one is acted on alone, and one together with the others.
    await created(fleet, *names[0:4])
    for topic, _ in names[2:6]:
        fleet.go.channel(topic, "billing")
    cluster = fleet.cluster(with_go=with_go)
    async with cluster.client() as http:
        found = await Bulk(http).perform(cluster, action, names[1::2])
    assert set(found) == set(names[1::2])
    expected = [text(await alone(cluster, action, name)) for name in names[0::2]]
    assert [text(found[name]) for name in names[1::2]] == expected
    assert "done" in expected[0]
    assert expected[3].startswith("NotInCluster")


async def test_servers_get_one_request_for_many_names(fleet: Fleet) -> None:
    """Of ours; the nodes are found first."""
    names = [Name(f"few-{number}") for number in range(30)]
    await created(fleet, *names)
    before = len(fleet.posts())
    cluster = fleet.cluster()
    async with cluster.client() as http:
        bulk = Bulk(http)
        found = await bulk.perform(cluster, Action.DELETE, names)
        assert not bulk.is_one_by_one
    outcomes = {tuple((each["target"], each["outcome"]) for each in found[name]) for name in names}  # type: ignore[union-attr]
    assert outcomes == {(("nsqlookupd", "done"), ("nsqd", "done"))}
    assert fleet.posts()[before:] == ["/topics/delete"]
    assert not {name.topic for name in names} & fleet.broker.topics().keys()


async def test_a_server_without_such_requests_is_remembered(fleet: Fleet) -> None:
    """It is not asked again, and gets a request for each name; others get one for all."""
    names = [Name(f"mixed-{number}") for number in range(5)]
    await created(fleet, *names)
    for topic, _ in names:
        fleet.go.topic(topic)
    cluster = fleet.cluster(with_go=True)
    before = len(fleet.posts())
    async with cluster.client() as http:
        bulk = Bulk(http)
        for action in (Action.PAUSE, Action.DELETE):
            fleet.go.posts.clear()
            found = await bulk.perform(cluster, action, names)
            assert all(isinstance(each, list) for each in found.values()), found
            assert sorted(fleet.go.posts, key=str) == [(f"/topic/{action}", {"topic": topic}) for topic, _ in names]
        assert bulk.is_one_by_one
    assert fleet.posts()[before:] == ["/topics/pause", "/topics/delete"]
    assert not fleet.go.topics.keys() & {name.topic for name in names}


async def test_many_topics_are_tombstoned_on_a_node(fleet: Fleet) -> None:
    """With the results of a single tombstone."""
    names = [Name(f"tombstone-{number}") for number in range(3)]
    await created(fleet, *names)
    cluster = fleet.cluster()
    single = await tombstone(cluster, names[0].topic, fleet.broker.http_address)
    async with cluster.client() as http:
        found = await Bulk(http).tombstone(cluster, fleet.broker.http_address, [name.topic for name in names[1:]])
    assert found == {name.topic: single for name in names[1:]}
    assert {each["outcome"] for each in single} == {"done"}
    assert not {name.topic for name in names} & fleet.broker.topics().keys()


async def test_a_server_that_is_down_fails_for_every_name(fleet: Fleet) -> None:
    """With the same results as a single action; a registry that does not answer hides no topic of the others."""
    names = [Name(f"down-{number}") for number in range(2)]
    await created(fleet, *names)
    down = GoNode("down")
    down.stop()
    for cluster in (
        Cluster(lookupd=(down.address,)),
        Cluster(lookupd=(fleet.registry.http_address, down.address)),
        Cluster(lookupd=(fleet.registry.http_address,), seen={each.topic: [down.address] for each in names}),
    ):
        async with cluster.client() as http:
            found = await Bulk(http).perform(cluster, Action.PAUSE, names)
        single = await alone(cluster, Action.PAUSE, names[0])
        assert [text(found[name]) for name in names] == [text(single)] * 2
        assert down.address in text(single)
