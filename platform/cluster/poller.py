"""Asking the nodes for their figures, all at once, none of them able to hold up the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import aiohttp

from cluster import metrics, upstream
from cluster.directory import reason_of
from cluster.node import Node
from cluster.reading import NodeView, Reading
from cluster.stats import Malformed, parse_stats

PATIENCE_S = 3.0
"""A node that takes longer to answer is down. One that takes longer than a beat just misses that beat."""
LONGEST_ANSWER = 256 << 20
"""Bytes. Nothing that is a node tells more of itself; what does must not take the collector's memory."""


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

    @property
    def is_prompt(self) -> bool:
        """Whether a beat waits for its answer: not while one is overdue, nor after it failed to come."""
        return self.error is None and (self._request is None or self._request.done())

    def ask(self, session: aiohttp.ClientSession, *, with_clients: bool) -> asyncio.Task[None]:
        """Return the request under way, starting one if there is none. It raises nothing."""
        if self._request is None or self._request.done():
            self._request = asyncio.create_task(self._ask(session, with_clients))
        return self._request

    def cancel(self) -> None:
        if self._request is not None:
            self._request.cancel()

    async def ended(self) -> None:
        """Wait until what was cancelled has let go of its connection."""
        if self._request is not None:
            await asyncio.gather(self._request, return_exceptions=True)

    async def _ask(self, session: aiohttp.ClientSession, with_clients: bool) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                stats = parse_stats(await self._answer(session, with_clients))
        except TimeoutError:
            self.error = f"no answer within {PATIENCE_S:g} s"
        except (aiohttp.ClientError, OSError, Malformed) as error:
            self.error = reason_of(error)
        else:
            self.earlier = self.latest if self.error is None else None
            self.latest = Reading(stats, read_at=time.monotonic(), taken_at=time.time())
            self.latest.work_out()
            self.error = None
        metrics.polls.labels("failed" if self.error else "answered").inc()

    async def _answer(self, session: aiohttp.ClientSession, with_clients: bool) -> bytearray:
        clients = "true" if with_clients else "false"
        query = f"format=json&include_histograms=true&include_clients={clients}&include_mem=false"
        async with upstream.answer(session, self.node.address, f"/stats?{query}") as response:
            if response.status != 200:
                raise Malformed(f"answers {response.status} {(await response.text(errors='replace'))[:200]}".strip())
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > LONGEST_ANSWER:
                    raise Malformed(f"cannot read its /stats: longer than {LONGEST_ANSWER >> 20} MiB")
            return body


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

    async def beat(self, session: aiohttp.ClientSession, *, with_clients: bool, within: float) -> list[NodeView]:
        """Ask every node, wait ``within`` seconds at most, and return what is known then.

        A node that hangs is waited for once; then the others' beats go on without it until it answers again.
        """
        prompt = {name for name, poller in self._by_id.items() if poller.is_prompt}
        requests = {name: poller.ask(session, with_clients=with_clients) for name, poller in self._by_id.items()}
        if prompt:
            await asyncio.wait([requests[name] for name in prompt], timeout=within)
        return [poller.view for poller in self._by_id.values() if poller.answered]
