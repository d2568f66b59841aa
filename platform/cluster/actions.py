"""Doing something to a topic or channel on every node that has it, and saying what became of it on each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import httpx
from pydantic import BaseModel
from typing_extensions import TypedDict

from cluster.directory import NO_ANSWER, Producer, answer, reason_of
from cluster.rows import Snapshot

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
    """No node, and no registry that matters to the action, has the topic or channel."""


class ClusterUnreachable(Exception):
    """Nothing could be asked where the topic is; the text says what each registry did."""


class _Lookup(BaseModel):
    producers: list[Producer]


@dataclass(kw_only=True)
class Targets:
    """Where an action goes: node id to address, and the registries' addresses."""

    nodes: dict[str, str] = field(default_factory=dict)
    registries: Sequence[str] = ()
    registered: bool = False
    """Whether some registry knows the topic."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is known before asking: the settings' addresses, and the collector's last picture if it is fresh."""

    lookupd: Sequence[str]
    nsqd: Sequence[str]
    picture: Snapshot | None
    addresses: Mapping[str, str]
    """Node id to address, as the collector reaches it."""


async def perform(cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    """Do it: registries first, so that no consumer is sent to what is about to go, then all nodes at once.

    A node that answers 404 does not have the thing, and is left out of the results. Raises NotInCluster and
    ClusterUnreachable, having changed nothing.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=STEP_S) as client:
        targets = await find(client, cluster, action, topic)
        results: list[Result] = []
        if action.concerns_registries:
            for verb in registry_verbs(action, channel):
                found = await everywhere(
                    client, "nsqlookupd", {name: name for name in targets.registries}, verb, topic, channel
                )
                results = merged(results, found)
        verb = f"/{'channel' if channel else 'topic'}/{action}"
        results += await everywhere(client, "nsqd", targets.nodes, verb, topic, channel)
    if not results:
        what = f"channel {channel} of topic {topic}" if channel else f"topic {topic}"
        raise NotInCluster(f"no node of the cluster has {what}")
    return results


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


async def find(client: httpx.AsyncClient, cluster: Cluster, action: Action, topic: str) -> Targets:
    """Ask the registries which nodes have the topic, and add those that the picture shows, also where they are down."""
    answers = await asyncio.gather(*(producers_at(client, address, topic) for address in cluster.lookupd))
    targets = Targets(registries=cluster.lookupd, registered=any(isinstance(found, list) for found in answers))
    for found in answers:
        for producer in found if isinstance(found, list) else []:
            name = producer.node().id
            targets.nodes[name] = cluster.addresses.get(name, name)
    if cluster.picture is not None:
        for row in cluster.picture["topics"]:
            if row["name"] == topic:
                targets.nodes.update(
                    {each["node"]: cluster.addresses.get(each["node"], each["node"]) for each in row["nodes"]}
                )
    known = {address: name for name, address in cluster.addresses.items()}
    if cluster.picture is None or (action is Action.CREATE and not cluster.lookupd):
        # Nobody says which of the given nodes have it: ask them all. One that has not answers 404, which is no harm.
        targets.nodes.update({known.get(address, address): address for address in cluster.nsqd})
    errors = [str(found) for found in answers if isinstance(found, Unasked)]
    if not targets.nodes and not targets.registered and cluster.lookupd and len(errors) == len(cluster.lookupd):
        raise ClusterUnreachable("; ".join(errors))
    if action is not Action.CREATE and not targets.nodes and not targets.registered:
        raise NotInCluster(f"no node of the cluster has topic {topic}, and no registry knows it")
    return targets


class Unasked(Exception):
    """A registry that did not answer."""


async def producers_at(client: httpx.AsyncClient, address: str, topic: str) -> list[Producer] | Unasked | None:
    """The topic's producers by one registry; None if it does not know the topic."""
    try:
        async with asyncio.timeout(FIND_S):
            return (await answer(client, f"http://{address}/lookup", _Lookup, topic=topic)).producers
    except TimeoutError:
        return Unasked(f"nsqlookupd {address}: no answer within {FIND_S:g} s")
    except NO_ANSWER as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 404:
            return None
        return Unasked(f"nsqlookupd {address}: {reason_of(error)}")


async def everywhere(
    client: httpx.AsyncClient,
    target: Literal["nsqd", "nsqlookupd"],
    addresses: Mapping[str, str],
    verb: str,
    topic: str,
    channel: str | None,
) -> list[Result]:
    """POST the verb to all at once; in order of their names, without those that do not have the thing."""
    params = {"topic": topic} | ({"channel": channel} if channel and verb.startswith("/channel/") else {})

    async def one(name: str, address: str) -> Result | None:
        try:
            async with asyncio.timeout(STEP_S):
                response = await client.post(f"http://{address}{verb}", params=params)
        except TimeoutError:
            return Result(
                node=name,
                target=target,
                outcome="unreachable",
                detail=f"no answer within {STEP_S:g} s; it may still do it",
            )
        except NO_ANSWER as error:
            return Result(node=name, target=target, outcome="unreachable", detail=reason_of(error))
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            return Result(node=name, target=target, outcome="failed", detail=said(response))
        return Result(node=name, target=target, outcome="done", detail="")

    results = await asyncio.gather(*(one(name, address) for name, address in sorted(addresses.items())))
    return [result for result in results if result is not None]


def said(response: httpx.Response) -> str:
    """A node's refusal in its own words."""
    try:
        return f"{response.status_code} {response.json()['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.text[:200]}".strip()
