"""A node's storage: the data path, the journal, the syncer, and whether messages can be stored."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from brokerd.data_path import TOPICS, DataPath, DataPathMoved
from brokerd.disk_reserve import ReserveReached
from brokerd.disk_thread import DiskStalled, DiskThread
from brokerd.journal.journal import CHANGE_BYTES, Background, Journal
from brokerd.refused_write import RefusedWrite
from brokerd.syncer import FilesRemoved, NotSynced
from nsqwire.counted import counted
from nsqwire.errors import BelowReserve, Drained, PublishFailed

if TYPE_CHECKING:
    from brokerd.disk_reserve import DiskReserve
    from brokerd.log.segment import Segment
    from brokerd.retention import Retention
    from brokerd.syncer import Acknowledger, Done

logger = logging.getLogger("brokerd")


class NodeDrained(OSError):
    """Publishes are refused because the node is being drained."""


class TooFewInSync(OSError):
    """Publishes are refused because fewer members of the pair are in sync than ``--min-in-sync``."""


class StoredTopic(Protocol):
    """A topic with segments. The oldest may be removed when the disk is full."""

    @property
    def oldest_retained(self) -> Segment | None:
        """The oldest segment, if only retention keeps it."""
        ...

    def remove_oldest_retained(self) -> None:
        """Remove it."""
        ...

    def abandon(self, segment: Segment) -> bool:
        """Write nothing more to a segment whose file does not exist. False if it is not, or no longer, the topic's."""
        ...


class Storage:
    """The storage of a node's messages and changes of state, and its failures.

    ``topics`` are the node's topics by name. When the disk is full, segments that only retention keeps are removed.
    """

    def __init__(
        self,
        data_path: DataPath,
        retention: Retention | None,
        reserve: DiskReserve | None,
        topics: Mapping[str, StoredTopic],
    ) -> None:
        self.retention = retention
        self._reserve = reserve
        self.syncer: Acknowledger | None = None
        """The syncer, which is notified of writes. None until the process sets it, and in ``nsq repair``."""
        self.refusal: OSError | None = None
        """Why publishes are refused: a failed fsync, which is final, a moved data path, a disk that does not answer, a
        drain, too little free space. None: they are accepted."""
        self._drained: NodeDrained | None = None
        """What publishes are refused with if nothing else refuses them; None unless the node is being drained."""
        self._too_few_in_sync: TooFewInSync | None = None
        """As ``_drained``, while too few members of the pair are in sync."""
        self.disk = DiskThread()
        """Runs operations on files. The process starts its thread; in ``nsq repair`` it has none."""
        self._sync_stall: DiskStalled | None = None
        """Set while a sync is not answered. Publishes are then refused, with this or with another reason."""
        self.refused_write: RefusedWrite | None = None
        """The last write of messages that failed; None if one succeeded since."""
        self.lost_message_count = 0
        """Undelivered messages found damaged or missing since the process started."""
        self._data_path = data_path
        self._topics = topics
        self.journal: Journal | None = None
        """None during the recovery, and after it was closed."""
        self._recovery_records: list[bytes] | None = []
        """Records of changes that the recovery makes before the journal is open; None afterwards."""

    # -- journal --------------------------------------------------------------------------------------------------

    def open_journal(self, journal: Journal) -> None:
        """Use ``journal`` from now on, and append the records of the recovery to it."""
        self.journal = journal
        for record in self._recovery_records or ():  # needed by a later start from the checkpoint before the newest
            journal.append(record)
        self._recovery_records = None

    def append(self, record: bytes) -> None:
        """Append the record of a change of state to the journal."""
        if self.journal is not None:
            self.journal.append(record)
        elif self._recovery_records is not None:
            self._recovery_records.append(record)

    def append_if_complete(self, record: bytes) -> None:
        """Append a record that replay applies only to a state without gaps; if there is one, the record is dropped."""
        assert self.journal is not None
        self.journal.append_if_complete(record)

    def require_room(self, nbytes: int = CHANGE_BYTES, *, of_messages: bool = False) -> None:
        """Check, before a change, that the journal has room for the ``nbytes`` of its records. Raises OSError."""
        if self.journal is not None:
            self.journal.require(nbytes, of_messages=of_messages)

    def journal_failed(self, error: OSError) -> None:
        """Log the first failure to journal a change of messages."""
        if self.journal is None or self.journal.error is None:
            logger.error("cannot journal all changes of messages: %s", error)

    @property
    def journal_bytes(self) -> int:
        """Bytes journalled since the last checkpoint."""
        return 0 if self.journal is None else self.journal.used

    @property
    def journal_written(self) -> int:
        """A number that grows with each record in the journal."""
        return 0 if self.journal is None else self.journal.written

    @property
    def journal_paths(self) -> list[Path]:
        """The journal's files, which are synced together with messages."""
        assert self.journal is not None
        return self.journal.paths

    def checkpoint_in_background(self, background: Background) -> None:
        """Write checkpoints with ``background(work, done)`` from now on."""
        assert self.journal is not None
        self.journal.write_in_background(background)

    def checkpoint(self) -> None:
        """Write a checkpoint now. Raises OSError."""
        assert self.journal is not None
        self.journal.checkpoint()

    def close_journal(self) -> None:
        """Write the last checkpoint. Raises NotCheckpointed, and DataPathMoved if the data path was moved."""
        try:
            if self.journal is not None:
                self._data_path.check()  # a checkpoint must not be written beside the journal of another directory
                self.journal.close()
        finally:
            self.journal = None

    # -- messages -------------------------------------------------------------------------------------------------

    def wrote(self, segment: Segment, messages: int) -> None:
        """Record that messages were appended to ``segment``."""
        if segment.path is not None:
            self.refused_write = None
            if self.syncer is not None:
                self.syncer.wrote(segment, messages)

    def when_stored(self, done: Done) -> None:
        """Call ``done`` once all messages written so far are on the disk, or with the error."""
        if self.syncer is None:
            done(None)
        else:
            self.syncer.when_synced_at_last(done)

    def lost(self, topic: str, count: int, reason: str) -> None:
        """Count and log messages that were still to be delivered and cannot be read."""
        self.lost_message_count += count
        logger.error("TOPIC(%s): %s lost: %s", topic, counted(count, "message is", "messages are"), reason)

    def make_room(self, error: OSError) -> bool:
        """On a full disk, remove the oldest segment that only retention keeps. False if there is none."""
        if self.retention is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return False
        found = [
            (oldest.last_timestamp, name)
            for name, topic in self._topics.items()
            if (oldest := topic.oldest_retained) is not None
        ]
        if not found:
            return False
        _, name = min(found)
        logger.warning("TOPIC(%s): the disk is full: removing the oldest messages kept by --retention", name)
        self._topics[name].remove_oldest_retained()
        return True

    # -- health ---------------------------------------------------------------------------------------------------

    @property
    def disk_error(self) -> str | None:
        """Why the disk takes no messages or changes; None if it does."""
        if self.refusal is not None and not isinstance(self.refusal, NodeDrained):
            return str(self.refusal)
        if self.refused_write is not None:
            return str(self.refused_write.error)
        return None if self.journal is None else self.journal.error

    def write_failed(self, error: OSError, *, new_directory: Path | None = None) -> None:
        """Report a failed write in ``/ping`` and ``/stats`` until one succeeds.

        ``new_directory`` is the directory that could not be created, if that is what failed.
        """
        if not isinstance(error, (DataPathMoved, DiskStalled)):
            self._log_unhealthy(error)
            self.refused_write = RefusedWrite.of(
                error, self._data_path.path / TOPICS, new_directory=new_directory, previous=self.refused_write
            )
        self.check_data_path()

    def write_succeeds(self, refused: RefusedWrite) -> None:
        """Clear ``refused`` after the disk accepted that write. A write that was refused since remains an error."""
        if self.refused_write is refused:
            self.refused_write = None
            logger.info("the data path accepts messages again")

    def sync_failed(self, error: OSError) -> None:
        """Refuse publishes after a failed fsync, until a restart.

        Exceptions: after DataPathMoved until the data path is back, after DiskStalled until the disk answers, and after
        NotSynced and FilesRemoved not at all.
        """
        if isinstance(error, DataPathMoved):
            self.check_data_path()
        elif isinstance(error, FilesRemoved):
            pass  # abandon_missing has logged it
        elif isinstance(error, NotSynced):
            logger.error("a sync is put off: %s", error)
        elif isinstance(error, DiskStalled):
            self._sync_stall = error
            self.disk_stalled(error)
        else:
            self._log_unhealthy(error)
            self.refusal = error

    def abandon_missing(self, missing: Sequence[Segment]) -> list[Segment]:
        """Write nothing more to those of the segments without files that topics still use, and return them."""
        found = []
        for segment in missing:
            assert segment.path is not None, "what is in memory has no file"
            name = segment.path.parent.name.rpartition(".")[0]  # brokerd/topic_directories.py
            topic = self._topics.get(name)
            if topic is not None and topic.abandon(segment):
                found.append(segment)
                logger.error(
                    "TOPIC(%s): %s was removed while it was in use: its messages are lost when the broker ends",
                    name,
                    segment.path,
                )
        return found

    def sync_resumed(self) -> None:
        """Accept publishes again, because the sync that DiskStalled was about has ended."""
        self._sync_stall = None
        self.disk_resumed()

    def disk_stalled(self, error: DiskStalled) -> None:
        """Refuse publishes until ``disk_resumed`` is called."""
        if self._is_refusal_passing:
            self.refusal = error

    def disk_resumed(self) -> None:
        """Accept publishes again, unless another sync or operation is not answered."""
        if isinstance(self.refusal, DiskStalled) and self._stall is None:
            self.refusal = self._lasting_refusal
            logger.info("the disk answers again")
            self.check_reserve()

    @property
    def _stall(self) -> DiskStalled | None:
        """Why the disk is taken to be stalled; None if it answers."""
        return self._sync_stall or self.disk.stall

    def require_data_path(self) -> None:
        """Raise DataPathMoved unless the data path is the directory that was opened. Any thread may call it."""
        self._data_path.check()

    def check_data_path(self) -> None:
        """Refuse publishes while the data path is not the directory that was opened: a restart would not find them."""
        try:
            self._data_path.check()
        except DataPathMoved as error:
            if self._is_refusal_passing:
                self._log_unhealthy(error)
                self.refusal = error
        else:
            if isinstance(self.refusal, DataPathMoved):
                self.refusal = self._stall or self._lasting_refusal
                logger.info("the data path is the directory that was opened again")

    def require_publishing(self) -> None:
        """Raise PublishFailed while publishes are refused."""
        if self.refusal is not None:
            kinds = {ReserveReached: BelowReserve, NodeDrained: Drained}
            raise kinds.get(type(self.refusal), PublishFailed)(str(self.refusal))

    def set_drained(self, refusal: NodeDrained | None) -> None:
        """Refuse publishes because the node is being drained; None: no longer. A permanent refusal takes precedence."""
        self._drained = refusal
        self._refuse_as_needed()

    def set_too_few_in_sync(self, refusal: TooFewInSync | None) -> None:
        """Refuse publishes because too few members of the pair are in sync; None: no longer."""
        if refusal is not None and self._too_few_in_sync is None:
            logger.error("publishes are refused: %s", refusal)
        self._too_few_in_sync = refusal
        self._refuse_as_needed()

    def _refuse_as_needed(self) -> None:
        if self._is_refusal_passing:
            self.refusal = self._stall or self._lasting_refusal
            self.check_reserve()

    @property
    def _lasting_refusal(self) -> OSError | None:
        return self._too_few_in_sync or self._drained

    @property
    def _is_refusal_passing(self) -> bool:
        return self.refusal is None or isinstance(
            self.refusal, (ReserveReached, NodeDrained, DiskStalled, TooFewInSync)
        )

    def check_reserve(self) -> None:
        """Refuse publishes while less of the disk is free than its reserve, unless they are refused anyway."""
        if self._reserve is None or not (self.refusal is None or isinstance(self.refusal, ReserveReached)):
            return
        try:
            self._reserve.check(self._data_path.path, is_reached=self.refusal is not None)
        except ReserveReached as error:
            if self.refusal is None:
                logger.error("publishes are refused: %s", error)
            self.refusal = error
        except OSError as error:
            logger.debug("cannot see how much of the disk is free: %s", error)
        else:
            if self.refusal is not None:
                self.refusal = None
                logger.info("the disk has its reserve again: publishes are accepted")

    def _log_unhealthy(self, error: OSError) -> None:
        if self._is_refusal_passing and self.refused_write is None:
            logger.error("cannot keep messages: %s", error)
