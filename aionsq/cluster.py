"""Actions on a topic or channel, on every node that has it, with a result from each.

The platform and the ``nsq`` commands act through this. Except for rewinding, it uses only requests that Go's nsqd and
nsqlookupd know too, so a fleet may be mixed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

# pydantic, by which the platform shows results to the world, asks for this one below Python 3.12.
from typing_extensions import TypedDict

from aionsq.errors import HTTPFailed
from aionsq.http import HTTPClient, base_url
from aionsq.lookup import ProducerInfo, read_producers

NO_REWIND = "this nsqd cannot rewind (Go's keeps nothing that was finished)"
NO_TOPIC: Final[tuple[Literal["absent"], str]] = ("absent", "404 TOPIC_NOT_FOUND")
"""Outcome and detail of a server that does not have the topic."""
FIND_S = 1.5
STEP_S = 3.0
"""However many nodes hang, an action takes at most FIND_S + 2 · STEP_S seconds; creating a channel takes up to
FIND_S + 4 · STEP_S."""


class Action(StrEnum):
    PAUSE = "pause"
    UNPAUSE = "unpause"
    EMPTY = "empty"
    DELETE = "delete"
    CREATE = "create"


Target = Literal["nsqd", "nsqlookupd"]


class Result(TypedDict):
    """The outcome of an action on one node or registry. ``node`` is its id, for a registry its address.

    ``absent``: it answered 404, because it does not have the topic or channel. That is not a failure.
    """

    node: str
    target: Target
    outcome: Literal["done", "absent", "failed", "unreachable"]
    detail: str


Outcome = Literal["done", "partial", "failed"]


class NotInCluster(Exception):
    """Everybody answered, and nobody has the topic or channel; ``what`` is what is missing."""

    def __init__(self, text: str, what: Literal["topic", "channel"] = "topic") -> None:
        super().__init__(text)
        self.what = what


class ClusterUnreachable(Exception):
    """No server told where the topic is. ``target`` is the kind of server asked, ``silent`` has the results of those
    that did not answer; the text has their reasons."""

    def __init__(self, target: Target, silent: Sequence[Result]) -> None:
        super().__init__("; ".join(f"{each['target']} {each['node']}: {each['detail']}" for each in silent))
        self.target = target
        self.silent = silent


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The given addresses, and recent knowledge about the cluster.

    A node's id is its ``broadcast_address:http_port``; one that was given by its address is called by that.
    """

    lookupd: Sequence[str] = ()
    nsqd: Sequence[str] = ()
    seen: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Topic to the ids of nodes that had it recently. They are added to the nodes found by asking: a crashed node
    is in no registry's response."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node id to the address it is reached at, where that is another."""

    step_s: float = STEP_S
    """Patience with one step, in seconds."""
    tls: ssl.SSLContext | None = None
    """For nodes that require HTTPS; by default with the system's authorities."""

    def address(self, node: str) -> str:
        return self.addresses.get(node, node)

    @property
    def given(self) -> dict[str, str]:
        """Node id to address of the given nodes."""
        known = {address: name for name, address in self.addresses.items()}
        return {known.get(address, address): address for address in self.nsqd}


@dataclass(kw_only=True)
class Targets:
    """The nodes that an action goes to, found by asking the cluster."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node id to address: the holders, the given nodes that did not answer, and nodes that had the topic recently."""
    holders: set[str] = field(default_factory=set)
    """Nodes that have the topic, according to a registry or to themselves."""
    is_registered: bool = False
    """Whether some registry knows the topic."""
    complaints: list[Result] = field(default_factory=list)
    """Registries that did not answer (unreachable) or do not know the topic (absent)."""


def client(cluster: Cluster) -> HTTPClient:
    """One whose own patience is longer than that of any step here."""
    return HTTPClient(timedelta(seconds=max(FIND_S, cluster.step_s) + 1), tls=cluster.tls)


async def perform(cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    """Perform the action on every node that has the topic now, and return the result of each.

    The cluster is always asked first. A topic or channel is deleted from the registries before the nodes, so that no
    consumer is sent to a node that is about to delete it. A registry that did not answer is among the results: nodes
    that only it knows were left out. Raises NotInCluster and ClusterUnreachable, with nothing changed.
    """
    async with client(cluster) as http:
        if action is Action.CREATE:
            return await _create(http, cluster, topic, channel)
        targets = await find(http, cluster, topic)
        results = targets.complaints
        if action is Action.DELETE:
            results = await _tell_registries(http, cluster, [f"/{_kind(channel)}/delete"], topic, channel, results)
        done = await _on_nodes(http, cluster, targets, f"/{_kind(channel)}/{action}", topic, channel)
    return _somewhere(results + done, topic, channel)


async def _create(http: HTTPClient, cluster: Cluster, topic: str, channel: str | None) -> list[Result]:
    """As nsqadmin: create a topic on the registries, and a channel also on the nodes of its topic. Without registries,
    create both on the given nodes, because only they can store them."""
    # nsqlookupd does not create the topic of a new channel.
    verbs = ["/topic/create", "/channel/create"] if channel else ["/topic/create"]
    results = await _tell_registries(http, cluster, verbs, topic, channel)
    if results and all(each["outcome"] == "unreachable" for each in results):
        raise ClusterUnreachable("nsqlookupd", results)
    if channel is None:
        return results + await everywhere(http, "nsqd", cluster.given, verbs[0], {"topic": topic}, cluster.step_s)
    try:
        targets = await find(http, cluster, topic)
    except NotInCluster:
        targets = Targets()
    except ClusterUnreachable as error:
        if not any(each["outcome"] == "done" for each in results):
            raise
        targets = Targets(complaints=list(error.silent))
    results = merged(targets.complaints, results)
    nodes, before = targets.nodes, list[Result]()
    if not cluster.lookupd and not targets.holders:
        nodes = cluster.given
        before = await everywhere(http, "nsqd", nodes, verbs[0], {"topic": topic}, cluster.step_s)
    done = await _on_nodes(http, cluster, replace(targets, nodes=nodes), verbs[1], topic, channel)
    return _somewhere(results + merged(before, done), topic, channel)


def _kind(channel: str | None) -> Literal["topic", "channel"]:
    return "channel" if channel else "topic"


async def _tell_registries(
    http: HTTPClient,
    cluster: Cluster,
    verbs: Iterable[str],
    topic: str,
    channel: str | None,
    before: Iterable[Result] = (),
) -> list[Result]:
    """POST the verbs to all registries, one verb after the other; ``before`` has results to merge with."""
    names = {name: name for name in cluster.lookupd}
    results = list(before)
    for verb in verbs:
        found = await everywhere(http, "nsqlookupd", names, verb, _params(topic, channel, verb), cluster.step_s)
        results = merged(results, found)
    return results


async def _on_nodes(
    http: HTTPClient, cluster: Cluster, targets: Targets, verb: str, topic: str, channel: str | None
) -> list[Result]:
    """POST the verb to the targets. Results of nodes that are not holders and lack the topic are left out."""
    done = await everywhere(http, "nsqd", targets.nodes, verb, _params(topic, channel, verb), cluster.step_s)
    return _of_holders(done, targets)


def _of_holders(results: Iterable[Result], targets: Targets) -> list[Result]:
    return [
        each for each in results if each["node"] in targets.holders or (each["outcome"], each["detail"]) != NO_TOPIC
    ]


def _somewhere(results: list[Result], topic: str, channel: str | None) -> list[Result]:
    """Return the results. Raises NotInCluster if all are ``absent``."""
    if any(each["outcome"] != "absent" for each in results):
        return results
    what = f"channel {channel} of topic {topic}" if channel else f"topic {topic}"
    raise NotInCluster(f"no node of the cluster has {what}", _kind(channel))


async def rewind(cluster: Cluster, topic: str, channel: str, since: str) -> list[Result]:
    """Have every node deliver again what the channel was given since then (see :mod:`nsqwire.moments`).

    The details say how much. Go's nsqd keeps nothing that was finished, and fails. Raises as ``perform``.
    """
    params = {"topic": topic, "channel": channel, "since": since}
    async with client(cluster) as http:
        targets = await find(http, cluster, topic)
        done = await everywhere(
            http, "nsqd", targets.nodes, "/channel/rewind", params, cluster.step_s, told=_rewound, unknown=NO_REWIND
        )
    return _somewhere(targets.complaints + _of_holders(done, targets), topic, channel)


def _rewound(answer: str) -> str:
    """A node's answer in words."""
    try:
        told = json.loads(answer)
        messages, oldest_ns, is_complete = told["messages"], told["oldest_timestamp"], told["complete"]
        number = f"{messages:,} message{'' if messages == 1 else 's'}"
        oldest = datetime.fromtimestamp(oldest_ns // 1_000_000_000, UTC) if messages else None
    except (ValueError, KeyError, TypeError):
        return "it did not say how many messages"
    if oldest is None:
        return number
    since = f"{number}, the oldest of {oldest:%Y-%m-%dT%H:%M:%SZ}"
    return since if is_complete else f"{since}; what came before it is gone"


async def tombstone(cluster: Cluster, topic: str, node: str) -> list[Result]:
    """Take a topic off one node, as nsqadmin does: hide the node from those who look the topic up, so that no consumer
    goes back to it, and delete the topic there."""
    host, _, port = node.rpartition(":")
    announced = f"{host.strip('[]')}:{port}"  # nsqlookupd compares it to the letter, and has no brackets
    async with client(cluster) as http:
        results = await everywhere(
            http,
            "nsqlookupd",
            {name: name for name in cluster.lookupd},
            "/topic/tombstone",
            {"topic": topic, "node": announced},
            cluster.step_s,
        )
        where = {node: cluster.address(node)}
        return results + await everywhere(http, "nsqd", where, "/topic/delete", {"topic": topic}, cluster.step_s)


def outcome_of(results: Sequence[Result]) -> Outcome:
    """The overall outcome; ``absent`` results do not count."""
    asked = [result["outcome"] for result in results if result["outcome"] != "absent"]
    done = asked.count("done")
    return "done" if done == len(asked) else "partial" if done else "failed"


def merged(before: Iterable[Result], after: Sequence[Result]) -> list[Result]:
    """The results of two steps on the same servers: the first of each that was not ``done`` stands."""
    failures = {result["node"]: result for result in before if result["outcome"] != "done"}
    return [failures.get(result["node"], result) for result in after]


async def find(http: HTTPClient, cluster: Cluster, topic: str) -> Targets:
    """Ask the registries which nodes have the topic, and each given node whether it has it.

    Raises ClusterUnreachable if no server answered, or if some did not and none of the others knows the topic;
    NotInCluster if all answered and none knows it.
    """
    given = cluster.given
    registries, stats = await asyncio.gather(
        asyncio.gather(*(producers_at(http, address, topic) for address in cluster.lookupd)),
        asyncio.gather(*(has_topic(http, address, topic) for address in given.values())),
    )
    targets, silent = Targets(), list[Result]()
    for address, found in zip(cluster.lookupd, registries, strict=True):
        if isinstance(found, str):
            silent.append(Result(node=address, target="nsqlookupd", outcome="unreachable", detail=found))
            targets.complaints.append(silent[-1])
        elif found is None:
            outcome, detail = NO_TOPIC
            targets.complaints.append(Result(node=address, target="nsqlookupd", outcome=outcome, detail=detail))
        else:
            targets.is_registered = True
            names = {producer.http_address for producer in found}
            targets.holders |= names
            targets.nodes.update({name: cluster.address(name) for name in names})
    for (name, address), has_it in zip(given.items(), stats, strict=True):
        if isinstance(has_it, str):
            silent.append(Result(node=name, target="nsqd", outcome="unreachable", detail=has_it))
        elif has_it:
            targets.holders.add(name)
        if has_it:
            targets.nodes[name] = address
    for name in cluster.seen.get(topic, ()):
        if name not in given:
            targets.nodes.setdefault(name, cluster.address(name))
    if silent and len(silent) == len(cluster.lookupd) + len(given):
        raise ClusterUnreachable("nsqlookupd" if cluster.lookupd else "nsqd", silent)
    if not targets.nodes and not targets.is_registered:
        if silent:
            raise ClusterUnreachable("nsqlookupd", silent)
        raise NotInCluster(f"no node of the cluster has topic {topic}, and no registry knows it")
    return targets


async def has_topic(http: HTTPClient, address: str, topic: str) -> bool | str:
    """Whether a node has the topic; the reason as text if it did not answer."""
    params = {"format": "json", "topic": topic, "include_clients": "false", "include_mem": "false"}
    try:
        async with asyncio.timeout(FIND_S):
            stats = await http.get_json(f"{base_url(address)}/stats", params)
            # Old versions return all topics, whatever the parameter.
            return any(each["topic_name"] == topic for each in stats["topics"] or ())
    except TimeoutError:
        return f"no answer within {FIND_S:g} s"
    except HTTPFailed as error:
        return said(error)
    except (KeyError, TypeError, ValueError):
        return "the answer is not nsqd's"


async def producers_at(http: HTTPClient, address: str, topic: str) -> list[ProducerInfo] | str | None:
    """The topic's producers by one registry; None if it does not know the topic; its reason if it did not say."""
    try:
        async with asyncio.timeout(FIND_S):
            return read_producers(await http.get_json(f"{base_url(address)}/lookup", {"topic": topic}))
    except TimeoutError:
        return f"no answer within {FIND_S:g} s"
    except HTTPFailed as error:
        return None if lacks(error) else said(error)
    except (KeyError, TypeError, ValueError):
        return "the answer is not nsqlookupd's"


async def everywhere(
    http: HTTPClient,
    target: Target,
    addresses: Mapping[str, str],
    verb: str,
    params: Mapping[str, str],
    step_s: float = STEP_S,
    *,
    told: Callable[[str], str] = lambda answer: "",
    unknown: str = "404 NOT_FOUND",
) -> list[Result]:
    """POST the verb to all at once; the results are in order of their names.

    ``told`` makes the detail of an answer, ``unknown`` is that of a server that does not know the verb.
    """

    async def one(name: str, address: str) -> Result:
        try:
            async with asyncio.timeout(step_s):
                detail = told(await http.post(base_url(address) + verb, params))
        except TimeoutError:
            late = f"no answer within {step_s:g} s; it may still do it"
            return Result(node=name, target=target, outcome="unreachable", detail=late)
        except HTTPFailed as error:
            outcome: Literal["absent", "failed", "unreachable"] = "unreachable" if error.status is None else "failed"
            if lacks(error):
                outcome = "absent"
            reason = unknown if (error.status, error.reason) == (404, "NOT_FOUND") else said(error)
            return Result(node=name, target=target, outcome=outcome, detail=reason)
        return Result(node=name, target=target, outcome="done", detail=detail)

    return await asyncio.gather(*(one(name, address) for name, address in sorted(addresses.items())))


def _params(topic: str, channel: str | None, verb: str) -> dict[str, str]:
    return {"topic": topic} | ({"channel": channel} if channel and verb.startswith("/channel/") else {})


def lacks(error: HTTPFailed) -> bool:
    """Whether nsqd or nsqlookupd said that it does not have the topic or channel."""
    return error.status == 404 and error.reason in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")


def said(error: HTTPFailed) -> str:
    """A refusal in the server's own words, or why there was no answer."""
    return error.reason if error.status is None else f"{error.status} {error.reason}".strip()
