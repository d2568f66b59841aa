"""The broker: its topics and clients, and their state across restarts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from brokerd import nsqd_import
from brokerd.client import Client
from brokerd.clock import NodeClock, boot_id
from brokerd.data_path import TOPICS, DataPath, DataPathMoved
from brokerd.disk_reserve import DiskReserve
from brokerd.drain import Drain
from brokerd.formats import check_formats
from brokerd.journal import records
from brokerd.journal.journal import Journal, room_for
from brokerd.journal.recovery import recover
from brokerd.journal.state import ChannelState, NodeState, TopicState, known_end
from brokerd.log.log import Log
from brokerd.mirror.figures import MirrorFigures
from brokerd.policies import Patterns, Policies
from brokerd.policy import Values
from brokerd.removal import Removal
from brokerd.retention import Retention
from brokerd.runtime import Runtime
from brokerd.settings import BrokerSettings
from brokerd.storage import NodeDrained, Storage
from brokerd.timers import CallAt
from brokerd.topic import Topic
from brokerd.topic_directories import TOPIC_NUMBERS, TopicDirectories, log_foreign
from brokerd.topic_log import id_head
from nsqwire.counted import counted
from nsqwire.errors import BadTopic, TopicNotFound, go_quote
from nsqwire.names import is_ephemeral, is_valid_name
from nsqwire.units import Seconds

UNSYNCED_NS = 60_000_000_000
"""With ``--sync-timeout``, the longest time that messages may stay unsynced; the system writes pages after 30 s."""
MAX_FOREIGN_LOGGED = 100
"""Maximum number of foreign files in the data path that are logged by name: it may be a home directory."""

logger = logging.getLogger("brokerd")


class RegistrationChange(NamedTuple):
    """The creation or deletion of a channel, or of a topic if ``channel`` is None."""

    kind: Literal["register", "unregister"]
    topic: str
    channel: str | None


class Broker:
    """The topics and clients of a node.

    ``now`` returns monotonic seconds; ``call_soon`` and ``call_at`` run a function later on the event loop. Only the
    thread of the event loop uses the broker.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        now: Callable[[], Seconds],
        call_soon: Callable[[Callable[[], None]], object],
        call_at: CallAt,
        policies: Mapping[Patterns, Values] | None = None,
        data_path: DataPath | None = None,
        left_out_numbers: int = 0,
    ) -> None:
        """Lock the data path, import nsqd's files in it, and recover its state. ``policies`` are those of the settings'
        file, and ``data_path`` is the settings' if that is locked already. ``left_out_numbers`` is how many numbers
        each topic skips: consumers may have received messages with these numbers from another broker.

        Raises DataPathLocked and OSError. With nothing changed, raises CorruptState if the state cannot be read,
        ImportFailed if nsqd's metadata cannot be read, and UnsupportedFormat if a file is of a newer release.
        """
        self.settings = settings
        self.node_id = settings.node_id
        self.boot_id = os.urandom(8).hex()
        self.start_time: Seconds = time.time()
        """Unix seconds."""
        self.started_ns = time.monotonic_ns()
        self.topics: dict[str, Topic] = {}
        self.clients: set[Client] = set()
        self.observers: list[Callable[[RegistrationChange], None]] = []
        self.mirror_figures: Callable[[], MirrorFigures] | None = None
        """Returns the figures of the mirror for ``/stats``; None for a node without one."""
        self.begin_hand_over: Callable[[], dict[str, object]] | None = None
        """Hands over to the follower, and returns the answer of ``/mirror/handover``; None without a mirror."""
        self._left_out_numbers = left_out_numbers
        self._missing_directories: list[Path] = []
        self._next_client = 0
        self._data_path = data_path or DataPath(settings.data_path or ".")
        retention = Retention.of(settings.retention, settings.retention_bytes)
        self.storage = Storage(self._data_path, retention, DiskReserve.of(settings.disk_reserve), self.topics)
        self.drain = Drain(self.storage, self.topics, now)
        self._directories = TopicDirectories(self._data_path.path / TOPICS)
        self._removal = Removal()
        path = self._data_path.path
        nsqd_import.check(path)
        check_formats(path)
        found = recover(path)
        state = found.state
        import_interrupted = nsqd_import.is_interrupted(path)
        nsqd_files = nsqd_import.stage(path, state)
        for warning in found.warnings:
            logger.warning("%s", warning)
        self.lost_changes = found.losses
        """A line for each problem that the recovery has found in the journal, and that lost changes."""
        for directory in self._directories.reconcile(state, import_interrupted=import_interrupted):
            self._removal.add(directory)
        if nsqd_files is not None:
            nsqd_import.import_into(state, nsqd_files, self._place)
        self._next_topic, self._next_channel = state.next_topic, state.next_channel
        self._imports = state.imports
        boot = boot_id()
        self._unsynced_ns: int | None = None
        """The field of :class:`brokerd.log.commit_repair.SegmentContext`; None if the machine was not restarted."""
        if state.clock is not None and state.clock.boot and boot and state.clock.boot != boot:
            self._unsynced_ns = UNSYNCED_NS + settings.sync_timeout // timedelta(microseconds=1) * 1000
        clock = NodeClock(now, state.clock, boot, lambda offset: self.storage.append(records.clock(offset)))
        self.runtime = Runtime(settings, clock, now=now, call_soon=call_soon, call_at=call_at)
        self.runtime.policies = Policies(self.runtime.policies.default, state.policies, policies)
        self.runtime.publish = lambda name, bodies, blocks: self.topic(name).publish_with_headers(bodies, blocks)
        self.runtime.when_stored = self.storage.when_stored
        self._restore(state)
        self.storage.open_journal(
            Journal(
                path,
                found,
                self._snapshot,
                self.storage.journal_failed,
                call_soon=call_soon,
                call_later=lambda delay, run: call_at(now() + delay, run),
                check_directory=self._data_path.check,
                tolerates_full_disk=nsqd_files is None,  # nsqd's files may only be renamed after a checkpoint
                disk=self.storage.disk,
            )
        )
        self.storage.check_reserve()
        if nsqd_files is not None:
            logger.info("nsqd's files are kept in %s", nsqd_import.keep(nsqd_files))
        self._log_foreign_files()

    @property
    def data_path(self) -> Path:
        """The data path that was opened, as an absolute path."""
        return self._data_path.path

    def recovery_loss(self) -> str | None:
        """What the recovery has found lost; None if nothing. To be called before the first delivery."""
        if self._missing_directories:
            return f"{self._missing_directories[0]} is missing"
        if count := self.storage.lost_message_count:
            return counted(count, "message is lost", "messages are lost")
        return None

    # -- topics ---------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Return the topic; create it if needed. Raises BadTopic for an invalid name; OSError, with nothing created."""
        topic = self.topics.get(name)
        if topic is None:
            if not is_valid_name(name):
                raise BadTopic(f"topic name {go_quote(name.encode('utf-8', 'surrogateescape'))} is not valid")
            topic = self._create_topic(name)
        return topic

    def topic_to_publish_to(self, name: str) -> Topic:
        """As ``topic``. Raises Drained, too, if the topic would be created on a node that is being drained."""
        if name not in self.topics and isinstance(self.storage.refusal, NodeDrained):
            self.storage.require_publishing()
        return self.topic(name)

    def _create_topic(self, name: str) -> Topic:
        if not is_ephemeral(name):
            self.storage.require_room()
        try:
            self._data_path.check()
        except DataPathMoved as error:
            self.storage.write_failed(error)
            raise
        number, directory = self._new_number(name)
        self._next_topic = number + 1
        topic = self._add_topic(number, name, Log(directory, disk=self.storage.disk))
        if topic.ephemeral:
            self.storage.append(records.topic_number_taken(number))
        else:
            self.storage.append(records.topic_created(number, 0, name))
            self.storage.refused_write = None
        logger.info("TOPIC(%s): created", name)
        self.registration_changed("register", name, None)
        return topic

    def _new_number(self, name: str) -> tuple[int, Path | None]:
        """Choose an unused topic number, and create its directory, except for an ephemeral topic. Raises OSError."""
        taken = {topic.number for topic in self.topics.values()}
        for candidate in range(self._next_topic, self._next_topic + TOPIC_NUMBERS):
            number = candidate % TOPIC_NUMBERS
            if number in taken:
                continue
            if is_ephemeral(name):
                return number, None
            try:
                create = partial(self._directories.create, number, name)
                return number, self.storage.disk.run(create, self._remove_late)
            except FileExistsError:
                continue  # a foreign file has that name
            except OSError as error:
                self.storage.write_failed(error, new_directory=self._directories.path_of(number, name))
                raise
        raise BadTopic(f"topic {name} exceeds the limit of {TOPIC_NUMBERS} topics of a node")

    def _remove_late(self, directory: Path) -> None:
        """Remove a directory that was created too late for its topic."""
        self.storage.disk.run_at_last(directory.rmdir)

    def find_topic(self, name: str) -> Topic:
        """Return the topic. Raises TopicNotFound."""
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete the topic, its channels and its messages, and close their clients. A thread removes the files.

        Raises TopicNotFound; OSError, with nothing changed.
        """
        topic = self.find_topic(name)
        topic.messages.require_room()
        doomed = None if topic.log.directory is None else self._rename_deleted(topic.log.directory)
        del self.topics[name]
        channels = list(topic.channels)
        topic.detach()
        for channel in channels:
            self.registration_changed("unregister", name, channel)
        if doomed is not None:
            self.storage.append(records.topic_deleted(topic.number))
            topic.log.close()
            self._removal.add(doomed)
        logger.info("TOPIC(%s): deleted", name)
        self.registration_changed("unregister", name, None)

    def _rename_deleted(self, directory: Path) -> Path:
        def undo(doomed: Path) -> None:
            self.storage.disk.run_at_last(partial(doomed.rename, directory))

        return self.storage.disk.run(partial(self._directories.rename_deleted, directory), undo)

    def registration_changed(self, kind: Literal["register", "unregister"], topic: str, channel: str | None) -> None:
        """Notify the observers of a topic or channel that was created or deleted."""
        for observer in self.observers:
            observer(RegistrationChange(kind, topic, channel))

    def next_channel_number(self) -> int:
        """A number that no channel of this node has had."""
        self._next_channel += 1
        return self._next_channel - 1

    def next_client_number(self) -> int:
        """The number of a new client, below 2^31. Numbers repeat only after 2^31 clients."""
        self._next_client = (self._next_client + 1) & 0x7FFFFFFF
        return self._next_client

    # -- policies -------------------------------------------------------------------------------------------------

    def set_policy(self, topic: str, channel: str, values: Values) -> None:
        """Set the policy of the channels that match two patterns; ``values`` are checked.

        Raises InvalidPolicy if dead messages would go in a circle, and OSError; nothing is changed then.
        """
        policies = self.runtime.policies
        self._change_policies(
            policies.changed({**policies.values, (topic, channel): values}), records.policy_set(topic, channel, values)
        )

    def delete_policy(self, topic: str, channel: str) -> bool:
        """Delete the policy of two patterns. Returns False if there is none. Raises as ``set_policy``."""
        values = dict(self.runtime.policies.values)
        if values.pop((topic, channel), None) is None:
            return False
        self._change_policies(self.runtime.policies.changed(values), records.policy_deleted(topic, channel))
        return True

    def _change_policies(self, policies: Policies, record: bytes) -> None:
        self.storage.require_room(room_for([record]))
        self.storage.append(record)
        self.runtime.policies = policies
        for topic in self.topics.values():
            topic.policies_changed()

    # -- state ----------------------------------------------------------------------------------------------------

    def _snapshot(self) -> NodeState:
        state = NodeState()
        state.next_topic, state.next_channel = self._next_topic, self._next_channel
        state.imports, state.clock = self._imports, self.runtime.clock.kept
        state.policies = self.runtime.policies.values
        for topic in self.topics.values():
            if topic.ephemeral:
                continue
            state.topics[topic.number] = TopicState(
                topic.number,
                topic.name,
                topic.messages.routed_end,
                topic.paused,
                list(topic.messages.holes),
                topic.messages.deferred_end,
                topic.log.next_seq,
                {publish.digest: publish for publish in topic.seen_ids},
            )
            for channel in topic.channels.values():
                if not channel.ephemeral:
                    state.channels[channel.number] = ChannelState(
                        channel.number,
                        topic.number,
                        channel.name,
                        channel.head,
                        channel.paused,
                        waiting=channel.in_flight.waiting(),
                        removed=[(start, end - start) for start, end in channel.cursor.removed],
                        failed=channel.in_flight.failed.copy(),
                        dead=channel.dead.copy(),
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

    def _log_foreign_files(self) -> None:
        foreign_files = self._data_path.foreign_files()
        for path in foreign_files[:MAX_FOREIGN_LOGGED]:
            log_foreign(path)
        if len(foreign_files) > MAX_FOREIGN_LOGGED:
            logger.warning("%d more files are not the broker's", len(foreign_files) - MAX_FOREIGN_LOGGED)

    def _restore_topic(self, state: TopicState, channels: list[ChannelState], *, is_complete: bool) -> None:
        directory = self._directories.path_of(state.number, state.name)
        end = known_end(state, channels)
        if not directory.exists():
            self._missing_directories.append(directory)
        log, notes = Log.recover(
            directory, id_head(self.node_id, state.number), end, self._unsynced_ns, self.storage.disk
        )
        if self._left_out_numbers:
            left_out = log.leave_out(self._left_out_numbers)
            state.holes.append(left_out)
            self.storage.append(records.topic_left_out(state.number, *left_out))  # the older checkpoint lacks it
        for path in log.foreign_files:
            log_foreign(path)
        for note in notes:
            logger.error("%s", note)
        topic = self._add_topic(state.number, state.name, log, state.routed_end)
        topic.paused = state.paused
        for channel in channels:
            self._restore_channel(topic, channel, is_complete=is_complete)
        topic.recover_skipped(
            state.holes,
            deferred_end=state.deferred_end,
            routed_end=state.routed_end,
        )
        topic.messages.recover_losses(is_complete=is_complete)
        topic.recover_publishes(state.publishes.values())
        cancelled = topic.messages.holes.count_between(topic.messages.routed_end, log.next_seq)
        for each in topic.channels.values():
            each.counted_from += cancelled
        log.unmap()  # most of thousands of topics are quiet

    def _restore_channel(self, topic: Topic, state: ChannelState, *, is_complete: bool) -> None:
        channel = topic.add_channel(state.number, state.name, state.head)
        channel.paused = state.paused
        channel.counted_from = topic.messages.routed_end
        waiting = state.unfinished()
        removed = state.removed_ahead()
        if not is_complete:  # a rewind may be missing: only those that are redelivered anyway, or dead
            each = (seq for first, count in removed for seq in range(first, first + count))
            removed = [(seq, 1) for seq in each if seq in waiting or seq in state.dead]
        channel.restore(
            (
                (seq, attempts, self.runtime.clock.recover(due_ns) if due_ns else 0.0)
                for seq, (attempts, due_ns) in waiting.items()
            ),
            removed,
            state.failed,
            state.dead,
        )

    def _add_topic(self, number: int, name: str, log: Log, routed_end: int = 0) -> Topic:
        topic = self.topics[name] = Topic(
            self,
            self.runtime,
            self.storage,
            number=number,
            name=name,
            log=log,
            id_head=id_head(self.node_id, number),
            routed_end=routed_end,
        )
        return topic

    def close(self) -> None:
        """Store everything, messages in flight and deferred included, and unlock the data path.

        Raises NotCheckpointed, and OSError if the data path was moved.
        """
        self.runtime.is_stopping = True
        for topic in self.topics.values():
            for channel in topic.channels.values():
                for client in list(channel.clients.values()):
                    channel.unsubscribe(client)
        try:
            self.storage.close_journal()
        finally:
            for topic in self.topics.values():
                topic.log.close()
            self._data_path.close()
