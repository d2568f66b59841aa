"""The registration database: who produces what, in memory. Its peers rebuild it by connecting again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple

from lookup.producer import Peer, Producer
from lookup.registration import CLIENT, Registration, channel_registration, topic_registration
from nsqwire.names import is_ephemeral

EVERY = "*"


class NodeTopic(NamedTuple):
    """One topic of a node, and whether the node is hidden from those who look the topic up."""

    topic: str
    tombstoned: bool


class Registry:
    """Entries stay without producers until they are deleted, except ephemeral ones, which go with their last producer.

    Times come in as unix nanoseconds. Lists come out sorted: by name, or by the peers' announced addresses.
    """

    def __init__(self, *, inactive_timeout: timedelta, tombstone_lifetime: timedelta) -> None:
        self._inactive_timeout = inactive_timeout
        self._tombstone_lifetime = tombstone_lifetime
        self._entries: dict[Registration, dict[str, Producer]] = {CLIENT: {}}
        self._topics: set[str] = set()
        self._channels: defaultdict[str, set[str]] = defaultdict(set)  # topic -> its channel entries
        self._held: defaultdict[str, set[Registration]] = defaultdict(set)  # peer id -> where it is

    # --- what a connected nsqd does; each returns the entries that changed for it ---

    def identify(self, peer: Peer) -> list[Registration]:
        """Make a peer known."""
        return self._add(peer, CLIENT)

    def register(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Enter a peer as a producer of the topic, and of the channel if one is named. A tombstone stays in force."""
        added = self._add(peer, channel_registration(topic, channel)) if channel else []
        return added + self._add(peer, topic_registration(topic))

    def unregister(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Take a peer out of one channel, or out of the topic and all its channels."""
        if channel:
            registrations = [channel_registration(topic, channel)]
        else:
            registrations = [channel_registration(topic, each) for each in sorted(self._channels.get(topic, ()))]
            registrations.append(topic_registration(topic))
        return self._remove(peer, registrations)

    def disconnect(self, peer: Peer) -> list[Registration]:
        """Forget a peer whose connection ended."""
        removed = self._remove(peer, sorted(self._held.get(peer.id, ())))
        self._held.pop(peer.id, None)
        return removed

    # --- what an operator does ---

    def create_topic(self, topic: str) -> None:
        self._entry(topic_registration(topic))

    def create_channel(self, topic: str, channel: str) -> None:
        self._entry(channel_registration(topic, channel))
        self.create_topic(topic)

    def delete_topic(self, topic: str) -> list[Registration]:
        """Drop a topic and its channels, whoever produces them; a live nsqd brings them back when it next registers."""
        doomed = [channel_registration(topic, channel) for channel in sorted(self._channels.get(topic, ()))]
        if topic in self._topics:
            doomed.append(topic_registration(topic))
        for registration in doomed:
            self._drop(registration)
        return doomed

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Drop a channel; False if there is none."""
        registration = channel_registration(topic, channel)
        if registration not in self._entries:
            return False
        self._drop(registration)
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> list[Peer]:
        """Hide a node (``broadcast_address:http_port``) from those who look this topic up, for the tombstone's
        lifetime."""
        marked = [p for p in self._entries.get(topic_registration(topic), {}).values() if p.peer.node == node]
        for producer in marked:
            producer.tombstoned_at_ns = now_ns
        return [producer.peer for producer in marked]

    # --- what anyone may ask ---

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def has_topic(self, topic: str) -> bool:
        """Whether there is such an entry; ``*`` asks whether there is any."""
        return bool(self._topics) if topic == EVERY else topic in self._topics

    def channels(self, topic: str) -> list[str]:
        """The topic's channels; of every topic for ``*``."""
        if topic == EVERY:
            return sorted(set().union(*self._channels.values()))
        return sorted(self._channels.get(topic, ()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """Where the topic can be had: its active producers without a tombstone; of every topic for ``*``."""
        topics = self._topics if topic == EVERY else {topic}
        found: dict[str, Peer] = {}
        for each in topics:
            for producer in self._entries.get(topic_registration(each), {}).values():
                hidden = producer.is_tombstoned(now_ns, self._tombstone_lifetime)
                if not hidden and producer.peer.is_active(now_ns, self._inactive_timeout):
                    found[producer.peer.id] = producer.peer
        return _by_address(found.values())

    def nodes(self, now_ns: int) -> Iterator[tuple[Peer, list[NodeTopic]]]:
        """Each active peer with the topics it is registered for."""
        peers = (producer.peer for producer in self._entries[CLIENT].values())
        for peer in _by_address(peer for peer in peers if peer.is_active(now_ns, self._inactive_timeout)):
            held = sorted(r for r in self._held.get(peer.id, ()) if r.category == "topic")
            yield (
                peer,
                [
                    NodeTopic(r.key, self._entries[r][peer.id].is_tombstoned(now_ns, self._tombstone_lifetime))
                    for r in held
                ],
            )

    def entries(self) -> Iterator[tuple[Registration, list[Producer]]]:
        """Every entry that has producers."""
        for registration in sorted(self._entries):
            if producers := self._entries[registration]:
                yield registration, [producers[peer_id] for peer_id in sorted(producers)]

    # --- inside ---

    def _entry(self, registration: Registration) -> dict[str, Producer]:
        if registration.category == "channel":
            self._channels[registration.key].add(registration.subkey)
        elif registration.category == "topic":
            self._topics.add(registration.key)
        return self._entries.setdefault(registration, {})

    def _add(self, peer: Peer, registration: Registration) -> list[Registration]:
        producers = self._entry(registration)
        if peer.id in producers:
            return []
        producers[peer.id] = Producer(peer)
        self._held[peer.id].add(registration)
        return [registration]

    def _remove(self, peer: Peer, registrations: Iterable[Registration]) -> list[Registration]:
        removed = []
        for registration in registrations:
            producers = self._entries.get(registration)
            if producers is None or producers.pop(peer.id, None) is None:
                continue
            removed.append(registration)
            self._held[peer.id].discard(registration)
            if not producers and is_ephemeral(registration.subkey or registration.key):
                self._drop(registration)
        return removed

    def _drop(self, registration: Registration) -> None:
        for peer_id in self._entries.pop(registration):
            self._held[peer_id].discard(registration)
        if registration.category == "channel":
            channels = self._channels[registration.key]
            channels.discard(registration.subkey)
            if not channels:
                del self._channels[registration.key]
        else:
            self._topics.discard(registration.key)


def _by_address(peers: Iterable[Peer]) -> list[Peer]:
    return sorted(peers, key=lambda peer: (peer.broadcast_address, peer.tcp_port, peer.id))
