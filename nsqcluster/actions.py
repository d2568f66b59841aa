"""Actions on a topic or channel on every node that has it, with a result from each server.

Except for rewinding, the actions use only requests that Go's nsqd and nsqlookupd support, so a cluster may contain both
implementations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.decoding import decode
from nsqcluster.errors import Malformed, Refused, RequestFailed, detail_of
from nsqcluster.posts import post_everywhere
from nsqcluster.results import NO_TOPIC, Result, merged
from nsqcluster.targets import ClusterUnreachable, NotInCluster, Targets, find
from nsqwire.counted import counted

REWIND: Final = "/channel/rewind"
NO_REWIND: Final = "this nsqd cannot rewind (Go's keeps nothing that was finished)"
NO_PREVIEW: Final = "this brokerd rewinds, but is too old to count before"


class Action(StrEnum):
    """An action on a topic or channel."""

    PAUSE = "pause"
    UNPAUSE = "unpause"
    EMPTY = "empty"
    DELETE = "delete"
    CREATE = "create"


async def perform(cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    """Perform the action on every node that has the topic now, and return the result of each.

    The nodes are discovered first. A topic or channel is deleted from the registries before the nodes, so that
    consumers do not connect to a node that is about to delete it. The results contain a registry that did not answer,
    because the action has left out nodes that only this registry knows. Raises NotInCluster and ClusterUnreachable;
    nothing has changed then.
    """
    async with cluster.client() as http:
        return await _perform(http, cluster, action, topic, channel)


async def _perform(http: Client, cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    if action is Action.CREATE:
        return await _create(http, cluster, topic, channel)
    targets = await find(http, cluster, topic)
    results = targets.complaints
    if action is Action.DELETE:
        results = await _on_registries(http, cluster, [verb_of(action, channel)], topic, channel, results)
    done = await _on_nodes(http, cluster, targets, verb_of(action, channel), topic, channel)
    return somewhere(results + done, topic, channel)


async def perform_on_node(http: Client, address: str, action: Action, topic: str, channel: str | None) -> None:
    """Perform the action on one node, and on no registry. Raises RequestFailed."""
    verb = verb_of(action, channel)
    await http.post(address, verb, params_of(topic, channel, verb))


async def _create(http: Client, cluster: Cluster, topic: str, channel: str | None) -> list[Result]:
    """Create a topic in the registries and, as nsqadmin does, a channel also on the nodes of its topic.

    A topic is also created on the nodes given by address. Without registries, these store topic and channel.
    """
    # nsqlookupd does not create the topic of a new channel.
    verbs = ["/topic/create", "/channel/create"] if channel else ["/topic/create"]
    results = await _on_registries(http, cluster, verbs, topic, channel)
    if results and all(each["outcome"] == "unreachable" for each in results):
        raise ClusterUnreachable("nsqlookupd", results)
    if channel is None:
        return results + await post_everywhere(http, "nsqd", cluster.given, verbs[0], {"topic": topic}, cluster.step_s)
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
        before = await post_everywhere(http, "nsqd", nodes, verbs[0], {"topic": topic}, cluster.step_s)
    done = await _on_nodes(http, cluster, replace(targets, nodes=nodes), verbs[1], topic, channel)
    return somewhere(results + merged(before, done), topic, channel)


def verb_of(action: Action, channel: str | None) -> str:
    """The path of an action."""
    return f"/{_kind(channel)}/{action}"


def _kind(channel: str | None) -> Literal["topic", "channel"]:
    return "channel" if channel else "topic"


async def _on_registries(
    http: Client,
    cluster: Cluster,
    verbs: Iterable[str],
    topic: str,
    channel: str | None,
    before: Iterable[Result] = (),
) -> list[Result]:
    """POST the verbs to all registries, one verb after the other, and merge the results with ``before``."""
    names = {name: name for name in cluster.lookupd}
    results = list(before)
    for verb in verbs:
        found = await post_everywhere(http, "nsqlookupd", names, verb, params_of(topic, channel, verb), cluster.step_s)
        results = merged(results, found)
    return results


async def _on_nodes(
    http: Client, cluster: Cluster, targets: Targets, verb: str, topic: str, channel: str | None
) -> list[Result]:
    """POST the verb to the targets."""
    done = await post_everywhere(http, "nsqd", targets.nodes, verb, params_of(topic, channel, verb), cluster.step_s)
    return of_holders(done, targets)


def of_holders(results: Iterable[Result], targets: Targets) -> list[Result]:
    """Leave out the results of nodes that are not holders and do not know the topic."""
    return [
        each for each in results if each["node"] in targets.holders or (each["outcome"], each["detail"]) != NO_TOPIC
    ]


def somewhere(results: list[Result], topic: str, channel: str | None) -> list[Result]:
    """Return the results. Raises NotInCluster if all are ``absent``."""
    if any(each["outcome"] != "absent" for each in results):
        return results
    what = f"channel {channel} of topic {topic}" if channel else f"topic {topic}"
    raise NotInCluster(f"no node of the cluster has {what}", _kind(channel))


async def rewind(cluster: Cluster, topic: str, channel: str, since: str) -> list[Result]:
    """Redeliver, on every node, the messages that the channel received since then (format: :mod:`nsqdaemon.moments`).

    A result's detail is the number of messages. The result of Go's nsqd is a failure, because it keeps no finished
    messages. Raises the same as ``perform``.
    """
    params = {"topic": topic, "channel": channel, "since": since}
    async with cluster.client() as http:
        targets = await find(http, cluster, topic)
        done = await post_everywhere(
            http, "nsqd", targets.nodes, REWIND, params, cluster.step_s, describe=_rewound, unknown=NO_REWIND
        )
    return somewhere(targets.complaints + of_holders(done, targets), topic, channel)


async def preview_rewind(cluster: Cluster, topic: str, channel: str, since: str) -> dict[str, Rewound | str]:
    """Return, for each node, what it would redeliver if the channel were rewound, or the reason why it is unknown.

    Nothing is changed. Registries that do not answer are included. Raises the same as ``perform``.
    """
    params = {"topic": topic, "channel": channel, "since": since}
    async with cluster.client() as http:
        targets = await find(http, cluster, topic)
        answers = await reads.gather(
            {
                name: http.get(address, REWIND, Rewound, params, timeout_s=cluster.step_s)
                for name, address in sorted(targets.nodes.items())
            }
        )
    known: dict[str, Rewound | str] = {
        each["node"]: each["detail"] for each in targets.complaints if each["outcome"] == "unreachable"
    }
    known |= answers.found
    known |= {name: _no_preview(error) for name, error in answers.errors.items()}
    if not known:
        raise NotInCluster(f"no node of the cluster has channel {channel} of topic {topic}", "channel")
    return known


def _no_preview(error: RequestFailed) -> str:
    detail = detail_of(error)
    if isinstance(error, Refused) and error.status == 405:
        return NO_PREVIEW
    return NO_REWIND if isinstance(error, Refused) and error.is_unknown_request else detail


class Rewound(Struct):
    """Response to ``/channel/rewind``; ``oldest_timestamp`` is in Unix nanoseconds."""

    messages: int
    oldest_timestamp: int | None
    complete: bool


def _rewound(answer: bytearray) -> str:
    """Describe a node's response, for the result's detail."""
    try:
        rewound = decode(answer, Rewound, REWIND)
        number = f"{counted(rewound.messages, 'message')}"
        if not rewound.messages:
            return number
        oldest = datetime.fromtimestamp((rewound.oldest_timestamp or 0) // 1_000_000_000, UTC)
    except (Malformed, ValueError, OverflowError, OSError):
        return "it did not say how many messages"
    since = f"{number}, the oldest of {oldest:%Y-%m-%dT%H:%M:%SZ}"
    return since if rewound.complete else f"{since}; earlier messages are no longer stored"


async def tombstone(cluster: Cluster, topic: str, node: str) -> list[Result]:
    """Remove a topic from one node, as nsqadmin does.

    Tombstone it in every registry, so that no consumer of the topic connects to the node again, and delete it on the
    node.
    """
    async with cluster.client() as http:
        return await _tombstone(http, cluster, topic, node)


async def _tombstone(http: Client, cluster: Cluster, topic: str, node: str) -> list[Result]:
    results = await post_everywhere(
        http,
        "nsqlookupd",
        {name: name for name in cluster.lookupd},
        "/topic/tombstone",
        {"topic": topic, "node": announced(node)},
        cluster.step_s,
    )
    where = {node: cluster.address(node)}
    return results + await post_everywhere(http, "nsqd", where, "/topic/delete", {"topic": topic}, cluster.step_s)


def announced(node: str) -> str:
    """A node's id as nsqlookupd compares it: its IPv6 addresses have no brackets."""
    host, _, port = node.rpartition(":")
    return f"{host.strip('[]')}:{port}"


def params_of(topic: str, channel: str | None, verb: str) -> dict[str, str]:
    """The parameters of a request with this path."""
    return {"topic": topic} | ({"channel": channel} if channel and verb.startswith("/channel/") else {})
