"""A channel of NSQ from which a queue of kombu receives."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One subscription of a queue."""

    topic: str
    channel: str
    pattern: str | None = None
    """Of a topic exchange: the regular expression of the routing keys that the queue is bound to."""
    is_shared: bool = False
    """Whether each bound queue has a copy of each message: the topic is that of a topic or fanout exchange."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether nsqd removes the channel when the subscription ends."""
        return self.channel.endswith("#ephemeral")

    def matches(self, routing_key: str) -> bool:
        """Whether a message with this routing key is for the queue."""
        return self.pattern is None or re.match(self.pattern, routing_key) is not None
