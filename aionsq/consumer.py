"""Consuming one channel of a topic from every nsqd that has the topic."""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.addresses import address_list, check_address, http_url
from aionsq.arguments import check_callable, check_name, check_options, check_type
from aionsq.arrivals import Arrivals, Iteration
from aionsq.backoff import Backoff, Outcome, State
from aionsq.errors import ConnectFailed, ConsumerStopped, InvalidArgument
from aionsq.lookup import Lookup
from aionsq.membership import Membership
from aionsq.message import Message
from aionsq.options import ConsumerOptions
from aionsq.ready import Distribution, ReadyCount
from aionsq.subscription import Subscription
from aionsq.tracing import Tracing, default_tracing
from nsqwire.errors import BadChannel, BadTopic
from nsqwire.names import is_valid_name
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

Handler = Callable[[Message], Awaitable[object] | object]

STOP_GRACE = timedelta(seconds=30)
_NO_CONNECTION_RETRY_SECONDS = 1.0


class Consumer:
    """Receives a channel's messages.

        async with Consumer("orders", "archive", lookupd_http_addresses=["127.0.0.1:4161"]) as consumer:
            async for message in consumer:
                print(message.body)

    A message is finished at the end of the loop's body. If the body raises, the message is requeued and the loop ends.
    Several tasks may iterate over one consumer. :meth:`run` is the alternative: it calls a handler for several messages
    at once; an exception requeues the handler's message and starts backoff.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        nsqd_tcp_addresses: str | Sequence[str] = (),
        lookupd_http_addresses: str | Sequence[str] = (),
        lookupd_tls: ssl.SSLContext | None = None,
        options: ConsumerOptions | None = None,
        give_up: Handler | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """``lookupd_tls`` is for nsqlookupds over HTTPS; by default the system's certificate authorities are trusted.
        ``give_up`` is called with a message delivered more than ``max_attempts`` times, which is then finished.
        ``tracing``, such as :class:`aionsq.otel.Tracing`, implies the option ``headers``.

        Raises BadTopic, BadChannel and, for an address that is invalid or missing, or a file for TLS that cannot be
        used, InvalidArgument. Raises WrongType for arguments of other types.
        """
        check_name(topic, "topic")
        check_name(channel, "channel")
        check_options(options, ConsumerOptions)
        check_type("lookupd_tls", lookupd_tls, ssl.SSLContext | None)
        check_type("tracing", tracing, Tracing | None)
        if give_up is not None:
            check_callable("give_up", give_up)
        if not is_valid_name(topic):
            raise BadTopic(f"topic name {topic!r} is not valid")
        if not is_valid_name(channel):
            raise BadChannel(f"channel name {channel!r} is not valid")
        if not nsqd_tcp_addresses and not lookupd_http_addresses:
            raise InvalidArgument("a consumer needs the address of an nsqd or of an nsqlookupd")
        self._direct = address_list(nsqd_tcp_addresses, "nsqd_tcp_addresses")
        self._lookup_addresses = address_list(lookupd_http_addresses, "lookupd_http_addresses")
        for address in self._direct:
            check_address(address)
        for address in self._lookup_addresses:
            http_url(address)
        self.topic = topic
        self.channel = channel
        self.messages_received = 0
        self.messages_finished = 0
        self.messages_requeued = 0
        self.trial: int | None = None
        self._tracing = tracing or default_tracing()
        self._options = options or ConsumerOptions()
        if self._tracing is not None:
            self._options = replace(self._options, headers=True)
        if self._options.tls_v1:
            self._options.ssl_context()  # raises InvalidArgument now, not when it connects
        self._lookupd_tls = lookupd_tls
        self._lookup: Lookup | None = None
        self._give_up = give_up
        self._membership = Membership(
            f"{topic}/{channel}", self._open, self._options, joined=self._joined, left=self._left
        )
        self._subscriptions = self._membership.subscriptions
        self._arrivals = Arrivals(self._is_over)
        self._iterations: set[Iteration] = set()
        self._redistributing: asyncio.Task[None] | None = None
        self._distribution: Distribution[str] = Distribution(
            self._options.max_in_flight,
            low_rdy_idle_timeout=self._options.low_rdy_idle_timeout,
            low_rdy_timeout=self._options.low_rdy_timeout,
        )
        self._backoff = Backoff(self._options.strategy(), self._options.max_backoff_duration)
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()
        self._grace_timer: asyncio.TimerHandle | None = None
        self._grace_ends_at: Seconds = 0.0
        self._unanswered: list[Message] = []
        self._handling = 0
        self._started = False
        self._stopping = False

    # --- start, stop, changes ---

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
        self._arrivals.abandon()
        await self.stop()

    async def start(self) -> None:
        """Connect to the given nsqds, and query the nsqlookupds once.

        Raises ConnectFailed if none of the given nsqds can be reached and there is no nsqlookupd, and ConsumerStopped
        after a stop. nsqlookupds that do not answer are queried again at the next poll. The consumer is stopped if this
        fails or is cancelled.
        """
        if self._stopping:
            raise ConsumerStopped(f"the consumer of {self.topic}/{self.channel} was stopped")
        if self._started:
            return
        self._started = True
        try:
            await self._membership.connect(self._direct, must_reach_one=not self._lookup_addresses)
            if self._lookup_addresses:
                await self._discover(self._lookup_addresses)
        except (ConnectFailed, asyncio.CancelledError):
            await self.stop(timedelta(0))
            raise
        if not self._stopping:
            self._redistributing = asyncio.create_task(self._redistribute_forever())

    def begin_stop(self, grace: timedelta = STOP_GRACE) -> None:
        """Request no more messages, and give handlers up to ``grace`` to answer those that have arrived; does not wait.

        Loops over the consumer end after the messages that have arrived. Callable from any code in the event loop,
        including its signal handlers. A second call may shorten the grace period.
        """
        check_type("grace", grace, timedelta)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + grace.total_seconds()
        if self._grace_timer is None or ends_at < self._grace_ends_at:
            if self._grace_timer is not None:
                self._grace_timer.cancel()
            self._grace_ends_at = ends_at
            self._grace_timer = loop.call_at(ends_at, self._end_grace)
        if self._stopping:
            return
        self._stopping = True
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        if self._redistributing is not None:
            self._redistributing.cancel()
        self._membership.begin_close()
        self.progressed()

    async def stop(self, grace: timedelta = STOP_GRACE) -> list[Message]:
        """Stop: give handlers up to ``grace`` to answer their messages, then close the connections.

        Returns the messages that handlers or loops had taken and not answered; nsqd redelivers them, here or elsewhere.
        Messages that had arrived but were not taken are requeued. Inside a loop over the consumer, call
        :meth:`begin_stop` or leave the loop instead: ``stop`` would wait for the loop's own message.
        """
        self.begin_stop(grace)
        await self._stopped.wait()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        await self._membership.wait_closed()
        if self._lookup is not None:
            await self._lookup.close()
        return self._unanswered

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call ``handler(message)`` for each message, ``concurrency`` at a time, until the consumer has stopped.

        The handler may be a coroutine function or a plain function. Its message is finished when it returns and
        requeued with backoff when it raises, unless the handler answered the message or disabled automatic answers.
        Handlers that are still running at the end of a stop's grace period are cancelled. A consumer that was not
        started is started, and stopped at the end.

        Raises WrongType, InvalidArgument for a ``concurrency`` below 1, and as :meth:`start`.
        """
        check_callable("handler", handler)
        check_type("concurrency", concurrency, int)
        if concurrency < 1:
            raise InvalidArgument(f"concurrency {concurrency} is less than 1")
        was_started = self._started
        if not was_started:  # a consumer that was started and stopped still delivers the messages that have arrived
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
        """Apply a new maximum at once; 0 pauses the consumer. Raises InvalidArgument if it is negative, WrongType."""
        check_type("max_in_flight", max_in_flight, int)
        if max_in_flight < 0:
            raise InvalidArgument(f"max_in_flight {max_in_flight} is less than 0")
        self._send_ready(self._distribution.change_max_in_flight(max_in_flight, self._now()))

    async def connect_to_nsqd(self, address: str) -> None:
        """Connect to one more nsqd and stay connected.

        Raises ConnectFailed, ConsumerStopped and, for the address, InvalidArgument.
        """
        check_address(address)
        self._refuse_unless_running()
        await self._membership.add(address)

    def disconnect_from_nsqd(self, address: str) -> None:
        """Disconnect from an nsqd once its messages are answered.

        If an nsqlookupd lists the nsqd, the next poll connects to it again. Raises InvalidArgument if the consumer is
        neither connected to it nor trying to connect.
        """
        check_type("an address", address, str)
        self._membership.remove(address)

    async def connect_to_nsqlookupd(self, address: str) -> None:
        """Query one more nsqlookupd from now on. Raises ConsumerStopped, InvalidArgument (address)."""
        http_url(address)
        self._refuse_unless_running()
        if self._lookup is None:
            await self._discover([address])
        else:
            self._lookup.add(address)
            self._membership.poll_soon()

    def disconnect_from_nsqlookupd(self, address: str) -> None:
        """Stop querying an nsqlookupd. Raises InvalidArgument for an unknown address and for the last nsqlookupd."""
        check_type("an address", address, str)
        if self._lookup is None:
            raise InvalidArgument(f"nsqlookupd {address} is not one of the consumer's")
        self._lookup.remove(address)

    @property
    def max_in_flight(self) -> int:
        """The current maximum."""
        return self._distribution.max_in_flight

    @property
    def connections(self) -> list[str]:
        """Addresses of the nsqds that the consumer is connected to."""
        return list(self._subscriptions)

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has 85 % or more of its RDY count in flight, so that it will soon send nothing more.

        A caller that collects messages and answers them together should then answer them instead of waiting for more.
        """
        slots = [each.slot for each in self._subscriptions.values()]
        return any(slot.in_flight_count > 0 and slot.in_flight_count >= int(slot.ready_count * 0.85) for slot in slots)

    # --- taking messages ---

    def __aiter__(self) -> Iteration:
        tracing = self._tracing
        trace = None if tracing is None else lambda message: tracing.process(message, self.topic, self.channel)
        return Iteration(self._next, self._iterations, trace)

    async def next_message(self) -> Message | None:
        """Wait for the next message, which the caller must answer; None when the consumer has stopped."""
        if self._tracing is None:
            return await self._next()
        began_ns = time.time_ns()
        message = await self._next()
        if message is not None:
            self._tracing.receive(message, self.topic, self.channel, began_ns)
        return message

    async def _next(self) -> Message | None:
        while (message := await self._arrivals.take()) is not None:
            if 0 < self._options.max_attempts < message.attempts:
                await self._give_up_on(message)
            else:
                return message
        return None

    def _is_over(self) -> bool:
        """Whether no more messages will arrive: every nsqd has confirmed the stop or disconnected."""
        return self._stopping and all(each.close_waiting or not each.is_open for each in self._subscriptions.values())

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
        tracing = self._tracing
        while (message := await self._next()) is not None:
            self._handling += 1
            trace = None if tracing is None else tracing.process(message, self.topic, self.channel)
            failure: BaseException | None = None
            try:
                result = handler(message)
                if result is not None and inspect.isawaitable(result):
                    await result
            except Exception as error:
                failure = error
                log.exception("%s/%s: handler failed for %r", self.topic, self.channel, message)
                if message.auto_response:
                    message.requeue()
            except BaseException as error:
                failure = error
                if message.auto_response:
                    message.requeue(timedelta(0), backoff=False)
                raise
            else:
                if message.auto_response:
                    message.finish()
            finally:
                if trace is not None:
                    trace.ended(failure)
                failure = None  # an exception that this frame refers to would be in a cycle with it
                self._handling -= 1
                if self._stopping:
                    self.progressed()

    # --- called by the subscriptions ---

    def delivered(self, messages: list[Message]) -> None:
        self.messages_received += len(messages)
        self._arrivals.put(messages)

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

    def released(self) -> None:
        self._send_ready(self._distribution.redistribute(self._now()))

    def progressed(self) -> None:
        if self._stopping:
            self._arrivals.look_again()
            if not self._subscriptions and not self._handling:
                self._stopped.set()

    def _test(self) -> None:
        if not self._subscriptions:
            self._backoff_timer = asyncio.get_running_loop().call_later(_NO_CONNECTION_RETRY_SECONDS, self._test)
            return
        self.trial = self._backoff.expired()
        self._send_ready(self._distribution.test(self._now()))

    def _end_grace(self) -> None:
        self._arrivals.abandon()
        self._unanswered = [message for each in self._subscriptions.values() for message in each.in_flight]
        if self._unanswered:
            log.warning("%s/%s: stopped with %d unanswered", self.topic, self.channel, len(self._unanswered))
        self._membership.close()
        self._stopped.set()

    # --- connections ---

    async def _discover(self, addresses: Sequence[str]) -> None:
        self._lookup = Lookup(
            addresses,
            timeout=self._options.lookupd_poll_timeout,
            headers=self._options.lookupd_headers(),
            tls=self._lookupd_tls,
        )
        await self._membership.discover(self._lookup, self.topic)

    def _refuse_unless_running(self) -> None:
        if self._stopping or not self._started:
            state = "was stopped" if self._stopping else "was not started"
            raise ConsumerStopped(f"the consumer of {self.topic}/{self.channel} {state}")

    async def _open(self, address: str) -> tuple[Subscription, int]:
        return await Subscription.open(address, self.topic, self.channel, self, self._options)

    def _joined(self, subscription: Subscription, max_rdy_count: int) -> None:
        changes = self._distribution.joined(subscription.address, max_rdy_count, self._now())
        subscription.slot = self._distribution.slots[subscription.address]
        self._send_ready(changes)
        if self._stopping:
            subscription.begin_close()

    def _left(self, subscription: Subscription) -> None:
        self._send_ready(self._distribution.left(subscription.address, self._now()))
        self.progressed()

    def _send_ready(self, changes: list[ReadyCount[str]]) -> None:
        if not self._stopping:
            for address, count in changes:
                self._subscriptions[address].send_ready(count)

    async def _redistribute_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.rdy_redistribute_interval.total_seconds())
            self._send_ready(self._distribution.redistribute(self._now()))

    def _now(self) -> Seconds:
        return asyncio.get_running_loop().time()
