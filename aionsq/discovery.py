"""Which nsqds have a topic, from what the nsqlookupds answer over time."""

from __future__ import annotations

from collections.abc import Collection

FORGET_AFTER_POLLS = 3


class Discovery:
    """The nsqds to be connected to: all that any nsqlookupd names.

    One that no nsqlookupd names any more is kept for a few polls, since an nsqd drops out of the answers while it
    restarts or loses its registry for a moment. Polls that some nsqlookupd did not answer do not count against it.
    """

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self._missed: dict[str, int] = {}

    def polled(self, found: Collection[str], *, complete: bool) -> None:
        """Take in the union of one poll's answers; ``complete``: every nsqlookupd answered."""
        for address in found:
            self._missed.pop(address, None)
        self.addresses.update(found)
        if complete:
            for address in self.addresses - set(found):
                self._missed[address] = self._missed.get(address, 0) + 1

    def forgettable(self) -> list[str]:
        """Those missing long enough to be dropped, if nothing comes from them."""
        return [address for address, polls in self._missed.items() if polls >= FORGET_AFTER_POLLS]

    def forget(self, address: str) -> None:
        """It was dropped; the next poll that names it brings it back."""
        self.addresses.discard(address)
        self._missed.pop(address, None)
