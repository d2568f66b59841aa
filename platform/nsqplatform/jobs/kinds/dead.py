"""Actions on dead messages as kinds of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import get_args

from django.core.exceptions import ValidationError

from nsqcluster import Cluster, ClusterUnreachable, NotInCluster
from nsqcluster.messages import ChosenDead, DeathReason
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.cluster.actions.topic_nodes import address_of_node, node_addresses
from nsqplatform.cluster.messages.dead import Channel, DeadAction, DeadPart, act
from nsqplatform.jobs.kinds.kind import Kind, OneByOne, Outcome, Parameters, Performer, Subject, outcome_of_results

MAX_RATE = 1_000_000
"""brokerd's limit."""
CONCURRENCY = 8
"""Maximum number of requests of one job at once."""


class DeadKind(Kind):
    """Requeues or removes dead messages. A subject is a channel on one node, which takes one request.

    Its parameters are those of :func:`parameters_of`.
    """

    permission = Permission.ACT

    def __init__(self, action: DeadAction) -> None:
        self.action = action
        self.name = f"{action} dead messages"
        # Removed again, messages would be lost that died since and that nobody has counted.
        self.is_repeatable = action is DeadAction.REQUEUE

    def noun(self, subjects: Sequence[Subject]) -> str:
        if not all(subject.channel and subject.node for subject in subjects):
            raise ValidationError({"subjects": "each subject must be a channel and a node"})
        return "request"

    def check(self, parameters: Parameters) -> None:
        if not _is_sound(parameters):
            raise ValidationError({"kind": f"{self.name} is requested with POST /api/v1/jobs/dead"})

    @asynccontextmanager
    async def acting(self, parameters: Parameters) -> AsyncIterator[Performer]:
        cluster: Cluster = await asyncio.to_thread(selectors.cluster)
        chosen, rate = chosen_of(parameters)
        async with node_client.client() as http:

            async def one(subject: Subject, may_be_done: bool) -> Outcome:
                assert subject.channel is not None
                channel = Channel(subject.topic, subject.channel)
                try:
                    address = address_of_node(cluster, await node_addresses(cluster, subject.topic), subject.node)
                except NotInCluster as error:
                    return Outcome("failed", str(error))
                except ClusterUnreachable as error:
                    return Outcome("failed", str(error), error.silent)
                result = await act(http, address, self.action, channel, subject.node, chosen, rate)
                outcome = outcome_of_results([result])
                return outcome if outcome.message else outcome._replace(message=result["detail"])

            yield OneByOne(one, CONCURRENCY)

    def recorded(self, origin: Origin, outcomes: Sequence[tuple[Subject, Outcome]]) -> None:
        if any(outcome.results for _, outcome in outcomes):
            services.mark_changed()


def parameters_of(parts: Sequence[DeadPart], chosen: ChosenDead, rate: int) -> Parameters:
    """``messages`` is the number of chosen messages when the job was requested, at most so many if not ``exact``; a
    ``rate`` of 0 is at once."""
    return {
        "messages": sum(part["matching"] for part in parts),
        "exact": all(part["exact"] for part in parts),
        "reason": chosen.reason,
        "since": chosen.since,
        "rate": rate,
    }


def chosen_of(parameters: Parameters) -> tuple[ChosenDead, int]:
    """The chosen messages, and the rate."""
    return ChosenDead(parameters["reason"], parameters["since"]), parameters["rate"]  # type: ignore[arg-type,return-value]


def _is_sound(parameters: Parameters) -> bool:
    """Whether these could be of :func:`parameters_of`: the API of jobs accepts any."""
    if parameters.keys() != {"messages", "exact", "reason", "since", "rate"}:
        return False
    numbers = [parameters["messages"], parameters["rate"], 0 if parameters["since"] is None else parameters["since"]]
    rate = parameters["rate"]
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and type(rate) is int
        and rate <= MAX_RATE
        and type(parameters["exact"]) is bool
        and parameters["reason"] in (None, *get_args(DeathReason))
    )
