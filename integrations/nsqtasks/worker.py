"""The worker: consumes the topics of its queues, and runs their tasks in threads."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.db import DatabaseError, close_old_connections, connections
from django.utils import timezone
from django.utils.crypto import get_random_string

from aionsq import ClientError, Consumer, ConsumerStopped, Message
from aionsq.tools.signal_echo import SignalEcho
from nsqtasks.backend import NSQBackend
from nsqtasks.gate import Closed, Gate
from nsqtasks.publishing import NotATask, Ticket
from nsqtasks.runner import Runner
from nsqtasks.topics import topics_of
from nsqwire.errors import NSQError
from nsqwire.units import Seconds

log = logging.getLogger("nsqtasks")

RECONNECT_S: Seconds = 2.0
SWEEP_BATCH = 1000
NO_GRACE_LIMIT = timedelta(days=365)
RETRY_AT_ONCE = timedelta(0)


class Worker:
    """Runs the tasks of some queues of one backend until it is stopped.

    A message is finished after the task's result is stored. If the worker is killed, nsqd redelivers the message, so no
    task is lost. A message is requeued if its task is not due or another worker runs it.
    """

    def __init__(
        self,
        backend: NSQBackend,
        queues: Sequence[str],
        *,
        concurrency: int,
        stop_timeout: timedelta | None = None,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """``stop_timeout`` is how long a stop waits for running tasks; None: until they end. ``end`` exits the
        process while tasks still run."""
        self.id = f"{socket.gethostname()[:24]}-{os.getpid()}-{get_random_string(8)}"
        self._backend = backend
        self._options = backend.settings
        self._topics = [topic for queue in queues for topic in topics_of(self._options.topic_prefix, queue)]
        self._queues = queues
        self._concurrency = concurrency
        self._stop_timeout = stop_timeout
        self._end = end
        self._runner = Runner(backend, self.id)
        self._consumers: list[Consumer] = []

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then wait for the running tasks."""
        self._stopping = asyncio.Event()
        self._echo = SignalEcho()
        self._gate = Gate(self._concurrency)
        self._threads = ThreadPoolExecutor(self._concurrency, "task")
        self._side = ThreadPoolExecutor(1, "records")  # a sweep may wait for nsqd: renewals have a thread of their own
        self._renewals = ThreadPoolExecutor(1, "leases")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        background = [asyncio.create_task(self._renew()), asyncio.create_task(self._sweep())]
        try:
            await asyncio.gather(*(self._consume(topic) for topic in self._topics))
        finally:
            for each in background:
                each.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for pool in (self._threads, self._side, self._renewals):
                pool.submit(connections.close_all)
                pool.shutdown()
            self._backend.publisher.close()
        log.info("worker %s has stopped", self.id)

    def _signalled(self, number: int) -> None:
        if self._echo.is_echo(asyncio.get_running_loop().time()):
            return
        if self._stopping.is_set():
            self._leave("a second signal")
            return
        running = len(self._runner.running)
        log.info(
            "%s: stopping after %d running tasks; a second signal stops at once", signal.Signals(number).name, running
        )
        self._stopping.set()
        self._gate.close()
        for consumer in self._consumers:
            consumer.begin_stop(NO_GRACE_LIMIT)
        if self._stop_timeout is not None:
            asyncio.get_running_loop().call_later(self._stop_timeout.total_seconds(), self._leave, "--stop-timeout")

    def _leave(self, why: str) -> None:
        """Exit the process, because threads cannot be stopped. nsqd redelivers the messages of its tasks."""
        log.warning("%s: ending while tasks run, which run again later: %s", why, ", ".join(self._runner.running))
        logging.shutdown()
        self._end(1)

    async def _consume(self, topic: str) -> None:
        """Consume a topic until the worker stops. Retries until it is connected."""
        shown = ""
        while not self._stopping.is_set():
            consumer = Consumer(
                topic,
                self._options.channel,
                nsqd_tcp_addresses=self._options.nsqd_tcp_addresses,
                lookupd_http_addresses=self._options.lookupd_http_addresses,
                options=self._options.consumer_options(self._concurrency),
            )
            self._consumers.append(consumer)
            try:
                async with consumer:
                    if shown:
                        log.info("%s: connected", topic)
                    await consumer.run(self._handle, concurrency=self._concurrency)
                return
            except ConsumerStopped:
                return
            except ClientError as error:
                if str(error) != shown:
                    log.warning("%s: %s; retrying every %g s", topic, error, RECONNECT_S)
                shown = str(error)
                await self._pause(RECONNECT_S)
            finally:
                self._consumers.remove(consumer)

    async def _handle(self, message: Message) -> None:
        try:
            ticket = Ticket.of(message.body)
        except NotATask as error:
            log.error("message %s is dropped: %s", message.id.decode(), error)
            return
        try:
            async with self._gate.slot(ticket.priority):
                loop = asyncio.get_running_loop()
                delay = await loop.run_in_executor(self._threads, self._runner.run, ticket.id)
        except Closed:
            message.requeue(RETRY_AT_ONCE, backoff=False)
        except DatabaseError as error:
            log.warning("task %s waits for the database: %s", ticket.id, error)
            message.requeue()
        else:
            if delay is not None:
                message.requeue(min(delay, self._options.max_req_timeout), backoff=False)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._options.lease.total_seconds() / 3)
            try:
                await asyncio.get_running_loop().run_in_executor(self._renewals, self._runner.renew)
            except DatabaseError as error:
                log.warning("leases are not renewed: %s", error)

    async def _sweep(self) -> None:
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(self._side, self._publish_missing)
            except (DatabaseError, ClientError, NSQError) as error:
                log.warning("the sweep failed: %s", error)
            await asyncio.sleep(self._options.sweep_interval.total_seconds())

    def _publish_missing(self) -> None:
        close_old_connections()
        records, now = self._backend.records, timezone.now()
        missing = records.unpublished(now).filter(backend=self._backend.alias, queue_name__in=self._queues)
        published = 0
        try:
            for record in missing[:SWEEP_BATCH]:
                self._backend.publisher.publish(record)
                published += 1
        finally:
            if published:
                log.info("published %d tasks that were not published before, or may have been lost", published)
        if self._options.keep_results is not None:
            records.delete_old(now, self._options.keep_results)

    async def _pause(self, seconds: Seconds) -> None:
        """Wait until the time has passed or the worker stops."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
