"""The prefetch count of a kombu channel, distributed over its subscriptions."""

from __future__ import annotations

from collections.abc import Sequence


def shares(free: int, outstanding: Sequence[int], turn: int) -> list[int]:
    """Return the ``max_in_flight`` of each subscription, from the number of messages that each has in flight.

    ``free`` is the number of messages that the channel may still receive. It is divided among the subscriptions. If it
    is less than their number, each gets one, because it is unknown which queue has messages; messages that arrive
    beyond the limit are then requeued at once. ``turn`` selects the subscriptions that get the remainder.
    """
    count = len(outstanding)
    each, extra = divmod(free, count)
    if free and not each:
        return [mine + 1 for mine in outstanding]
    return [mine + each + ((index + turn) % count < extra) for index, mine in enumerate(outstanding)]


class Window:
    """The limit of unacknowledged messages of a kombu channel, shared by its subscriptions."""

    def __init__(self, unlimited: int) -> None:
        self._unlimited = unlimited
        self.limit = unlimited
        """Most unacknowledged messages."""
        self._turn = 0
        self.members: list[Member] = []

    @property
    def outstanding_count(self) -> int:
        """Number of unacknowledged messages."""
        return sum(member.outstanding_count for member in self.members)

    @property
    def is_full(self) -> bool:
        """Whether no more messages may be delivered."""
        return self.outstanding_count >= self.limit

    def set_limit(self, prefetch_count: int) -> None:
        """Apply a new prefetch count; 0 is none."""
        self.limit = prefetch_count or self._unlimited
        self.changed()

    def admit_one(self) -> None:
        """Permit one message that kombu has not taken yet, in addition to the unacknowledged ones."""
        waiting = sum(member.waiting_count for member in self.members)
        self.set_limit(self.outstanding_count + (0 if waiting else 1))

    def changed(self) -> None:
        """Apply the shares, after a message was delivered or answered, or the members changed."""
        active = [member for member in self.members if not member.is_stopping]
        if active:
            self._turn += 1
            free = max(self.limit - self.outstanding_count, 0)
            in_flight = [member.in_flight_count for member in active]
            for member, share in zip(active, shares(free, in_flight, self._turn), strict=True):
                member.set_share(share)


class Member:
    """A subscription that shares a window."""

    outstanding_count: int
    in_flight_count: int
    """Number of outstanding messages whose connection still exists, which nsqd counts as in flight."""
    waiting_count: int
    """Number of outstanding messages that kombu has not taken yet."""
    is_stopping: bool

    def set_share(self, share: int) -> None:
        """Set how many messages the subscription may have in flight."""
        raise NotImplementedError
