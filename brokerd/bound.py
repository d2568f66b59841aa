"""The bound of a topic: while too many messages wait, publishes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nsqwire.errors import TopicFull

if TYPE_CHECKING:
    from brokerd.policy import Policy


class BoundedTopic(Protocol):
    """The part of a topic that its bound uses."""

    name: str
    message_count: int
    message_bytes: int

    def most_waiting(self) -> tuple[int, int]:
        """The number of messages that wait in it and in the channel with the most, and their bytes."""
        ...


class Bound:
    """Counts what may still be published to a topic, so that most publishes cost two comparisons.

    What waits is counted again only when as much was published as there was room for at the last count.
    """

    def __init__(self, topic: BoundedTopic, policy: Policy) -> None:
        self._topic = topic
        self._max_depth, self._max_bytes = policy.max_depth, policy.max_bytes
        self._end = self._bytes_end = 0
        """``message_count`` and ``message_bytes`` of the topic up to which there is room."""

    def admits(self, count: int, nbytes: int) -> bool:
        """Return whether ``count`` more messages with bodies of ``nbytes`` together may be published."""
        return self._has_room(count, nbytes) or (self._count_again() and self._has_room(count, nbytes))

    def require(self, count: int, nbytes: int) -> None:
        """Raise TopicFull unless they may be published."""
        if not self.admits(count, nbytes):
            bounds = {"max_depth": self._max_depth, "max_bytes": self._max_bytes}
            reached = ", ".join(f"{key} {value}" for key, value in bounds.items() if value)
            raise TopicFull(f"topic {self._topic.name} is full: {reached}")

    def _has_room(self, count: int, nbytes: int) -> bool:
        topic = self._topic
        has_room = not self._max_depth or topic.message_count + count <= self._end
        return has_room and (not self._max_bytes or topic.message_bytes + nbytes <= self._bytes_end)

    def _count_again(self) -> bool:
        topic = self._topic
        depth, nbytes = topic.most_waiting()
        self._end = topic.message_count + self._max_depth - depth
        self._bytes_end = topic.message_bytes + self._max_bytes - nbytes
        return True
