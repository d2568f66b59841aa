"""The queue of deliveries from the event loop to the thread that drains a kombu connection."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from contextlib import suppress

from nsqkombu.reader import Delivery


class Inbox:
    """A queue with a descriptor that is readable while it is not empty, for ``poll`` and for Celery's event loop."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._lock = threading.RLock()  # a signal's handler may interrupt its owner
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._is_readable = False

    def fileno(self) -> int:
        """Descriptor to wait for."""
        return self._reading.fileno()

    def put(self, delivery: Delivery) -> None:
        """Append a delivery."""
        with self._lock:
            self._deliveries.append(delivery)
            if not self._is_readable:
                self._is_readable = True
                with suppress(OSError):  # closed
                    self._writing.send(b"\0")

    def take(self) -> Delivery | None:
        """Return the oldest delivery that was not purged; None if there is none."""
        with self._lock:
            while self._deliveries:
                delivery = self._deliveries.popleft()
                if not delivery.is_purged:
                    return delivery
            if self._is_readable:
                self._is_readable = False
                with suppress(OSError):
                    self._reading.recv(16)
            return None

    def wait(self, limit_s: float) -> None:
        """Wait until there may be a delivery, at most ``limit_s``."""
        if self.is_closed:
            raise ConnectionError("the connection was closed")
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.poll(max(limit_s, 0.0) * 1000)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._reading.fileno() < 0

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            self._reading.close()
            self._writing.close()
