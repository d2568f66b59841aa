"""The registration database, in memory. Peers rebuild it when they connect again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

from nsqlookup.peer import Peer
from nsqlookup.producer_set import ProducerSet
from nsqlookup.registration import CLIENT, Registration, channel_registration, topic_registration
from nsqwire.durations import nanoseconds

EVERY = "*"


class Registry:
    """The registrations and their producers.

    A registration without producers remains until it is deleted; an ephemeral one is removed with its last producer.
    Times are Unix nanoseconds. Lists of peers are sorted by their announced addresses; names are in any order.

    Operations that may change very many registrations return an iterator, which yields the changed ones in short steps.
    The call itself takes effect at once: a disconnected peer is in no response, and a deleted topic is not listed. The
    steps only free memory, except that those of ``unregister`` remove the peer from the channels of a topic.
    """

    def __init__(self, *, inactive_timeout: timedelta, tombstone_lifetime: timedelta) -> None:
        self._inactive_timeout_ns = nanoseconds(inactive_timeout)
        self._tombstone_lifetime_ns = nanoseconds(tombstone_lifetime)
        self._clients = ProducerSet(CLIENT)
        self._topics: dict[str, ProducerSet] = {}
        self._channels: dict[str, dict[str, ProducerSet]] = {}  # by topic, then by channel
        self._leaving: set[Peer] = set()
        """Disconnected peers that some producer sets still contain."""

    # --- operations of a connected nsqd; each returns the registrations that changed ---

    def identify(self, peer: Peer) -> list[Registration]:
        """Add a peer."""
        return _entered([self._clients], peer)

    def register(self, peer: Peer, topic: str, channel: str | None) -> list[Registration]:
        """Add a peer as a producer of the topic, and of the channel if it is not empty. Tombstones remain."""
        producer_sets = [self._channel(topic, channel)] if channel else []
        return _entered([*producer_sets, self._topic(topic)], peer)

    def unregister(self, peer: Peer, topic: str, channel: str | None) -> Iterator[Registration]:
        """Remove a peer from the channel; without a channel, from the topic and, step by step, from its channels."""
        channels = self._channels.get(topic, {})
        if channel:
            return iter(self._remove(peer, channels.get(channel)))
        last = self._remove(peer, self._topics.get(topic))
        return self._unregister_channels(peer, _in_order(channels.values()), last)

    def _unregister_channels(
        self, peer: Peer, producer_sets: list[ProducerSet], last: list[Registration]
    ) -> Iterator[Registration]:
        for producers in _drained(producer_sets):
            yield from self._remove(peer, producers)
        yield from last

    def disconnect(self, peer: Peer) -> Iterator[Registration]:
        """Remove a peer whose connection ended. It is in no response from now on."""
        peer.is_gone = True
        if self._clients.remove(peer):
            self._leaving.add(peer)
        return self._remove_registrations(peer)

    def _remove_registrations(self, peer: Peer) -> Iterator[Registration]:
        if peer not in self._leaving:
            return
        yield self._clients.registration
        producer_sets, peer.producer_sets = _in_order(peer.producer_sets), set()
        for producers in _drained(producer_sets):
            producers.forget(peer)
            self._drop_if_empty(producers)
            yield producers.registration
        self._leaving.discard(peer)

    # --- operations of an operator ---

    def create_topic(self, topic: str) -> None:
        """Register a topic without producers."""
        self._topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        """Register a channel and its topic, without producers."""
        self._channel(topic, channel)
        self._topic(topic)

    def delete_topic(self, topic: str) -> Iterator[Registration]:
        """Delete a topic and its channels, even if they have producers. A connected nsqd may register them again."""
        doomed = list(self._channels.pop(topic, {}).values())
        producers = self._topics.pop(topic, None)
        if producers is not None:
            _empty(producers)
            doomed.append(producers)
        return _emptied(doomed)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Delete a channel. False if it does not exist."""
        producers = self._current(self._channels.get(topic, {}).get(channel))
        if producers is None:
            return False
        self._drop(producers)
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> list[Peer]:
        """Hide a node (``broadcast_address:http_port``) from the topic's producers for the tombstone's lifetime.

        Returns the peers of that address.
        """
        producers = self._topics.get(topic)
        marked = [peer for peer in producers.ordered if peer.node == node and not peer.is_gone] if producers else []
        for peer in marked:
            assert producers is not None
            producers.tombstones[peer] = now_ns
            peer.changed()
        return marked

    # --- queries ---

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._names(self._topics)

    def has_topic(self, topic: str) -> bool:
        """True if the registration exists; ``*`` matches any."""
        if topic == EVERY:
            return any(not self._has_only_leaving(producers) for producers in self._topics.values())
        return self._current(self._topics.get(topic)) is not None

    def channels(self, topic: str) -> list[str]:
        """The names of the topic's channels; those of all topics for ``*``."""
        if topic == EVERY:
            return list(set().union(*(self._names(channels) for channels in self._channels.values())))
        return self._names(self._channels.get(topic, {}))

    def channel_count(self) -> int:
        """The number of channels of all topics."""
        return sum(map(len, self._channels.values()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """The active producers of the topic that no tombstone hides; those of all topics for ``*``."""
        if topic == EVERY:
            return [peer for peer in self.nodes(now_ns) if self._is_shown(peer, now_ns)]
        producers = self._topics.get(topic)
        if producers is None:
            return []
        since = now_ns - self._inactive_timeout_ns
        hidden = self._hidden(producers, now_ns)
        return [
            peer
            for peer in producers.ordered
            if peer.last_update_ns >= since and peer not in hidden and not peer.is_gone
        ]

    def producer_counts(self, now_ns: int) -> Iterator[tuple[str, int]]:
        """Yield each topic and the number of peers that ``producers`` would return for it, in any order."""
        inactive = self._clients.peers.difference(self.nodes(now_ns))
        for topic, producers in list(self._topics.items()):
            if not self._has_only_leaving(producers):
                hidden = inactive | self._hidden(producers, now_ns)
                if self._leaving:
                    hidden |= self._leaving
                yield topic, len(producers.peers) - len(producers.peers & hidden)

    def tombstone_count(self, now_ns: int) -> int:
        """The number of pairs of a topic and an active peer that a tombstone hides."""
        active = set(self.nodes(now_ns))
        return sum(
            len(active & self._hidden(producers, now_ns)) for producers in self._topics.values() if producers.tombstones
        )

    def nodes(self, now_ns: int) -> list[Peer]:
        """The active peers: those that sent PING or IDENTIFY within the inactive timeout."""
        since = now_ns - self._inactive_timeout_ns
        return [peer for peer in self._clients.ordered if peer.last_update_ns >= since]

    def node_topics(self, peer: Peer, now_ns: int) -> Iterator[tuple[str, bool] | None]:
        """Yield each topic of a peer, in any order, and whether a tombstone hides it; None for a step without topic."""
        for producers in list(peer.producer_sets):
            if producers.registration.category == "topic":
                yield producers.registration.key, peer in self._hidden(producers, now_ns)
            else:
                yield None

    def producer_sets(self) -> Iterator[ProducerSet]:
        """The producers of every registration, in any order. The registry may change between steps."""
        yield self._clients
        yield from list(self._topics.values())
        for channels in list(self._channels.values()):
            yield from list(channels.values())

    # --- inside ---

    def _hidden(self, producers: ProducerSet, now_ns: int) -> set[Peer]:
        marks = producers.tombstones
        return {peer for peer, at in marks.items() if now_ns - at < self._tombstone_lifetime_ns} if marks else _NOBODY

    def _is_shown(self, peer: Peer, now_ns: int) -> bool:
        topics = (producers for producers in peer.producer_sets if producers.registration.category == "topic")
        return any(peer not in self._hidden(producers, now_ns) for producers in topics)

    def _names(self, producer_sets: Mapping[str, ProducerSet]) -> list[str]:
        if not self._leaving:
            return list(producer_sets)
        return [name for name, producers in producer_sets.items() if not self._has_only_leaving(producers)]

    def _topic(self, topic: str) -> ProducerSet:
        producers = self._current(self._topics.get(topic))
        if producers is None:
            producers = self._topics[topic] = ProducerSet(topic_registration(topic))
        return producers

    def _channel(self, topic: str, channel: str) -> ProducerSet:
        producers = self._current(self._channels.get(topic, {}).get(channel))
        if producers is None:
            producers = ProducerSet(channel_registration(topic, channel))
            self._channels.setdefault(topic, {})[channel] = producers
        return producers

    def _has_only_leaving(self, producers: ProducerSet) -> bool:
        """True if an ephemeral registration has only disconnected producers that are not removed yet."""
        return bool(self._leaving and producers.is_ephemeral and producers.peers) and producers.peers <= self._leaving

    def _current(self, producers: ProducerSet | None) -> ProducerSet | None:
        """Return the producers. An ephemeral registration with only disconnected producers is dropped first: None."""
        if producers is None or not self._has_only_leaving(producers):
            return producers
        for peer in list(producers.peers):
            producers.forget(peer)  # it stays in the peer's producer_sets, because its removal is still to be logged
        self._drop(producers)
        return None

    def _remove(self, peer: Peer, producers: ProducerSet | None) -> list[Registration]:
        """Remove the peer and return the changed registration, if any."""
        if producers is None or not producers.remove(peer):
            return []
        self._drop_if_empty(producers)
        return [producers.registration]

    def _drop_if_empty(self, producers: ProducerSet) -> None:
        if not producers.peers and producers.is_ephemeral:
            self._drop(producers)

    def _drop(self, producers: ProducerSet) -> None:
        """Remove a registration, unless it is removed already or replaced by another one."""
        _empty(producers)
        category, topic, channel = producers.registration
        if category == "topic":
            if self._topics.get(topic) is producers:
                del self._topics[topic]
            return
        channels = self._channels.get(topic, {})
        if channels.get(channel) is producers:
            del channels[channel]
            if not channels:
                del self._channels[topic]


_NOBODY: set[Peer] = set()


def _entered(producer_sets: Iterable[ProducerSet], peer: Peer) -> list[Registration]:
    return [producers.registration for producers in producer_sets if producers.add(peer)]


def _empty(producers: ProducerSet) -> None:
    for peer in list(producers.peers):
        producers.remove(peer)


def _emptied(producer_sets: list[ProducerSet]) -> Iterator[Registration]:
    for producers in _drained(producer_sets):
        _empty(producers)
        yield producers.registration


def _drained(producer_sets: list[ProducerSet]) -> Iterator[ProducerSet]:
    """Yield and drop the sets one by one: freeing a hundred thousand at once takes 20 ms."""
    producer_sets.reverse()
    while producer_sets:
        yield producer_sets.pop()


def _in_order(producer_sets: Collection[ProducerSet]) -> list[ProducerSet]:
    """Sort by registration, so that logs can be compared, unless sorting would take long."""
    if len(producer_sets) > _MAX_SORTED:
        return list(producer_sets)
    return sorted(producer_sets, key=lambda producers: producers.registration)


_MAX_SORTED: Final = 1000
