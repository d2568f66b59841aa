"""Doing something to a topic or channel on every node that has it, and saying what became of it on each.

The platform and the ``nsq`` commands both act through this. But for rewinding, only what nsqd and nsqlookupd have in
common with Go's is used, so a fleet may be mixed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal

# pydantic, by which the platform shows results to the world, asks for this one below Python 3.12.
from typing_extensions import TypedDict

from aionsq.errors import HTTPFailed
from aionsq.http import HTTPClient, base_url
from aionsq.lookup import ProducerInfo, read_producers

NO_REWIND = "this nsqd cannot rewind (Go's keeps nothing that was finished)"
FIND_S = 1.5
STEP_S = 3.0
"""An action takes at most FIND_S + 2 · STEP_S seconds, however many nodes hang."""


class Action(StrEnum):
    PAUSE = "pause"
    UNPAUSE = "unpause"
    EMPTY = "empty"
    DELETE = "delete"
    CREATE = "create"

    @property
    def concerns_registries(self) -> bool:
        return self in (Action.DELETE, Action.CREATE)


class Result(TypedDict):
    """What became of an action on one node or registry. ``node`` is its id, for a registry its address."""

    node: str
    target: Literal["nsqd", "nsqlookupd"]
    outcome: Literal["done", "failed", "unreachable"]
    detail: str


Outcome = Literal["done", "partial", "failed"]


class NotInCluster(Exception):
    """No node, and no registry that matters to the action, has the topic or channel; ``what`` is what is missing."""

    def __init__(self, text: str, what: Literal["topic", "channel"] = "topic") -> None:
        super().__init__(text)
        self.what = what


class ClusterUnreachable(Exception):
    """Nothing could be asked where the topic is; the text says what each registry did."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is known before asking: the addresses that were given, and perhaps a fresh picture of who has which topic.

    A node's id is its ``broadcast_address:http_port``; one that was given by its address is called by that.
    """

    lookupd: Sequence[str] = ()
    nsqd: Sequence[str] = ()
    seen: Mapping[str, Iterable[str]] | None = None
    """Topic to the ids of its nodes, also of those that are down; None where nobody has looked lately."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node id to the address it is reached at, where that is another."""

    step_s: float = STEP_S
    """Patience with one step, in seconds."""

    def address(self, node: str) -> str:
        return self.addresses.get(node, node)


@dataclass(kw_only=True)
class Targets:
    """Where an action goes: node id to address, and the registries' addresses."""

    nodes: dict[str, str] = field(default_factory=dict)
    registries: Sequence[str] = ()
    registered: bool = False
    """Whether some registry knows the topic."""
    silent: dict[str, str] = field(default_factory=dict)
    """Registries that were asked and did not say, to their reasons."""


def client(step_s: float = STEP_S) -> HTTPClient:
    """One whose own patience is longer than that of any step here."""
    return HTTPClient(timedelta(seconds=max(FIND_S, step_s) + 1))


async def perform(cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    """Do it: registries first, so that no consumer is sent to what is about to go, then all nodes at once.

    A node that answers 404 does not have the thing, and is left out of the results. Without a picture of the cluster, a
    registry that did not say where the topic is counts as a failure: it may be the only one that knows of a node.
    Raises NotInCluster and ClusterUnreachable, having changed nothing.
    """
    async with client(cluster.step_s) as http:
        targets = await find(http, cluster, action, topic)
        results: list[Result] = []
        if action.concerns_registries:
            names = {name: name for name in targets.registries}
            for verb in registry_verbs(action, channel):
                found = await everywhere(http, "nsqlookupd", names, verb, _params(topic, channel, verb), cluster.step_s)
                results = merged(results, found)
        else:
            results = _unsaid(cluster, targets)
        verb = f"/{'channel' if channel else 'topic'}/{action}"
        done = await everywhere(http, "nsqd", targets.nodes, verb, _params(topic, channel, verb), cluster.step_s)
    if not done and not any(result["outcome"] != "unreachable" or action.concerns_registries for result in results):
        raise _nowhere(topic, channel, results)
    return results + done


async def rewind(cluster: Cluster, topic: str, channel: str, since: str) -> list[Result]:
    """Have every node deliver again what the channel was given since then (see :mod:`nsqwire.moments`).

    The details say how much. Go's nsqd keeps nothing that was finished, and fails. Raises as ``perform``.
    """
    params = {"topic": topic, "channel": channel, "since": since}
    async with client(cluster.step_s) as http:
        targets = await find(http, cluster, Action.PAUSE, topic)
        results = _unsaid(cluster, targets)
        done = await everywhere(
            http, "nsqd", targets.nodes, "/channel/rewind", params, cluster.step_s, told=_rewound, unknown=NO_REWIND
        )
    if not done:
        raise _nowhere(topic, channel, results)
    return results + done


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


def _unsaid(cluster: Cluster, targets: Targets) -> list[Result]:
    """The registries that did not say where the topic is, if no picture of the cluster does."""
    if cluster.seen is not None:
        return []
    return [
        Result(node=registry, target="nsqlookupd", outcome="unreachable", detail=reason)
        for registry, reason in targets.silent.items()
    ]


def _nowhere(topic: str, channel: str | None, results: Sequence[Result]) -> NotInCluster:
    what = f"channel {channel} of topic {topic}" if channel else f"topic {topic}"
    unasked = "; ".join(f"nsqlookupd {result['node']}: {result['detail']}" for result in results)
    text = f"no node of the cluster has {what}" + (f" ({unasked})" if unasked else "")
    return NotInCluster(text, "channel" if channel else "topic")


async def tombstone(cluster: Cluster, topic: str, node: str) -> list[Result]:
    """Take a topic off one node, as nsqadmin does: hide the node from those who look the topic up, so that no consumer
    goes back to it, and delete the topic there."""
    host, _, port = node.rpartition(":")
    announced = f"{host.strip('[]')}:{port}"  # nsqlookupd compares it to the letter, and has no brackets
    async with client(cluster.step_s) as http:
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
    done = sum(result["outcome"] == "done" for result in results)
    return "done" if done == len(results) else "partial" if done else "failed"


def registry_verbs(action: Action, channel: str | None) -> list[str]:
    """A registry does not make the topic of a channel it is told to create; a node's own registration does."""
    if channel is None:
        return [f"/topic/{action}"]
    return ["/topic/create", "/channel/create"] if action is Action.CREATE else [f"/channel/{action}"]


def merged(before: Iterable[Result], after: Sequence[Result]) -> list[Result]:
    """The results of two steps on the same registries: the first failure of each stands."""
    failures = {result["node"]: result for result in before if result["outcome"] != "done"}
    return [failures.get(result["node"], result) for result in after]


async def find(http: HTTPClient, cluster: Cluster, action: Action, topic: str) -> Targets:
    """Ask the registries which nodes have the topic, and add those that the picture shows, also where they are down."""
    answers = await asyncio.gather(*(producers_at(http, address, topic) for address in cluster.lookupd))
    targets = Targets(registries=cluster.lookupd)
    for address, found in zip(cluster.lookupd, answers, strict=True):
        if isinstance(found, str):
            targets.silent[address] = found
        elif found is not None:
            targets.registered = True
            for producer in found:
                targets.nodes[producer.http_address] = cluster.address(producer.http_address)
    for node in (cluster.seen or {}).get(topic, ()):
        targets.nodes[node] = cluster.address(node)
    known = {address: name for name, address in cluster.addresses.items()}
    if cluster.seen is None or (action is Action.CREATE and not cluster.lookupd):
        # Nobody says which of the given nodes have it: ask them all. One that has not answers 404, which is no harm.
        targets.nodes.update({known.get(address, address): address for address in cluster.nsqd})
    if not targets.nodes and not targets.registered:
        if cluster.lookupd and len(targets.silent) == len(cluster.lookupd):
            raise ClusterUnreachable("; ".join(f"nsqlookupd {name}: {why}" for name, why in targets.silent.items()))
        if action is not Action.CREATE:
            raise NotInCluster(f"no node of the cluster has topic {topic}, and no registry knows it")
    return targets


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
    target: Literal["nsqd", "nsqlookupd"],
    addresses: Mapping[str, str],
    verb: str,
    params: Mapping[str, str],
    step_s: float = STEP_S,
    *,
    told: Callable[[str], str] = lambda answer: "",
    unknown: str = "404 NOT_FOUND",
) -> list[Result]:
    """POST the verb to all at once; in order of their names, without those that do not have the thing.

    ``told`` makes the detail of an answer, ``unknown`` is that of a server that does not know the verb.
    """

    async def one(name: str, address: str) -> Result | None:
        try:
            async with asyncio.timeout(step_s):
                detail = told(await http.post(base_url(address) + verb, params))
        except TimeoutError:
            late = f"no answer within {step_s:g} s; it may still do it"
            return Result(node=name, target=target, outcome="unreachable", detail=late)
        except HTTPFailed as error:
            if lacks(error):
                return None
            outcome: Literal["failed", "unreachable"] = "unreachable" if error.status is None else "failed"
            reason = unknown if (error.status, error.reason) == (404, "NOT_FOUND") else said(error)
            return Result(node=name, target=target, outcome=outcome, detail=reason)
        return Result(node=name, target=target, outcome="done", detail=detail)

    results = await asyncio.gather(*(one(name, address) for name, address in sorted(addresses.items())))
    return [result for result in results if result is not None]


def _params(topic: str, channel: str | None, verb: str) -> dict[str, str]:
    return {"topic": topic} | ({"channel": channel} if channel and verb.startswith("/channel/") else {})


def lacks(error: HTTPFailed) -> bool:
    """Whether nsqd or nsqlookupd said that it does not have the topic or channel."""
    return error.status == 404 and error.reason in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")


def said(error: HTTPFailed) -> str:
    """A refusal in the server's own words, or why there was no answer."""
    return error.reason if error.status is None else f"{error.status} {error.reason}".strip()
