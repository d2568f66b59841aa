"""The bound of a topic: while too many messages wait, publishes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqwire.errors import TopicFull

if TYPE_CHECKING:
    from brokerd.policy import Policy
    from brokerd.topic import Topic


class Bound:
    """Counts what may still be published to a topic, so that most publishes cost two comparisons.

    What waits is counted again only when as much was published as there was room for at the last count. The messages
    that wait are those of the channel with the most, and those of the topic itself; deferred ones and those in flight
    are not included.
    """

    def __init__(self, topic: Topic, policy: Policy) -> None:
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
        topic, channels = self._topic, self._topic.channels.values()
        depth = topic.depth + max((channel.depth for channel in channels), default=0)
        self._end = topic.message_count + self._max_depth - depth
        if self._max_bytes:
            nbytes = topic.messages.waiting_bytes + max((channel.limits.bytes_ahead for channel in channels), default=0)
            self._bytes_end = topic.message_bytes + self._max_bytes - nbytes
        return True
