"""Publishing the ids of tasks."""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone

from aionsq import BlockingProducer, ClientError
from nsqtasks.models import TaskRecord
from nsqtasks.options import Options
from nsqtasks.topics import topic_of
from nsqwire.errors import NSQError
from nsqwire.units import Seconds

log = logging.getLogger("nsqtasks")

PAUSE_S: Seconds = 5.0
"""Time after a failed publish in which nothing is published: the sweep publishes the tasks later, so that not every
request waits for an unreachable broker."""


class NotATask(ValueError):
    """A message on a topic of tasks does not contain a task's id and priority."""


class Ticket(NamedTuple):
    """The contents of a task's message: the JSON object ``{"id": …, "priority": …}``."""

    id: str
    priority: int

    def to_bytes(self) -> bytes:
        """Return the message's body."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def of(cls, body: bytes) -> Ticket:
        """Parse a message's body. Raises NotATask."""
        try:
            found: Any = json.loads(body)
            ticket = cls(found["id"], found["priority"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise NotATask(f"{body[:80]!r} is not a task's message") from None
        if not isinstance(ticket.id, str) or not isinstance(ticket.priority, int) or len(ticket.id) > 32:
            raise NotATask(f"{body[:80]!r} is not a task's message")
        return ticket


class Publisher:
    """Publishes tasks of one backend, and stores the time in their records. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer = BlockingProducer(list(options.nsqd_tcp_addresses), options.producer_options())
        self._lock = threading.Lock()
        self._paused_until: Seconds = 0.0

    def publish_soon(self, record: TaskRecord) -> None:
        """Publish after a commit. A failure is logged, and the sweep of a worker publishes the task later."""
        with self._lock:
            if time.monotonic() < self._paused_until:
                return
        try:
            self.publish(record)
        except (ClientError, NSQError) as error:
            with self._lock:
                self._paused_until = time.monotonic() + PAUSE_S
            log.warning("task %s is not published yet, a worker will publish it: %s", record.pk, error)

    def publish(self, record: TaskRecord) -> None:
        """Publish a task, deferred until its ``run_after`` as far as nsqd allows.

        Raises aionsq's and nsqwire's errors; the task may be published nevertheless.
        """
        topic = topic_of(self._options.topic_prefix, record.queue_name, record.priority)
        body = Ticket(record.pk, record.priority).to_bytes()
        delay = deferral(record.run_after, self._options.max_req_timeout)
        if delay:
            self._producer.dpub(topic, delay, body)
        else:
            self._producer.pub(topic, body)
        now = timezone.now()
        TaskRecord.objects.using(self._options.database).filter(pk=record.pk).update(published_at=now)

    def close(self) -> None:
        """Close the connection."""
        self._producer.close()


def deferral(run_after: datetime | None, longest: timedelta) -> timedelta:
    """Return how long a message is to be deferred: 0 if the task may run now, at most ``longest``.

    Rounded up to whole milliseconds, NSQ's unit, so that the task is not delivered before its time.
    """
    left = (run_after - timezone.now()) if run_after is not None else timedelta(0)
    if left <= timedelta(0):
        return timedelta(0)
    return min(timedelta(milliseconds=left // timedelta(milliseconds=1) + 1), longest)
