"""Draining a node: it takes no new messages, its consumers finish what is there, and then its process ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypedDict

from brokerd.storage import NodeDrained
from nsqwire.counted import counted
from nsqwire.errors import DRAINED
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.storage import Storage


LEAST_S: Final = 1.0
"""Shortest drain of an empty node. Meanwhile publishes are refused, so that producers go to other nodes. If the process
ended at once, they would lose their connections with publishes unanswered."""

logger = logging.getLogger("brokerd")


class DrainedTopic(Protocol):
    """The part of a topic that is needed to see whether it is empty."""

    @property
    def depth(self) -> int:
        """Number of messages that wait in it."""
        ...

    @property
    def channels(self) -> Mapping[str, DrainedChannel]:
        """Its channels, by name."""
        ...


class DrainedChannel(Protocol):
    """The part of a channel that is needed to see whether it is empty."""

    @property
    def unfinished_count(self) -> int:
        """Number of messages that wait, are in flight or are deferred."""
        ...


class Draining(NamedTuple):
    """A drain that has begun at ``since``, Unix seconds, which is the monotonic time ``begun``. The process ends at the
    monotonic time ``deadline`` at the latest; None: when the node is empty."""

    since: Seconds
    begun: Seconds
    deadline: Seconds | None
    takes_publishes: bool


class DrainRow(TypedDict):
    """A drain in ``/drain`` and ``/stats``. ``since`` is Unix seconds, ``ends_within`` seconds from now."""

    since: int
    ends_within: Seconds | None
    takes_publishes: bool
    messages: int


class Drain:
    """Begins and cancels the drain of a node. ``now`` returns monotonic seconds.

    ``observers`` are called with whether the node drains, when that changes.
    """

    def __init__(self, storage: Storage, topics: Mapping[str, DrainedTopic], now: Callable[[], Seconds]) -> None:
        self.draining: Draining | None = None
        self.observers: list[Callable[[bool], None]] = []
        self._storage = storage
        self._topics = topics
        self._now = now

    def begin(self, *, timeout_s: Seconds, takes_publishes: bool) -> None:
        """Begin a drain, or change the present one. ``timeout_s`` 0: until the node is empty."""
        before, now = self.draining, self._now()
        since, begun = (time.time(), now) if before is None else (before.since, before.begun)
        self.draining = Draining(since, begun, now + timeout_s if timeout_s else None, takes_publishes)
        self._storage.set_drained(None if takes_publishes else NodeDrained(DRAINED))
        publishes = "taken" if takes_publishes else "refused"
        logger.info(
            "the node is being drained for %s: %s left, publishes are %s",
            f"at most {timeout_s:g} s" if timeout_s else "as long as it takes",
            counted(self.left, "message is", "messages are"), publishes,
        )  # fmt: skip
        if before is None:
            self._notify()

    def cancel(self) -> bool:
        """Take messages again. Returns False if the node does not drain."""
        if self.draining is None:
            return False
        self.draining = None
        self._storage.set_drained(None)
        logger.info("the drain is cancelled")
        self._notify()
        return True

    @property
    def refuses_publishes(self) -> bool:
        """Whether publishes are refused because the node drains."""
        return self.draining is not None and not self.draining.takes_publishes

    @property
    def left(self) -> int:
        """Number of messages that wait, are in flight or are deferred, in all topics and channels. Dead ones stay."""
        return sum(
            topic.depth + sum(channel.unfinished_count for channel in topic.channels.values())
            for topic in self._topics.values()
        )

    @property
    def is_over(self) -> bool:
        """True if the process can end: no message is left, or the deadline has passed."""
        draining, now = self.draining, self._now()
        if draining is None:
            return False
        is_late = draining.deadline is not None and now >= draining.deadline
        return is_late or (now - draining.begun >= LEAST_S and not self.left)

    def to_json(self) -> DrainRow | None:
        """Its state, with times in seconds; None if the node does not drain."""
        draining = self.draining
        if draining is None:
            return None
        remaining = None if draining.deadline is None else max(0.0, round(draining.deadline - self._now(), 3))
        return {
            "since": int(draining.since),
            "ends_within": remaining,
            "takes_publishes": draining.takes_publishes,
            "messages": self.left,
        }

    def _notify(self) -> None:
        for observer in self.observers:
            observer(self.draining is not None)
