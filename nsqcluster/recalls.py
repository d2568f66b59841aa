"""Cancelling and deferring published messages, by their ids, on whichever node has them.

Only brokerd supports these requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec import Struct

from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.decoding import decode
from nsqcluster.errors import Refused, RequestFailed, detail_of
from nsqcluster.messages import IDS_IN_A_REQUEST
from nsqcluster.results import Result
from nsqcluster.survey import Failure
from nsqcluster.targets import find


class RecalledMessage(Struct, kw_only=True):
    """What became of a message on the node that has it. ``channels`` has the outcome in each channel, such as
    ``cancelled``; ``topic`` the outcome if the message waits in the topic itself."""

    id: str
    topic: str | None
    channels: dict[str, str]
    node: str = ""


class _Answer(Struct):
    messages: list[RecalledMessage]


@dataclass(kw_only=True)
class Recalled:
    """The messages that some node has, the ids that no node has, and the servers that failed. ``without`` has the nodes
    that know no such request, as Go's."""

    messages: list[RecalledMessage] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    without: list[str] = field(default_factory=list)


async def cancel_messages(cluster: Cluster, topic: str, ids: Sequence[str]) -> Recalled:
    """Cancel messages on every node that has the topic. Raises NotInCluster and ClusterUnreachable."""
    return await _recall(cluster, topic, ids, "/message/cancel", {})


async def defer_messages(cluster: Cluster, topic: str, ids: Sequence[str], delay: timedelta) -> Recalled:
    """Let messages be delivered after ``delay``. Raises NotInCluster and ClusterUnreachable."""
    return await _recall(cluster, topic, ids, "/message/defer", {"defer": str(delay // timedelta(milliseconds=1))})


async def _recall(cluster: Cluster, topic: str, ids: Sequence[str], verb: str, params: Mapping[str, str]) -> Recalled:
    done, ids = Recalled(), list(dict.fromkeys(ids))
    async with cluster.client() as http:
        targets = await find(http, cluster, topic)
        done.failures += [_failure(each) for each in targets.complaints if each["outcome"] != "absent"]
        found = await asyncio.gather(
            *(
                _on_node(http, address, verb, {"topic": topic, **params}, ids, cluster.step_s)
                for address in targets.nodes.values()
            )
        )
    for node, answer in zip(targets.nodes, found, strict=True):
        if answer is None:
            done.without.append(node)
        elif isinstance(answer, str):
            done.failures.append(Failure(node=node, target="nsqd", detail=answer))
        else:
            for message in answer:
                message.node = node
            done.messages += answer
    known = {message.id for message in done.messages}
    done.not_found += [each for each in ids if each not in known]
    return done


async def _on_node(
    http: Client, address: str, verb: str, params: Mapping[str, str], ids: Sequence[str], step_s: float
) -> list[RecalledMessage] | str | None:
    """The messages that a node has, or why it failed; None if it does not know the request."""
    found: list[RecalledMessage] = []
    try:
        for start in range(0, len(ids), IDS_IN_A_REQUEST):
            body = "\n".join(ids[start : start + IDS_IN_A_REQUEST]).encode()
            answer = await http.post(address, verb, params, body, timeout_s=step_s)
            found += decode(answer, _Answer, address).messages
    except RequestFailed as error:
        if isinstance(error, Refused) and error.is_unknown_name:  # the topic was deleted meanwhile
            return []
        return None if isinstance(error, Refused) and error.is_unknown_request else detail_of(error)
    return found


def _failure(result: Result) -> Failure:
    return Failure(node=result["node"], target=result["target"], detail=result["detail"])
