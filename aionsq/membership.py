"""A consumer's connections to every nsqd that has a topic: the configured ones and those that nsqlookupds list."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from aionsq.discovery import Discovery
from aionsq.errors import ConnectFailed, InvalidArgument
from aionsq.lookup import Lookup
from aionsq.options import ConsumerOptions
from aionsq.reconnect import Reconnect
from aionsq.subscription import Subscription
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

_FirstAttempt = asyncio.Future[ConnectFailed | None]


class Membership:
    """Opens, keeps and replaces the subscriptions of one consumer."""

    def __init__(
        self,
        name: str,
        open_subscription: Callable[[str], Awaitable[tuple[Subscription, int]]],
        options: ConsumerOptions,
        *,
        joined: Callable[[Subscription, int], None],
        left: Callable[[Subscription], None],
    ) -> None:
        """``name`` is for the log. ``joined`` is called with a new subscription and the largest RDY count of its nsqd,
        ``left`` with a subscription that has ended."""
        self.subscriptions: dict[str, Subscription] = {}
        """Established subscriptions, by address."""
        self._name = name
        self._open = open_subscription
        self._options = options
        self._joined = joined
        self._left = left
        self._direct: list[str] = []
        self._discovery = Discovery()
        self._lookup_errors: set[str] = set()
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()
        self._closing = False

    async def connect(self, addresses: Sequence[str], *, must_reach_one: bool) -> None:
        """Connect to these nsqds and stay connected. Raises ConnectFailed if ``must_reach_one`` and none answers."""
        self._direct = list(addresses)
        failures = [failure for failure in await asyncio.gather(*map(self._keep, addresses)) if failure is not None]
        if must_reach_one and failures and len(failures) == len(addresses):
            raise failures[0]
        for failure in failures:
            self._log_unreachable(failure)

    async def add(self, address: str) -> None:
        """Connect to one more nsqd and stay connected. After raising ConnectFailed, it does not try again."""
        if address not in self._direct:
            self._direct.append(address)
        failure = await self._keep(address)
        if failure is not None:
            self._direct.remove(address)
            raise failure

    def remove(self, address: str) -> None:
        """Disconnect from an nsqd once its messages are answered. Raises InvalidArgument for an unknown address."""
        if address not in self._keepers:
            raise InvalidArgument(f"not connected to nsqd {address}")
        if address in self._direct:
            self._direct.remove(address)
        self._discovery.forget(address)
        if address in self.subscriptions:
            self.subscriptions[address].begin_close()
        else:
            self._keepers.pop(address).cancel()

    def poll_soon(self) -> None:
        """Poll the nsqlookupds now, because their addresses have changed."""
        self._poll_now.set()

    async def discover(self, lookup: Lookup, topic: str) -> None:
        """Poll the nsqlookupds now and then periodically."""
        await self._poll(lookup, topic)
        if not self._closing:
            self._poller = asyncio.create_task(self._poll_forever(lookup, topic))

    def begin_close(self) -> None:
        """Stop discovering nsqds, and request no more messages from the connected ones."""
        self._closing = True
        if self._poller is not None:
            self._poller.cancel()
        for address, keeper in self._keepers.items():
            if address not in self.subscriptions:
                keeper.cancel()
        for subscription in self.subscriptions.values():
            subscription.begin_close()

    def close(self) -> None:
        """Close all connections, even if messages are unanswered."""
        for subscription in self.subscriptions.values():
            subscription.close("the consumer stopped")

    async def wait_closed(self) -> None:
        """Wait until the last connection is closed and polling has ended."""
        poller = [self._poller] if self._poller is not None else []
        await asyncio.gather(*self._keepers.values(), *poller, return_exceptions=True)

    def _keep(self, address: str) -> _FirstAttempt:
        """Stay connected to an nsqd. The result of the future is the first attempt's error, or None if it succeeded."""
        first: _FirstAttempt = asyncio.get_running_loop().create_future()
        if address in self._keepers or self._closing:
            first.set_result(None)
            return first
        keeper = asyncio.create_task(self._stay_connected(address, first))
        self._keepers[address] = keeper
        keeper.add_done_callback(lambda _: _resolve(first))
        return first

    async def _stay_connected(self, address: str, first: _FirstAttempt) -> None:
        pauses = Reconnect(self._options.max_reconnect_delay)
        last_error = ""
        try:
            while not self._closing and self._is_wanted(address):
                await asyncio.sleep(pauses.next_delay_s())
                if not self._is_wanted(address):
                    break
                try:
                    subscription, max_rdy_count = await self._open(address)
                except ConnectFailed as error:
                    if first.done() and str(error) != last_error:
                        self._log_unreachable(error)
                    last_error = str(error)
                    _resolve(first, error)  # the caller that awaits it raises or logs the error
                    continue
                last_error, began_at = "", _now()
                await self._serve(subscription, max_rdy_count, first)
                pauses.lasted(_now() - began_at)
        finally:
            if self._keepers.get(address) is asyncio.current_task():
                del self._keepers[address]

    async def _serve(self, subscription: Subscription, max_rdy_count: int, first: _FirstAttempt) -> None:
        address = subscription.address
        self.subscriptions[address] = subscription
        self._joined(subscription, max_rdy_count)
        log.info("%s: connected to nsqd %s", self._name, address)
        _resolve(first)
        try:
            await subscription.closed.wait()
            if self._closing:
                pass
            elif subscription.closed_here:
                log.info("%s: disconnected from nsqd %s", self._name, address)
            else:
                log.warning("%s: nsqd %s: %s", self._name, address, subscription.close_reason)
        finally:
            subscription.close("the consumer stopped")
            del self.subscriptions[address]
            self._left(subscription)
        self._poll_now.set()

    def _log_unreachable(self, error: ConnectFailed) -> None:
        log.warning("%s: %s; retrying", self._name, error)

    def _is_wanted(self, address: str) -> bool:
        return address in self._direct or address in self._discovery.addresses

    async def _poll_forever(self, lookup: Lookup, topic: str) -> None:
        interval = self._options.lookupd_poll_interval.total_seconds()
        pause = interval * self._options.lookupd_poll_jitter * random.random()
        while True:
            try:
                async with asyncio.timeout(pause + interval):
                    await self._poll_now.wait()
            except TimeoutError:
                pass
            self._poll_now.clear()
            pause = 0.0
            await self._poll(lookup, topic)

    async def _poll(self, lookup: Lookup, topic: str) -> None:
        answer = await lookup.producers(topic)
        errors = {str(error) for error in answer.errors}
        for text in sorted(errors - self._lookup_errors):  # one line per failure, not one per poll
            log.warning("%s: %s; retrying", self._name, text)
        self._lookup_errors = errors
        self._discovery.polled([each.tcp_address for each in answer.producers], complete=not answer.errors)
        self._forget_idle()
        for failure in await asyncio.gather(*map(self._keep, sorted(self._discovery.addresses))):
            if failure is not None:
                self._log_unreachable(failure)

    def _forget_idle(self) -> None:
        """Disconnect from nsqds that are no longer listed, unless they still deliver messages."""
        idle_since = _now() - self._options.lookupd_poll_interval.total_seconds()
        for address in self._discovery.forgettable():
            subscription = self.subscriptions.get(address)
            if subscription is None:
                self._discovery.forget(address)
            elif not subscription.in_flight and subscription.slot.last_message_at < idle_since:
                self._discovery.forget(address)
                if not self._is_wanted(address):
                    subscription.begin_close()


def _now() -> Seconds:
    return asyncio.get_running_loop().time()


def _resolve(first: _FirstAttempt, error: ConnectFailed | None = None) -> None:
    if not first.done():
        first.set_result(error)
