"""The event loop of all connections of a process, in a thread of its own.

Life cycle: the first connection of a process starts the thread. It runs until the process exits; ``atexit`` then closes
the open connections, within :data:`CLOSE_SECONDS`. After a fork the child has neither the thread nor the connections:
its first connection starts another thread, and the parent's connections belong to the parent alone.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import selectors
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from aionsq import Producer, ProducerOptions

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Longest time that closing a connection takes."""
MARGIN_SECONDS = 5.0
"""Time that a caller waits for an operation beyond the operation's own time limit."""

T = TypeVar("T")


class NoAnswer(TimeoutError):
    """The event loop did not complete an operation within its limit."""


class EventLoopThread:
    """A thread that runs an event loop, and the producers that the connections of the process share."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self.at_exit: set[Callable[[], Awaitable[None]]] = set()
        """Called when the process exits, in the event loop."""
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._calls_lock = threading.RLock()  # a signal's handler may interrupt its owner
        self._is_woken = False
        self._producers: dict[tuple[tuple[str, ...], ProducerOptions], tuple[Producer, list[object]]] = {}
        self._thread = threading.Thread(target=self._run, name="nsqkombu", daemon=True)
        self._thread.start()

    @property
    def is_own(self) -> bool:
        """False in a child that was forked after the thread was started."""
        return self.pid == os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Run a coroutine in the event loop and return its result. Raises NoAnswer after ``limit_s``, cancelling it."""
        assert threading.current_thread() is not self._thread, "would wait for itself"
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(limit_s)
        except FutureTimeout:
            if future.done():
                raise
            future.cancel()
            raise NoAnswer(f"no answer within {limit_s:g} s") from None

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop, after those of earlier calls; does not wait. It must not raise."""
        with self._calls_lock:
            self._calls.append((function, arguments))
            must_wake, self._is_woken = not self._is_woken, True
        if must_wake:  # once for all calls that the loop has not taken yet
            self.loop.call_soon_threadsafe(self._make_calls)

    def _make_calls(self) -> None:
        with self._calls_lock:
            calls, self._calls = self._calls, []
            self._is_woken = False
        for function, arguments in calls:
            try:
                function(*arguments)
            except Exception:
                log.exception("%r failed", function)

    # --- producers, in the event loop ---

    async def producer(self, addresses: tuple[str, ...], options: ProducerOptions, user: object) -> Producer:
        """Return the producer for ``addresses``, connected, and keep it for ``user``. Raises ConnectFailed."""
        if (addresses, options) not in self._producers:
            self._producers[addresses, options] = (Producer(addresses, options), [])
        producer, users = self._producers[addresses, options]
        users.append(user)
        try:
            if not producer.connections:
                await producer.start()
        except BaseException:
            await self.release_producer(addresses, options, user)
            raise
        return producer

    async def release_producer(self, addresses: tuple[str, ...], options: ProducerOptions, user: object) -> None:
        """Close the producer if ``user`` was its last one."""
        producer, users = self._producers[addresses, options]
        users.remove(user)
        if not users:
            del self._producers[addresses, options]
            await producer.close(timedelta(seconds=CLOSE_SECONDS - 1))

    # --- the end ---

    def close(self) -> None:
        """Close the open connections and end the thread, within CLOSE_SECONDS."""
        with suppress(NoAnswer):
            self.run(self._close(), CLOSE_SECONDS)
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_SECONDS)

    async def _close(self) -> None:
        await asyncio.gather(*(close() for close in list(self.at_exit)), return_exceptions=True)
        left = [producer for producer, _ in self._producers.values()]
        await asyncio.gather(*(producer.close(timedelta(seconds=1)) for producer in left), return_exceptions=True)

    def release_in_child(self) -> None:
        """In a forked child, close the parent's sockets, so that nsqd notices when the parent closes them.

        The descriptors are redirected to the null device, because inherited objects may still close them.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for key in list(self._selector.get_map().values()):
            os.dup2(null, key.fd, inheritable=False)
        os.close(null)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_lock = threading.Lock()
_current: EventLoopThread | None = None
_of_parents: list[EventLoopThread] = []
"""Never freed in a child: destroying these objects would change the selector that the parent uses."""


def event_loop_thread() -> EventLoopThread:
    """Return the thread of this process. Starts it at the first call."""
    global _current
    with _lock:
        if _current is None:
            _current = EventLoopThread()
        return _current


def _close_at_exit() -> None:
    if _current is not None and _current.is_own:
        _current.close()


def _after_fork_in_child() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _of_parents.append(_current)
        _current.release_in_child()
        _current = None


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
