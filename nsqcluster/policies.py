"""Policies of the nodes of a cluster: reading them, changing them on all nodes, and how the nodes differ.

A policy belongs to two patterns, of topics and of channels. Its values are a JSON object whose keys and values only the
node checks. Each node has its own policies, so those of a cluster can differ. Go's nsqd has none: such a node is listed
as one without policies, and the outcome of an action on it is ``absent``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from typing_extensions import TypedDict

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import Refused, RequestFailed, detail_of
from nsqcluster.pairs import pair_ids, second_members
from nsqcluster.posts import post_everywhere
from nsqcluster.results import Result
from nsqcluster.survey import CONCURRENCY, Failure
from nsqcluster.targets import FIND_S, ClusterUnreachable, NotInCluster, find

NO_POLICIES: Final = "this node has no policies (nsqd)"
NONE_HAS_POLICIES: Final = "no node of the cluster has policies: Go's nsqd has none"
_REFUSED: Final = re.compile(
    r"400 (INVALID_ARG_PATTERN|INVALID_ARG_CHANNEL|INVALID_POLICY|POLICY_IN_FILE|TOO_MANY_POLICIES)(?: (.*))?",
    re.DOTALL,
)
_KEY: Final = re.compile(r"(\w+): (.*)", re.DOTALL)
_PATTERN_RULE: Final = "a pattern has 1 to 64 of the characters .a-zA-Z0-9_-, * and ?, and may end in #ephemeral"

Values = dict[str, Any]
"""The keys of a policy with their values, as in its JSON."""


def text_of(values: Values) -> str:
    """Such as ``max_attempts=5 retry_delay=1s..5m``. A text that JSON would read as another value is in quotes."""
    return " ".join(f"{key}={text_of_value(value)}" for key, value in values.items())


def text_of_value(value: Any) -> str:
    """A text as it is, and anything else as JSON."""
    return value if isinstance(value, str) and value_of(value) == value else json.dumps(value)


def value_of(text: str) -> Any:
    """The value that ``text_of`` writes as ``text``: JSON, and otherwise the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Patterns(NamedTuple):
    """The globs of topics and of channels to which a policy applies."""

    topic: str
    channel: str = "*"

    def __str__(self) -> str:
        return f"topics {self.topic}" if self.channel == "*" else f"topics {self.topic}, channels {self.channel}"

    def as_name(self) -> str:
        """Such as ``orders.* / billing``."""
        return f"{self.topic} / {self.channel}"


class PolicyRefused(Exception):
    """All nodes that have policies and answered refuse the request, and nothing has changed.

    ``field`` is ``topic_pattern``, ``channel_pattern``, or ``policy`` with the key that the node names: ``policy.KEY``.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field.removeprefix('policy.')}: {text}" if field != "policy" else text)
        self.field = field
        self.text = text


class PolicyNode(TypedDict):
    """A policy's values on one node; null: the node lacks it."""

    node: str
    policy: Values | None


class PolicyRow(TypedDict):
    """One policy of the cluster. ``drift`` is true if the nodes that have policies differ in it. ``policy`` has the
    values of most nodes; of the first of them, if several values are equally frequent."""

    topic_pattern: str
    channel_pattern: str
    policy: Values
    drift: bool
    nodes: list[PolicyNode]


class AppliedPolicy(TypedDict):
    """The policy that applies to a channel."""

    topic_pattern: str
    channel_pattern: str
    policy: Values


class ChannelPolicy(TypedDict):
    """What applies to a channel on one node. ``applied`` is null if only the node's settings do, and if it is unknown,
    for the reason in ``error``."""

    node: str
    applied: AppliedPolicy | None
    error: str


class _Policy(Struct):
    pattern: str
    channel: str
    policy: Values


class _Policies(Struct):
    policies: list[_Policy]


class _Channel(Struct):
    channel_name: str
    policy: _Policy | UnsetType | None = UNSET
    """UNSET: the node does not say, as Go's."""


class _Topic(Struct):
    topic_name: str
    channels: list[_Channel] | None = None


class _Stats(Struct):
    topics: list[_Topic] | None = None


@dataclass(kw_only=True)
class Policies:
    """The policies of all nodes that answered. ``addresses`` are those of all nodes, by id."""

    addresses: dict[str, str] = field(default_factory=dict)
    by_node: dict[str, dict[Patterns, Values]] = field(default_factory=dict)
    """Node id -> its policies, of the nodes that have policies."""
    same_as: dict[str, str] = field(default_factory=dict)
    """Id of a given node that is a member of a pair -> id of the other member, which has the policies of the pair."""
    without: list[str] = field(default_factory=list)
    """Ids of the nodes that have no policies, as Go's."""
    failures: list[Failure] = field(default_factory=list)

    def rows(self) -> list[PolicyRow]:
        """Return a row per policy, sorted by its patterns."""
        return [self._row(each) for each in sorted({key for of in self.by_node.values() for key in of})]

    def _row(self, patterns: Patterns) -> PolicyRow:
        nodes = [PolicyNode(node=node, policy=of.get(patterns)) for node, of in self.by_node.items()]
        found = [each["policy"] for each in nodes if each["policy"] is not None]
        return PolicyRow(
            topic_pattern=patterns.topic,
            channel_pattern=patterns.channel,
            policy=_most_frequent(found),
            drift=any(each["policy"] != nodes[0]["policy"] for each in nodes),
            nodes=nodes,
        )


def _most_frequent(found: list[Values]) -> Values:
    texts = [json.dumps(each, sort_keys=True) for each in found]
    return found[texts.index(Counter(texts).most_common(1)[0][0])]


async def node_policies(http: Client, address: str, timeout_s: float | None = None) -> dict[Patterns, Values]:
    """Return the policies of one node, the most specific first. Raises RequestFailed; see ``has_no_policies``."""
    answer = await http.get(address, "/policies", _Policies, timeout_s=timeout_s)
    return {Patterns(each.pattern, each.channel): each.policy for each in answer.policies}


def has_no_policies(error: RequestFailed) -> bool:
    """Whether a node refused ``node_policies`` because it does not know the request, as Go's nsqd."""
    return isinstance(error, Refused) and error.status == 404


async def read_policies(cluster: Cluster) -> Policies:
    """Read the policies of every node of the cluster. Servers that fail raise nothing; they are in ``failures``."""
    async with cluster.client(concurrency=CONCURRENCY) as http:
        found, complaints, same_as = await _nodes(http, cluster, {})
        answers = await reads.gather(
            {name: node_policies(http, address, cluster.step_s) for name, address in found.items()}
        )
    failures = [Failure(node=each["node"], target=each["target"], detail=each["detail"]) for each in complaints]
    failures += [
        Failure(node=name, target="nsqd", detail=detail_of(error))
        for name, error in answers.failures.items()
        if not has_no_policies(error)
    ]
    without = [name for name, error in answers.failures.items() if has_no_policies(error)]
    return Policies(addresses=found, by_node=answers.found, same_as=same_as, without=without, failures=failures)


async def _nodes(
    http: Client, cluster: Cluster, seen: Mapping[str, Iterable[str]]
) -> tuple[dict[str, str], list[Result], dict[str, str]]:
    """The address of every node by its id, sorted, the registries that did not answer, and the second member of each
    pair with the id of the first, which is among the nodes.

    Nodes are those that registries list, those given, and those in ``seen``, which had a topic recently. Raises
    ClusterUnreachable if there are none and a registry did not answer.
    """
    registered, pairs = await asyncio.gather(
        reads.registered_nodes(http, cluster.lookupd, timeout_s=FIND_S), pair_ids(http, cluster.given, FIND_S)
    )
    silent = [
        Result(node=registry, target="nsqlookupd", outcome="unreachable", detail=detail_of(error))
        for registry, error in registered.failures.items()
    ]
    found = {name: node.address for name, node in nodes_of(registered.found, cluster.address).items()}
    seconds = await second_members(http, pairs, found, FIND_S)
    for name, address in cluster.given.items():
        if name not in seconds:
            found.setdefault(name, address)
    for name in {name for nodes in seen.values() for name in nodes}:
        found.setdefault(name, cluster.address(name))
    if not found and silent:
        raise ClusterUnreachable("nsqlookupd", silent)
    return dict(sorted(found.items())), silent, seconds


async def set_policy(cluster: Cluster, patterns: Patterns, values: Values) -> list[Result]:
    """Set a policy on every node of the cluster, and return the result of each.

    Nodes that had a topic recently are included, because no registry lists a crashed node. The results contain a
    registry that did not answer, because the action has left out nodes that only this registry knows. Raises
    PolicyRefused, NotInCluster if no node has policies, and ClusterUnreachable; nothing has changed then.
    """
    async with cluster.client(concurrency=CONCURRENCY) as http:
        nodes, silent, _ = await _nodes(http, cluster, cluster.seen)
        done = await _change(http, nodes, patterns, values, cluster.step_s)
    _raise_refusal(done)
    return silent + done


async def delete_policy(cluster: Cluster, patterns: Patterns) -> list[Result]:
    """Delete a policy on every node of the cluster, and return the result of each.

    Raises the same as ``set_policy``, and NotInCluster if all nodes answered and none has the policy.
    """
    async with cluster.client(concurrency=CONCURRENCY) as http:
        nodes, silent, _ = await _nodes(http, cluster, cluster.seen)
        done = await _change(http, nodes, patterns, None, cluster.step_s)
    _raise_refusal(done)
    if not silent and all(each["outcome"] == "absent" for each in done):
        raise NotInCluster(f"no node of the cluster has a policy of {patterns}")
    return silent + done


class Mending(NamedTuple):
    """The change that makes one policy the same on all nodes. ``values`` None: it is deleted. ``nodes`` are those that
    change."""

    patterns: Patterns
    values: Values | None
    nodes: list[str]


def mendings(found: Policies, source: str, only: Patterns | None = None) -> list[Mending]:
    """Return the changes that give all nodes the policies of the node ``source``; with ``only``, just that policy.

    A policy that other nodes lack or have with other values is set; one that ``source`` lacks is deleted. Raises
    NotInCluster if the policies of ``source`` are unknown.
    """
    source = found.same_as.get(source, source)
    if source not in found.by_node:
        raise NotInCluster(_why_unknown(found, source))
    wanted = found.by_node[source]
    keys = {key for of in found.by_node.values() for key in of} if only is None else {only}
    plans = [
        Mending(key, wanted.get(key), [node for node, of in found.by_node.items() if of.get(key) != wanted.get(key)])
        for key in sorted(keys)
    ]
    before = {row_patterns(row): row["policy"] for row in found.rows()}
    return sorted(
        (plan for plan in plans if plan.nodes), key=lambda plan: rank_of_change(before.get(plan.patterns), plan.values)
    )


def row_patterns(row: PolicyRow) -> Patterns:
    """The patterns of a row."""
    return Patterns(row["topic_pattern"], row["channel_pattern"])


def rank_of_change(before: Values | None, after: Values | None) -> int:
    """Return the rank of a policy's change among the changes of several policies; None: there is no policy.

    Changes by ascending rank cause no temporary circle of dead topics, which nodes would refuse. Changes that can end a
    circle come first: to a policy without a dead topic, and the deletion of a policy with one. Deletions of policies
    without a dead topic come last: afterwards, a more general policy with one may apply.
    """
    if after is None:
        return 0 if before and before.get("dead_topic") else 2
    return 1 if after.get("dead_topic") else 0


def _why_unknown(found: Policies, source: str) -> str:
    if source in found.without:
        return f"node {source} has no policies (nsqd)"
    for each in found.failures:
        if each["node"] == source:
            return f"node {source}: {each['detail']}"
    there = f"those with policies are {', '.join(found.by_node)}" if found.by_node else NONE_HAS_POLICIES
    return f"there is no node {source}; {there}"


async def mend(cluster: Cluster, found: Policies, plan: Mending) -> list[Result]:
    """Carry out one of the ``mendings``, and return the result of each node that changes.

    Nodes and registries whose policies could not be read are ``unreachable``.
    """
    async with cluster.client(concurrency=CONCURRENCY) as http:
        nodes = {node: found.addresses[node] for node in plan.nodes}
        done = await _change(http, nodes, plan.patterns, plan.values, cluster.step_s)
    silent = [
        Result(node=each["node"], target=each["target"], outcome="unreachable", detail=each["detail"])
        for each in found.failures
    ]
    return silent + done


async def set_node_policy(http: Client, address: str, patterns: Patterns, values: Values) -> None:
    """Set a policy of one node. Raises RequestFailed; see ``has_no_policies``."""
    await http.post(address, "/policy", _params(patterns), json.dumps(values).encode())


async def delete_node_policy(http: Client, address: str, patterns: Patterns) -> None:
    """Delete a policy of one node. Raises RequestFailed."""
    await http.post(address, "/policy/delete", _params(patterns))


def _params(patterns: Patterns) -> dict[str, str]:
    return {"pattern": patterns.topic, "channel": patterns.channel}


async def _change(
    http: Client, nodes: Mapping[str, str], patterns: Patterns, values: Values | None, step_s: float
) -> list[Result]:
    """Set the policy on the nodes; without ``values``, delete it. Nodes without policies are ``absent``."""
    verb, body = ("/policy/delete", b"") if values is None else ("/policy", json.dumps(values).encode())
    done = await post_everywhere(http, "nsqd", nodes, verb, _params(patterns), step_s, body=body)
    for each in done:
        if each["outcome"] == "failed" and each["detail"].startswith("404 "):
            each["outcome"], each["detail"] = "absent", NO_POLICIES
    return done


def _raise_refusal(results: list[Result]) -> None:
    """Raise NotInCluster if no node has policies, and PolicyRefused if all that have them and answered refuse the
    request."""
    able = [each for each in results if each["detail"] != NO_POLICIES]
    if not able:
        raise NotInCluster(NONE_HAS_POLICIES if results else "the cluster has no nodes")
    answered = [_refusal(each) for each in able if each["outcome"] != "unreachable"]
    refusals = [each for each in answered if each is not None]
    if refusals and len(refusals) == len(answered):
        raise refusals[0]


def _refusal(result: Result) -> PolicyRefused | None:
    """A node's refusal of values that cannot be used; None for any other failure."""
    refused = _REFUSED.fullmatch(result["detail"])
    if refused is None:
        return None
    code, reason = refused[1], refused[2] or ""
    if code in ("INVALID_ARG_PATTERN", "INVALID_ARG_CHANNEL"):
        return PolicyRefused("topic_pattern" if code == "INVALID_ARG_PATTERN" else "channel_pattern", _PATTERN_RULE)
    if code == "POLICY_IN_FILE":
        return PolicyRefused("topic_pattern", "the policy is in the settings file of the node; change it there")
    if code == "TOO_MANY_POLICIES":
        return PolicyRefused("policy", "the node has as many policies as it can; delete one first")
    key = _KEY.fullmatch(reason)
    return PolicyRefused(f"policy.{key[1]}", key[2]) if key else PolicyRefused("policy", reason)


async def channel_policies(cluster: Cluster, topic: str, channel: str) -> list[ChannelPolicy]:
    """Return what applies to a channel on each node that has it and can have policies, sorted by node.

    Raises NotInCluster and ClusterUnreachable.
    """
    params = {
        "format": "json",
        "topic": topic,
        "channel": channel,
        "include_histograms": "true",
        "include_clients": "false",
        "include_mem": "false",
    }
    async with cluster.client(concurrency=CONCURRENCY) as http:
        targets = await find(http, cluster, topic)
        answers = await reads.gather(
            {
                name: http.get(address, "/stats", _Stats, params, timeout_s=cluster.step_s)
                for name, address in sorted(targets.nodes.items())
            }
        )
    unknown = [ChannelPolicy(node=name, applied=None, error=detail_of(error)) for name, error in answers.errors.items()]
    known = [
        ChannelPolicy(node=name, applied=_applied(found.policy), error="")
        for name, answer in answers.found.items()
        if (found := _channel(answer, topic, channel)) is not None and found.policy is not UNSET
    ]
    return sorted(known + unknown, key=lambda each: each["node"])


def _channel(stats: _Stats, topic: str, channel: str) -> _Channel | None:
    channels = (each for of in stats.topics or () if of.topic_name == topic for each in of.channels or ())
    return next((each for each in channels if each.channel_name == channel), None)


def _applied(policy: _Policy | UnsetType | None) -> AppliedPolicy | None:
    if not isinstance(policy, _Policy):
        return None
    return AppliedPolicy(topic_pattern=policy.pattern, channel_pattern=policy.channel, policy=policy.policy)
