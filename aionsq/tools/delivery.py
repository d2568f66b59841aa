"""What nsq_to_http and nsq_to_nsq have in common: consumers, and messages that somebody else has to take."""

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
from nsqwire.settings import setting


@dataclass(frozen=True, kw_only=True)
class DeliveryFlags(ConsumerFlags, env=""):
    """Flags of the tools that hand messages on."""

    status_every: int = setting(250, "Tell how long deliveries took, once for so many; 0: never.", min=0, file=False)


def mode_setting(others: Sequence[str] = ()) -> str:
    """The declaration of ``--mode``."""
    declared: str = setting(
        "hostpool",
        "Which of several addresses takes a message. round-robin: the next in turn; hostpool: the next that is alive; "
        f"epsilon-greedy: mostly the fastest{'; all: each of them' if others else ''}.",
        choices=(*MODES, *others),
        file=False,
    )
    return declared


def delivery_options(flags: ConsumerFlags, tool: str) -> ConsumerOptions:
    """The consumer's options. Unless ``--consumer-opt`` says otherwise, a message that is not taken comes back until it
    is, and one whose delivery takes longer than nsqd's timeout is touched, so that nobody delivers it a second time.
    """
    defaults = ConsumerOptions(max_attempts=0, auto_touch=True, lookupd_poll_interval=timedelta(seconds=2))
    return consumer_options(flags, tool, defaults)


def warn_of_few(flags: DeliveryFlags, run: Run) -> None:
    """Say so where percentiles will be of too few."""
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
    """Have ``work`` consume from each until the tool is told to stop; ``count`` tells the messages done.

    At the end what was begun is answered first; what has arrived and was not begun goes back to its channel.
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
