"""One registration and who is entered in it."""

from __future__ import annotations

from lookup.producer import Peer
from lookup.registration import Registration
from nsqwire.names import is_ephemeral


class Entry:
    """The producers of one registration. A tombstone marks a peer for removal here without touching it elsewhere.

    ``peers`` may include disconnected ones that are not removed yet.

    With a thousand nodes of a thousand topics there are a million memberships: each is a pointer here and one in the
    peer, and nothing else.
    """

    __slots__ = ("_ordered", "peers", "registration", "tombstones")

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.peers: set[Peer] = set()
        self.tombstones: dict[Peer, int] = {}
        """When each marked peer was marked, in unix nanoseconds. The mark stays after its time, as NSQ's does."""
        self._ordered: list[Peer] | None = None

    def add(self, peer: Peer) -> bool:
        """Enter a peer; False if it is there already."""
        if peer in self.peers:
            return False
        self.peers.add(peer)
        self._ordered = None
        peer.entries.add(self)
        peer.changed()
        return True

    def remove(self, peer: Peer) -> bool:
        """Take a peer out; False if it is not there."""
        if peer not in self.peers:
            return False
        self.forget(peer)
        peer.entries.discard(self)
        peer.changed()
        return True

    def forget(self, peer: Peer) -> None:
        """Remove a disconnected peer, whose own list of entries no longer matters."""
        self.peers.discard(peer)
        self.tombstones.pop(peer, None)
        self._ordered = None

    @property
    def is_ephemeral(self) -> bool:
        """True if the entry is removed with its last producer."""
        return is_ephemeral(self.registration.subkey or self.registration.key)

    @property
    def ordered(self) -> list[Peer]:
        """The peers by their announced addresses; not to be changed."""
        if self._ordered is None:
            self._ordered = sorted(self.peers, key=lambda peer: peer.order)
        return self._ordered
