"""Asking the nodes for their figures, all at once, none of them able to hold up the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from nsqcluster import Client, RequestFailed
from nsqcluster.reads import stats_params
from nsqplatform.cluster import metrics
from nsqplatform.cluster.collector.clock import Clock
from nsqplatform.cluster.collector.node import Node
from nsqplatform.cluster.collector.reading import NodeView, Reading
from nsqplatform.cluster.collector.stats import PolledStats, parse_stats

PATIENCE_S = 3.0
"""A node that takes longer to answer is down. One that takes longer than a beat just misses that beat."""
REMEMBERED_S = 600.0


class NodePoller:
    """One node: at most one request under way, the last two readings, and what went wrong last."""

    def __init__(self, node: Node, clock: Clock | None = None, last: Reading | None = None) -> None:
        """``last`` is the last reading of it, if it was polled before."""
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
        """Whether it has said, or failed to say, anything yet."""
        return self.latest is not None or self.error is not None

    @property
    def is_prompt(self) -> bool:
        """Whether a beat waits for its answer: not while one is overdue, nor after it failed to come."""
        return self.error is None and (self._request is None or self._request.done())

    def ask(self, client: Client, *, with_clients: bool) -> asyncio.Task[None]:
        """Return the request under way, starting one if there is none. It raises nothing."""
        if self._request is None or self._request.done():
            self._request = asyncio.create_task(self._ask(client, with_clients))
        return self._request

    def cancel(self) -> None:
        if self._request is not None:
            self._request.cancel()

    async def ended(self) -> None:
        """Wait until what was cancelled has let go of its connection."""
        if self._request is not None:
            await asyncio.gather(self._request, return_exceptions=True)

    async def _ask(self, client: Client, with_clients: bool) -> None:
        try:
            stats = await self._stats(client, with_clients=with_clients)
        except RequestFailed as error:
            self.error = error.reason
        else:
            reading = Reading(stats, read_at=time.monotonic(), taken_at=self._clock.now())
            reading.work_out()
            if self._last is not None and stats.boot != self._last.stats.boot:
                self.previous_boot = await self._last_of(client, self._last)
            self.earlier = self.latest if self.error is None else None
            self.latest = self._last = reading
            self.error = None
        metrics.polls.labels("failed" if self.error else "answered").inc()

    async def _last_of(self, client: Client, latest: Reading) -> Reading:
        """The figures that the process of ``latest`` ended with; ``latest`` if they are not known.

        They are placed on the collector's clock by the time that the process went on after ``latest``.
        """
        began_ns = latest.stats.uptime_ns
        if began_ns is None:  # a Go node's, or an older broker's
            return latest
        try:
            kept = (await self._stats(client, with_clients=False, previous_boot=True)).previous_boot
            stats = parse_stats(bytes(kept))
        except RequestFailed:  # null is malformed, too
            return latest
        if stats.boot != latest.stats.boot or stats.uptime_ns is None:
            return latest
        went_on_s = max(0.0, (stats.uptime_ns - began_ns) / 1e9)
        taken_at = min(latest.taken_at + went_on_s, self._clock.now())
        return Reading(stats, read_at=latest.read_at + went_on_s, taken_at=taken_at)

    async def _stats(self, client: Client, *, with_clients: bool, previous_boot: bool = False) -> PolledStats:
        """Read ``/stats``. Raises RequestFailed."""
        params = stats_params(include_clients=with_clients, include_histograms=True, previous_boot=previous_boot)
        return parse_stats(await client.get_body(self.node.address, "/stats", params, timeout_s=PATIENCE_S))


class Pollers:
    """The pollers of the nodes there are now."""

    def __init__(self, clock: Clock | None = None) -> None:
        """``clock`` gives the readings' times."""
        self._clock = clock or Clock()
        self._by_id: dict[str, NodePoller] = {}
        self._gone: dict[str, Reading] = {}
        """Last readings of nodes that are gone: one that restarts is gone from the registries for a moment."""

    def follow(self, nodes: Iterable[Node]) -> list[str]:
        """Take up new nodes, drop those that are gone, and return the ids of the latter."""
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
    def heard_all(self) -> bool:
        """Whether there are nodes, and each has answered or failed to."""
        return bool(self._by_id) and all(poller.answered for poller in self._by_id.values())

    @property
    def has_all(self) -> bool:
        """Whether each node has answered at least once, so that it is known what it holds."""
        return all(poller.latest is not None for poller in self._by_id.values())

    async def stop(self) -> None:
        """Give up what is under way, and wait until it is."""
        pollers = [*self._by_id.values()]
        self.follow([])
        await asyncio.gather(*(poller.ended() for poller in pollers))

    async def beat(self, client: Client, *, with_clients: bool, within: float) -> list[NodeView]:
        """Ask every node, wait ``within`` seconds at most, and return what is known then.

        A node that hangs is waited for once; then the others' beats go on without it until it answers again.
        """
        prompt = {name for name, poller in self._by_id.items() if poller.is_prompt}
        requests = {name: poller.ask(client, with_clients=with_clients) for name, poller in self._by_id.items()}
        if prompt:
            await asyncio.wait([requests[name] for name in prompt], timeout=within)
        return [poller.view for poller in self._by_id.values() if poller.answered]
