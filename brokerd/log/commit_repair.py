"""Repair of commit records: damaged ones are rebuilt from the frames of their batches."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.log.commits import Commit, CommitIndex
from brokerd.log.frames import Frames
from nsqwire.units import Nanoseconds

UNREADABLE = 0
"""The ``data_hash`` of a record for damaged messages. The check before delivery fails, so they are counted as lost."""


class Repair(NamedTuple):
    """The result of repairing one segment's commit records."""

    rebuilt: int
    """Records rebuilt from frames."""
    dropped: int
    """Records at the end without readable frames."""


class SegmentContext(NamedTuple):
    """Facts about a segment that are known from other files.

    ``id_head`` is the beginning of the topic's ids under the present node id. All numbers below ``end`` were given to
    messages. ``next_first_seq`` is the first number of the following segment, None for the newest.
    """

    id_head: bytes
    end: int
    next_first_seq: int | None
    unsynced_ns: int | None = None
    """If the machine was restarted: messages accepted less than this time before the newest one may not have been
    synced. Parts of them may be missing, so they are not rebuilt from their frames. None if it was not restarted."""
    newest_ns: int = 0
    """When the newest message with a commit record was accepted, Unix nanoseconds."""

    def without_unsynced(self, rebuilt: list[Commit]) -> list[Commit]:
        """Mark records as UNREADABLE if their messages may not have been synced before a restart of the machine."""
        if self.unsynced_ns is None:
            return rebuilt
        newest_ns = max([self.newest_ns, *(each.timestamp for each in rebuilt)])
        return [
            each._replace(data_hash=UNREADABLE) if each.timestamp > newest_ns - self.unsynced_ns else each
            for each in rebuilt
        ]


def repair_commits(
    commits: CommitIndex, damaged: list[int], log: memoryview, beginning: Commit, context: SegmentContext
) -> Repair:
    """Replace the ``damaged`` records, given by position, and drop those at the end that cannot be rebuilt.

    ``beginning`` is the first record of a segment: it has the first number and the offset of the first frame. A record
    also counts as damaged if its batch ends beyond the log, because the log was cut. Records that are missing at the
    end are rebuilt from the log (:func:`_append_missing`).
    """
    last = len(commits) - 1
    while last >= 0 and (last in damaged or commits[last].end > len(log)):
        if last not in damaged:
            damaged.append(last)
        last -= 1
    frames, rebuilt, dropped = Frames(log, context.id_head), 0, 0
    tail_damaged = commits.was_cut
    for group in _runs(sorted(damaged)):
        before = commits[group[0] - 1] if group[0] else beginning
        if group[-1] + 1 < len(commits):
            rebuilt += _rebuild_between(commits, group, before, commits[group[-1] + 1], frames, context)
        else:
            dropped = len(group)
            commits.truncate(group[0])
            tail_damaged = True
    added = _append_missing(commits, frames, beginning, context, tail_damaged=tail_damaged)
    return Repair(rebuilt + added, max(0, dropped - added))


def _runs(positions: list[int]) -> list[list[int]]:
    """Group consecutive positions."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][-1] + 1 == position:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs


def _rebuild_between(
    commits: CommitIndex, group: list[int], before: Commit, after: Commit, frames: Frames, context: SegmentContext
) -> int:
    """Replace damaged records between two valid ones. Returns how many were rebuilt from frames.

    Each readable batch gets a record, and so does each range of damaged messages between batches. If more records are
    needed than were damaged, neighbours are merged; if fewer, the rest have no messages.
    """
    read, last = list[Commit](), before
    while last.next_seq < after.first_seq:
        batch = frames.batch(last.end, after.start, last.next_seq, needs_successor=True)
        if batch is None:
            batch = _damaged(last, frames, after.start, after.first_seq)
        if batch is None or batch.next_seq > after.first_seq:
            break
        read.append(batch)
        last = batch
    if (last.next_seq, last.end) != (after.first_seq, after.start):
        if read and last.next_seq == after.first_seq:
            last = read.pop()
            last = last._replace(end=last.start, messages=0, length=0)
        read.append(_unreadable(last, after.first_seq, after.start, after.timestamp))
    while len(read) > len(group):
        _merge_two(read, frames.log)
    read = context.without_unsynced(read)
    for position in group:
        at = position - group[0]
        nothing = Commit(after.first_seq, after.start, after.timestamp, 0, 0, 0, 0)
        commits.replace(position, read[at] if at < len(read) else nothing)
    return sum(each.data_hash != UNREADABLE for each in read)


def _unreadable(last: Commit, next_seq: int, end: int, timestamp: Nanoseconds) -> Commit:
    """A record for the damaged messages after ``last`` and below ``next_seq``."""
    return Commit(last.next_seq, end, timestamp, UNREADABLE, next_seq - last.next_seq, 0, end - last.end)


def _damaged(last: Commit, frames: Frames, limit: int, below: int | None) -> Commit | None:
    """A record for the damaged messages between ``last`` and the next undamaged frame; None without such a frame."""
    found = frames.next_after(last.end, limit, last.next_seq)
    if found is None or (below is not None and found[1] >= below):
        return None
    at, seq = found
    return _unreadable(last, seq, at, frames.timestamp_at(at))


def _merge_two(read: list[Commit], log: memoryview) -> None:
    """Merge two neighbouring records, preferably a damaged range and a part of the same batch."""
    at = next((at for at, each in enumerate(read) if each.data_hash == UNREADABLE), len(read) - 1)
    is_last = at + 1 == len(read)
    if is_last or (at and read[at - 1].timestamp == read[at].timestamp != read[at + 1].timestamp):
        at -= 1
    one, two = read[at : at + 2]
    digest = UNREADABLE
    if UNREADABLE not in (one.data_hash, two.data_hash):
        digest = xxh3_64_intdigest(log[one.start : two.end])
    messages, length = one.messages + two.messages, one.length + two.length
    read[at : at + 2] = [Commit(one.first_seq, two.end, two.timestamp, digest, messages, 0, length)]


def _append_missing(
    commits: CommitIndex, frames: Frames, beginning: Commit, context: SegmentContext, *, tail_damaged: bool
) -> int:
    """Add records for the batches after the last record. Returns their number.

    A batch is written before its record. A single batch without a record may therefore be unacknowledged or written in
    part, and is ignored, unless its record must have been lost: other records are damaged or cut off, several batches
    have no record, the records end at a page boundary, higher numbers were given to messages, or a later segment
    exists. In these cases damaged frames between undamaged ones get a record too, so that they count as lost.
    """
    last = commits[-1] if commits else beginning
    found, limit = list[Commit](), len(frames.log)
    lost = tail_damaged or not commits or context.next_first_seq is not None or last.next_seq < context.end
    while last.next_seq != context.next_first_seq:
        batch = frames.batch(last.end, limit, last.next_seq, needs_successor=True)
        if batch is None and (lost or len(found) > 1):
            batch = _damaged(last, frames, limit, context.next_first_seq)
        batch = batch or _last(last, frames, context.next_first_seq)
        if batch is None or (context.next_first_seq is not None and batch.next_seq > context.next_first_seq):
            break
        found.append(batch)
        if len(found) > 1 and batch.timestamp == last.timestamp and UNREADABLE not in (batch.data_hash, last.data_hash):
            _merge_two(found, frames.log)
        last = found[-1]
    if not lost and not commits.ends_with_a_page and len(found) < 2:
        return 0
    for batch in context.without_unsynced(found):
        commits.append(batch)
    return len(found)


def _last(last: Commit, frames: Frames, next_first_seq: int | None) -> Commit | None:
    """A record for the message after ``last`` if it is the last one in the file; None if there is no such message.

    The record is that of an undamaged frame if former frames follow it, in a file that was reused, or if the next
    segment begins with the next number. Otherwise it is UNREADABLE.
    """
    start, seq = last.end, last.next_seq
    if not frames.has_id(start, seq):
        return _unreadable(last, seq + 1, frames.used, last.timestamp) if frames.is_last(start) else None
    end = frames.end_of(start, len(frames.log), seq)
    if end is not None and (seq + 1 == next_first_seq or any(frames.undamaged(end, len(frames.log)))):
        return frames.batch(start, end, seq)
    return _unreadable(last, seq + 1, max(frames.used, start), last.timestamp)
