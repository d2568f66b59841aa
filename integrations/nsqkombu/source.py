"""An NSQ channel from which a kombu queue receives."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from nsqwire import names


@dataclass(frozen=True)
class Source:
    """One subscription of a queue."""

    queue: str
    topic: str
    channel: str
    patterns: tuple[tuple[str, str], ...] = ()
    """Topic exchanges that publish to the topic, each with a regular expression of the queue's routing keys."""
    is_shared: bool = False
    """Whether each bound queue receives each message, because the topic is that of a topic or fanout exchange."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether nsqd removes the channel when the subscription ends."""
        return names.is_ephemeral(self.channel)

    def joined(self, other: Source) -> Source:
        """Return one subscription that replaces two subscriptions to the same channel of a topic."""
        patterns = tuple(dict.fromkeys(self.patterns + other.patterns))
        return replace(self, patterns=patterns, is_shared=self.is_shared or other.is_shared)

    def accepts(self, delivery_info: dict[str, Any]) -> bool:
        """Whether a message is for this queue. The topic of an exchange also has messages for other queues.

        True in case of doubt, because a message that is not accepted is finished.
        """
        exchange = delivery_info.get("exchange") or ""
        routing_key = delivery_info.get("routing_key") or ""
        patterns = [pattern for name, pattern in self.patterns if name == exchange]
        if exchange and patterns:
            return any(re.match(pattern, routing_key) for pattern in patterns)
        return not self.is_shared or exchange != "" or not routing_key or routing_key == self.queue
