"""The browsers of one web process: one Redis subscription for all, and a bounded queue for each."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable

import orjson
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from nsqplatform.cluster import store
from nsqplatform.cluster.live.broadcast import ACCOUNTS, unpacked
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, View
from nsqplatform.clusters.current import PerCluster

logger = logging.getLogger(__name__)

MAX_QUEUED = 20
"""Maximum number of messages queued for one browser. Further ones are dropped; the browser is then sent the whole
snapshot."""
TIMEOUT_S = 15.0
"""How long a new browser waits for Redis."""
SENT_AT_ONCE = 4
"""Maximum number of browsers that are sent a message before the event loop runs other tasks."""
CONNECTIONS = 8
"""Connections to Redis, shared by all browsers."""
RENEW_INTERVAL_S = 5.0
RETRY_DELAY_S = (0.1, 0.5)
"""Range of the random delay before subscribing again."""
PING_AFTER_S = 1.0
"""After this time without a message, the subscription is pinged."""
PONG_WITHIN_S = 1.0
"""A subscription that does not answer a ping in this time is lost: TCP does not report that the machine is gone."""
ACCOUNT_CHECK_INTERVAL_S = 1.0
"""While there is no subscription, websockets are notified at this interval that any account may have changed."""


class Subscription:
    """One browser's groups, view and queue of (group, text, base, version)."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.view: View = EVERYTHING
        self.watching: store.Channel | None = None
        self._queue: deque[tuple[str, str, int | None, int | None]] = deque()
        self._arrived = asyncio.Event()

    def put(self, group: str, text: str, base: int | None, version: int | None) -> None:
        if len(self._queue) < MAX_QUEUED:
            self._queue.append((group, text, base, version))
            self._arrived.set()

    async def next(self) -> tuple[str, str, int | None, int | None]:
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()


class Subscribers:
    """Puts each published message (cluster.live.broadcast) into the queues of its group, decoded once for all browsers.
    Renews in Redis the views and channels that browsers watch. Notifies websockets of changed accounts."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, set[Subscription]] = defaultdict(set)
        self._account_listeners: set[Callable[[int | None], None]] = set()
        self._subscribed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._senders = asyncio.Semaphore(SENT_AT_ONCE)
        self._redis: Redis | None = None

    @property
    def redis(self) -> Redis:
        """One client for all browsers."""
        if self._redis is None:
            self._redis = store.connect_for_many(CONNECTIONS, patience_s=TIMEOUT_S)
        return self._redis

    async def wait_turn(self) -> None:
        """Wait until this browser may be sent to. Writing to hundreds at once would delay every other request."""
        async with self._senders:
            await asyncio.sleep(0)

    async def join(self, subscription: Subscription, *groups: str) -> None:
        """Queue the messages of these groups from now on. Raises TimeoutError if Redis cannot be reached."""
        self._start()
        async with asyncio.timeout(TIMEOUT_S):
            await self._subscribed.wait()
        for group in groups:
            subscription.groups.add(group)
            self._subscriptions[group].add(subscription)

    def leave(self, subscription: Subscription, *groups: str) -> None:
        """Stop queueing the messages of these groups, or of all groups if none is given."""
        for group in groups or tuple(subscription.groups):
            subscription.groups.discard(group)
            members = self._subscriptions[group]
            members.discard(subscription)
            if not members:
                del self._subscriptions[group]

    def listen_to_accounts(self, listener: Callable[[int | None], None]) -> None:
        """Call ``listener`` with the id of each account whose permissions or credentials changed, from now on.

        Calls it with None when any account may have changed: after each subscription to Redis, and repeatedly while
        there is none.
        """
        self._start()
        self._account_listeners.add(listener)

    def ignore_accounts(self, listener: Callable[[int | None], None]) -> None:
        self._account_listeners.discard(listener)

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(each()) for each in (self._receive, self._renew, self._check_accounts)]

    async def _receive(self) -> None:
        while True:
            try:
                await self._subscribe()
            except (RedisError, OSError) as error:
                logger.warning("Redis subscription lost; will retry", extra={"error": str(error)})
            except Exception:  # one malformed message must not end the subscription
                logger.exception("cannot dispatch a published message")
            self._subscribed.clear()
            self._account_changed(None)
            await asyncio.sleep(random.uniform(*RETRY_DELAY_S))

    async def _check_accounts(self) -> None:
        """Make all websockets check their accounts while there is no subscription, which would report changes."""
        while True:
            await asyncio.sleep(ACCOUNT_CHECK_INTERVAL_S)
            if not self._subscribed.is_set():
                self._account_changed(None)

    async def _subscribe(self) -> None:
        # Without retries: redis-py would subscribe again by itself, and messages in between would be missed silently.
        # With RESP3, it formats each message for a debug line even when debug logging is off.
        client = Redis.from_url(settings.REDIS_URL, protocol=2, retry=Retry(NoBackoff(), 0), **keepalive())
        async with client, client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(store.LIVE())
            await client.ping()
            self._subscribed.set()
            self._account_changed(None)
            is_pinged = False
            while True:
                message = await subscription.get_message(timeout=PONG_WITHIN_S if is_pinged else PING_AFTER_S)
                if message is not None:
                    is_pinged = False
                    if message["type"] == "message":
                        self._dispatch(message["data"])
                elif is_pinged:
                    raise ConnectionError(f"no answer to a ping within {PONG_WITHIN_S:g} s")
                else:  # messages may be rare
                    await subscription.ping()
                    is_pinged = True

    def _dispatch(self, data: bytes) -> None:
        for envelope in unpacked(data):
            if envelope.group == ACCOUNTS:
                self._account_changed(orjson.loads(envelope.text)["user_id"])
                continue
            subscriptions = self._subscriptions.get(envelope.group)
            if subscriptions:
                text = envelope.text.decode()
                for subscription in subscriptions:
                    subscription.put(envelope.group, text, envelope.base, envelope.version)

    def _account_changed(self, user_id: int | None) -> None:
        for listener in tuple(self._account_listeners):
            listener(user_id)

    async def _renew(self) -> None:
        """Renew the watches periodically: they expire, and a restarted Redis has none."""
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            subscriptions = {subscription for members in self._subscriptions.values() for subscription in members}
            views = {subscription.view for subscription in subscriptions} - {EVERYTHING}
            watched = {subscription.watching for subscription in subscriptions if subscription.watching is not None}
            try:
                await store.renew_watches(self.redis, views, watched)
            except (RedisError, OSError) as error:
                logger.warning("cannot renew the watches of browsers in Redis", extra={"error": str(error)})


def keepalive() -> dict[str, bool]:
    """redis-py's keepalive option, which Unix sockets do not accept."""
    return {} if settings.REDIS_URL.startswith("unix:") else {"socket_keepalive": True}


subscribers = PerCluster(Subscribers)
