"""Archiving one topic: each message is finished once it is on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from aionsq.consumer import Consumer
from aionsq.message import Message
from aionsq.tools.archive import Archive

log = logging.getLogger(__name__)

MAX_HELD = timedelta(minutes=5)
"""Longest time between two syncs. nsqd redelivers a message after ``--max-msg-timeout`` (15 minutes) in any case."""


class Archiver:
    """Writes the messages of a consumer to an archive. :meth:`run` returns after :meth:`stop`."""

    def __init__(self, consumer: Consumer, archive: Archive, sync_interval: timedelta) -> None:
        self.archived = 0
        """Number of messages on disk and finished."""
        self._consumer = consumer
        self._archive = archive
        self._sync_seconds = min(sync_interval, MAX_HELD).total_seconds()
        self._name = f"{consumer.topic}/{consumer.channel}"
        self._arrived: list[Message] = []
        self._unsynced: list[Message] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._reopening = False

    def stop(self) -> None:
        """Request no more messages; those that have arrived are written and finished."""
        self._stopping = True
        self._consumer.begin_stop()
        self._wake.set()

    def reopen(self) -> None:
        """Finish the current file; the next message opens another file, or the same one again."""
        self._reopening = True
        self._wake.set()

    async def run(self) -> None:
        """Archive until stopped. Raises ConnectFailed at the start, and OSError and InUse for files.

        After an error, messages that are not on disk are not finished, and nsqd redelivers them.
        """
        await asyncio.to_thread(self._archive.recover)
        if self._stopping:
            return
        async with self._consumer:
            intake = asyncio.create_task(self._consumer.run(self._take))
            intake.add_done_callback(lambda _: self._wake.set())
            try:
                await self._work_until(intake)
                await asyncio.to_thread(self._archive.close)
            finally:
                self._consumer.begin_stop(timedelta(0))  # after an error, nothing answers the remaining messages
                await intake

    async def _work_until(self, intake: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        next_tick = loop.time() + self._sync_seconds
        while not intake.done() or self._arrived:
            try:
                async with asyncio.timeout_at(next_tick):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            ticked = loop.time() >= next_tick
            if ticked:
                next_tick = loop.time() + self._sync_seconds
            reopening, self._reopening = self._reopening, False
            await self._store(ticked, reopening)

    def _take(self, message: Message) -> None:
        message.disable_auto_response()
        self._arrived.append(message)
        self._wake.set()

    async def _store(self, ticked: bool, reopening: bool) -> None:
        """Write the messages that have arrived. Sync at each tick, before the end, and when nsqd waits for answers."""
        arrived, self._arrived = self._arrived, []
        arrived = [message for message in arrived if message.is_in_flight]
        self._unsynced += arrived
        syncs = (
            ticked
            or reopening
            or self._stopping
            or len(self._unsynced) >= self._consumer.max_in_flight
            or self._consumer.is_starved
        )
        bodies = [message.body for message in arrived]
        if await asyncio.to_thread(self._write, bodies, len(self._unsynced), ticked, reopening, syncs):
            synced, self._unsynced = self._unsynced, []
            for message in synced:
                message.finish()
            self.archived += len(synced)

    def _write(self, bodies: Sequence[bytes], unsynced: int, ticked: bool, reopening: bool, syncs: bool) -> bool:
        """Write and sync, in a thread; returns whether everything written so far is on disk."""
        archive = self._archive
        archive.write(bodies)
        if ticked:
            archive.tick()
        if not syncs and not archive.is_new:
            return False
        if unsynced:
            log.info("[%s] syncing %d records to disk", self._name, unsynced)
        archive.sync()
        if reopening:
            archive.close()
        return True
