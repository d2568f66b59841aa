"""The registration database: who produces what, in memory. Its peers rebuild it by connecting again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

from lookup.entry import Entry
from lookup.producer import Peer
from lookup.registration import CLIENT, Registration, channel_registration, topic_registration
from nsqwire.durations import nanoseconds

EVERY = "*"


class Registry:
    """Entries stay without producers until they are deleted, except ephemeral ones, which go with their last producer.

    Times come in as unix nanoseconds. Lists of peers come out sorted by their announced addresses, names in any order.

    Operations that may change very many entries return an iterator over the changed registrations, with short steps.
    The call itself takes effect at once: a disconnected peer is found nowhere, a deleted topic is not listed. The steps
    only free memory, except that ``unregister`` removes the peer from the channels of a topic step by step.
    """

    def __init__(self, *, inactive_timeout: timedelta, tombstone_lifetime: timedelta) -> None:
        self._inactive_timeout_ns = nanoseconds(inactive_timeout)
        self._tombstone_lifetime_ns = nanoseconds(tombstone_lifetime)
        self._clients = Entry(CLIENT)
        self._topics: dict[str, Entry] = {}
        self._channels: dict[str, dict[str, Entry]] = {}  # topic -> channel -> its entry
        self._leaving: set[Peer] = set()
        """Disconnected peers that some entries still hold."""

    # --- what a connected nsqd does; each returns the entries that changed for it ---

    def identify(self, peer: Peer) -> list[Registration]:
        """Make a peer known."""
        return _entered([self._clients], peer)

    def register(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Enter a peer as a producer of the topic, and of the channel if one is named. A tombstone stays in force."""
        entries = [self._channel(topic, channel)] if channel else []
        return _entered([*entries, self._topic(topic)], peer)

    def unregister(self, peer: Peer, topic: str, channel: str | None) -> Iterator[Registration]:
        """Remove a peer from one channel, or from the topic and then, step by step, from all its channels."""
        channels = self._channels.get(topic, {})
        if channel:
            return iter(self._remove(peer, channels.get(channel)))
        last = self._remove(peer, self._topics.get(topic))
        return self._unregister_channels(peer, _in_order(channels.values()), last)

    def _unregister_channels(
        self, peer: Peer, entries: list[Entry], last: list[Registration]
    ) -> Iterator[Registration]:
        for entry in _let_go(entries):
            yield from self._remove(peer, entry)
        yield from last

    def disconnect(self, peer: Peer) -> Iterator[Registration]:
        """Remove a peer whose connection ended. It is in no response from now on."""
        peer.is_gone = True
        if self._clients.remove(peer):
            self._leaving.add(peer)
        return self._clear_away(peer)

    def _clear_away(self, peer: Peer) -> Iterator[Registration]:
        if peer not in self._leaving:
            return
        yield self._clients.registration
        entries, peer.entries = _in_order(peer.entries), set()
        for entry in _let_go(entries):
            entry.forget(peer)
            self._drop_if_over(entry)
            yield entry.registration
        self._leaving.discard(peer)

    # --- what an operator does ---

    def create_topic(self, topic: str) -> None:
        self._topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        self._channel(topic, channel)
        self._topic(topic)

    def delete_topic(self, topic: str) -> Iterator[Registration]:
        """Drop a topic and its channels, whoever produces them; a live nsqd brings them back when it next registers."""
        doomed = list(self._channels.pop(topic, {}).values())
        entry = self._topics.pop(topic, None)
        if entry is not None:
            _empty(entry)
            doomed.append(entry)
        return _emptied(doomed)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Drop a channel; False if there is none."""
        entry = self._settled(self._channels.get(topic, {}).get(channel))
        if entry is None:
            return False
        self._drop(entry)
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> list[Peer]:
        """Hide a node (``broadcast_address:http_port``) from those who look this topic up, for the tombstone's
        lifetime."""
        entry = self._topics.get(topic)
        marked = [peer for peer in entry.ordered if peer.node == node and not peer.is_gone] if entry else []
        for peer in marked:
            assert entry is not None
            entry.tombstones[peer] = now_ns
            peer.changed()
        return marked

    # --- what anyone may ask ---

    def topics(self) -> list[str]:
        return self._names(self._topics)

    def has_topic(self, topic: str) -> bool:
        """Whether there is such an entry; ``*`` asks whether there is any."""
        if topic == EVERY:
            return any(not self._is_over(entry) for entry in self._topics.values())
        return self._settled(self._topics.get(topic)) is not None

    def channels(self, topic: str) -> list[str]:
        """The topic's channels; of every topic for ``*``."""
        if topic == EVERY:
            return list(set().union(*(self._names(channels) for channels in self._channels.values())))
        return self._names(self._channels.get(topic, {}))

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
        return [
            peer for peer in entry.ordered if peer.last_update_ns >= since and peer not in hidden and not peer.is_gone
        ]

    def producer_counts(self, now_ns: int) -> Iterator[tuple[str, int]]:
        """The number of producers of each topic, as ``producers`` would list them; in any order, step by step."""
        inactive = self._clients.peers.difference(self.nodes(now_ns))
        for topic, entry in list(self._topics.items()):
            if not self._is_over(entry):
                hidden = inactive | self._hidden(entry, now_ns)
                if self._leaving:
                    hidden |= self._leaving
                yield topic, len(entry.peers) - len(entry.peers & hidden)

    def tombstone_count(self, now_ns: int) -> int:
        """How many topics of active peers a tombstone hides."""
        active = set(self.nodes(now_ns))
        return sum(len(active & self._hidden(entry, now_ns)) for entry in self._topics.values() if entry.tombstones)

    def nodes(self, now_ns: int) -> list[Peer]:
        """Each active peer."""
        since = now_ns - self._inactive_timeout_ns
        return [peer for peer in self._clients.ordered if peer.last_update_ns >= since]

    def node_topics(self, peer: Peer, now_ns: int) -> Iterator[tuple[str, bool] | None]:
        """The topics a peer is registered for, in any order, and whether a tombstone hides each; None for a step
        without a topic."""
        for entry in list(peer.entries):
            if entry.registration.category == "topic":
                yield entry.registration.key, peer in self._hidden(entry, now_ns)
            else:
                yield None

    def entries(self) -> Iterator[Entry]:
        """Every entry, in any order. The registry may change between steps."""
        yield self._clients
        yield from list(self._topics.values())
        for channels in list(self._channels.values()):
            yield from list(channels.values())

    # --- inside ---

    def _hidden(self, entry: Entry, now_ns: int) -> set[Peer]:
        marks = entry.tombstones
        return {peer for peer, at in marks.items() if now_ns - at < self._tombstone_lifetime_ns} if marks else _NOBODY

    def _is_shown(self, peer: Peer, now_ns: int) -> bool:
        topics = (entry for entry in peer.entries if entry.registration.category == "topic")
        return any(peer not in self._hidden(entry, now_ns) for entry in topics)

    def _names(self, entries: Mapping[str, Entry]) -> list[str]:
        if not self._leaving:
            return list(entries)
        return [name for name, entry in entries.items() if not self._is_over(entry)]

    def _topic(self, topic: str) -> Entry:
        entry = self._settled(self._topics.get(topic))
        if entry is None:
            entry = self._topics[topic] = Entry(topic_registration(topic))
        return entry

    def _channel(self, topic: str, channel: str) -> Entry:
        entry = self._settled(self._channels.get(topic, {}).get(channel))
        if entry is None:
            entry = Entry(channel_registration(topic, channel))
            self._channels.setdefault(topic, {})[channel] = entry
        return entry

    def _is_over(self, entry: Entry) -> bool:
        """Tell whether an ephemeral entry holds only disconnected producers that are not removed yet."""
        return bool(self._leaving and entry.is_ephemeral and entry.peers) and entry.peers <= self._leaving

    def _settled(self, entry: Entry | None) -> Entry | None:
        """The entry; None if there is none or it is over."""
        if entry is None or not self._is_over(entry):
            return entry
        for peer in list(entry.peers):
            entry.forget(peer)  # it stays among the peer's entries, which are still to be logged
        self._drop(entry)
        return None

    def _remove(self, peer: Peer, entry: Entry | None) -> list[Registration]:
        """Remove the peer from the entry. Returns the changed registration, if any."""
        if entry is None or not entry.remove(peer):
            return []
        self._drop_if_over(entry)
        return [entry.registration]

    def _drop_if_over(self, entry: Entry) -> None:
        if not entry.peers and entry.is_ephemeral:
            self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        """Remove an entry, unless it is removed already or replaced by another one."""
        _empty(entry)
        category, topic, channel = entry.registration
        if category == "topic":
            if self._topics.get(topic) is entry:
                del self._topics[topic]
            return
        channels = self._channels.get(topic, {})
        if channels.get(channel) is entry:
            del channels[channel]
            if not channels:
                del self._channels[topic]


_NOBODY: set[Peer] = set()


def _entered(entries: Iterable[Entry], peer: Peer) -> list[Registration]:
    return [entry.registration for entry in entries if entry.add(peer)]


def _empty(entry: Entry) -> None:
    for peer in list(entry.peers):
        entry.remove(peer)


def _emptied(entries: list[Entry]) -> Iterator[Registration]:
    for entry in _let_go(entries):
        _empty(entry)
        yield entry.registration


def _let_go(entries: list[Entry]) -> Iterator[Entry]:
    """Yield and drop the entries one by one: freeing a hundred thousand at once takes 20 ms."""
    entries.reverse()
    while entries:
        yield entries.pop()


def _in_order(entries: Collection[Entry]) -> list[Entry]:
    """Sort by registration, so that logs can be compared, unless sorting would take long."""
    if len(entries) > _SORTED_MOST:
        return list(entries)
    return sorted(entries, key=lambda entry: entry.registration)


_SORTED_MOST: Final = 1000
