"""The bound of a topic: while too many messages wait, publishes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from nsqwire.errors import TopicFull

if TYPE_CHECKING:
    from brokerd.policy import Policy


class Waiting(NamedTuple):
    """Each field is a sum: what waits in the topic itself, and the largest value of any of its channels. Messages that
    are deferred or in flight do not wait."""

    depth: int
    never_delivered: int
    """The messages of ``depth`` that were not requeued."""
    nbytes: int
    """The bytes of their bodies."""


class BoundedTopic(Protocol):
    """The part of a topic that its bound uses."""

    name: str
    message_count: int
    message_bytes: int

    def waiting(self, *, counts_bytes: bool) -> Waiting:
        """Count what waits; the bytes only with ``counts_bytes``. Raises OSError."""
        ...

    def most_requeued(self) -> int:
        """The number of requeued messages in the channel with the most."""
        ...

    @property
    def move_count(self) -> int:
        """The number of times that a channel was rewound or emptied."""
        ...


class Bound:
    """Counts what may still be published to a topic.

    What waits is counted again only when the bound may have been reached since the last count. Otherwise a publish
    costs one comparison per channel.
    """

    def __init__(self, topic: BoundedTopic, policy: Policy) -> None:
        self._topic = topic
        self._max_depth, self._max_bytes = policy.max_depth, policy.max_bytes
        self._end = self._bytes_end = 0
        """The topic's ``message_count`` and ``message_bytes`` up to which there is room if nothing is requeued."""
        self._last_move_count = -1
        """``move_count`` when the depth was last counted; -1: never."""

    def admits(self, count: int, nbytes: int) -> bool:
        """Return whether ``count`` more messages with ``nbytes`` of bodies may be published. Raises OSError."""
        topic = self._topic
        if self._last_move_count == topic.move_count:
            has_room = not self._max_depth or topic.message_count + count + topic.most_requeued() <= self._end
            if has_room and (not self._max_bytes or topic.message_bytes + nbytes <= self._bytes_end):
                return True
        waiting = topic.waiting(counts_bytes=self._max_bytes > 0)
        self._last_move_count = topic.move_count
        self._end = topic.message_count + self._max_depth - waiting.never_delivered
        self._bytes_end = topic.message_bytes + self._max_bytes - waiting.nbytes
        has_room = not self._max_depth or waiting.depth + count <= self._max_depth
        return has_room and (not self._max_bytes or waiting.nbytes + nbytes <= self._max_bytes)

    def require(self, count: int, nbytes: int) -> None:
        """Raise TopicFull unless they may be published. Raises OSError."""
        if not self.admits(count, nbytes):
            bounds = {"max_depth": self._max_depth, "max_bytes": self._max_bytes}
            reached = ", ".join(f"{key} {value}" for key, value in bounds.items() if value)
            raise TopicFull(f"topic {self._topic.name} is full: {reached}")
