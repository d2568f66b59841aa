"""Asking the nodes for their figures, all at once, none of them able to hold up the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import httpx

from cluster.directory import NO_ANSWER, reason_of
from cluster.node import Node
from cluster.snapshot import NodeView, Reading
from cluster.stats import parse_stats

PATIENCE_S = 3.0
"""A node that takes longer to answer is down. One that takes longer than a beat just misses that beat."""


class NodePoller:
    """One node: at most one request under way, the last two readings, and what went wrong last."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.error: str | None = None
        self.latest: Reading | None = None
        self.earlier: Reading | None = None
        self._request: asyncio.Task[None] | None = None

    @property
    def view(self) -> NodeView:
        return NodeView(node=self.node, error=self.error, latest=self.latest, earlier=self.earlier)

    @property
    def answered(self) -> bool:
        """Whether it has said, or failed to say, anything yet."""
        return self.latest is not None or self.error is not None

    def ask(self, client: httpx.AsyncClient, *, with_clients: bool) -> asyncio.Task[None]:
        """Return the request under way, starting one if there is none. It raises nothing."""
        if self._request is None or self._request.done():
            self._request = asyncio.create_task(self._ask(client, with_clients))
        return self._request

    def cancel(self) -> None:
        if self._request is not None:
            self._request.cancel()

    async def _ask(self, client: httpx.AsyncClient, with_clients: bool) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                response = await client.get(
                    f"http://{self.node.address}/stats",
                    params={
                        "format": "json",
                        "include_histograms": "true",
                        "include_clients": "true" if with_clients else "false",
                        "include_mem": "false",
                    },
                    timeout=PATIENCE_S,
                )
            response.raise_for_status()
            stats = parse_stats(response.content)
        except TimeoutError:
            self.error = f"no answer within {PATIENCE_S:g} s"
        except NO_ANSWER as error:
            self.error = reason_of(error)
        else:
            self.earlier = self.latest if self.error is None else None
            self.latest = Reading(stats, read_at=time.monotonic(), taken_at=time.time())
            self.error = None


class Pollers:
    """The pollers of the nodes there are now."""

    def __init__(self) -> None:
        self._by_id: dict[str, NodePoller] = {}

    def follow(self, nodes: Iterable[Node]) -> list[str]:
        """Take up new nodes, drop those that are gone, and return the ids of the latter."""
        wanted = {node.id: node for node in nodes}
        gone = [name for name in self._by_id if name not in wanted]
        for name in gone:
            self._by_id.pop(name).cancel()
        for name, node in wanted.items():
            if name in self._by_id:
                self._by_id[name].node = node
            else:
                self._by_id[name] = NodePoller(node)
        return gone

    async def beat(self, client: httpx.AsyncClient, *, with_clients: bool, within: float) -> list[NodeView]:
        """Ask every node, wait ``within`` seconds at most, and return what is known then."""
        requests = [poller.ask(client, with_clients=with_clients) for poller in self._by_id.values()]
        if requests:
            await asyncio.wait(requests, timeout=within)
        return [poller.view for poller in self._by_id.values() if poller.answered]
