"""Polls all nodes concurrently. A slow node does not delay the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from nsqcluster import Client, RequestFailed, reads
from nsqplatform.cluster import metrics
from nsqplatform.cluster.readings.clock import Clock
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqplatform.cluster.readings.stats import PolledStats, checked, parse_stats

PATIENCE_S = 3.0
"""A node that takes longer to answer is down. A node that takes longer than a poll's interval misses that poll."""
REMEMBERED_S = 600.0


class NodePoller:
    """Polls one node, with at most one request at a time. Keeps its last two readings and its last error."""

    def __init__(self, node: Node, clock: Clock | None = None, last: Reading | None = None) -> None:
        """``last``: the node's last reading, if it was polled before."""
        self.node = node
        self._last = last
        self._clock = clock or Clock()
        self.error: str | None = None
        self.latest: Reading | None = None
        self.earlier: Reading | None = None
        self.previous_boot: Reading | None = None
        self._request: asyncio.Task[None] | None = None

    @property
    def view(self) -> NodeView:
        return NodeView(
            node=self.node, error=self.error, latest=self.latest, earlier=self.earlier, previous_boot=self.previous_boot
        )

    @property
    def answered(self) -> bool:
        """Whether a request has succeeded or failed yet."""
        return self.latest is not None or self.error is not None

    @property
    def is_prompt(self) -> bool:
        """Whether a poll waits for this node: not while its response is overdue, nor after a failed request."""
        return self.error is None and (self._request is None or self._request.done())

    def ask(self, client: Client, *, with_clients: bool) -> asyncio.Task[None]:
        """Return the running request; start one if there is none. It raises nothing."""
        if self._request is None or self._request.done():
            self._request = asyncio.create_task(self._ask(client, with_clients))
        return self._request

    def cancel(self) -> None:
        if self._request is not None:
            self._request.cancel()

    async def ended(self) -> None:
        """Wait until a cancelled request has released its connection."""
        if self._request is not None:
            await asyncio.gather(self._request, return_exceptions=True)

    async def _ask(self, client: Client, with_clients: bool) -> None:
        try:
            stats = await self._stats(client, with_clients=with_clients)
        except RequestFailed as error:
            self.error = error.reason
        else:
            reading = Reading(stats, read_at=time.monotonic(), taken_at_s=self._clock.now())
            reading.precompute()
            if self._last is not None and stats.boot != self._last.stats.boot:
                self.previous_boot = await self._last_of(client, self._last)
            self.earlier = self.latest if self.error is None else None
            self.latest = self._last = reading
            self.error = None
        metrics.node_requests.labels("failed" if self.error else "answered").inc()

    async def _last_of(self, client: Client, latest: Reading) -> Reading:
        """The last figures of the process of ``latest``, after it has ended; ``latest`` if they are not known.

        Their time on the collector's clock is that of ``latest`` plus the time for which the process then ran.
        """
        began_ns = latest.stats.uptime_ns
        if began_ns is None:  # a Go node, or an older broker
            return latest
        try:
            kept = (await self._stats(client, with_clients=False, previous_boot=True)).previous_boot
            stats = parse_stats(bytes(kept))
        except RequestFailed:  # null is malformed, too
            return latest
        if stats.boot != latest.stats.boot or stats.uptime_ns is None:
            return latest
        went_on_s = max(0.0, (stats.uptime_ns - began_ns) / 1e9)
        taken_at_s = min(latest.taken_at_s + went_on_s, self._clock.now())
        return Reading(stats, read_at=latest.read_at + went_on_s, taken_at_s=taken_at_s)

    async def _stats(self, client: Client, *, with_clients: bool, previous_boot: bool = False) -> PolledStats:
        """Read ``/stats``. Raises RequestFailed."""
        return checked(
            await reads.node_stats(
                client,
                self.node.address,
                PolledStats,
                include_clients=with_clients,
                include_histograms=True,
                previous_boot=previous_boot,
                timeout_s=PATIENCE_S,
            )
        )


class Pollers:
    """The pollers of the current nodes."""

    def __init__(self, clock: Clock | None = None) -> None:
        """``clock`` returns the readings' times."""
        self._clock = clock or Clock()
        self._by_id: dict[str, NodePoller] = {}
        self._gone: dict[str, Reading] = {}
        """Last readings of removed nodes: a restarting node is briefly missing in the registries."""

    def set_nodes(self, nodes: Iterable[Node]) -> list[str]:
        """Add new nodes, remove missing ones, and return the ids of the latter."""
        wanted = {node.id: node for node in nodes}
        gone = [name for name in self._by_id if name not in wanted]
        now = time.monotonic()
        self._gone = {name: last for name, last in self._gone.items() if now - last.read_at < REMEMBERED_S}
        for name in gone:
            poller = self._by_id.pop(name)
            poller.cancel()
            if poller.latest is not None:
                self._gone[name] = poller.latest
        for name, node in wanted.items():
            if name in self._by_id:
                self._by_id[name].node = node
            else:
                self._by_id[name] = NodePoller(node, self._clock, self._gone.pop(name, None))
        return gone

    @property
    def all_answered(self) -> bool:
        """Whether there are nodes, and each has answered or failed."""
        return bool(self._by_id) and all(poller.answered for poller in self._by_id.values())

    @property
    def has_all(self) -> bool:
        """Whether each node has answered at least once, so that its topics are known."""
        return all(poller.latest is not None for poller in self._by_id.values())

    async def stop(self) -> None:
        """Cancel running requests, and wait for their end."""
        pollers = [*self._by_id.values()]
        self.set_nodes([])
        await asyncio.gather(*(poller.ended() for poller in pollers))

    async def poll(self, client: Client, *, with_clients: bool, within_s: float) -> list[NodeView]:
        """Poll every node, wait at most ``within_s``, and return the state of the nodes that have answered or
        failed so far.

        A node that does not answer is waited for once; later polls do not wait for it until it answers again.
        """
        prompt = {name for name, poller in self._by_id.items() if poller.is_prompt}
        requests = {name: poller.ask(client, with_clients=with_clients) for name, poller in self._by_id.items()}
        if prompt:
            await asyncio.wait([requests[name] for name in prompt], timeout=within_s)
        return [poller.view for poller in self._by_id.values() if poller.answered]
