"""Nodes of which two are the members of one mirrored pair, which is one node: a follower passes requests on."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nsqcluster import reads
from nsqcluster.client import Client


class _Pair(Struct):
    pair: str


class _Mirror(Struct):
    mirror: _Pair | None


async def pair_ids(http: Client, nodes: Mapping[str, str], timeout_s: float | None = None) -> dict[str, str]:
    """Return the pair of each node that is mirrored and answers. ``nodes`` is the address of each node by its id."""
    answers = await reads.gather(
        {name: http.get(address, "/mirror", _Mirror, timeout_s=timeout_s) for name, address in nodes.items()}
    )
    return {name: answer.mirror.pair for name, answer in answers.found.items() if answer.mirror is not None}


async def second_members(
    http: Client,
    pairs: Mapping[str, str],
    registered: Mapping[str, str],
    timeout_s: float | None = None,
) -> dict[str, str]:
    """Return the given nodes whose pair another node represents, each with that node's id.

    ``pairs`` are the ``pair_ids`` of the given nodes, and ``registered`` the addresses of nodes that registries list. A
    registered node represents its pair, because only the member that leads registers; otherwise the first given one.
    """
    if not pairs:
        return {}
    others = {name: address for name, address in registered.items() if name not in pairs}
    of_registered = {name: pairs[name] for name in registered if name in pairs}
    of_registered |= await pair_ids(http, others, timeout_s) if others else {}
    first = {pair: name for name, pair in reversed([*of_registered.items(), *pairs.items()])}
    return {name: first[pair] for name, pair in pairs.items() if name not in registered and first[pair] != name}


async def distinct(http: Client, nodes: Mapping[str, str], timeout_s: float | None = None) -> dict[str, str]:
    """Return the nodes without the second member of each pair. Nodes that do not answer, and Go nodes, are returned.

    ``nodes`` is the address of each node by its id.
    """
    if len(nodes) < 2:
        return dict(nodes)
    seconds = await second_members(http, await pair_ids(http, nodes, timeout_s), {})
    return {name: address for name, address in nodes.items() if name not in seconds}
