"""The registration database: who produces what, in memory. Its peers rebuild it by connecting again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from lookup.entry import Entry
from lookup.producer import Peer
from lookup.registration import CLIENT, Registration, channel_registration, topic_registration
from nsqwire.durations import nanoseconds
from nsqwire.names import is_ephemeral

EVERY = "*"


class Registry:
    """Entries stay without producers until they are deleted, except ephemeral ones, which go with their last producer.

    Times come in as unix nanoseconds. Lists come out sorted: by name, or by the peers' announced addresses.
    """

    def __init__(self, *, inactive_timeout: timedelta, tombstone_lifetime: timedelta) -> None:
        self._inactive_timeout_ns = nanoseconds(inactive_timeout)
        self._tombstone_lifetime_ns = nanoseconds(tombstone_lifetime)
        self._clients = Entry(CLIENT)
        self._topics: dict[str, Entry] = {}
        self._channels: dict[str, dict[str, Entry]] = {}  # topic -> channel -> its entry

    # --- what a connected nsqd does; each returns the entries that changed for it ---

    def identify(self, peer: Peer) -> list[Registration]:
        """Make a peer known."""
        return _entered([self._clients], peer)

    def register(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Enter a peer as a producer of the topic, and of the channel if one is named. A tombstone stays in force."""
        entries = [self._channel(topic, channel)] if channel else []
        return _entered([*entries, self._topic(topic)], peer)

    def unregister(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Take a peer out of one channel, or out of the topic and all its channels."""
        channels = self._channels.get(topic, {})
        if channel:
            entries = [channels[channel]] if channel in channels else []
        else:
            entries = [channels[name] for name in sorted(channels)]
            entries += [self._topics[topic]] if topic in self._topics else []
        return self._remove(peer, entries)

    def disconnect(self, peer: Peer) -> list[Registration]:
        """Forget a peer whose connection ended."""
        return self._remove(peer, sorted(peer.entries, key=lambda entry: entry.registration))

    # --- what an operator does ---

    def create_topic(self, topic: str) -> None:
        self._topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        self._channel(topic, channel)
        self._topic(topic)

    def delete_topic(self, topic: str) -> list[Registration]:
        """Drop a topic and its channels, whoever produces them; a live nsqd brings them back when it next registers."""
        channels = self._channels.get(topic, {})
        doomed = [channels[name] for name in sorted(channels)]
        doomed += [self._topics[topic]] if topic in self._topics else []
        for entry in doomed:
            self._drop(entry)
        return [entry.registration for entry in doomed]

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Drop a channel; False if there is none."""
        entry = self._channels.get(topic, {}).get(channel)
        if entry is None:
            return False
        self._drop(entry)
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> list[Peer]:
        """Hide a node (``broadcast_address:http_port``) from those who look this topic up, for the tombstone's
        lifetime."""
        entry = self._topics.get(topic)
        marked = [peer for peer in entry.ordered if peer.node == node] if entry else []
        for peer in marked:
            assert entry is not None
            entry.tombstones[peer] = now_ns
            peer.topics_wire = None
        return marked

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

    def channel_count(self) -> int:
        """The channels of all topics."""
        return sum(map(len, self._channels.values()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """Where the topic can be had: its active producers without a tombstone; of every topic for ``*``."""
        if topic == EVERY:
            return [peer for peer in self.nodes(now_ns) if self._is_shown(peer, now_ns)]
        entry = self._topics.get(topic)
        if entry is None:
            return []
        since = now_ns - self._inactive_timeout_ns
        hidden = self._hidden(entry, now_ns)
        return [peer for peer in entry.ordered if peer.last_update_ns >= since and peer not in hidden]

    def producer_counts(self, now_ns: int) -> dict[str, int]:
        """How many producers each topic has, as ``producers`` would list them."""
        inactive = self._clients.peers.difference(self.nodes(now_ns))
        return {
            topic: len(entry.peers) - len(entry.peers & (inactive | self._hidden(entry, now_ns)))
            for topic, entry in self._topics.items()
        }

    def tombstone_count(self, now_ns: int) -> int:
        """How many topics of active peers a tombstone hides."""
        active = set(self.nodes(now_ns))
        return sum(len(active & self._hidden(entry, now_ns)) for entry in self._topics.values() if entry.tombstones)

    def nodes(self, now_ns: int) -> list[Peer]:
        """Each active peer."""
        since = now_ns - self._inactive_timeout_ns
        return [peer for peer in self._clients.ordered if peer.last_update_ns >= since]

    def node_topics(self, peer: Peer, now_ns: int) -> dict[str, bool]:
        """The topics a peer is registered for, and whether a tombstone hides it there."""
        held = sorted(entry.registration.key for entry in peer.entries if entry.registration.category == "topic")
        return {topic: peer in self._hidden(self._topics[topic], now_ns) for topic in held}

    def entries(self) -> Iterator[Entry]:
        """Every entry that has producers, by what is registered. Others may change the registry meanwhile."""
        channels = [entry for by_name in self._channels.values() for entry in by_name.values()]
        for entry in sorted([self._clients, *self._topics.values(), *channels], key=lambda each: each.registration):
            if entry.peers:
                yield entry

    # --- inside ---

    def _hidden(self, entry: Entry, now_ns: int) -> set[Peer]:
        marks = entry.tombstones
        return {peer for peer, at in marks.items() if now_ns - at < self._tombstone_lifetime_ns} if marks else _NOBODY

    def _is_shown(self, peer: Peer, now_ns: int) -> bool:
        topics = (entry for entry in peer.entries if entry.registration.category == "topic")
        return any(peer not in self._hidden(entry, now_ns) for entry in topics)

    def _topic(self, topic: str) -> Entry:
        entry = self._topics.get(topic)
        if entry is None:
            entry = self._topics[topic] = Entry(topic_registration(topic))
        return entry

    def _channel(self, topic: str, channel: str) -> Entry:
        channels = self._channels.setdefault(topic, {})
        entry = channels.get(channel)
        if entry is None:
            entry = channels[channel] = Entry(channel_registration(topic, channel))
        return entry

    def _remove(self, peer: Peer, entries: Iterable[Entry]) -> list[Registration]:
        removed = []
        for entry in entries:
            if not entry.remove(peer):
                continue
            registration = entry.registration
            removed.append(registration)
            if not entry.peers and is_ephemeral(registration.subkey or registration.key):
                self._drop(entry)
        return removed

    def _drop(self, entry: Entry) -> None:
        for peer in list(entry.peers):
            entry.remove(peer)
        category, topic, channel = entry.registration
        if category == "topic":
            del self._topics[topic]
            return
        channels = self._channels[topic]
        del channels[channel]
        if not channels:
            del self._channels[topic]


_NOBODY: set[Peer] = set()


def _entered(entries: Iterable[Entry], peer: Peer) -> list[Registration]:
    return [entry.registration for entry in entries if entry.add(peer)]
