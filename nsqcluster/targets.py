"""Targets: the nodes that an action on a topic goes to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster, Target
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import Refused, detail_of
from nsqcluster.pairs import pair_ids, second_members
from nsqcluster.producers import Producers
from nsqcluster.reads import Answers
from nsqcluster.results import NO_TOPIC, Result

FIND_S: Final = 1.5
"""Longest duration of discovery before an action, in seconds. However many nodes hang, an action takes at most
FIND_S + 2 · step_s; creating a channel takes at most FIND_S + 4 · step_s."""


class NotInCluster(Exception):
    """All servers answered, and none has the topic or channel. ``what`` says which of the two is missing."""

    def __init__(self, text: str, what: Literal["topic", "channel"] = "topic") -> None:
        super().__init__(text)
        self.what = what


class ClusterUnreachable(Exception):
    """The nodes of the topic are unknown, because servers failed. ``target`` is the kind of these servers, ``silent``
    their results; the text contains the reasons."""

    def __init__(self, target: Target, silent: Sequence[Result]) -> None:
        super().__init__("; ".join(f"{each['target']} {each['node']}: {each['detail']}" for each in silent))
        self.target = target
        self.silent = silent


@dataclass(kw_only=True)
class Targets:
    """The nodes that an action goes to, according to the servers that answered."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node id to address: the holders, the given nodes that did not answer, and nodes that had the topic recently."""
    holders: set[str] = field(default_factory=set)
    """Ids of the nodes that have the topic, according to a registry or to themselves."""
    is_registered: bool = False
    """Whether some registry knows the topic."""
    complaints: list[Result] = field(default_factory=list)
    """Registries that did not answer (unreachable) or do not know the topic (absent)."""

    @classmethod
    def of(cls, cluster: Cluster, topic: str, lookups: Answers[Producers], has_topic: Answers[bool]) -> Self:
        """The targets according to each registry's answer to the lookup, and to each given node's answer whether it has
        the topic. Raises the same as ``find``."""
        given = cluster.given
        targets, silent = cls(is_registered=bool(lookups.found)), list[Result]()
        for address, error in lookups.failures.items():
            if isinstance(error, Refused) and error.is_unknown_name:
                outcome, detail = NO_TOPIC
                targets.complaints.append(Result(node=address, target="nsqlookupd", outcome=outcome, detail=detail))
            else:
                silent.append(Result(node=address, target="nsqlookupd", outcome="unreachable", detail=detail_of(error)))
                targets.complaints.append(silent[-1])
        for name, node in nodes_of(lookups.found, cluster.address).items():
            targets.holders.add(name)
            targets.nodes[name] = node.address
        for name, has in has_topic.found.items():
            if has:
                targets.holders.add(name)
                targets.nodes[name] = given[name]
        for name, error in has_topic.failures.items():
            silent.append(Result(node=name, target="nsqd", outcome="unreachable", detail=detail_of(error)))
            targets.nodes[name] = given[name]
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


async def find(http: Client, cluster: Cluster, topic: str) -> Targets:
    """Find the nodes that have the topic: look it up in the registries and read it from each given node.

    Raises ClusterUnreachable if no server answered, or if a registry did not answer and neither the topic nor a node to
    act on was found; NotInCluster if all answered and none knows the topic.
    """
    lookups, stats, pairs = await asyncio.gather(
        reads.lookups(http, cluster.lookupd, topic, timeout_s=FIND_S),
        reads.stats(http, cluster.given, topic=topic, timeout_s=FIND_S),
        pair_ids(http, cluster.given, FIND_S),
    )
    registered = {name: node.address for name, node in nodes_of(lookups.found, cluster.address).items()}
    seconds = await second_members(http, pairs, registered, FIND_S)
    # Old versions return all topics, whatever the parameter.
    has_topic = {
        name: any(each.topic_name == topic for each in answer.topics)
        for name, answer in stats.found.items()
        if name not in seconds
    }
    return Targets.of(cluster, topic, lookups, reads.Answers(found=has_topic, failures=stats.failures))
