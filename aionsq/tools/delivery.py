"""The common parts of nsq_to_http and nsq_to_nsq: consuming messages and delivering them to another server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from aionsq.consumer import Consumer
from aionsq.options import ConsumerOptions
from aionsq.tools.backlog import Backlog
from aionsq.tools.flags import ConsumerFlags, Sources, consumer_options
from aionsq.tools.hostpool import MODES
from aionsq.tools.process import Run
from aionsq.tools.progress import progress
from aionsq.tools.timings import FEW, FEW_WARNING
from nsqdaemon.settings import setting


@dataclass(frozen=True, kw_only=True)
class DeliveryFlags(ConsumerFlags):
    """Flags of the tools that deliver messages to another server."""

    status_every: int = setting(250, "Log the delivery times once for this many deliveries; 0: never.", min=0)


def mode_setting(others: Sequence[str] = ()) -> str:
    """Return the declaration of ``--mode``."""
    declared: str = setting(
        "hostpool",
        "How to choose among several addresses. round-robin: the next in turn; hostpool: the next live one; "
        f"epsilon-greedy: mostly the fastest{'; all: every address' if others else ''}.",
        choices=(*MODES, *others),
    )
    return declared


def delivery_options(flags: ConsumerFlags, tool: str) -> ConsumerOptions:
    """Return the consumer's options.

    Unless ``--consumer-opt`` changes this, a message is retried until its delivery succeeds. It is touched meanwhile:
    a delivery that takes longer than the message timeout is not repeated.
    """
    defaults = ConsumerOptions(max_attempts=0, auto_touch=True, lookupd_poll_interval=timedelta(seconds=2))
    return consumer_options(flags, tool, defaults)


def warn_of_few(flags: DeliveryFlags, run: Run) -> None:
    """Warn if ``--status-every`` is too small for meaningful percentiles."""
    if 0 < flags.status_every < FEW:
        run.note(FEW_WARNING)


async def consume(
    flags: ConsumerFlags,
    run: Run,
    where: Sources,
    consumers: Sequence[Consumer],
    work: Callable[[Consumer], Awaitable[None]],
    count: Callable[[], int],
) -> None:
    """Run ``work`` for each consumer until the tool is stopped; ``count`` returns the number of messages processed.

    After a stop, deliveries that have begun are completed and their messages answered; other messages are requeued.
    """
    channels = [(consumer.topic, consumer.channel) for consumer in consumers]
    async with AsyncExitStack() as stack:
        backlog = await stack.enter_async_context(Backlog(where, lambda: channels))
        await stack.enter_async_context(progress(flags.progress, count, backlog.depth))
        for consumer in consumers:
            await stack.enter_async_context(consumer)
        stopped = asyncio.create_task(run.stop.wait())
        runs = [asyncio.ensure_future(work(consumer)) for consumer in consumers]
        try:
            await asyncio.wait((stopped, *runs), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        for consumer in consumers:
            consumer.begin_stop()
    await asyncio.gather(*runs)
