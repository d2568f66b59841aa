"""Handing over a mirrored node: its follower leads, and the member that led follows."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.decoding import decode
from nsqcluster.errors import Malformed, RequestFailed
from nsqcluster.posts import post_everywhere
from nsqcluster.results import Result
from nsqcluster.stats import MirrorStats
from nsqwire.units import Seconds

NO_MIRROR: Final = "a Go node has no mirror"
REFUSALS: Final = {
    "400 NOT_MIRRORED": "the node has no mirror",
    "400 NO_FOLLOWER_IN_SYNC": "no follower is in sync, so no other member may lead",
    "503 NO_PRIMARY": "no member of the pair leads now",
}
"""What the answers of brokerd mean."""
CONFIRM_S: Final = 30.0
CHECK_S: Final = 0.25


class _Begun(Struct):
    """``to`` is the member that is to lead; ``epoch`` is the number of the term that ends."""

    to: str
    epoch: int


class _Mirror(Struct):
    mirror: MirrorStats | None


async def hand_over(cluster: Cluster, node: str, *, confirm_s: Seconds = CONFIRM_S) -> list[Result]:
    """Let the follower of the node with this id lead. The detail of its result has the member and its term.

    It fails if no follower is in sync. It waits for up to ``confirm_s`` until a member leads the next term and answers
    at the node's address, where the old primary passes requests on to the new one. Without such an answer, the detail
    says so.
    """
    begun: list[_Begun] = []

    def describe(answer: bytearray) -> str:
        try:
            begun.append(decode(answer, _Begun, "/mirror/handover"))
        except Malformed:
            return "it did not say which member is to lead"
        return ""

    address = cluster.address(node)
    async with cluster.client() as http:
        (result,) = await post_everywhere(
            http,
            "nsqd",
            {node: address},
            "/mirror/handover",
            {},
            cluster.step_s,
            describe=describe,
            unknown=NO_MIRROR,
        )
        result["detail"] = REFUSALS.get(result["detail"], result["detail"])
        if begun:
            await _confirm(http, address, begun[0], confirm_s, result)
    return [result]


async def _confirm(http: Client, address: str, begun: _Begun, within_s: Seconds, result: Result) -> None:
    """Complete the result by who leads the next term."""
    found = await _next_term(http, address, begun.epoch, within_s)
    if found is None:
        result["detail"] = f"member {begun.to} is to lead, and nobody answers for it yet"
    elif found.member == begun.to:
        result["detail"] = f"member {found.member} leads term {found.epoch}"
    else:
        result["outcome"] = "failed"
        result["detail"] = f"member {begun.to} did not take over: member {found.member} leads term {found.epoch}"


async def _next_term(http: Client, address: str, epoch: int, within_s: Seconds) -> MirrorStats | None:
    """The pair in a later term than ``epoch``; None if nobody leads one within this time."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    found = (await http.get(address, "/mirror", _Mirror)).mirror
                except RequestFailed:
                    found = None
                if found is not None and found.epoch > epoch:
                    return found
                await asyncio.sleep(CHECK_S)
    except TimeoutError:
        return None
