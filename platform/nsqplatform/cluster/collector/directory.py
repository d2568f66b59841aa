"""Discovers nodes and topics, from registries and configured addresses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nsqcluster import Client, RequestFailed, reads
from nsqcluster.discovery import nodes_of
from nsqcluster.listing import Listing, idle_topics, read_listing
from nsqplatform.cluster.readings.node import Node, node_of
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

TIMEOUT_S = 2.0
FORGET_AFTER_S = 300.0
"""Time for which a node stays in the snapshot after the registries have removed it."""
REGISTERS_WITHIN_S = 40.0
"""An nsqd notices at its next PING, which it sends every 15 s, that a registry has restarted. It then registers again,
at the latest with the PING after that."""


@dataclass(kw_only=True)
class Registry:
    """The last answer of a registry. It is kept while the registry does not answer; ``error`` then has the reason."""

    address: str
    listing: Listing = field(default_factory=Listing)
    error: str | None = "has not been queried yet"
    answers: bool | None = None
    """Whether it answered the last query; None before the first."""


class Directory:
    """Queries all registries and configured nodes concurrently, and keeps the last answer of each."""

    def __init__(self, *, lookupd: Sequence[str], nsqd: Sequence[str]) -> None:
        self.registries: list[Registry] = []
        self.set_registries(lookupd)
        self._given: dict[str, Node] = {address: Node(id=address, address=address) for address in nsqd}
        self._seen: dict[str, tuple[float, Node]] = {}

    def remember(self, nodes: Iterable[Node], *, now: Seconds) -> None:
        """Keep the nodes of the previous collector for REGISTERS_WITHIN_S: a registry that has also restarted does not
        list them yet. ``now``: monotonic, in seconds."""
        at = now - FORGET_AFTER_S + REGISTERS_WITHIN_S
        self._seen = {node.id: (at, node) for node in nodes} | self._seen

    def keep(self, nodes: Iterable[str], *, now: Seconds) -> None:
        """Do not forget these nodes, by id, although no registry lists them: a node that drains leaves all of them.
        ``now``: monotonic, in seconds."""
        for name in nodes:
            if name in self._seen:
                self._seen[name] = (now, self._seen[name][1])

    def listed_at(self, node: str) -> Seconds:
        """The monotonic time at which a registry last listed the node; 0 if none did."""
        return self._seen[node][0] if node in self._seen else 0.0

    @property
    def nodes(self) -> list[Node]:
        """All known nodes; a configured address takes precedence over the node's own."""
        nodes = {node.id: node for _, node in self._seen.values()}
        nodes.update({node.id: node for node in self._given.values()})
        return list(nodes.values())

    @property
    def registered(self) -> dict[str, list[str]]:
        """Topics for which a registry lists no node, with the channels that it lists."""
        return idle_topics(registry.listing for registry in self.registries)

    def set_registries(self, lookupd: Sequence[str]) -> None:
        """Set the registries; known ones keep their last answers."""
        known = {registry.address: registry for registry in self.registries}
        self.registries = [known.get(address) or Registry(address=address) for address in lookupd]

    @property
    def errors(self) -> dict[str, str | None]:
        """The last error of each registry by its address; None if it answered."""
        return {registry.address: registry.error for registry in self.registries}

    async def refresh(self, client: Client, *, now: Seconds) -> None:
        """Query all sources. ``now``: monotonic, in seconds. Raises nothing; a failing source keeps its last answer."""
        await asyncio.gather(
            *(self._ask_registry(client, registry) for registry in self.registries),
            self._ask_nodes(client),
        )
        # A node is described by the first listing that has it, so the registries that answered come first.
        by_answer = sorted(self.registries, key=lambda registry: not registry.answers)
        for name, node in nodes_of({each.address: each.listing.nodes for each in by_answer}).items():
            self._seen[name] = (now, node_of(node.producer))
        self._seen = {name: (at, node) for name, (at, node) in self._seen.items() if now - at <= FORGET_AFTER_S}

    async def _ask_registry(self, client: Client, registry: Registry) -> None:
        try:
            listing = await read_listing(client, registry.address, TIMEOUT_S, last=registry.listing)
        except RequestFailed as error:
            reason = error.reason
            if registry.answers is not False:
                logger.warning("registry does not answer", extra={"registry": registry.address, "error": reason})
            registry.error = reason
            registry.answers = False
            return
        if registry.answers is False:
            logger.info("registry answers again", extra={"registry": registry.address})
        registry.answers = True
        registry.error = None
        registry.listing = listing

    async def _ask_nodes(self, client: Client) -> None:
        """Read the configured nodes' names. A node that fails is polled by its address, and its row has the error."""
        infos = await reads.infos(client, self._given, TIMEOUT_S)
        for address, info in infos.found.items():
            self._given[address] = node_of(info.producer(address), address)
