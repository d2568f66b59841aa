"""The set of nsqds that have a topic, computed from successive responses of the nsqlookupds."""

from __future__ import annotations

from collections.abc import Collection

FORGET_AFTER_POLLS = 3


class Discovery:
    """The nsqds to connect to: every nsqd that at least one nsqlookupd lists.

    An nsqd that is no longer listed is kept for a few polls, because nsqds disappear from the responses while they
    restart or lose the connection to nsqlookupd. Only polls that every nsqlookupd answered count.
    """

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self._missed: dict[str, int] = {}

    def polled(self, found: Collection[str], *, complete: bool) -> None:
        """Record the union of one poll's responses; ``complete``: every nsqlookupd answered."""
        for address in found:
            self._missed.pop(address, None)
        self.addresses.update(found)
        if complete:
            for address in self.addresses - set(found):
                self._missed[address] = self._missed.get(address, 0) + 1

    def forgettable(self) -> list[str]:
        """Return the addresses that FORGET_AFTER_POLLS polls did not list. The caller keeps one that still delivers."""
        return [address for address, polls in self._missed.items() if polls >= FORGET_AFTER_POLLS]

    def forget(self, address: str) -> None:
        """Remove an address. The next poll that lists it adds it again."""
        self.addresses.discard(address)
        self._missed.pop(address, None)
