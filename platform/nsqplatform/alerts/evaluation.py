"""Evaluates the rules against each snapshot, in the collector's process and on its event loop, in a few milliseconds.

Blocking work runs in threads: one for the database, a few for notifiers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import orjson
from django.db import close_old_connections, connections
from redis.asyncio import Redis

from nsqplatform.alerts import delivery, ledger, live, metrics, telling
from nsqplatform.alerts.engine import SETTLING_S, Engine, Fired, Resolved
from nsqplatform.alerts.pending import STANDINGS, Stored
from nsqplatform.alerts.wording import message_of
from nsqplatform.cluster import store
from nsqplatform.cluster.live.broadcast import CLUSTER, Message, publish
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.outbound import Undelivered

logger = logging.getLogger(__name__)

KEPT_EVERY_S = 2.0
"""How often it is kept in Redis what is pending."""
LOOK_EVERY_S = 5.0
"""How often it is looked at who has to be told what, whether or not anything happened: repeats, ends of silences."""
REPEATED_EVERY_S = 10.0
"""How often browsers are told though nothing changed."""
RULES_EVERY_S = 60.0
"""How often rules are read though nobody said that they changed; a Redis that was away may have swallowed that."""
SWEPT_EVERY_S = 3600.0
AWAY_S = 10.0
"""After so long without a snapshot another collector may have been at work."""
DELIVERED_AT_ONCE = 4
LONGEST_WAIT_S = 300.0
"""Between two attempts at a notifier that does not take its messages."""

T = TypeVar("T")


class Alerting:
    """A listener of the collector. ``asked``, in Redis, tells it that people changed something."""

    def __init__(self, *, settling_s: float | None = None) -> None:
        self._settling_s = SETTLING_S if settling_s is None else settling_s
        self._engine: Engine | None = None
        self._redis: Redis | None = None
        self._database = ThreadPoolExecutor(1, thread_name_prefix="alerts: database")
        self._senders = ThreadPoolExecutor(DELIVERED_AT_ONCE, thread_name_prefix="alerts: notifiers")
        self._beat_at = 0.0
        self._asked: bytes | str | None = None
        self._unsaved: list[Fired | Resolved] = []
        self._saving = asyncio.Lock()
        self._clerk: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._ending = False
        self._deliveries: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        """Of each notifier, attempts since something went through."""
        self._not_before: dict[int, float] = {}
        self._repeated_at = self._sweep_at = 0.0
        self._kept_at = 0.0
        self._kept_some = True

    # ---- each beat

    async def on_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        now = time.time()
        if self._engine is None or not 0 <= now - self._beat_at <= AWAY_S:
            self._engine = await self._restored(now)
            self._wake.set()
        self._beat_at = now
        began = time.perf_counter()
        for events in self._engine.evaluate(snapshot, now=now):
            self._unsaved += events
            await asyncio.sleep(0)
        metrics.evaluation_seconds.observe(time.perf_counter() - began)
        metrics.firing.clear()
        for rule, count in self._engine.firing():
            metrics.firing.labels(rule.name, rule.severity).set(count)
        redis = self._redis = self._redis or store.connect_async()
        asked = await redis.get(live.ASKED)
        if self._unsaved or asked != self._asked:
            self._wake.set()
        if self._clerk is None or self._clerk.done():
            self._clerk = asyncio.create_task(self._work())
        if now - self._kept_at >= KEPT_EVERY_S:
            self._kept_at = now
            await self._keep(redis, now)

    async def _keep(self, redis: Redis, now: float) -> None:
        assert self._engine is not None
        pending = self._engine.pending()
        if pending or self._kept_some:
            kept: Stored = {"at": now, "pending": {str(rule): keys for rule, keys in pending.items()}}
            await redis.set(STANDINGS, orjson.dumps(kept), ex=3600)
        self._kept_some = bool(pending)

    async def _restored(self, now: float) -> Engine:
        """An engine that goes on where the last one ended. Raises what the database raises."""
        await self._save()
        engine = Engine(settling_s=self._settling_s)
        redis = self._redis = self._redis or store.connect_async()
        self._asked = await redis.get(live.ASKED)
        standing = await self._in_database(ledger.in_force)
        firing = await self._in_database(ledger.firing)
        kept = await redis.get(STANDINGS)
        stored: Stored = orjson.loads(kept) if kept else {"at": 0.0, "pending": {}}
        pending = {int(rule): keys for rule, keys in stored["pending"].items()}
        engine.follow(standing.rules, now=now)
        self._unsaved += engine.restore(firing, pending, now=now, known=stored["at"])
        return engine

    async def finish(self) -> None:
        """Write down what is not yet; what was not yet told, the next collector tells."""
        # Told to end rather than cancelled: before Python 3.12 asyncio.wait_for, in which the Redis client waits, now
        # and then returns where it was cancelled.
        self._ending = True
        self._wake.set()
        if self._clerk is not None:
            await asyncio.gather(self._clerk, return_exceptions=True)
        for delivering in self._deliveries.values():
            delivering.cancel()
        await asyncio.gather(*self._deliveries.values(), return_exceptions=True)
        try:
            await self._save()
            if self._engine is not None and self._redis is not None:
                await self._keep(self._redis, self._beat_at)
        except Exception:
            logger.exception("the last changes of alerts are lost")
        finally:
            self._database.submit(connections.close_all)
            self._database.shutdown(wait=True)
            self._senders.shutdown(wait=False, cancel_futures=True)
            if self._redis is not None:
                await self._redis.aclose()

    # ---- aside from the beats

    async def _work(self) -> None:
        """Save what happened, follow what people changed, see who has to be told; again and again."""
        failing = False
        rules_at = time.monotonic()
        while True:
            self._wake.clear()
            try:
                await self._save()
                if time.time() - self._beat_at <= AWAY_S:  # else another collector may be at work
                    rules_at = await self._follow(rules_at)
                    self._deliver(await self._in_database(telling.due))
                    await self._repeat()
                    await self._sweep()
                failing = False
            except Exception:  # the database or Redis is away: nothing is lost, and it is tried again
                if not failing:
                    logger.exception("alerts cannot be kept or told")
                failing = True
                await asyncio.sleep(1.0)
            if self._ending:  # since the wake was cleared
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()

    async def _save(self) -> None:
        async with self._saving:
            events = list(self._unsaved)
            if events:
                changed = await self._in_database(lambda: ledger.save(events))
                del self._unsaved[: len(events)]
                await self._announce(changed)

    async def _announce(self, alert_ids: list[int]) -> None:
        if alert_ids:
            await self._tell_browsers(await self._in_database(lambda: live.next_message(alert_ids)))

    async def _tell_browsers(self, message: Message) -> None:
        redis = self._redis = self._redis or store.connect_async()
        await publish(redis, [(CLUSTER, message)])

    async def _repeat(self) -> None:
        """Browsers are told now and then though nothing changed, but not where nobody uses alerts."""
        assert self._engine is not None
        now = time.monotonic()
        if self._engine.firing() and now - self._repeated_at >= REPEATED_EVERY_S:
            self._repeated_at = now
            await self._tell_browsers(await self._in_database(live.present_message))

    async def _follow(self, rules_at: float) -> float:
        assert self._engine is not None
        assert self._redis is not None
        asked = await self._redis.get(live.ASKED)
        if asked == self._asked and time.monotonic() - rules_at < RULES_EVERY_S:
            return rules_at
        standing = await self._in_database(ledger.in_force)
        self._unsaved += self._engine.follow(standing.rules, now=time.time())
        self._engine.close(standing.closed)
        if asked != self._asked:
            self._not_before.clear()  # a notifier that was put right is not kept waiting
        self._asked = asked
        await self._save()
        return time.monotonic()

    async def _sweep(self) -> None:
        if time.monotonic() >= self._sweep_at:
            await self._in_database(ledger.sweep)
            self._sweep_at = time.monotonic() + SWEPT_EVERY_S

    def _deliver(self, due: list[telling.Due]) -> None:
        """Begin what can be; a notifier has one delivery under way, and what comes meanwhile goes with its next."""
        waiting: dict[int, list[telling.Due]] = {}
        for each in due:
            waiting.setdefault(each.notifier.pk, []).append(each)
        for number, messages in waiting.items():
            busy = number in self._deliveries and not self._deliveries[number].done()
            if not busy and time.monotonic() >= self._not_before.get(number, 0.0):
                self._deliveries[number] = asyncio.create_task(self._tell(messages))

    async def _tell(self, messages: list[telling.Due]) -> None:
        loop = asyncio.get_running_loop()
        for due in messages:
            notifier, error = due.notifier, ""
            try:
                message = message_of(due.event, due.alerts)
                await loop.run_in_executor(self._senders, delivery.send, notifier, message)
            except Undelivered as undelivered:
                error = str(undelivered)
            except Exception as defect:  # whatever it is, it is told beside the notifier, and others go on
                logger.exception("a notification failed", extra={"notifier": notifier.name})
                error = f"{type(defect).__name__}: {defect}"
            await self._told(due, error)
            if error:
                return
        self._wake.set()  # for what came meanwhile

    async def _told(self, due: telling.Due, error: str) -> None:
        number, name = due.notifier.pk, due.notifier.name
        metrics.notifications.labels(name, "failed" if error else "delivered").inc()
        failures = self._failures.get(number, 0)
        if error:
            if not failures:
                logger.warning("a notifier does not take its messages", extra={"notifier": name, "error": error})
            self._failures[number] = failures + 1
            self._not_before[number] = time.monotonic() + min(2.0**failures, LONGEST_WAIT_S)
        elif failures:
            logger.info("a notifier takes its messages again", extra={"notifier": name})
            del self._failures[number]
        try:
            await self._in_database(lambda: delivery.note(number, error))
            if not error:
                await self._in_database(lambda: telling.note(due))
                await self._announce([alert.pk for alert in due.alerts])
        except Exception:
            logger.exception("it could not be kept that a notifier was told", extra={"notifier": name})

    async def _in_database(self, do: Callable[[], T]) -> T:
        def work() -> T:
            close_old_connections()
            try:
                return do()
            finally:
                close_old_connections()

        return await asyncio.get_running_loop().run_in_executor(self._database, work)
