"""The browsers of one web process: one subscription in Redis for all of them, and a seat for each."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict, deque

from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from cluster import store
from cluster.live import unpacked
from cluster.picture import EVERYTHING, View

logger = logging.getLogger(__name__)

MOST_WAITING = 20
"""Messages that wait for one browser. What does not fit is dropped: it sees the gap and is sent the whole picture."""
PATIENCE_S = 15.0
"""How long a browser that comes waits for Redis."""
SENT_AT_ONCE = 4
"""Browsers that are sent something between two looks at what else the process has to do."""
CONNECTIONS = 8
"""To Redis, for all browsers."""
KEPT_EVERY_S = 5.0
AGAIN_S = (0.1, 0.5)
"""Between a subscription that ended and the next."""


class Seat:
    """One browser's: what it looks at, and what waits for it as (group, text, base, version)."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.view: View = EVERYTHING
        self.watching: store.Channel | None = None
        self._waiting: deque[tuple[str, str, int | None, int | None]] = deque()
        self._came = asyncio.Event()

    def hand(self, group: str, text: str, base: int | None, version: int | None) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((group, text, base, version))
            self._came.set()

    async def next(self) -> tuple[str, str, int | None, int | None]:
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        return self._waiting.popleft()


class Audience:
    """Hears what is told (cluster.live) and hands it to the seats of the group; keeps the collector aware of what they
    look at. What is heard is decoded once, however many browsers it goes to."""

    def __init__(self) -> None:
        self._seats: dict[str, set[Seat]] = defaultdict(set)
        self._hearing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._turns = asyncio.Semaphore(SENT_AT_ONCE)
        self._redis: Redis | None = None

    @property
    def redis(self) -> Redis:
        """One client for all browsers."""
        if self._redis is None:
            self._redis = store.connect_for_many(CONNECTIONS, patience_s=PATIENCE_S)
        return self._redis

    async def turn(self) -> None:
        """Wait until it is this browser's turn to be sent something: hundreds at once would keep whoever else asks the
        process waiting for as long as it takes to write to them all."""
        async with self._turns:
            await asyncio.sleep(0)

    async def join(self, seat: Seat, *groups: str) -> None:
        """Hand ``seat`` what these groups are told from now on. Raises TimeoutError while there is no Redis to hear."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._keep())]
        async with asyncio.timeout(PATIENCE_S):
            await self._hearing.wait()
        for group in groups:
            seat.groups.add(group)
            self._seats[group].add(seat)

    def leave(self, seat: Seat, *groups: str) -> None:
        """Hand it nothing more of these groups; without any: of none."""
        for group in groups or tuple(seat.groups):
            seat.groups.discard(group)
            held = self._seats[group]
            held.discard(seat)
            if not held:
                del self._seats[group]

    async def _hear(self) -> None:
        while True:
            try:
                await self._subscribe()
            except (RedisError, OSError) as error:
                logger.warning("hears nothing from Redis, tries again", extra={"error": str(error)})
            except Exception:  # a message nobody understands must not end them all
                logger.exception("what was told could not be handed on")
            self._hearing.clear()
            await asyncio.sleep(random.uniform(*AGAIN_S))

    async def _subscribe(self) -> None:
        # No limit on how long nobody says anything; keepalive finds a Redis whose machine is gone. In RESP3 redis-py
        # writes out each message for a debug line that nobody asked for.
        client = Redis.from_url(settings.REDIS_URL, protocol=2, **keepalive())
        async with client, client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(store.LIVE)
            await client.ping()
            self._hearing.set()
            async for message in subscription.listen():
                self._hand_on(message["data"])

    def _hand_on(self, data: bytes) -> None:
        for told in unpacked(data):
            seats = self._seats.get(told.group)
            if seats:
                text = told.text.decode()
                for seat in seats:
                    seat.hand(told.group, text, told.base, told.version)

    async def _keep(self) -> None:
        """Say again and again what is looked at: it expires, and a Redis that was started anew knows of nothing."""
        while True:
            await asyncio.sleep(KEPT_EVERY_S)
            seats = {seat for held in self._seats.values() for seat in held}
            views = {seat.view for seat in seats} - {EVERYTHING}
            watched = {seat.watching for seat in seats if seat.watching is not None}
            try:
                await store.keep_looking(self.redis, views, watched)
            except (RedisError, OSError) as error:
                logger.warning("what browsers look at was not renewed in Redis", extra={"error": str(error)})


def keepalive() -> dict[str, bool]:
    """redis-py's option for TCP; a Unix socket takes none."""
    return {} if settings.REDIS_URL.startswith("unix:") else {"socket_keepalive": True}


audience = Audience()
