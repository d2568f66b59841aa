"""Evaluates the rules against each snapshot, in the collector's process and on its event loop, in a few milliseconds.

Blocking work runs in threads: one for the database, a few for notifiers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
from redis.asyncio import Redis

from nsqplatform.alerts import bands, delivery, live, metrics, notifications, persistence
from nsqplatform.alerts.engine import SETTLING_S, Engine, Fired, Resolved
from nsqplatform.alerts.message import message_of
from nsqplatform.alerts.pending import PENDING, Stored
from nsqplatform.alerts.schemas import AlertsMessage
from nsqplatform.cluster import store
from nsqplatform.cluster.collector.database_thread import DatabaseThread
from nsqplatform.cluster.live.broadcast import CLUSTER, publish
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.objectives.burns import BURNS, parse
from nsqplatform.outbound import Undelivered
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

KEPT_EVERY_S = 2.0
"""Interval at which pending alerts are stored in Redis."""
LOOK_EVERY_S = 5.0
"""Interval at which due notifications are determined even without changes, for repeats and ended silences."""
REPEATED_EVERY_S = 10.0
"""Interval of messages to browsers while nothing changes."""
RULES_EVERY_S = 60.0
"""Interval at which rules are read even if no change was reported, because reports are lost while Redis is down."""
SWEPT_EVERY_S = 3600.0
AWAY_S = 10.0
"""After this time without a snapshot, another collector may have run in the meantime."""
DELIVERED_AT_ONCE = 4
MAX_BACKOFF_S = 300.0
"""Longest time between two attempts to deliver to a failing notifier."""


class Alerting:
    """Evaluates alerts in the collector. It reads rules again when the counter live.CHANGES in Redis increases."""

    def __init__(self, *, settling_s: float | None = None) -> None:
        self._settling_s = SETTLING_S if settling_s is None else settling_s
        self._engine: Engine | None = None
        self._redis: Redis | None = None
        self._database = DatabaseThread("alerts: database")
        self._senders = ThreadPoolExecutor(DELIVERED_AT_ONCE, thread_name_prefix="alerts: notifiers")
        self._polled_at: Seconds = 0.0
        self._changes: bytes | str | None = None
        self._bands: bands.Bands | None = None
        self._bands_at: bytes | str | None = None
        """The value of bands.FOUND_AT that ``_bands`` belong to."""
        self._unsaved: list[Fired | Resolved] = []
        self._saving = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._ending = False
        self._deliveries: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        """Failed attempts of each notifier since the last success."""
        self._not_before: dict[int, Seconds] = {}
        self._repeated_at: Seconds = 0.0
        self._sweep_at: Seconds = 0.0
        self._kept_at: Seconds = 0.0
        self._kept_some = True

    # ---- for each snapshot

    async def on_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        now = time.time()
        if self._engine is None or not 0 <= now - self._polled_at <= AWAY_S:
            self._engine = await self._restored(now)
            self._wake.set()
        self._polled_at = now
        redis = self._redis = self._redis or store.connect_async()
        keys = (live.CHANGES(), store.DAMAGED_FILES(), BURNS(), bands.FOUND_AT())
        changes, damaged_files, burns, bands_at = await redis.mget(*keys)
        if bands_at != self._bands_at:
            self._bands, self._bands_at = bands.parse(await redis.get(bands.BANDS())), bands_at
        began = time.perf_counter()
        evaluation = self._engine.evaluate(
            snapshot, store.damaged_files_of(damaged_files), parse(burns), self._bands, now=now
        )
        for events in evaluation:
            self._unsaved += events
            await asyncio.sleep(0)
        metrics.evaluation_seconds.observe(time.perf_counter() - began)
        metrics.firing.clear()
        for rule, count in self._engine.firing():
            metrics.firing.labels(rule.name, rule.severity).set(count)
        metrics.failing.set(len(self._engine.failing()))
        if self._unsaved or changes != self._changes:
            self._wake.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        if now - self._kept_at >= KEPT_EVERY_S:
            self._kept_at = now
            await self._keep(redis, now)

    async def _keep(self, redis: Redis, now: Seconds) -> None:
        assert self._engine is not None
        pending = self._engine.pending()
        if pending or self._kept_some:
            kept: Stored = {"at": now, "pending": {str(rule): keys for rule, keys in pending.items()}}
            await redis.set(PENDING(), orjson.dumps(kept), ex=3600)
        self._kept_some = bool(pending)

    async def _restored(self, now: Seconds) -> Engine:
        """An engine with the state of the previous one. Raises the database's errors."""
        await self._save()
        engine = Engine(settling_s=self._settling_s)
        redis = self._redis = self._redis or store.connect_async()
        self._changes = await redis.get(live.CHANGES())
        rules = await self._database.run(persistence.rules)
        firing = await self._database.run(persistence.firing)
        kept = await redis.get(PENDING())
        stored: Stored = orjson.loads(kept) if kept else {"at": 0.0, "pending": {}}
        pending = {int(rule): keys for rule, keys in stored["pending"].items()}
        engine.set_rules(rules, now=now)
        self._unsaved += engine.restore(firing, pending, now=now, known=stored["at"])
        return engine

    async def finish(self) -> None:
        """Save all changes and end. The next collector sends the notifications that are still due."""
        # The task ends by a flag rather than by cancellation: before Python 3.12, asyncio.wait_for, which the Redis
        # client uses, sometimes loses a cancellation.
        self._ending = True
        self._wake.set()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        for delivering in self._deliveries.values():
            delivering.cancel()
        await asyncio.gather(*self._deliveries.values(), return_exceptions=True)
        try:
            await self._save()
            if self._engine is not None and self._redis is not None:
                await self._keep(self._redis, self._polled_at)
        except Exception:
            logger.exception("the last changes of alerts could not be saved")
        finally:
            self._database.end()
            self._senders.shutdown(wait=False, cancel_futures=True)
            if self._redis is not None:
                await self._redis.aclose()

    # ---- in the background

    async def _work(self) -> None:
        """Save changes, read changed rules, and start due notifications, repeatedly."""
        failing = False
        rules_at = time.monotonic()
        while True:
            self._wake.clear()
            try:
                await self._save()
                if time.time() - self._polled_at <= AWAY_S:  # otherwise another collector may be running
                    rules_at = await self._read_rules(rules_at)
                    self._deliver(await self._database.run(notifications.due))
                    await self._repeat()
                    await self._sweep()
                failing = False
            except Exception:  # the database or Redis is down: nothing is lost, and the next attempt follows
                if not failing:
                    logger.exception("alerts cannot be saved or sent")
                failing = True
                await asyncio.sleep(1.0)
            if self._ending:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()

    async def _save(self) -> None:
        async with self._saving:
            events = list(self._unsaved)
            if events:
                changed = await self._database.run(lambda: persistence.save(events))
                del self._unsaved[: len(events)]
                await self._broadcast(changed)

    async def _broadcast(self, alert_ids: list[int]) -> None:
        if alert_ids:
            await self._send_to_browsers(await self._database.run(lambda: live.next_message(alert_ids)))

    async def _send_to_browsers(self, message: AlertsMessage) -> None:
        redis = self._redis = self._redis or store.connect_async()
        await publish(redis, [(CLUSTER, message.model_dump())])

    async def _repeat(self) -> None:
        """If there are rules, send browsers a message every REPEATED_EVERY_S, in case one has missed a message."""
        assert self._engine is not None
        now = time.monotonic()
        if self._engine.firing() and now - self._repeated_at >= REPEATED_EVERY_S:
            self._repeated_at = now
            await self._send_to_browsers(await self._database.run(live.present_message))

    async def _read_rules(self, rules_at: Seconds) -> Seconds:
        assert self._engine is not None
        assert self._redis is not None
        changes = await self._redis.get(live.CHANGES())
        if changes == self._changes and time.monotonic() - rules_at < RULES_EVERY_S:
            return rules_at
        rules = await self._database.run(persistence.rules)
        closed = await self._database.run(persistence.recently_closed)
        self._unsaved += self._engine.set_rules(rules, now=time.time())
        self._engine.close(closed)
        if changes != self._changes:
            self._not_before.clear()  # a notifier that was corrected is tried at once
        self._changes = changes
        await self._save()
        return time.monotonic()

    async def _sweep(self) -> None:
        if time.monotonic() >= self._sweep_at:
            await self._database.run(persistence.sweep)
            self._sweep_at = time.monotonic() + SWEPT_EVERY_S

    def _deliver(self, due: list[notifications.Due]) -> None:
        """Start deliveries, at most one at a time for each notifier; later messages go with its next delivery."""
        waiting: dict[int, list[notifications.Due]] = {}
        for each in due:
            waiting.setdefault(each.notifier.pk, []).append(each)
        for number, messages in waiting.items():
            busy = number in self._deliveries and not self._deliveries[number].done()
            if not busy and time.monotonic() >= self._not_before.get(number, 0.0):
                self._deliveries[number] = asyncio.create_task(self._notify(messages))

    async def _notify(self, messages: list[notifications.Due]) -> None:
        loop = asyncio.get_running_loop()
        for due in messages:
            notifier, error = due.notifier, ""
            try:
                message = message_of(due.event, due.alerts)
                await loop.run_in_executor(self._senders, delivery.send, notifier, message)
            except Undelivered as undelivered:
                error = str(undelivered)
            except Exception as defect:  # shown with the notifier; other notifiers are not affected
                logger.exception("a notification failed", extra={"notifier": notifier.name})
                error = f"{type(defect).__name__}: {defect}"
            await self._record_delivery(due, error)
            if error:
                return
        self._wake.set()  # for messages that became due meanwhile

    async def _record_delivery(self, due: notifications.Due, error: str) -> None:
        number, name = due.notifier.pk, due.notifier.name
        metrics.notifications.labels(name, "failed" if error else "delivered").inc()
        failures = self._failures.get(number, 0)
        if error:
            if not failures:
                logger.warning("notifications cannot be delivered", extra={"notifier": name, "error": error})
            self._failures[number] = failures + 1
            self._not_before[number] = time.monotonic() + min(2.0**failures, MAX_BACKOFF_S)
        elif failures:
            logger.info("notifications are delivered again", extra={"notifier": name})
            del self._failures[number]
        try:
            await self._database.run(lambda: delivery.record_outcome(number, error))
            if not error:
                await self._database.run(lambda: notifications.record_sent(due))
                await self._broadcast([alert.pk for alert in due.alerts])
        except Exception:
            logger.exception("the delivery of a notification could not be recorded", extra={"notifier": name})
