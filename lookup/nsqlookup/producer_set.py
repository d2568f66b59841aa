"""One registration and its producers."""

from __future__ import annotations

from nsqlookup.peer import Peer
from nsqlookup.registration import Registration
from nsqwire.names import is_ephemeral


class ProducerSet:
    """The producers of one registration. A tombstone marks a peer in this set only.

    ``peers`` may include disconnected ones that are not removed yet.

    A thousand nodes with a thousand topics are a million memberships, so each takes only a pointer here and one in the
    peer.
    """

    __slots__ = ("_ordered", "peers", "registration", "tombstones")

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.peers: set[Peer] = set()
        self.tombstones: dict[Peer, int] = {}
        """When each peer was tombstoned, in Unix nanoseconds. The entry remains after the lifetime, as in NSQ."""
        self._ordered: list[Peer] | None = None

    def add(self, peer: Peer) -> bool:
        """Add a peer. False if it is a producer already."""
        if peer in self.peers:
            return False
        self.peers.add(peer)
        self._ordered = None
        peer.producer_sets.add(self)
        peer.changed()
        return True

    def remove(self, peer: Peer) -> bool:
        """Remove a peer. False if it is not a producer."""
        if peer not in self.peers:
            return False
        self.forget(peer)
        peer.producer_sets.discard(self)
        peer.changed()
        return True

    def forget(self, peer: Peer) -> None:
        """Remove a peer, and leave its ``producer_sets`` as they are."""
        self.peers.discard(peer)
        self.tombstones.pop(peer, None)
        self._ordered = None

    @property
    def is_ephemeral(self) -> bool:
        """True if the registration is removed with its last producer."""
        return is_ephemeral(self.registration.subkey or self.registration.key)

    @property
    def ordered(self) -> list[Peer]:
        """The peers, sorted by their announced addresses. Callers must not change the list."""
        if self._ordered is None:
            self._ordered = sorted(self.peers, key=lambda peer: peer.order)
        return self._ordered
