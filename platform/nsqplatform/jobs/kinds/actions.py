"""Actions on topics and channels as kinds of jobs."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from django.core.exceptions import ValidationError
from redis.exceptions import RedisError

from nsqcluster import Action, Bulk, Client, Cluster, ClusterUnreachable, Name, NotInCluster, reads
from nsqcluster.bulk import Results
from nsqcluster.discovery import nodes_of
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.execution import execute_all
from nsqplatform.cluster.actions.notification import Origin, notify, notify_all
from nsqplatform.cluster.actions.topic_nodes import address_of_node
from nsqplatform.jobs.kinds.kind import Kind, Outcome, Parameters, Performer, Subject, outcome_of_results
from nsqplatform.redis_errors import redis_failure

SERVER_CONCURRENCY = 8
"""Maximum number of requests of one job to one node or registry at once."""
FIRST_BATCH = 10
"""Number of subjects of a call until it is known whether the servers act on many in one request."""
BATCH = 250
CALLS = 2
"""Number of calls at once: while the outcomes of one are stored, the servers act on the other."""


class ClusterKind(Kind):
    """An action on the cluster: each subject is performed on the nodes that have it then."""

    permission = Permission.ACT
    removes = False
    """Whether the subject does not exist afterwards."""

    @asynccontextmanager
    async def acting(self, parameters: Parameters) -> AsyncIterator[Performer]:
        cluster = await asyncio.to_thread(selectors.cluster)
        async with cluster.client(server_concurrency=SERVER_CONCURRENCY) as http:
            yield ClusterPerformer(self, cluster, http)

    def recorded(self, origin: Origin, outcomes: Sequence[tuple[Subject, Outcome]]) -> None:
        acted = [subject for subject, outcome in outcomes if outcome.results]
        if acted:
            services.mark_changed()
        for subject in acted:
            self.notify(origin, subject)

    def notify(self, origin: Origin, subject: Subject) -> None:
        """Notify ``--notification-http-endpoint``."""
        notify_all(origin, self.name, subject.topic, subject.channel)

    @abstractmethod
    async def act(self, bulk: Bulk, cluster: Cluster, subjects: Sequence[Subject]) -> list[Results]:
        """Perform the action, and return the results of each subject in the same order. Raises RedisError, with nothing
        changed."""


class ClusterPerformer(Performer):
    """Acts on many subjects in one call, unless some server of the cluster needs a request for each."""

    def __init__(self, kind: ClusterKind, cluster: Cluster, http: Client) -> None:
        self._kind, self._cluster, self._http = kind, cluster, http
        self._bulk = Bulk(http)
        self._set(FIRST_BATCH, CALLS)

    def _set(self, batch: int, concurrency: int) -> None:
        self.batch, self.concurrency = batch, concurrency

    async def act(self, subjects: Sequence[Subject], may_be_done: bool) -> Sequence[Outcome]:
        is_repeated = may_be_done and self._kind.removes
        cluster = self._cluster
        if is_repeated:
            cluster = await with_every_node(self._http, cluster, [subject.topic for subject in subjects])
        try:
            results = await self._kind.act(self._bulk, cluster, subjects)
        except RedisError as error:
            return [Outcome("failed", redis_failure(error))] * len(subjects)
        if self._bulk.is_one_by_one:
            self._set(1, Performer.concurrency)
        else:
            self._set(BATCH, CALLS)
        return [_outcome(each, is_repeated) for each in results]


def _outcome(results: Results, is_repeated: bool) -> Outcome:
    """The outcome of one subject; ``is_repeated``: it may have been removed already."""
    if isinstance(results, NotInCluster):
        return Outcome("done") if is_repeated else Outcome("failed", str(results))
    if isinstance(results, ClusterUnreachable):
        return Outcome("failed", str(results), results.silent)
    return outcome_of_results(results)


async def with_every_node(http: Client, cluster: Cluster, topics: Iterable[str]) -> Cluster:
    """The cluster, in which every node counts as one that had the topics recently.

    A killed worker may have deleted a topic from the registries, but not from all of its nodes. The registries then no
    longer list these nodes for the topic.
    """
    registered = await reads.registered_nodes(http, cluster.lookupd)
    nodes = sorted({*cluster.addresses, *nodes_of(registered.found, cluster.address)})
    return replace(cluster, seen={**cluster.seen, **dict.fromkeys(topics, nodes)})


class TopicOrChannelAction(ClusterKind):
    """One of nsqd's own actions on topics or on channels."""

    def __init__(self, action: Action, *, is_repeatable: bool) -> None:
        self.action = action
        self.name = action.value
        self.is_repeatable = is_repeatable
        self.removes = action is Action.DELETE

    def noun(self, subjects: Sequence[Subject]) -> str:
        if any(subject.node for subject in subjects):
            raise ValidationError({"subjects": f"{self.name} is for all nodes of a topic or channel"})
        if len({subject.channel is None for subject in subjects}) > 1:
            raise ValidationError({"subjects": "either topics or channels, not both"})
        return "topic" if subjects[0].channel is None else "channel"

    async def act(self, bulk: Bulk, cluster: Cluster, subjects: Sequence[Subject]) -> list[Results]:
        names = [Name(subject.topic, subject.channel) for subject in subjects]
        found = await execute_all(bulk, cluster, self.action, names)
        return [found[name] for name in names]


class Tombstone(ClusterKind):
    """Removes topics from one node each."""

    name = "tombstone"
    is_repeatable = True
    removes = True

    def noun(self, subjects: Sequence[Subject]) -> str:
        if any(subject.channel is not None or not subject.node for subject in subjects):
            raise ValidationError({"subjects": "each subject must be a topic and a node"})
        return "topic"

    async def act(self, bulk: Bulk, cluster: Cluster, subjects: Sequence[Subject]) -> list[Results]:
        of_node: defaultdict[str, list[str]] = defaultdict(list)
        for subject in subjects:
            of_node[subject.node].append(subject.topic)
        nodes = list(of_node)
        each = await asyncio.gather(*(self._on_node(bulk, cluster, node, of_node[node]) for node in nodes))
        found = dict(zip(nodes, each, strict=True))
        return [found[subject.node][subject.topic] for subject in subjects]

    @staticmethod
    async def _on_node(bulk: Bulk, cluster: Cluster, node: str, topics: Sequence[str]) -> dict[str, Results]:
        try:
            address_of_node(cluster, {}, node)  # the platform sends no requests to other addresses
        except NotInCluster as error:
            return dict.fromkeys(topics, error)
        done = await bulk.tombstone(cluster, node, topics)
        return {
            topic: NotInCluster(f"node {node} does not have topic {topic}")
            if all(each["outcome"] == "absent" for each in results)
            else results
            for topic, results in done.items()
        }

    def notify(self, origin: Origin, subject: Subject) -> None:
        notify(origin, "tombstone_topic_producer", subject.topic, node=subject.node)
