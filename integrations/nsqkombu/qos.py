"""The unacknowledged messages of a kombu channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

if TYPE_CHECKING:
    from nsqkombu.channel import Channel


class QoS(virtual.QoS):
    """Sends acknowledgements to NSQ. kombu restores no messages at shutdown, because nsqd redelivers them."""

    channel: Channel
    restore_at_shutdown = False

    def can_consume(self) -> bool:
        """The window of the subscriptions applies the prefetch count."""
        return True

    def ack(self, delivery_tag: str) -> None:
        """Finish the message. A tag that was already answered is ignored."""
        self.channel.finish(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Requeue the message, after the option ``requeue_delay``, or finish it."""
        if requeue:
            self.channel.requeue(delivery_tag)
        else:
            self.channel.finish(delivery_tag)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Requeue every unacknowledged message."""
        self._flush()
        for tag in list(self._delivered):
            self.channel.requeue(tag)
        self._delivered.clear()
        return []
