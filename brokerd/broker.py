"""The broker: its topics and clients, and their state across restarts."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from brokerd import nsqd_import
from brokerd.channel import Channel
from brokerd.client import Client
from brokerd.clock import NodeClock, boot_id
from brokerd.data_path import TOPICS, DataPath, DataPathMoved
from brokerd.journal import records
from brokerd.journal.journal import CHANGE_BYTES, Background, Journal
from brokerd.journal.recovery import recover
from brokerd.journal.state import ChannelState, NodeState, TopicState
from brokerd.log.log import Log
from brokerd.refused_write import RefusedWrite
from brokerd.removal import Removal
from brokerd.retention import Retention
from brokerd.scheduler import Scheduler
from brokerd.settings import BrokerSettings
from brokerd.supervisor import Supervisor
from brokerd.syncer import Syncer
from brokerd.timers import Handle, Timers
from brokerd.topic import Topic, id_head
from brokerd.topic_directories import TOPIC_NUMBERS, TopicDirectories, step_over
from brokerd.topology import Topology
from nsqwire.errors import BadTopic, TopicNotFound, go_quote
from nsqwire.names import is_ephemeral, is_valid_name

STRANGERS_NAMED = 100
"""Most foreign files in the data path that are logged by name; it may be somebody's home directory."""

logger = logging.getLogger("brokerd")


class RegistrationChange(NamedTuple):
    """A topic (``channel`` None) or a channel came or went."""

    kind: Literal["register", "unregister"]
    topic: str
    channel: str | None


class Broker:
    """All of a node's topics. Time and waking are given: ``now`` is monotonic seconds, ``call_soon`` and ``call_at``
    run a function later on the one thread that uses the broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        now: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        call_at: Callable[[float, Callable[[], None]], Handle],
    ) -> None:
        """Lock the data path, import nsqd's files in it, and recover its state.

        Raises DataPathLocked, OSError, and, with nothing changed, CorruptState or ImportFailed if our state or nsqd's
        cannot be read.
        """
        self.settings = settings
        self.node_id = settings.node_id
        self.topology = Topology.of(settings)
        self.retention = Retention.of(settings.retention, settings.retention_bytes)
        self.boot_id = os.urandom(8).hex()
        self.start_time = time.time()
        self.refused_write: RefusedWrite | None = None
        """The last write of messages that failed; None if one succeeded since."""
        self.lost_message_count = 0
        self.syncer: Syncer | None = None
        """Set by a process that has one; it is notified of writes."""
        self.refusal: OSError | None = None
        """Why publishes are refused: a failed fsync, which is final, or a moved data path. None if they are not."""
        self.topics: dict[str, Topic] = {}
        self.clients: set[Client] = set()
        self.observers: list[Callable[[RegistrationChange], None]] = []
        self.now = now
        self.scheduler = Scheduler(call_soon)
        self._call_soon = call_soon
        self._pending: deque[Channel] = deque()
        self._pump_is_due = False
        self.supervisor = Supervisor(lambda channel, when: self.timers.schedule(channel, when))
        self.timers: Timers[Channel] = Timers(
            lambda when: call_at(when, lambda: self.timers.fire(now())), self.supervisor.tick
        )
        self._next_client = 0
        self._data_path = DataPath(settings.data_path or ".")
        self._directories = TopicDirectories(self._data_path.path / TOPICS)
        self._removal = Removal()
        self._journal: Journal | None = None
        data_path = self._data_path.path
        nsqd_import.check(data_path)
        found = recover(data_path)
        state = found.state
        import_interrupted = nsqd_import.is_interrupted(data_path)
        nsqd_files = nsqd_import.stage(data_path, state)
        for oddity in found.oddities:
            logger.warning("%s", oddity)
        for directory in self._directories.settle(state, import_interrupted=import_interrupted):
            self._removal.add(directory)
        if nsqd_files is not None:
            nsqd_import.import_into(state, nsqd_files, self._place)
        self._next_topic, self._next_channel = state.next_topic, state.next_channel
        self._imports = state.imports
        self.clock = NodeClock(now, state.clock, boot_id(), lambda offset: self.journal_append(records.clock(offset)))
        self._restore(state)
        self._journal = Journal(
            data_path,
            found,
            self._snapshot,
            self._journal_failed,
            call_soon=call_soon,
            call_later=lambda delay, run: call_at(now() + delay, run),
            check_directory=self._data_path.check,
            tolerates_full_disk=nsqd_files is None,  # nsqd's files go once our state holds what is in them
        )
        if nsqd_files is not None:
            logger.info("nsqd's files are kept in %s", nsqd_import.keep(nsqd_files))
        self._step_over_strangers()

    # -- topics ---------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Return the topic, created if needed. Raises BadTopic for an invalid name; OSError, with nothing created."""
        topic = self.topics.get(name)
        if topic is None:
            if not is_valid_name(name):
                raise BadTopic(f"topic name {go_quote(name.encode('utf-8', 'surrogateescape'))} is not valid")
            topic = self._create_topic(name)
        return topic

    def _create_topic(self, name: str) -> Topic:
        if not is_ephemeral(name):
            self.require_room()
        try:
            self._data_path.check()
        except DataPathMoved as error:
            self.storage_failed(error)
            raise
        number, directory = self._new_number(name)
        self._next_topic = number + 1
        topic = Topic(self, number, name, Log(directory), 0)
        self.topics[name] = topic
        if topic.ephemeral:
            self.journal_append(records.topic_number_taken(number))
        else:
            self.journal_append(records.topic_created(number, 0, name))
            self.refused_write = None
        logger.info("TOPIC(%s): created", name)
        self.registration_changed("register", name, None)
        return topic

    def _new_number(self, name: str) -> tuple[int, Path | None]:
        """An unused topic number and the directory created for it, None for an ephemeral topic. Raises OSError."""
        taken = {topic.number for topic in self.topics.values()}
        for candidate in range(self._next_topic, self._next_topic + TOPIC_NUMBERS):
            number = candidate % TOPIC_NUMBERS
            if number in taken:
                continue
            if is_ephemeral(name):
                return number, None
            try:
                return number, self._directories.create(number, name)
            except FileExistsError:
                continue  # a foreign file has that name
            except OSError as error:
                self.storage_failed(error, new_directory=self._directories.path_of(number, name))
                raise
        raise BadTopic(f"topic {name} exceeds the limit of {TOPIC_NUMBERS} topics of a node")

    def find_topic(self, name: str) -> Topic:
        """Return the topic. Raises TopicNotFound."""
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic

    def delete_topic(self, name: str) -> None:
        """Drop the topic, its channels and its messages, and close their clients.

        Raises TopicNotFound; OSError, with nothing changed.
        """
        topic = self.find_topic(name)
        topic.require_room()
        doomed = None if topic.log.directory is None else self._directories.rename_deleted(topic.log.directory)
        del self.topics[name]
        channels = list(topic.channels)
        topic.detach()
        for channel in channels:
            self.registration_changed("unregister", name, channel)
        if doomed is not None:
            self.journal_append(records.topic_deleted(topic.number))
            topic.log.close()
            self._removal.add(doomed)
        logger.info("TOPIC(%s): deleted", name)
        self.registration_changed("unregister", name, None)

    def registration_changed(self, kind: Literal["register", "unregister"], topic: str, channel: str | None) -> None:
        """Tell the observers."""
        for observer in self.observers:
            observer(RegistrationChange(kind, topic, channel))

    def next_channel_number(self) -> int:
        """A number that no channel of this node has had."""
        self._next_channel += 1
        return self._next_channel - 1

    def next_client_number(self) -> int:
        """A number that no connected client has; it fits 32 bits."""
        self._next_client = (self._next_client + 1) & 0x7FFFFFFF
        return self._next_client

    def close_clients(self) -> None:
        """Close every TCP connection."""
        for client in list(self.clients):
            client.hang_up()

    # -- waking ---------------------------------------------------------------------------------------------------

    def wake(self, channel: Channel) -> None:
        """Schedule a delivery of ``channel`` after the current input is handled."""
        if channel.awake:
            return
        channel.awake = True
        self._pending.append(channel)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._call_soon(self._pump)

    def _pump(self) -> None:
        """Run the deliveries of the channels that are awake, for one slice of time, and schedule the rest."""
        self._pump_is_due = False
        scheduler, pending = self.scheduler, self._pending
        deadline, now = scheduler.deadline(), self.now()
        for _ in range(len(pending)):
            channel = pending.popleft()
            channel.awake = False
            self.supervisor.deliver(channel, now)
            if scheduler.clock() >= deadline:
                break
        if pending:
            self._pump_soon()

    # -- storage -------------------------------------------------------------------------------------------------

    def journal_append(self, record: bytes) -> None:
        """Keep a change of state."""
        if self._journal is not None:
            self._journal.append(record)

    def require_room(self, nbytes: int = CHANGE_BYTES, *, of_messages: bool = False) -> None:
        """Make sure that the journal has room for records of ``nbytes``, before the change that they describe.

        Raises OSError if it does not.
        """
        if self._journal is not None:
            self._journal.require(nbytes, of_messages=of_messages)

    def _journal_failed(self, error: OSError) -> None:
        if self._journal is None or self._journal.error is None:
            logger.error("cannot journal all changes of messages: %s", error)

    @property
    def health_error(self) -> str | None:
        """Why messages or changes cannot be stored; None if they can."""
        if self.refusal is not None:
            return str(self.refusal)
        if self.refused_write is not None:
            return str(self.refused_write.error)
        return None if self._journal is None else self._journal.error

    @property
    def journal_is_complete(self) -> bool:
        """True if checkpoint and journals hold every change."""
        return self._journal is None or self._journal.is_complete

    @property
    def journal_bytes(self) -> int:
        """Bytes journalled since the last checkpoint."""
        return 0 if self._journal is None else self._journal.used

    def checkpoint_in_background(self, background: Background) -> None:
        """Write checkpoints with ``background(work, done)`` from now on."""
        assert self._journal is not None
        self._journal.write_in_background(background)

    def checkpoint(self) -> None:
        """Write the whole state, now. Raises OSError."""
        assert self._journal is not None
        self._journal.checkpoint()

    @property
    def journal_paths(self) -> list[Path]:
        """The journal's files, which are synced together with messages."""
        assert self._journal is not None
        return self._journal.paths

    def sync_failed(self, error: OSError) -> None:
        """Refuse publishes after a failed fsync: until a restart, or until a data path that was moved is back."""
        if isinstance(error, DataPathMoved):
            self.check_data_path()
        else:
            self._log_unhealthy(error)
            self.refusal = error

    def require_data_path(self) -> None:
        """Raise DataPathMoved unless the data path is the directory that was opened. Any thread may call it."""
        self._data_path.check()

    def check_data_path(self) -> None:
        """Refuse publishes while the data path is not the directory that was opened: a restart would miss them."""
        try:
            self._data_path.check()
        except DataPathMoved as error:
            if self.refusal is None:
                self._log_unhealthy(error)
                self.refusal = error
        else:
            if isinstance(self.refusal, DataPathMoved):
                self.refusal = None
                logger.info("the data path is the directory that was opened again")

    def make_room(self, error: OSError) -> bool:
        """On a full disk, remove the oldest segment that only retention keeps. False if there is none."""
        if self.retention is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return False
        spares = [(spare.last_timestamp, topic) for topic in self.topics.values() if (spare := topic.oldest_spare)]
        if not spares:
            return False
        _, topic = min(spares, key=lambda each: each[0])
        logger.warning("TOPIC(%s): the disk is full: removing the oldest messages kept by --retention", topic.name)
        topic.log.remove_oldest()
        return True

    def storage_failed(self, error: OSError, *, new_directory: Path | None = None) -> None:
        """Report a failed write in ``/ping`` and ``/stats`` until one succeeds.

        ``new_directory`` is the directory that could not be created, if that is what failed.
        """
        if not isinstance(error, DataPathMoved):
            self._log_unhealthy(error)
            self.refused_write = RefusedWrite.of(
                error, self._data_path.path / TOPICS, new_directory=new_directory, previous=self.refused_write
            )
        self.check_data_path()

    def write_succeeds(self, refused: RefusedWrite) -> None:
        """The disk takes the write that it ``refused``. A write that was refused since remains an error."""
        if self.refused_write is refused:
            self.refused_write = None
            logger.info("the data path takes messages again")

    def _log_unhealthy(self, error: OSError) -> None:
        if self.refusal is None and self.refused_write is None:
            logger.error("cannot keep messages: %s", error)

    def lost(self, topic: str, count: int, reason: str) -> None:
        """Count and log messages that were still to be delivered and cannot be read."""
        self.lost_message_count += count
        logger.error("TOPIC(%s): %d messages are lost: %s", topic, count, reason)

    def _snapshot(self) -> NodeState:
        state = NodeState()
        state.next_topic, state.next_channel = self._next_topic, self._next_channel
        state.imports, state.clock = self._imports, self.clock.kept
        for topic in self.topics.values():
            if topic.ephemeral:
                continue
            state.topics[topic.number] = TopicState(
                topic.number,
                topic.name,
                topic.routed_end,
                topic.paused,
                topic.holes,
                topic.deferred_end,
                topic.log.next_seq,
            )
            for channel in topic.channels.values():
                if not channel.ephemeral:
                    state.channels[channel.number] = ChannelState(
                        channel.number,
                        topic.number,
                        channel.name,
                        channel.window.head,
                        channel.paused,
                        waiting=channel.waiting(),
                    )
        return state

    def _restore(self, state: NodeState) -> None:
        channels: dict[int, list[ChannelState]] = {number: [] for number in state.topics}
        for channel in state.channels.values():
            if channel.topic in channels:
                channels[channel.topic].append(channel)
            else:
                logger.warning("channel %s is left out: its topic does not exist", channel.name)
        for number, topic in state.topics.items():
            self._restore_topic(topic, channels[number], is_complete=state.is_complete)

    def _place(self, number: int, name: str) -> nsqd_import.Place:
        path = self._directories.path_of(number, name)
        if not path.exists():
            self._directories.create(number, name)
        return nsqd_import.Place(path, id_head(self.node_id, number))

    def _step_over_strangers(self) -> None:
        strangers = self._data_path.strangers()
        for path in strangers[:STRANGERS_NAMED]:
            step_over(path)
        if len(strangers) > STRANGERS_NAMED:
            logger.warning("%d more files are not the broker's", len(strangers) - STRANGERS_NAMED)

    def _restore_topic(self, state: TopicState, channels: list[ChannelState], *, is_complete: bool) -> None:
        directory = self._directories.path_of(state.number, state.name)
        log, notes = Log.recover(directory, id_head(self.node_id, state.number), _known_end(state, channels))
        for stranger in log.strangers:
            step_over(stranger)
        for note in notes:
            logger.error("%s", note)
        topic = Topic(self, state.number, state.name, log, state.routed_end)
        topic.paused = state.paused
        self.topics[state.name] = topic
        for channel in channels:
            self._restore_channel(topic, channel)
        topic.recover_skips(state.holes, state.deferred_end)
        topic.recover_losses(is_complete=is_complete)
        log.unmap()  # most of thousands of topics are quiet

    def _restore_channel(self, topic: Topic, state: ChannelState) -> None:
        channel = Channel(topic, state.number, state.name, state.head)
        channel.paused = state.paused
        topic.channels[state.name] = channel
        topic.channels_changed()
        channel.counted_from = topic.routed_end
        channel.restore(
            (seq, attempts, self.clock.recover(due_ns) if due_ns else 0.0)
            for seq, (attempts, due_ns) in state.unfinished().items()
        )

    def close(self) -> None:
        """Store everything, messages in flight and deferred included, and unlock the data path.

        Raises NotCheckpointed, and OSError if the data path was moved.
        """
        for topic in self.topics.values():
            for channel in topic.channels.values():
                for client in list(channel.clients.values()):
                    channel.unsubscribe(client)
        try:
            if self._journal is not None:
                self._data_path.check()  # a checkpoint must not be written beside the journal of another directory
                self._journal.close()
        finally:
            self._journal = None
            for topic in self.topics.values():
                topic.log.close()
            self._data_path.close()


def _known_end(topic: TopicState, channels: list[ChannelState]) -> int:
    """The number after the last message in a topic's recorded state."""
    ends = [topic.routed_end, topic.deferred_end, topic.next_seq, *(end for _, end in topic.holes)]
    for channel in channels:
        ends += [channel.head, 1 + max(channel.aside, default=-1)]
    return max(ends)
