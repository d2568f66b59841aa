"""Consuming one channel from every nsqd that has the topic."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.backoff import STRATEGIES, Backoff, Outcome, State
from aionsq.connection import split_address
from aionsq.discovery import Discovery
from aionsq.errors import ConnectFailed, ConsumerStopped
from aionsq.lookup import Lookup
from aionsq.message import Message
from aionsq.options import ConsumerOptions
from aionsq.ready import Distribution, ReadyCount
from aionsq.reconnect import Reconnect
from aionsq.subscription import Subscription
from nsqwire.errors import BadChannel, BadTopic
from nsqwire.names import is_valid_name

log = logging.getLogger(__name__)

_FirstAttempt = asyncio.Future[ConnectFailed | None]
Handler = Callable[[Message], Awaitable[object] | object]

STOP_GRACE = timedelta(seconds=30)
_NO_CONNECTION_RETRY_SECONDS = 1.0
_TURN_SECONDS = 0.005


class Consumer:
    """Receives a channel's messages.

        async with Consumer("orders", "archive", lookupd_http_addresses=["127.0.0.1:4161"]) as consumer:
            async for message in consumer:
                print(message.body)

    A message is finished when the loop's body is through with it, and requeued when the body raises, which also leaves
    the loop. Several tasks may iterate over one consumer. :meth:`run` is the other way: a handler, called for several
    messages at once, whose errors requeue its message and slow the consumer down (backoff).
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        nsqd_tcp_addresses: Sequence[str] = (),
        lookupd_http_addresses: Sequence[str] = (),
        options: ConsumerOptions | None = None,
        give_up: Handler | None = None,
    ) -> None:
        """``give_up`` is called with a message delivered more than ``max_attempts`` times, which is then finished.

        Raises BadTopic, BadChannel, ValueError for addresses.
        """
        if not is_valid_name(topic):
            raise BadTopic(f"topic name {topic!r} is not valid")
        if not is_valid_name(channel):
            raise BadChannel(f"channel name {channel!r} is not valid")
        if not nsqd_tcp_addresses and not lookupd_http_addresses:
            raise ValueError("a consumer needs the address of an nsqd or of an nsqlookupd")
        for address in nsqd_tcp_addresses:
            split_address(address)
        self.topic = topic
        self.channel = channel
        self.messages_received = 0
        self.messages_finished = 0
        self.messages_requeued = 0
        self.trial: int | None = None
        self._options = options or ConsumerOptions()
        self._direct = list(dict.fromkeys(nsqd_tcp_addresses))
        self._lookup_addresses = list(dict.fromkeys(lookupd_http_addresses))
        self._lookup: Lookup | None = None
        self._lookup_errors: set[str] = set()
        self._give_up = give_up
        self._discovery = Discovery()
        self._subscriptions: dict[str, Subscription] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._queue: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._iterations: set[_Iteration] = set()
        self._turn_began_at = 0.0
        self._distribution: Distribution[str] = Distribution(
            self._options.max_in_flight,
            low_rdy_idle_timeout=self._options.low_rdy_idle_timeout,
            low_rdy_timeout=self._options.low_rdy_timeout,
        )
        self._backoff = Backoff(
            self._options.backoff_multiplier,
            self._options.max_backoff_duration,
            STRATEGIES[self._options.backoff_strategy],
        )
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._poll_now = asyncio.Event()
        self._stopped = asyncio.Event()
        self._grace_timer: asyncio.TimerHandle | None = None
        self._unanswered: list[Message] = []
        self._handling = 0
        self._abandoned = False
        self._started = False
        self._stopping = False

    # life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for iteration in list(self._iterations):
            if iteration.is_over():
                iteration.leave(error)
        self.begin_stop()
        self._abandon()
        await self.stop()

    async def start(self) -> None:
        """Connect to the nsqds given, or ask the nsqlookupds once.

        Raises ConnectFailed when no nsqd given can be reached and there is no nsqlookupd to name others;
        ConsumerStopped after a stop. nsqlookupds that do not answer are asked again.
        """
        if self._stopping:
            raise ConsumerStopped(f"the consumer of {self.topic}/{self.channel} was stopped")
        if self._started:
            return
        self._started = True
        attempts = [self._keep(address) for address in self._direct]
        errors = [error for error in await asyncio.gather(*attempts) if error is not None]
        if errors and len(errors) == len(self._direct) and not self._lookup_addresses:
            await self.stop(timedelta(0))
            raise errors[0]
        for error in errors:
            self._log_unreachable(error)
        if self._lookup_addresses:
            self._lookup = Lookup(self._lookup_addresses, timeout=self._options.lookupd_poll_timeout)
            await self._poll(self._lookup)
            self._background.append(asyncio.create_task(self._poll_forever(self._lookup)))
        self._background.append(asyncio.create_task(self._redistribute_forever()))

    def begin_stop(self, grace: timedelta = STOP_GRACE) -> None:
        """Ask for no more messages, and give handlers up to ``grace`` to answer what has arrived; does not wait.

        Iteration ends after what has arrived. May be called anywhere, a signal handler of the event loop included, and
        again to shorten the grace.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + grace.total_seconds()
        if self._grace_timer is None or ends_at < self._grace_timer.when():
            if self._grace_timer is not None:
                self._grace_timer.cancel()
            self._grace_timer = loop.call_at(ends_at, self._end_grace)
        if self._stopping:
            return
        self._stopping = True
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        for task in self._background:
            task.cancel()
        for address, keeper in self._keepers.items():
            if address not in self._subscriptions:
                keeper.cancel()
        for subscription in self._subscriptions.values():
            subscription.begin_close()
        self.progressed()

    async def stop(self, grace: timedelta = STOP_GRACE) -> list[Message]:
        """Stop, giving handlers up to ``grace`` to answer what they have, then close the connections.

        Returns the messages that were in a handler's or a loop's hands and not answered: nsqd delivers them again, here
        or elsewhere. What had arrived and was not yet taken is requeued. From inside a loop over the consumer use
        :meth:`begin_stop`, or leave the loop: this would wait for the message the loop holds.
        """
        self.begin_stop(grace)
        await self._stopped.wait()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        await asyncio.gather(*self._keepers.values(), *self._background, return_exceptions=True)
        if self._lookup is not None:
            await self._lookup.close()
        return self._unanswered

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call ``handler(message)`` for each message, ``concurrency`` at a time, until the consumer has stopped.

        The handler may be a coroutine function or a plain one. When it returns, its message is finished; when it
        raises, requeued with backoff; unless it answered or disabled automatic answers. Handlers still running when a
        stop's grace is over are cancelled. A consumer that was not started is started, and stopped at the end.
        """
        was_started = self._started
        await self.start()
        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(self._work(handler)) for _ in range(concurrency)]
                await self._stopped.wait()
                for worker in workers:
                    worker.cancel()
        finally:
            if not was_started:
                await self.stop(timedelta(0))

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Share out a new maximum at once; 0 pauses. Raises ValueError below 0."""
        if max_in_flight < 0:
            raise ValueError(f"max_in_flight {max_in_flight} is less than 0")
        self._send_ready(self._distribution.change_max_in_flight(max_in_flight, self._now()))

    @property
    def max_in_flight(self) -> int:
        """The maximum in force."""
        return self._distribution.max_in_flight

    @property
    def connections(self) -> list[str]:
        """Addresses of the nsqds connected to."""
        return list(self._subscriptions)

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has sent nearly all it may: a batch in hand should be answered rather than filled up."""
        slots = [each.slot for each in self._subscriptions.values()]
        return any(slot.in_flight_count > 0 and slot.in_flight_count >= int(slot.ready_count * 0.85) for slot in slots)

    # taking messages

    def __aiter__(self) -> _Iteration:
        return _Iteration(self)

    async def next_message(self) -> Message | None:
        """The next message, which the caller answers; None when the consumer has stopped and no more will come."""
        now = self._now()
        if now - self._turn_began_at > _TURN_SECONDS:
            # A caller that never waits would keep heartbeats and answers from going out until the queue is empty.
            await asyncio.sleep(0)
            self._turn_began_at = self._now()
        while True:
            while self._queue:
                message = self._queue.popleft()
                if not message.is_held:
                    continue
                if 0 < self._options.max_attempts < message.attempts:
                    await self._give_up_on(message)
                    continue
                return message
            if self._stopping and all(each.close_waiting or not each.is_open for each in self._subscriptions.values()):
                return None
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if not waiter.done() or waiter.cancelled():
                    # A wake-up meant for this waiter goes to the next.
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
                    elif self._queue:
                        self._wake(1)
            self._turn_began_at = self._now()

    async def _give_up_on(self, message: Message) -> None:
        log.warning("%s/%s: giving up %r", self.topic, self.channel, message)
        try:
            if self._give_up is not None:
                result = self._give_up(message)
                if inspect.isawaitable(result):
                    await result
        except Exception:
            log.exception("%s/%s: give_up failed for %r", self.topic, self.channel, message)
            message.requeue(backoff=False)
        else:
            message.give_up()

    async def _work(self, handler: Handler) -> None:
        while (message := await self.next_message()) is not None:
            self._handling += 1
            try:
                result = handler(message)
                if result is not None and inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("%s/%s: handler failed for %r", self.topic, self.channel, message)
                if message.auto_response:
                    message.requeue()
            except BaseException:
                if message.auto_response:
                    message.requeue(timedelta(0), backoff=False)
                raise
            else:
                if message.auto_response:
                    message.finish()
            finally:
                self._handling -= 1
                if self._stopping:
                    self.progressed()

    # what subscriptions report

    def delivered(self, messages: list[Message]) -> None:
        self.messages_received += len(messages)
        self._queue.extend(messages)
        if self._abandoned:
            self._abandon()
        self._wake(len(messages))

    def answered(self, message: Message, outcome: Outcome) -> None:
        if outcome is Outcome.FINISHED or outcome is Outcome.GIVEN_UP:
            self.messages_finished += 1
        else:
            self.messages_requeued += 1
        backoff = self._backoff
        before = backoff.state
        if (before is State.NORMAL and outcome is not Outcome.FAILED) or self._stopping:
            return
        wait = backoff.answered(outcome, message.trial)
        if wait is not None:
            self.trial = None
            log.warning("%s/%s: backing off for %gs", self.topic, self.channel, wait.total_seconds())
            self._send_ready(self._distribution.block(self._now()))
            self._backoff_timer = asyncio.get_running_loop().call_later(wait.total_seconds(), self._test)
        elif backoff.state is State.NORMAL and before is not State.NORMAL:
            self.trial = None
            log.info("%s/%s: backoff is over", self.topic, self.channel)
            self._send_ready(self._distribution.resume(self._now()))

    def progressed(self) -> None:
        if self._stopping:
            self._wake(len(self._waiters))
            if not self._subscriptions and not self._handling:
                self._stopped.set()

    def _test(self) -> None:
        if not self._subscriptions:
            self._backoff_timer = asyncio.get_running_loop().call_later(_NO_CONNECTION_RETRY_SECONDS, self._test)
            return
        self.trial = self._backoff.expired()
        self._send_ready(self._distribution.test(self._now()))

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _abandon(self) -> None:
        """Nobody takes messages any more: requeue what has arrived, and what still will, for others to have it soon."""
        self._abandoned = True
        while self._queue:
            self._queue.popleft().requeue(timedelta(0), backoff=False)

    def _end_grace(self) -> None:
        self._abandon()
        self._unanswered = [message for each in self._subscriptions.values() for message in each.in_flight]
        if self._unanswered:
            log.warning("%s/%s: stopped with %d unanswered", self.topic, self.channel, len(self._unanswered))
        for subscription in self._subscriptions.values():
            subscription.close("the consumer stopped")
        self._stopped.set()

    # connections

    def _keep(self, address: str) -> _FirstAttempt:
        """Stay connected to an nsqd. The future ends with the first attempt: None, or why it failed."""
        first: _FirstAttempt = asyncio.get_running_loop().create_future()
        if address in self._keepers or self._stopping:
            first.set_result(None)
            return first
        keeper = asyncio.create_task(self._stay_connected(address, first))
        self._keepers[address] = keeper
        keeper.add_done_callback(lambda _: _settle(first))
        return first

    async def _stay_connected(self, address: str, first: _FirstAttempt) -> None:
        pauses = Reconnect(self._options.max_reconnect_delay)
        last_error = ""
        try:
            while not self._stopping and self._is_wanted(address):
                await asyncio.sleep(pauses.next_delay())
                try:
                    subscription, max_rdy_count = await Subscription.open(
                        address, self.topic, self.channel, self, self._options
                    )
                except ConnectFailed as error:
                    if first.done() and str(error) != last_error:
                        self._log_unreachable(error)
                    last_error = str(error)
                    _settle(first, error)  # whoever waits for it raises it, or logs it
                    continue
                last_error, began_at = "", self._now()
                await self._serve(subscription, max_rdy_count, first)
                pauses.held(self._now() - began_at)
        finally:
            self._keepers.pop(address, None)
            self.progressed()

    async def _serve(self, subscription: Subscription, max_rdy_count: int, first: _FirstAttempt) -> None:
        address = subscription.address
        if self._stopping:
            subscription.close("the consumer stopped")
            return
        self._subscriptions[address] = subscription
        changes = self._distribution.joined(address, max_rdy_count, self._now())
        subscription.slot = self._distribution.slots[address]
        self._send_ready(changes)
        log.info("%s/%s: connected to nsqd %s", self.topic, self.channel, address)
        _settle(first)
        try:
            await subscription.closed.wait()
        finally:
            subscription.close("the consumer stopped")
            del self._subscriptions[address]
            self._send_ready(self._distribution.left(address, self._now()))
        self._poll_now.set()
        if not self._stopping:
            log.warning("%s/%s: nsqd %s: %s", self.topic, self.channel, address, subscription.close_reason)

    def _log_unreachable(self, error: ConnectFailed) -> None:
        log.warning("%s/%s: %s; trying again", self.topic, self.channel, error)

    def _send_ready(self, changes: list[ReadyCount[str]]) -> None:
        if not self._stopping:
            for address, count in changes:
                self._subscriptions[address].send_ready(count)

    async def _redistribute_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.rdy_redistribute_interval.total_seconds())
            self._send_ready(self._distribution.redistribute(self._now()))

    # discovery

    def _is_wanted(self, address: str) -> bool:
        return address in self._direct or address in self._discovery.addresses

    async def _poll_forever(self, lookup: Lookup) -> None:
        interval = self._options.lookupd_poll_interval.total_seconds()
        pause = interval * self._options.lookupd_poll_jitter * random.random()
        while True:
            try:
                await asyncio.wait_for(self._poll_now.wait(), pause + interval)
            except TimeoutError:
                pass
            self._poll_now.clear()
            pause = 0.0
            await self._poll(lookup)

    async def _poll(self, lookup: Lookup) -> None:
        answer = await lookup.producers(self.topic)
        errors = {str(error) for error in answer.errors}
        for error in sorted(errors - self._lookup_errors):  # one line per failure, not one per poll
            log.warning("%s/%s: %s; asking again", self.topic, self.channel, error)
        self._lookup_errors = errors
        self._discovery.polled([each.tcp_address for each in answer.producers], complete=not answer.errors)
        for address in self._discovery.forgettable():
            subscription = self._subscriptions.get(address)
            idle_since = self._now() - self._options.lookupd_poll_interval.total_seconds()
            if subscription is None or (not subscription.in_flight and subscription.slot.last_message_at < idle_since):
                self._discovery.forget(address)
                if subscription is not None and not self._is_wanted(address):
                    subscription.begin_close()
        for unreachable in await asyncio.gather(*(self._keep(each) for each in sorted(self._discovery.addresses))):
            if unreachable is not None:
                self._log_unreachable(unreachable)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _Iteration:
    """One ``async for`` over a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._current: Message | None = None
        self._task: asyncio.Task[object] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self.leave(None)
        message = await self._consumer.next_message()
        if message is None:
            raise StopAsyncIteration
        self._current = message
        self._task = asyncio.current_task()
        self._consumer._iterations.add(self)
        return message

    def is_over(self) -> bool:
        """Whether its loop was left: asked by the task that closes the consumer, it can only be the loop's own."""
        return self._task is None or self._task.done() or self._task is asyncio.current_task()

    def leave(self, error: BaseException | None) -> None:
        """The loop's body is through with its message, or was left by ``error``."""
        message, self._current = self._current, None
        self._consumer._iterations.discard(self)
        if message is None or not message.auto_response:
            return
        if error is None:
            message.finish()
        elif isinstance(error, Exception):
            message.requeue()
        else:
            message.requeue(timedelta(0), backoff=False)


def _settle(first: _FirstAttempt, error: ConnectFailed | None = None) -> None:
    if not first.done():
        first.set_result(error)
