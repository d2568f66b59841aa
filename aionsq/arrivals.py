"""Messages that have arrived and wait to be taken, and the loops that take them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Self

from aionsq.message import Message

TURN_SECONDS = 0.005


class Arrivals:
    """A queue of messages for any number of takers. It is bounded by what nsqd may have in flight."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        """``is_over`` tells whether no more messages will arrive; then :meth:`look_again` is called."""
        self._is_over = is_over
        self._messages: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._turn_began_at = 0.0
        self._abandoned = False

    def put(self, messages: list[Message]) -> None:
        """Messages that arrived together."""
        self._messages.extend(messages)
        if self._abandoned:
            self.abandon()
        self._wake(len(messages))

    async def take(self) -> Message | None:
        """The next message whose connection still stands; None when there is none and it is over."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._turn_began_at > TURN_SECONDS:
            # A taker that never waits would keep heartbeats and answers from going out until the queue is empty.
            await asyncio.sleep(0)
            self._turn_began_at = loop.time()
        while True:
            while self._messages:
                message = self._messages.popleft()
                if message.is_held:
                    return message
            if self._is_over():
                return None
            await self._wait()
            self._turn_began_at = loop.time()

    def look_again(self) -> None:
        """Have every taker that waits see whether it is over."""
        self._wake(len(self._waiters))

    def abandon(self) -> None:
        """Nobody takes messages any more: requeue what has arrived, and what still will, for others to have it soon."""
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
                self._wake(1)  # this one was woken for a message that it will not take
            raise

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


class Iteration:
    """One ``async for``: answers each message when its body is through with it."""

    def __init__(self, take: Callable[[], Awaitable[Message | None]], live: set[Iteration]) -> None:
        """``live`` holds the iterations that have a message in their hands."""
        self._take = take
        self._live = live
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
        return message

    def is_over(self) -> bool:
        """Whether its loop was left: asked by the task that closes the consumer, it can only be the loop's own."""
        return self._task is None or self._task.done() or self._task is asyncio.current_task()

    def leave(self, error: BaseException | None) -> None:
        """The loop's body is through with its message, or was left by ``error``."""
        message, self._current = self._current, None
        self._live.discard(self)
        if message is None or not message.auto_response:
            return
        if error is None:
            message.finish()
        elif isinstance(error, Exception):
            message.requeue()
        else:
            message.requeue(timedelta(0), backoff=False)  # interrupted: no fault of the message
