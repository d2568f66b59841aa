"""``nsq stat``: a channel's rates and depths over all nodes, a line per interval.

NSQ's nsq_stat, with its flags and columns. Differences: rates are divided by the time that passed, counters that start
anew with a node do not go negative, and a node that does not answer is named and left out instead of ending the tool.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from aionsq.errors import HTTPFailed
from aionsq.lookup import Lookup
from aionsq.node import Node
from aionsq.tools.flags import LOOKUPDS_VARIABLE, ToolFailed, ToolFlags, lookupds_of_environment
from aionsq.tools.process import Run, Tool
from nsqwire.settings import setting

C = TypeVar("C", Lookup, Node)

NAME = "nsq_stat"

HEADER = """\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients"""
HEADER_EVERY = 25


@dataclass(frozen=True, kw_only=True)
class StatFlags(ToolFlags, env=""):
    """Flags of nsq_stat."""

    topic: str = setting("", "Topic to look at.", file=False)
    channel: str = setting("", "Channel to look at.", file=False)
    interval: timedelta = setting("2s", "Time between two lines.", file=False)
    count: int = setting(sys.maxsize, "Lines to print.", shown="endless", file=False)
    nsqd_http_address: tuple[str, ...] = setting((), "nsqd to ask, host:port.", file=False)
    lookupd_http_address: tuple[str, ...] = setting(
        (), f"nsqlookupd to find nsqds with, host:port (default: {LOOKUPDS_VARIABLE}).", file=False
    )
    http_client_connect_timeout: timedelta = setting("2s", "Time to connect.", min="1ms", file=False)
    http_client_request_timeout: timedelta = setting("5s", "Time for an answer.", min="1ms", file=False)


@dataclass(frozen=True)
class Sample:
    """One node's counters at a moment, seconds of any monotonic clock."""

    taken_at: float
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int


def row(before: Mapping[str, Sample], now: Mapping[str, Sample]) -> str:
    """One line: sums over the nodes of ``now``; rates over those that are in both."""
    ingress = egress = 0.0
    for address, sample in now.items():
        if address not in before:
            continue
        earlier = before[address]
        elapsed = sample.taken_at - earlier.taken_at
        if sample.message_count < earlier.message_count:  # the node was restarted: it counts from 0
            earlier = Sample(earlier.taken_at, 0, 0, 0, 0, 0, 0, 0, 0)
        published = sample.message_count - earlier.message_count
        ingress += published / elapsed
        egress += (published - (sample.depth - earlier.depth)) / elapsed

    def total(field: str) -> int:
        return sum(getattr(sample, field) for sample in now.values())

    depth, disk = total("depth"), total("backend_depth")
    return (
        f"{int(ingress):7d} {int(egress):7d} | {depth:7d} {depth - disk:7d} {disk:7d} "
        f"{total('in_flight_count'):5d} {total('deferred_count'):5d} | {total('requeue_count'):7d} "
        f"{total('timeout_count'):7d} {total('message_count'):12d} {total('client_count'):7d}"
    )


async def stat(flags: StatFlags, run: Run) -> int:
    """Print until told to stop or ``count`` lines were printed. Raises ToolFailed."""
    _check(flags)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, run.stop.set)
    lookupds = () if flags.nsqd_http_address else flags.lookupd_http_address
    if not flags.nsqd_http_address and not lookupds:
        lookupds = lookupds_of_environment(local=run.is_subcommand)
        if not lookupds:
            raise ToolFailed("--nsqd-http-address or --lookupd-http-address required")
    async with AsyncExitStack() as stack:
        watch = Watch(flags, lookupds, run, stack)
        before = await watch.sample()
        if not before:
            raise ToolFailed(watch.nothing_found())
        printed = 0
        while not await _stopped_within(run, flags.interval):
            now = await watch.sample()
            if now:
                if printed % HEADER_EVERY == 0:
                    print(HEADER)
                print(row(before, now), flush=True)
                printed += 1
                if printed == flags.count:
                    break
            elif flags.count < sys.maxsize:  # a script waits for its lines
                raise ToolFailed(watch.nothing_found())
            before = {**before, **now}
    return 0


async def _stopped_within(run: Run, interval: timedelta) -> bool:
    try:
        async with asyncio.timeout(interval.total_seconds()):
            await run.stop.wait()
    except TimeoutError:
        return False
    return True


def _check(flags: StatFlags) -> None:
    if not flags.topic or not flags.channel:
        raise ToolFailed("--topic and --channel are required")
    if flags.interval <= timedelta(0):
        raise ToolFailed("--interval should be positive")
    if flags.count <= 0:
        raise ToolFailed("--count should be positive")
    if flags.nsqd_http_address and flags.lookupd_http_address:
        raise ToolFailed("use --nsqd-http-address or --lookupd-http-address not both")
    for address in (*flags.nsqd_http_address, *flags.lookupd_http_address):
        if address.startswith("http"):
            raise ToolFailed(f"address should not contain scheme: {address}")


class Watch:
    """The nodes that have the channel, and what they last did not answer."""

    def __init__(self, flags: StatFlags, lookupds: Sequence[str], run: Run, stack: AsyncExitStack) -> None:
        self._flags = flags
        self._lookupds = lookupds
        self._run = run
        self._stack = stack
        self._nodes: dict[str, Node] = {}
        self._lookup: Lookup | None = None
        self._errors: dict[str, str] = {}

    async def sample(self) -> dict[str, Sample]:
        """Ask every node; tells on standard error which do not answer, once for each reason."""
        errors: dict[str, str] = {}
        nodes = [await self._node(address) for address in await self._addresses(errors)]
        samples = await asyncio.gather(*(self._ask(node, errors) for node in nodes))
        for address, text in errors.items():
            if self._errors.get(address) != text:
                self._run.note(text)
        self._errors = errors
        return {node.address: sample for node, sample in zip(nodes, samples, strict=True) if sample is not None}

    def nothing_found(self) -> str:
        """Why the first sample was empty."""
        if self._errors:
            return "nobody answers"
        return f"failed to find channel({self._flags.channel}) in stats metadata for topic({self._flags.topic})"

    async def _addresses(self, errors: dict[str, str]) -> Sequence[str]:
        if self._flags.nsqd_http_address:
            return self._flags.nsqd_http_address
        if self._lookup is None:
            self._lookup = await self._stack.enter_async_context(self._made(Lookup, self._lookupds))
        answer = await self._lookup.producers(self._flags.topic)
        errors.update({error.url: str(error) for error in answer.errors})
        return [producer.http_address for producer in answer.producers]

    async def _node(self, address: str) -> Node:
        if address not in self._nodes:
            self._nodes[address] = await self._stack.enter_async_context(self._made(Node, address))
        return self._nodes[address]

    def _made(self, client: Callable[..., C], address: str | Sequence[str]) -> C:
        try:
            return client(
                address,
                timeout=self._flags.http_client_request_timeout,
                connect_timeout=self._flags.http_client_connect_timeout,
            )
        except ValueError as error:
            raise ToolFailed(str(error)) from None

    async def _ask(self, node: Node, errors: dict[str, str]) -> Sample | None:
        try:
            stats = await node.stats(self._flags.topic, self._flags.channel, include_clients=False)
        except HTTPFailed as error:
            errors[node.address] = str(error)
            return None
        channels = [
            channel
            for topic in stats.get("topics") or ()
            for channel in topic.get("channels") or ()
            if (topic.get("topic_name"), channel.get("channel_name")) == (self._flags.topic, self._flags.channel)
        ]
        if not channels:
            return None
        counters = {name: int(channels[0].get(name, 0)) for name in Sample.__dataclass_fields__ if name != "taken_at"}
        return Sample(taken_at=time.monotonic(), **counters)


main = Tool(NAME, "stat", StatFlags, stat, "Print a channel's rates and depths over all nodes, a line per interval.")
