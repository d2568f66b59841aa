"""Every read and every action on a cluster whose node requires TLS and a client certificate."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import nsqcluster
from nsqcluster import (
    Action,
    Bulk,
    Client,
    Cluster,
    Discovery,
    Name,
    NodeInfo,
    NodeStats,
    NotInCluster,
    NotReached,
    Refused,
    RequestFailed,
    Result,
    actions,
    cancel_drain,
    dead,
    discovery,
    drain,
    hand_over,
    listing,
    lives,
    messages,
    outcome_of,
    pairs,
    perform,
    policies,
    posts,
    publishing,
    reads,
    recalls,
    survey,
    targets,
    tls_context,
    tombstone,
)
from nsqcluster.actions import NO_REWIND, Rewound
from nsqcluster.drain import NO_DRAIN
from nsqcluster.mirror import NO_MIRROR
from nsqcluster.policies import Mending, Patterns, Policies
from tests.harness.waiting import until
from tests.nsqcluster.conftest import StrictCluster

CHANNEL = "archive"
POLICY = {"max_attempts": 5, "retry_delay": "1s..5m"}
ways = pytest.mark.parametrize("given", [False, True], ids=["registry", "given node"])


def outcomes(results: list[Result]) -> set[tuple[str, str]]:
    return {(each["target"], each["outcome"]) for each in results}


async def node_stats(cluster: StrictCluster, topic: str) -> NodeStats:
    async with cluster.cluster().client() as client:
        return await reads.node_stats(client, cluster.nsqd, NodeStats, topic=topic, include_clients=True)


async def created(strict: StrictCluster, cluster: Cluster, topic: str, channel: str) -> None:
    """Create a topic with a channel on the node, and wait until the registry lists it and the channel has a message."""
    strict.publish(topic, b"first")
    results = await perform(cluster, Action.CREATE, topic, channel)
    assert outcome_of(results) == "done", results

    async def is_listed() -> bool:
        async with strict.cluster().client() as client:
            answers = await reads.lookups(client, [strict.lookupd], topic)
        return any(answer.producers and channel in answer.channels for answer in answers.found.values())

    await until(is_listed)
    await depth_becomes(strict, topic, 1)


async def depth_becomes(strict: StrictCluster, topic: str, depth: int) -> bool:
    async def is_reached() -> bool:
        found = (await node_stats(strict, topic)).channel(topic, CHANNEL)
        return found is not None and found.depth == depth

    await until(is_reached)
    return True


# ---- every function that sends a request


def public_functions() -> Iterator[Callable[..., Any]]:
    """Yield the functions of nsqcluster that take a client or a cluster, and the methods that send requests."""
    for module in pkgutil.iter_modules(nsqcluster.__path__):
        for name, each in vars(importlib.import_module(f"nsqcluster.{module.name}")).items():
            if not name.startswith("_") and inspect.isfunction(each) and each.__module__ == f"nsqcluster.{module.name}":
                kinds = {str(parameter.annotation) for parameter in inspect.signature(each).parameters.values()}
                if kinds & {"Client", "Cluster"}:
                    yield each
    for kind in (Client, Discovery, Bulk):
        for name, method in vars(kind).items():
            if not name.startswith("_") and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)):
                yield method


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A topic with one message, ``first``, in its channel."""

    strict: StrictCluster
    cluster: Cluster
    client: Client
    topic: str
    message_id: str
    failures: list[RequestFailed]

    @property
    def nsqd(self) -> str:
        return self.strict.nsqd

    @property
    def lookupd(self) -> str:
        return self.strict.lookupd

    @property
    def discovery(self) -> Discovery:
        return Discovery(self.client, self.cluster, self.failures.extend)


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arguments for a function, and whether its answer, or its effect, is right. Either may be awaitable."""

    arguments: Callable[[Prepared], Sequence[Any]]
    is_right: Callable[[Prepared, Any], bool | Awaitable[bool]]
    options: Callable[[Prepared], dict[str, Any]] = lambda at: {}
    is_brokerds: bool = False
    """Whether Go's nsqd does not support the request."""
    has_policy: bool = False
    """Whether the topic gets a policy first."""


def case(
    arguments: Callable[[Prepared], Sequence[Any]],
    is_right: Callable[[Prepared, Any], bool | Awaitable[bool]],
    options: Callable[[Prepared], dict[str, Any]] = lambda at: {},
) -> Case:
    return Case(arguments=arguments, is_right=is_right, options=options)


def brokerds(
    arguments: Callable[[Prepared], Sequence[Any]],
    is_right: Callable[[Prepared, Any], bool | Awaitable[bool]],
    options: Callable[[Prepared], dict[str, Any]] = lambda at: {},
) -> Case:
    return Case(arguments=arguments, is_right=is_right, options=options, is_brokerds=True)


def with_policy(
    arguments: Callable[[Prepared], Sequence[Any]],
    is_right: Callable[[Prepared, Any], bool | Awaitable[bool]],
    *,
    is_brokerds: bool = True,
) -> Case:
    return Case(arguments=arguments, is_right=is_right, is_brokerds=is_brokerds, has_policy=True)


def lists_policy(at: Prepared, found: Policies) -> bool:
    if at.strict.implementation == "go":
        return found.without == [at.nsqd]
    return found.failures == [] and found.by_node[at.nsqd][Patterns(at.topic)] == POLICY


def shows_policy(at: Prepared, found: list[policies.ChannelPolicy]) -> bool:
    applied = {"topic_pattern": at.topic, "channel_pattern": "*", "policy": POLICY}
    expected = [] if at.strict.implementation == "go" else [{"node": at.nsqd, "applied": applied, "error": ""}]
    return found == expected


async def is_policy(at: Prepared, results: list[Result], values: policies.Values | None) -> bool:
    return outcomes(results) == {("nsqd", "done")} and await node_has_policy(at, values)


async def node_has_policy(at: Prepared, values: policies.Values | None) -> bool:
    return (await policies.node_policies(at.client, at.nsqd)).get(Patterns(at.topic)) == values


async def drains(at: Prepared, results: list[Result]) -> bool:
    if at.strict.implementation == "go":
        return cannot_drain(results)
    done = {("nsqd", "done")}
    return outcomes(results) == done and outcomes(await cancel_drain(at.cluster, at.nsqd)) == done


def has_no_drain(at: Prepared, results: list[Result]) -> bool:
    if at.strict.implementation == "go":
        return cannot_drain(results)
    return outcomes(results) == {("nsqd", "failed")}


def cannot_drain(results: list[Result]) -> bool:
    return [(each["outcome"], each["detail"]) for each in results] == [("failed", NO_DRAIN)]


def has_no_mirror(at: Prepared, results: list[Result]) -> bool:
    detail = NO_MIRROR if at.strict.implementation == "go" else "the node has no mirror"
    return [(each["outcome"], each["detail"]) for each in results] == [("failed", detail)]


def has_no_dead_messages(at: Prepared, found: dead.DeadMessages) -> bool:
    failures = [each["detail"] for each in found.failures]
    return (found.total, failures) == (0, [dead.NO_DEAD] if at.strict.implementation == "go" else [])


def acts_on_no_dead_message(at: Prepared, results: list[Result]) -> bool:
    detail = dead.NO_DEAD if at.strict.implementation == "go" else "0 messages"
    return [each["detail"] for each in results if each["target"] == "nsqd"] == [detail]


def is_recalled(at: Prepared, done: recalls.Recalled, outcome: str) -> bool:
    if at.strict.implementation == "go":
        return (done.without, done.not_found, done.failures) == ([at.nsqd], [at.message_id], [])
    return [each.channels for each in done.messages] == [{CHANNEL: outcome}]


async def is_mended(at: Prepared, results: list[Result]) -> bool:
    if at.strict.implementation == "go":
        return outcomes(results) == {("nsqd", "absent")}
    return await is_policy(at, results, {"max_attempts": 9})


def only(answers: reads.Answers[Any]) -> Any:
    """The answer of the only server."""
    assert answers.failures == {}
    [found] = answers.found.values()
    return found


def lists(at: Prepared, producers: Any) -> bool:
    return [each.http_address for each in producers.producers] == [at.nsqd]


def has_channel(at: Prepared, stats: NodeStats) -> bool:
    return stats.channel(at.topic, CHANNEL) is not None


def is_rewound(at: Prepared, results: list[Result]) -> bool:
    [result] = results
    if at.strict.implementation == "go":
        return (result["outcome"], result["detail"]) == ("failed", NO_REWIND)
    return result["outcome"] == "done" and "message" in result["detail"]


def is_previewed(at: Prepared, known: dict[str, Rewound | str]) -> bool:
    if at.strict.implementation == "go":
        return known == {at.nsqd: NO_REWIND}
    return isinstance(known[at.nsqd], Rewound)


def of_topic(at: Prepared) -> Sequence[Any]:
    return at.client, at.nsqd, at.topic, CHANNEL


def of_message(at: Prepared) -> Sequence[Any]:
    return *of_topic(at), at.message_id


def is_first(message: messages.PeekedMessage) -> bool:
    return (b64decode(message.body), message.state, message.size) == (b"first", "ready", 5)


CASES: dict[Callable[..., Any], Case] = {
    Client.get: case(lambda at: (at.client, at.nsqd, "/info", NodeInfo), lambda at, info: info.tcp_port > 0),
    Client.get_body: case(lambda at: (at.client, at.nsqd, "/ping"), lambda at, body: body == b"OK"),
    Client.post: case(
        lambda at: (at.client, at.nsqd, "/pub", {"topic": at.topic}, b"second"),
        lambda at, body: depth_becomes(at.strict, at.topic, 2),
    ),
    Client.stream: case(lambda at: (at.client, at.nsqd, "/ping"), lambda at, pieces: b"".join(pieces) == b"OK"),
    Client.close: case(lambda at: (at.client,), lambda at, nothing: True),
    reads.nodes: case(
        lambda at: (at.client, at.lookupd),
        lambda at, found: lists(at, found) and at.topic in found.producers[0].topics,
    ),
    reads.topics: case(lambda at: (at.client, at.lookupd), lambda at, found: at.topic in found.names),
    reads.channels: case(lambda at: (at.client, at.lookupd, at.topic), lambda at, found: found.names == [CHANNEL]),
    reads.lookup: case(
        lambda at: (at.client, at.lookupd, at.topic), lambda at, found: lists(at, found) and found.channels == [CHANNEL]
    ),
    reads.ping: case(lambda at: (at.client, at.nsqd), lambda at, text: text == "OK"),
    reads.info: case(
        lambda at: (at.client, at.nsqd), lambda at, info: f"{info.broadcast_address}:{info.http_port}" == at.nsqd
    ),
    reads.node_stats: case(lambda at: (at.client, at.nsqd, NodeStats), has_channel),
    reads.registered_nodes: case(lambda at: (at.client, [at.lookupd]), lambda at, found: lists(at, only(found))),
    reads.registered_topics: case(
        lambda at: (at.client, [at.lookupd]), lambda at, found: at.topic in only(found).names
    ),
    reads.registered_channels: case(
        lambda at: (at.client, [at.lookupd], at.topic), lambda at, found: only(found).names == [CHANNEL]
    ),
    reads.lookups: case(lambda at: (at.client, [at.lookupd], at.topic), lambda at, found: lists(at, only(found))),
    reads.infos: case(lambda at: (at.client, [at.nsqd]), lambda at, found: only(found).max_deflate_level > 0),
    reads.stats: case(lambda at: (at.client, {"node": at.nsqd}), lambda at, found: has_channel(at, only(found))),
    pairs.pair_ids: case(lambda at: (at.client, {"node": at.nsqd}), lambda at, found: found == {}),
    pairs.second_members: case(lambda at: (at.client, {"a": "pair"}, {"node": at.nsqd}), lambda at, found: found == {}),
    pairs.distinct: case(  # what does not answer is returned, too: the tests of the mirror have pairs
        lambda at: (at.client, {"a": at.nsqd, "b": at.nsqd}), lambda at, found: [*found] == ["a", "b"]
    ),
    listing.read_listing: case(lambda at: (at.client, at.lookupd), lambda at, found: lists(at, found.nodes)),
    targets.find: case(
        lambda at: (at.client, at.cluster, at.topic),
        lambda at, found: (found.holders, found.complaints) == ({at.nsqd}, []),
    ),
    survey: case(
        lambda at: (at.cluster, at.topic),
        lambda at, found: (
            found.failures == []
            and [(row["id"], row["state"]) for row in found.node_rows()] == [(at.nsqd, "up")]
            and [(row["name"], row["message_count"]) for row in found.topic_rows()] == [(at.topic, 1)]
            and [(row["name"], len(row["nodes"])) for row in found.channel_rows()] == [(CHANNEL, 1)]
        ),
    ),
    Discovery.topics: case(lambda at: (at.discovery,), lambda at, names: at.topic in names),
    Discovery.producers: case(
        lambda at: (at.discovery, at.topic),
        lambda at, nodes: [(node.id, node.address) for node in nodes] == [(at.nsqd, at.nsqd)],
    ),
    Discovery.nodes: case(
        lambda at: (at.discovery,),
        lambda at, nodes: [(node.id, at.topic in node.producer.topics) for node in nodes] == [(at.nsqd, True)],
    ),
    Discovery.stats: case(
        lambda at: (at.discovery, [discovery.Node(producer=NodeInfo().producer(at.nsqd), address=at.nsqd)]),
        lambda at, found: [has_channel(at, stats) for _, stats in found] == [True],
    ),
    Bulk.find: case(
        lambda at: (Bulk(at.client), at.cluster, [at.topic]),
        lambda at, found: found[at.topic].holders == {at.nsqd},
    ),
    Bulk.perform: case(
        lambda at: (Bulk(at.client), at.cluster, Action.EMPTY, [Name(at.topic, CHANNEL)]),
        lambda at, found: (
            outcomes(found[Name(at.topic, CHANNEL)]) == {("nsqd", "done")} and depth_becomes(at.strict, at.topic, 0)
        ),
    ),
    Bulk.tombstone: case(
        lambda at: (Bulk(at.client), at.cluster, at.nsqd, [at.topic]),
        lambda at, found: ("nsqd", "done") in outcomes(found[at.topic]),
    ),
    Discovery.inactive: case(lambda at: (at.discovery, [at.topic]), lambda at, topics: topics == {}),
    actions.perform: case(
        lambda at: (at.cluster, Action.EMPTY, at.topic, CHANNEL),
        lambda at, results: depth_becomes(at.strict, at.topic, 0),
    ),
    actions.perform_on_node: case(
        lambda at: (at.client, at.nsqd, Action.EMPTY, at.topic, CHANNEL),
        lambda at, nothing: depth_becomes(at.strict, at.topic, 0),
    ),
    actions.rewind: case(lambda at: (at.cluster, at.topic, CHANNEL, "1h"), is_rewound),
    actions.preview_rewind: case(lambda at: (at.cluster, at.topic, CHANNEL, "1h"), is_previewed),
    actions.tombstone: case(
        lambda at: (at.cluster, at.topic, at.nsqd), lambda at, results: ("nsqd", "done") in outcomes(results)
    ),
    drain: case(lambda at: (at.cluster, at.nsqd), drains),
    cancel_drain: case(lambda at: (at.cluster, at.nsqd), has_no_drain),
    hand_over: case(lambda at: (at.cluster, at.nsqd), has_no_mirror),
    recalls.cancel_messages: case(
        lambda at: (at.cluster, at.topic, [at.message_id]), lambda at, done: is_recalled(at, done, "cancelled")
    ),
    recalls.defer_messages: case(
        lambda at: (at.cluster, at.topic, [at.message_id], timedelta(minutes=1)),
        lambda at, done: is_recalled(at, done, "deferred"),
    ),
    lives.read_lives: brokerds(
        lambda at: (at.client, at.nsqd, 0), lambda at, page: (page.events, page.next, page.lost) == ([], 0, 0)
    ),
    messages.peek: brokerds(
        of_topic, lambda at, page: page.total == 1 and is_first(page.messages[0]), lambda at: {"limit": 1}
    ),
    messages.scan: brokerds(
        of_topic, lambda at, page: (page.total, page.next) == (1, None) and is_first(page.messages[0])
    ),
    messages.scan_pages: brokerds(of_topic, lambda at, pages: is_first(pages[0][0])),
    messages.message: brokerds(of_message, lambda at, message: (message.id, message.size) == (at.message_id, 5)),
    messages.body: brokerds(of_message, lambda at, body: body == b"first"),
    messages.body_pieces: brokerds(of_message, lambda at, pieces: b"".join(pieces) == b"first"),
    messages.finish: brokerds(
        lambda at: (*of_topic(at), [at.message_id]),
        lambda at, found: (found.finished, found.not_found) == (1, []) and depth_becomes(at.strict, at.topic, 0),
    ),
    messages.requeue: brokerds(
        lambda at: (*of_topic(at), [at.message_id]), lambda at, found: (found.requeued, found.not_found) == (1, [])
    ),
    messages.requeue_dead: brokerds(
        lambda at: (*of_topic(at), messages.ChosenDead()),
        lambda at, count: count == 0,
        lambda at: {"rate": 0, "timeout_s": 5.0},
    ),
    messages.remove_dead: brokerds(
        lambda at: (*of_topic(at), messages.ChosenDead()),
        lambda at, count: count == 0 and depth_becomes(at.strict, at.topic, 1),
        lambda at: {"timeout_s": 5.0},
    ),
    dead.read: case(lambda at: (at.cluster, at.topic, CHANNEL), has_no_dead_messages, lambda at: {"limit": 1}),
    dead.requeue: case(lambda at: (at.cluster, at.topic, CHANNEL, messages.ChosenDead()), acts_on_no_dead_message),
    dead.remove: case(
        lambda at: (at.cluster, at.topic, CHANNEL, messages.ChosenDead()),
        lambda at, results: acts_on_no_dead_message(at, results) and depth_becomes(at.strict, at.topic, 1),
    ),
    posts.post_everywhere: case(
        lambda at: (at.client, "nsqd", {"node": at.nsqd}, "/topic/empty", {"topic": at.topic}),
        lambda at, results: outcomes(results) == {("nsqd", "done")},
    ),
    policies.node_policies: with_policy(
        lambda at: (at.client, at.nsqd), lambda at, found: found[Patterns(at.topic)] == POLICY
    ),
    policies.read_policies: with_policy(lambda at: (at.cluster,), lists_policy, is_brokerds=False),
    policies.set_policy: with_policy(
        lambda at: (at.cluster, Patterns(at.topic), {"max_attempts": 9}),
        lambda at, results: is_policy(at, results, {"max_attempts": 9}),
    ),
    policies.delete_policy: with_policy(
        lambda at: (at.cluster, Patterns(at.topic)), lambda at, results: is_policy(at, results, None)
    ),
    policies.set_node_policy: with_policy(
        lambda at: (at.client, at.nsqd, Patterns(at.topic), {"max_attempts": 9}),
        lambda at, nothing: node_has_policy(at, {"max_attempts": 9}),
    ),
    policies.delete_node_policy: with_policy(
        lambda at: (at.client, at.nsqd, Patterns(at.topic)), lambda at, nothing: node_has_policy(at, None)
    ),
    policies.mend: with_policy(
        lambda at: (
            at.cluster,
            Policies(addresses={at.nsqd: at.nsqd}),
            Mending(Patterns(at.topic), {"max_attempts": 9}, [at.nsqd]),
        ),
        is_mended,
        is_brokerds=False,
    ),
    policies.channel_policies: with_policy(lambda at: (at.cluster, at.topic, CHANNEL), shows_policy, is_brokerds=False),
    publishing.stores_headers: case(
        lambda at: (at.client, at.nsqd), lambda at, stores: stores is (at.strict.implementation != "go")
    ),
    publishing.publish: case(
        lambda at: (at.client, at.nsqd, at.topic, b"second"), lambda at, nothing: depth_becomes(at.strict, at.topic, 2)
    ),
    publishing.publish_all: case(
        lambda at: (at.client, at.nsqd, at.topic, [b"second", b"third"]),
        lambda at, nothing: depth_becomes(at.strict, at.topic, 3),
    ),
    publishing.publish_with_headers: case(
        lambda at: (at.client, at.nsqd, at.topic, [(b"second", {"tenant": "acme"}), (b"third", {})]),
        lambda at, nothing: depth_becomes(at.strict, at.topic, 3),
    ),
}


def name_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__.removeprefix('nsqcluster.')}.{function.__qualname__}"


async def answer_of(call: Any) -> Any:
    """The answer of a coroutine, or everything that an iterator yields."""
    return [each async for each in call] if isinstance(call, AsyncIterator) else await call


def test_every_function_that_sends_a_request_has_a_case() -> None:
    """A new one fails here until it has one."""
    assert {name_of(each) for each in public_functions()} == {name_of(each) for each in CASES}


@ways
@pytest.mark.parametrize("function", CASES, ids=name_of)
async def test_each_request_is_sent_over_tls(strict: StrictCluster, given: bool, function: Callable[..., Any]) -> None:
    """With its answer typed, or its effect on the node."""
    cluster, topic = strict.cluster(given=given), f"{name_of(function)}-{given}"
    await created(strict, cluster, topic, CHANNEL)
    async with cluster.client() as client:
        is_go = strict.implementation == "go"
        page = None if is_go else await messages.peek(client, strict.nsqd, topic, CHANNEL, limit=1)
        at = Prepared(
            strict=strict,
            cluster=cluster,
            client=client,
            topic=topic,
            message_id=page.messages[0].id if page else "0" * 16,
            failures=[],
        )
        tested = CASES[function]
        if tested.has_policy and not is_go:
            await policies.set_policy(cluster, Patterns(topic), POLICY)
        call = function(*tested.arguments(at), **tested.options(at))
        if is_go and tested.is_brokerds:
            with pytest.raises((Refused, NotInCluster)) as refused:
                await answer_of(call)
            assert isinstance(refused.value, NotInCluster) or refused.value.is_unknown_request
            return
        answer = await answer_of(call)
        is_right = tested.is_right(at, answer)
        assert await is_right if isinstance(is_right, Awaitable) else is_right, answer
    assert at.failures == []


@ways
async def test_an_unknown_topic_has_no_producers(strict: StrictCluster, given: bool) -> None:
    """No failure is reported: all servers answered."""
    failures: list[RequestFailed] = []
    cluster = strict.cluster(given=given)
    async with cluster.client() as client:
        with pytest.raises(discovery.UnknownTopic):
            await Discovery(client, cluster, failures.extend).producers("nowhere")
    assert failures == []


# ---- the effects of actions


@ways
async def test_pausing_and_unpausing(strict: StrictCluster, given: bool) -> None:
    """A channel, and the topic itself."""
    cluster, topic = strict.cluster(given=given), f"pausing-{given}"
    await created(strict, cluster, topic, CHANNEL)
    for action, is_paused in ((Action.PAUSE, True), (Action.UNPAUSE, False)):
        for channel in (CHANNEL, None):
            assert outcomes(await perform(cluster, action, topic, channel)) == {("nsqd", "done")}
        [stats] = (await node_stats(strict, topic)).topics
        assert [stats.paused, stats.channels[0].paused] == [is_paused, is_paused]


@ways
async def test_emptying(strict: StrictCluster, given: bool) -> None:
    """The messages of the channel, and of the topic, are gone."""
    cluster, topic = strict.cluster(given=given), f"emptying-{given}"
    await created(strict, cluster, topic, CHANNEL)
    strict.publish(topic, b"second", b"third")

    await depth_becomes(strict, topic, 3)
    for channel in (CHANNEL, None):
        assert outcomes(await perform(cluster, Action.EMPTY, topic, channel)) == {("nsqd", "done")}
    [stats] = (await node_stats(strict, topic)).topics
    assert [stats.depth, stats.channels[0].depth] == [0, 0]


@ways
async def test_tombstoning(strict: StrictCluster, given: bool) -> None:
    """The topic is deleted on the node, and tombstoned in the registry if there is one."""
    cluster, topic = strict.cluster(given=given), f"tombstoning-{given}"
    await created(strict, cluster, topic, CHANNEL)
    expected = {("nsqd", "done")} if given else {("nsqlookupd", "done"), ("nsqd", "done")}
    assert outcomes(await tombstone(cluster, topic, strict.nsqd)) == expected
    assert (await node_stats(strict, topic)).topics == []


@ways
async def test_deleting(strict: StrictCluster, given: bool) -> None:
    """A channel, then its topic, from the registry and from the node."""
    cluster, topic = strict.cluster(given=given), f"deleting-{given}"
    await created(strict, cluster, topic, CHANNEL)
    expected = {("nsqd", "done")} if given else {("nsqlookupd", "done"), ("nsqd", "done")}
    assert outcomes(await perform(cluster, Action.DELETE, topic, CHANNEL)) == expected
    assert (await node_stats(strict, topic)).topics[0].channels == []
    assert outcomes(await perform(cluster, Action.DELETE, topic, None)) == expected
    assert (await node_stats(strict, topic)).topics == []
    if given:
        with pytest.raises(NotInCluster):
            await perform(cluster, Action.DELETE, topic, None)


@ways
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
