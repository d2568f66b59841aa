"""The lives of sampled messages: what happened to them, kept in memory until newer events need the room.

Nothing is stored on disk: the events of a process are lost when it ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from nsqwire.units import Nanoseconds

KEPT_EVENTS: Final = 32_768
"""Events that are kept, about 10 MB."""


class What(StrEnum):
    """What happened to a message."""

    PUBLISHED = "published"
    DELIVERED = "delivered"
    REQUEUED = "requeued"
    """By its client, by an operator, because its client disconnected, or by a rewind."""
    DEFERRED = "deferred"
    """By its publisher, or by the retry delay of a policy."""
    TIMED_OUT = "timed_out"
    FINISHED = "finished"
    DEAD = "dead"
    MOVED = "moved"
    """From the dead messages of the channel to the dead topic."""
    DROPPED = "dropped"
    CANCELLED = "cancelled"
    """By its publisher."""


class Why(StrEnum):
    """Reasons in addition to those of :class:`brokerd.dead.Reason`."""

    DISCONNECTED = "disconnected"
    OPERATOR = "operator"
    REWOUND = "rewound"
    PUBLISHER = "publisher"
    RETRY_DELAY = "retry_delay"
    EMPTIED = "emptied"
    SAMPLE_RATE = "sample_rate"
    """The client asked for a part of the messages, and this one was not sent to it."""


class Party(Protocol):
    """Who did it, as ``/stats`` names clients."""

    @property
    def client_id(self) -> str:
        """Empty if it has none."""
        ...

    @property
    def remote_address(self) -> str:
        """``ip:port``, or ``@`` on a Unix socket."""
        ...


class Requester(NamedTuple):
    """The sender of an HTTP request, which has no client id."""

    remote_address: str
    client_id: str = ""


class LifeEvent(NamedTuple):
    """An event of a sampled message. ``channel`` is None for what happened in the topic itself, such as the publish.

    ``attempts`` is the number of deliveries so far. ``delay_ms`` is for how long the message was deferred, None if it
    was not. ``client_id`` and ``client_address`` are empty if no client did it.
    """

    number: int
    topic: str
    channel: str | None
    id: bytes
    what: What
    at_ns: Nanoseconds
    """Unix time."""
    attempts: int
    reason: str
    delay_ms: int | None
    client_id: str
    client_address: str


class Page(NamedTuple):
    """Some events. ``next`` is the number from which the next page is read; ``lost`` is the number of events between
    the requested number and ``next`` that are not kept any more, or never were."""

    events: Sequence[LifeEvent]
    next: int
    lost: int


class Lives:
    """The latest events of a node, numbered from 0 on since the process started. Numbers are never reused."""

    def __init__(self, capacity: int = KEPT_EVENTS) -> None:
        self.capacity = capacity
        self.end = 0
        """The number of the next event."""
        self._events: deque[LifeEvent] = deque(maxlen=capacity)

    def add(self, event: LifeEvent) -> None:
        """Keep an event, whose number is ``end``. The oldest one is forgotten if there is no room."""
        self._events.append(event)
        self.end += 1

    def lose(self, count: int) -> None:
        """Count events that are not kept: more happened at once than there is room for."""
        self.end += count

    def page(self, start: int, limit: int) -> Page:
        """Up to ``limit`` events from number ``start`` on.

        With 0, the page begins with the oldest event that is kept, and earlier ones do not count as lost.
        """
        kept = self._events
        at = bisect_left(kept, start, key=attrgetter("number"))
        events = list(islice(kept, at, at + limit))
        if at + limit >= len(kept):
            following = max(self.end, start)
        else:
            following = kept[at + limit].number if limit else start
        begin = events[0].number if not start and events else start
        return Page(events, following, following - begin - len(events))
