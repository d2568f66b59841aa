"""Counts objectives in the collector's process, from the readings that it archives.

One thread does all of it, so that neither polls nor other listeners wait. It writes to the database once a minute.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import orjson
import pyarrow as pa

from nsqanalytics.recent import samples_since
from nsqplatform.cluster import store
from nsqplatform.cluster.collector.database_thread import DatabaseThread
from nsqplatform.cluster.readings.reading import Reading
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.clusters import current
from nsqplatform.objectives import burns, persistence
from nsqplatform.objectives.burn import HOUR_S
from nsqplatform.objectives.counters import Counters, of_reading, of_samples
from nsqplatform.objectives.models import Objective
from nsqplatform.objectives.status import STATUS, Status
from nsqplatform.objectives.tally import Tally
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

KEPT_BATCHES = 30
"""Batches kept while the database cannot be written to. The messages of older batches are not lost, but counted in a
later minute."""
LOOK_BACK = timedelta(minutes=2)
"""How long before the last stored count the archive may have the last reading of a node, for counts that were stored
without these readings: by an earlier version."""


class Counting:
    """A listener of the collector that counts the objectives of the current cluster."""

    def __init__(self) -> None:
        self._thread = DatabaseThread("objectives")
        self._batches: deque[list[Counters]] = deque(maxlen=KEPT_BATCHES)
        self._tally: Tally | None = None
        self._stored_until: Seconds = 0.0
        self._swept_at: Seconds = 0.0

    def on_batch(self, batch: Sequence[tuple[str, Reading]]) -> None:
        """Called with the readings of each batch of the archive, in order."""
        if batch:
            found = [of_reading(node, reading) for node, reading in batch]
            self._batches.append(sorted(found, key=lambda counters: counters.taken_at))

    async def on_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        if self._batches:
            await self._thread.run(self.count)

    async def finish(self) -> None:
        """Store all counts."""
        try:
            await self._thread.run(self._finish)
        finally:
            self._thread.end()

    def count(self) -> None:
        """Count the batches that have arrived; store the counts of minutes that are over."""
        while self._batches:
            objectives = persistence.objectives()
            if self._tally is None or self._has_been_replaced(objectives):
                self._tally = self._restored(self._batches[0])
            batch = self._batches.popleft()
            self._tally.set_objectives(objectives, now=batch[0].taken_at)
            for counters in batch:
                self._tally.add(counters)
            self._store(self._tally)

    def _has_been_replaced(self, objectives: Sequence[Objective]) -> bool:
        """Whether another collector has stored counts since this one did."""
        return any((each.counted_until or 0.0) > self._stored_until for each in objectives)

    def _store(self, tally: Tally) -> None:
        until, counts = tally.closed()
        is_new = any(each.objective.counted_since is None for each in tally.watched.values())
        if until <= self._stored_until and not is_new:
            return
        objectives = persistence.save(counts, tally.watched.values(), tally.lasts(until), until=until)
        tally.drop(until)
        self._stored_until = max([until, *(each.counted_until or until for each in objectives)])
        self._publish(tally, objectives, until)
        if until - self._swept_at >= HOUR_S:
            self._swept_at = until
            persistence.sweep(until)

    def _restored(self, batch: list[Counters]) -> Tally:
        """A tally that continues where the stored counts end: with the last readings that are in them, and the readings
        before ``batch`` that the archive has since then."""
        tally, now = Tally(), batch[0].taken_at
        objectives = [each for each in persistence.objectives() if each.counted_until is not None]
        until = self._stored_until = max((each.counted_until or 0.0 for each in objectives), default=0.0)
        if not objectives:
            return tally
        tally.set_objectives(objectives, now=now)
        tally.continue_from(persistence.lasts())
        since = datetime.fromtimestamp(until, UTC) - LOOK_BACK
        try:
            samples = samples_since(current.archive(), since)
        except (OSError, pa.ArrowException) as error:
            logger.error("cannot read the archive; objectives are counted from now on", extra={"error": str(error)})
            return tally
        for counters in of_samples(samples):
            is_counted = counters.taken_at < until and tally.has_stored(counters.node)
            if counters.taken_at < now and not is_counted:
                tally.add(counters)
        return tally

    def _publish(self, tally: Tally, objectives: Sequence[Objective], at: Seconds) -> None:
        found = burns.burns_of(objectives, at)
        status: Status = {
            "at": at,
            "uncounted": {str(number): tally.uncounted_nodes(number) for number in tally.watched},
        }
        with store.connect() as redis:
            pipe = redis.pipeline(transaction=False)
            pipe.set(burns.BURNS(), orjson.dumps(found), ex=burns.EXPIRES_S)
            pipe.set(STATUS(), orjson.dumps(status), ex=burns.EXPIRES_S)
            pipe.execute()

    def _finish(self) -> None:
        self.count()
        if self._tally is not None and self._tally.latest is not None:
            # Times in the archive are whole microseconds.
            until = self._tally.latest + 0.001
            lasts = self._tally.lasts(until)
            persistence.save(self._tally.everything(), self._tally.watched.values(), lasts, until=until)
            self._tally = None
