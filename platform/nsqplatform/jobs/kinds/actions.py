"""Actions on topics and channels as kinds of jobs."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from django.core.exceptions import ValidationError
from redis.exceptions import RedisError

from nsqcluster import Action, Client, Cluster, ClusterUnreachable, NotInCluster, Result, reads, tombstone
from nsqcluster.discovery import nodes_of
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.execution import execute
from nsqplatform.cluster.actions.notification import Origin, notify, notify_all
from nsqplatform.cluster.actions.topic_nodes import address_of_node
from nsqplatform.jobs.kinds.kind import Kind, Outcome, Parameters, Perform, Subject, outcome_of_results
from nsqplatform.redis_errors import redis_failure

SERVER_CONCURRENCY = 8
"""Maximum number of requests of one job to one node or registry at once."""


class ClusterKind(Kind):
    """An action on the cluster: each subject is performed on the nodes that have it then."""

    permission = Permission.ACT
    removes = False
    """Whether the subject does not exist afterwards."""

    @asynccontextmanager
    async def acting(self, parameters: Parameters) -> AsyncIterator[Perform]:
        cluster = await asyncio.to_thread(selectors.cluster)
        async with cluster.client(server_concurrency=SERVER_CONCURRENCY) as http:

            async def one(subject: Subject, may_be_done: bool) -> Outcome:
                known = cluster
                try:
                    if may_be_done and self.removes:
                        known = await with_every_node(http, cluster, subject.topic)
                    return outcome_of_results(await self.act(http, known, subject))
                except NotInCluster as error:
                    if may_be_done and self.removes:
                        return Outcome("done")
                    return Outcome("failed", str(error))
                except ClusterUnreachable as error:
                    return Outcome("failed", str(error), error.silent)
                except RedisError as error:
                    return Outcome("failed", redis_failure(error))

            yield one

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
    async def act(self, http: Client, cluster: Cluster, subject: Subject) -> list[Result]:
        """Perform the action. Raises NotInCluster and ClusterUnreachable, having changed nothing."""


async def with_every_node(http: Client, cluster: Cluster, topic: str) -> Cluster:
    """The cluster, in which every node counts as one that had the topic recently.

    A killed worker may have deleted the topic from the registries, but not from all of its nodes. The registries then
    no longer list these nodes for the topic.
    """
    registered = await reads.registered_nodes(http, cluster.lookupd)
    nodes = {*cluster.addresses, *nodes_of(registered.found, cluster.address)}
    return replace(cluster, seen={**cluster.seen, topic: sorted(nodes)})


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

    async def act(self, http: Client, cluster: Cluster, subject: Subject) -> list[Result]:
        return await execute(cluster, self.action, subject.topic, subject.channel, http=http)


class Tombstone(ClusterKind):
    """Removes topics from one node each."""

    name = "tombstone"
    is_repeatable = True
    removes = True

    def noun(self, subjects: Sequence[Subject]) -> str:
        if any(subject.channel is not None or not subject.node for subject in subjects):
            raise ValidationError({"subjects": "each subject must be a topic and a node"})
        return "topic"

    async def act(self, http: Client, cluster: Cluster, subject: Subject) -> list[Result]:
        address_of_node(cluster, {}, subject.node)  # the platform sends no requests to other addresses
        results = await tombstone(cluster, subject.topic, subject.node, http=http)
        if all(each["outcome"] == "absent" for each in results):
            raise NotInCluster(f"node {subject.node} does not have topic {subject.topic}")
        return results

    def notify(self, origin: Origin, subject: Subject) -> None:
        notify(origin, "tombstone_topic_producer", subject.topic, node=subject.node)
