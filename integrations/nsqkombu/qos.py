"""The unacknowledged messages of a kombu channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

if TYPE_CHECKING:
    from nsqkombu.channel import Channel


class QoS(virtual.QoS):
    """Sends the answers to NSQ. nsqd restores messages itself, so there is nothing to restore at the end."""

    channel: Channel
    restore_at_shutdown = False

    def can_consume(self) -> bool:
        """The window of the subscriptions applies the prefetch count."""
        return True

    def ack(self, delivery_tag: str) -> None:
        """Finish the message. A tag that was answered is ignored."""
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
