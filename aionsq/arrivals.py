"""The queue of messages that have arrived, and the ``async for`` loops that take messages from it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Self

from aionsq.message import Message
from aionsq.tracing import ProcessTrace
from nsqwire.units import Seconds

TURN_SECONDS = 0.005
"""A task that takes messages for this long without waiting lets the event loop run once."""


class Arrivals:
    """A queue of messages from which any number of tasks take. Its length is at most ``max_in_flight``."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        """``is_over`` returns True once no more messages will arrive; the caller then calls :meth:`look_again`."""
        self._is_over = is_over
        self._messages: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._turn_began_at: Seconds = 0.0
        self._abandoned = False

    def put(self, messages: list[Message]) -> None:
        """Append messages that arrived together."""
        self._messages.extend(messages)
        if self._abandoned:
            self.abandon()
        self._wake(len(messages))

    async def take(self) -> Message | None:
        """Wait for the next message that can be answered; None when no more messages will arrive."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._turn_began_at > TURN_SECONDS:
            # A task that never waits would delay heartbeats and answers until the queue is empty.
            await asyncio.sleep(0)
            self._turn_began_at = loop.time()
        while True:
            while self._messages:
                message = self._messages.popleft()
                if message.is_in_flight:
                    return message
            if self._is_over():
                return None
            await self._wait()
            self._turn_began_at = loop.time()

    def look_again(self) -> None:
        """Wake every waiting task, so that it checks again whether more messages will arrive."""
        self._wake(len(self._waiters))

    def abandon(self) -> None:
        """Requeue, without delay, the messages in the queue and all that arrive from now on."""
        self._abandoned = True
        while self._messages:
            self._messages.popleft().requeue(timedelta(0), backoff=False)

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._messages:
                self._wake(1)  # the cancelled task was woken for a message: wake another in its place
            raise

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


class Iteration:
    """One ``async for`` loop over the messages. It answers each message when the loop asks for the next one."""

    def __init__(
        self,
        take: Callable[[], Awaitable[Message | None]],
        live: set[Iteration],
        trace: Callable[[Message], ProcessTrace] | None,
    ) -> None:
        """``live`` is the set of iterations whose loop body is processing a message; the iteration updates it.
        ``trace``, if not None, begins the trace of a message's processing."""
        self._take = take
        self._live = live
        self._new_trace = trace
        self._trace: ProcessTrace | None = None
        self._current: Message | None = None
        self._task: asyncio.Task[object] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self.leave(None)
        message = await self._take()
        if message is None:
            raise StopAsyncIteration
        self._current = message
        self._task = asyncio.current_task()
        self._live.add(self)
        if self._new_trace is not None:
            self._trace = self._new_trace(message)
        return message

    def is_over(self) -> bool:
        """Whether the loop has ended. To be called by the task that closes the consumer.

        A loop in another task has ended if that task is done. A loop in the calling task has ended in any case, because
        the task is executing the code after it.
        """
        return self._task is None or self._task.done() or self._task is asyncio.current_task()

    def leave(self, error: BaseException | None) -> None:
        """Answer the current message, if there is one: finish it, or requeue it if the loop's body raised ``error``."""
        message, self._current = self._current, None
        if self._trace is not None:
            trace, self._trace = self._trace, None
            trace.ended(error)
        self._live.discard(self)
        if message is None or not message.auto_response:
            return
        if error is None:
            message.finish()
        elif isinstance(error, Exception):
            message.requeue()
        else:
            message.requeue(timedelta(0), backoff=False)  # cancelled or interrupted: not a failure of the message
