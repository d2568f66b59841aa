"""Actions on batches of messages as kinds of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from django.core.exceptions import ValidationError

from nsqcluster import Cluster, ClusterUnreachable, NotInCluster
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.cluster.actions.topic_nodes import address_of_node, node_addresses
from nsqplatform.cluster.messages.actions import MessageAction, act, check_rights
from nsqplatform.jobs.kinds.kind import Kind, OneByOne, Outcome, Parameters, Performer, Subject, outcome_of_results

BATCH = 100
"""Number of messages of a subject. If its worker is killed, a copy or move repeats at most this number."""


class MessagesKind(Kind):
    """Requeues, finishes, copies or moves messages. A subject is a batch of messages of one node.

    Its parameters are ``messages``, their number, and ``target``, the topic to copy or move them to.
    """

    permission = Permission.ACT
    is_repeatable = True  # finished messages are not found again; a copy is made at least once

    def __init__(self, action: MessageAction) -> None:
        self.action = action
        self.name = f"{action} messages"
        # A killed worker may have published every batch that it was acting on; the next worker publishes these again.
        self.concurrency = 1 if action.publishes else 4

    def noun(self, subjects: Sequence[Subject]) -> str:
        if not all(subject.channel and subject.node and subject.messages for subject in subjects):
            raise ValidationError({"kind": f"{self.name} is requested with POST /api/v1/jobs/messages"})
        return "batch"

    def check(self, parameters: Parameters) -> None:
        if parameters.keys() != ({"messages", "target"} if self.action.publishes else {"messages"}):
            raise ValidationError({"kind": f"{self.name} is requested with POST /api/v1/jobs/messages"})

    def check_rights(self, user: User, topic: str, parameters: Parameters) -> None:
        check_rights(user, self.action, topic, _target(parameters))

    @asynccontextmanager
    async def acting(self, parameters: Parameters) -> AsyncIterator[Performer]:
        cluster: Cluster = await asyncio.to_thread(selectors.cluster)
        target = _target(parameters)
        async with node_client.client() as http:
            addresses: dict[str, dict[str, str]] = {}

            async def address_of(subject: Subject) -> str:
                if subject.topic not in addresses:
                    addresses[subject.topic] = await node_addresses(cluster, subject.topic)
                return address_of_node(cluster, addresses[subject.topic], subject.node)

            async def one(subject: Subject, may_be_done: bool) -> Outcome:
                assert subject.channel is not None
                ids = subject.messages.split("\n")
                try:
                    address = await address_of(subject)
                    done = await act(http, address, self.action, subject.topic, subject.channel, ids, target)
                except NotInCluster as error:
                    return Outcome("failed", str(error))
                except ClusterUnreachable as error:
                    return Outcome("failed", str(error), error.silent)
                return outcome_of_results([done.result(self.action, subject.node, target)])

            yield OneByOne(one, self.concurrency)

    def recorded(self, origin: Origin, outcomes: Sequence[tuple[Subject, Outcome]]) -> None:
        if any(outcome.results for _, outcome in outcomes):
            services.mark_changed()


def _target(parameters: Parameters) -> str | None:
    target = parameters.get("target")
    return None if target is None else str(target)
