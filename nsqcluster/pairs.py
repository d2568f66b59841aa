"""Given nodes of which two are the members of one mirrored pair, which is one node."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nsqcluster import reads
from nsqcluster.client import Client


class _Pair(Struct):
    pair: str


class _Mirror(Struct):
    mirror: _Pair | None


async def distinct(http: Client, nodes: Mapping[str, str], timeout_s: float | None = None) -> dict[str, str]:
    """Return the nodes without the second member of each pair: a follower passes requests on to its primary.

    ``nodes`` is the address of each node by its id. Nodes that do not answer, and Go nodes, are returned too.
    """
    if len(nodes) < 2:
        return dict(nodes)
    answers = await reads.gather(
        {name: http.get(address, "/mirror", _Mirror, timeout_s=timeout_s) for name, address in nodes.items()}
    )
    pairs = {name: answer.mirror.pair for name, answer in answers.found.items() if answer.mirror is not None}
    first = {pair: name for name, pair in reversed(pairs.items())}
    return {name: address for name, address in nodes.items() if name not in pairs or first[pairs[name]] == name}
