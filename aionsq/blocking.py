"""Publishing from code that does not use asyncio: scripts, threads, Django views."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FuturesTimeout
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from aionsq.arguments import check_timeout
from aionsq.errors import ProducerClosed, PublishTimedOut
from aionsq.options import ProducerOptions
from aionsq.producer import Body, Headers, Producer
from aionsq.publish import Ids
from aionsq.tracing import Tracing

CLOSE_SECONDS = 5.0
DEFAULT_TIMEOUT = timedelta(seconds=5)
LATE_SECONDS = 0.25
"""How much longer than its timeout a call waits for the exception of the other thread, which says more."""


class BlockingProducer:
    """A :class:`Producer` whose methods block until nsqd has answered.

        with BlockingProducer("127.0.0.1:4150") as producer:
            producer.pub("orders", b"hello")

    Any number of threads may use one object, and it may be a global variable of a module. The first publish opens the
    connection, in a separate thread that runs an event loop; later publishes reuse it. The methods raise the exceptions
    that the futures of Producer have.

    Each call ends within ``timeout``: that of the call, else that of the object, 5 seconds by default, so that a web
    view does not wait for the 30 seconds of the option ``publish_timeout``. If that option is shorter, it counts. A
    call that ends so raises PublishTimedOut.

    After ``os.fork`` the child opens its own connection with its next publish, and the parent keeps its connection, so
    the object may be created before a server such as gunicorn forks its workers.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: str | Sequence[str],
        options: ProducerOptions | None = None,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        tracing: Tracing | None = None,
    ) -> None:
        """Does not connect yet. Raises InvalidArgument and WrongType, as Producer does."""
        self._make: Callable[[], Producer] = partial(Producer, nsqd_tcp_addresses, options, tracing=tracing)
        self._make()  # raises what is wrong with the arguments now
        check_timeout(timeout)
        self._timeout = min(timeout, (options or ProducerOptions()).publish_timeout)
        self._closed = False
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        _all.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def pub(self, topic: str, body: Body, *, headers: Headers | None = None, timeout: timedelta | None = None) -> Ids:
        """Publish a message, and return its id; see :meth:`Producer.pub`."""
        within = self._within(timeout)
        return self._wait(within, lambda producer: producer.pub(topic, body, headers=headers, timeout=within))

    def mpub(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Headers | Sequence[Headers] | None = None,
        timeout: timedelta | None = None,
    ) -> Ids:
        """Publish several messages, all or none, and return their ids; see :meth:`Producer.mpub`."""
        within = self._within(timeout)
        return self._wait(within, lambda producer: producer.mpub(topic, bodies, headers=headers, timeout=within))

    def dpub(
        self,
        topic: str,
        delay: timedelta,
        body: Body,
        *,
        headers: Headers | None = None,
        timeout: timedelta | None = None,
    ) -> Ids:
        """Publish a deferred message, and return its id; see :meth:`Producer.dpub`."""
        within = self._within(timeout)
        return self._wait(within, lambda producer: producer.dpub(topic, delay, body, headers=headers, timeout=within))

    def close(self) -> None:
        """Wait for the publishes of other threads, then close the connection. Later publishes raise ProducerClosed."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def _within(self, timeout: timedelta | None) -> timedelta:
        if timeout is None:
            return self._timeout
        check_timeout(timeout)
        return timeout

    def _wait(self, within: timedelta, publish: Callable[[Producer], asyncio.Future[Ids]]) -> Ids:
        with self._lock:
            if self._closed:
                raise ProducerClosed("the producer was closed; not stored")
            if self._worker is None:
                self._worker = _Worker(self._make)
            answer = self._worker.submit(publish)
        try:
            return answer.result(within.total_seconds() + LATE_SECONDS)
        except FuturesTimeout:  # the thread is stuck, or starved by other threads
            answer.cancel()
            raise PublishTimedOut(
                f"no answer within {within.total_seconds():g}s; the message may or may not be stored"
            ) from None
        except CancelledError:
            raise ProducerClosed("the producer was closed") from None

    def _reset_in_child(self) -> None:
        """Reset in a forked child: the lock may stay locked for ever, and only the parent has the thread."""
        self._lock = threading.Lock()
        self._worker = None


class _Worker:
    """A thread with an event loop and a producer in it."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._loop = asyncio.new_event_loop()
        self._make = make
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name="aionsq", daemon=True)
        self._thread.start()

    def submit(self, publish: Callable[[Producer], asyncio.Future[Ids]]) -> Future[Ids]:
        return asyncio.run_coroutine_threadsafe(self._publish(publish), self._loop)

    def stop(self) -> None:
        """Wait for outstanding publishes, close the connection and end the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        self._thread.join(CLOSE_SECONDS)

    async def _publish(self, publish: Callable[[Producer], asyncio.Future[Ids]]) -> Ids:
        if self._producer is None:
            self._producer = self._make()
        return await publish(self._producer)

    async def _close(self) -> None:
        try:
            if self._producer is not None:
                await self._producer.close(timedelta(seconds=CLOSE_SECONDS - 1))
        finally:
            self._loop.stop()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


_all: weakref.WeakSet[BlockingProducer] = weakref.WeakSet()


def _close_all() -> None:
    for producer in list(_all):
        producer.close()


def _after_fork() -> None:
    for producer in list(_all):
        producer._reset_in_child()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
