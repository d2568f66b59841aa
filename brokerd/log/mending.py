"""Repair of commit records: damaged ones are rebuilt from the frames of their batches."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.log.commits import Commit, CommitIndex
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES

SEQ_MASK = (1 << 40) - 1
TOPIC_MASK = (1 << 14) - 1
"""The topic's part of the first 24 bits of an id; the others are the node's id."""
_HEX_DIGITS = frozenset(b"0123456789abcdef")


class Repair(NamedTuple):
    """Counts of one segment's damaged or missing commit records."""

    rebuilt: int
    """Records rebuilt from frames."""
    dropped: int
    """Records at the end without readable frames."""


class Known(NamedTuple):
    """Knowledge about a segment from other files.

    ``id_head`` is the beginning of the topic's ids under the present node id. All numbers below ``end`` were given to
    messages. ``next_first_seq`` is the first number of the following segment, None for the newest.
    """

    id_head: bytes
    end: int
    next_first_seq: int | None


def mend(commits: CommitIndex, damaged: list[int], log: memoryview, first_seq: int, known: Known) -> Repair:
    """Replace the ``damaged`` records, given by position, and drop those at the end that cannot be rebuilt.

    A record also counts as damaged if its batch reaches beyond the log, because the log was cut. Records missing at the
    end are rebuilt from the log (:func:`_read_on`).
    """
    last = len(commits) - 1
    while last >= 0 and (last in damaged or commits[last].end > len(log)):
        if last not in damaged:
            damaged.append(last)
        last -= 1
    rebuilt = dropped = 0
    tail_damaged = commits.was_cut
    for group in _runs(sorted(damaged)):
        before = commits[group[0] - 1] if group[0] else Commit(first_seq, 0, 0, 0, 0, 0, 0)
        if group[-1] + 1 < len(commits):
            rebuilt += _bridge(commits, group, before, commits[group[-1] + 1], log, known.id_head)
        else:
            dropped = len(group)
            commits.truncate(group[0])
            tail_damaged = True
    added = _read_on(commits, log, first_seq, known, tail_damaged=tail_damaged)
    return Repair(rebuilt + added, max(0, dropped - added))


def _runs(positions: list[int]) -> list[list[int]]:
    """Group positions that follow one another."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][-1] + 1 == position:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs


def _bridge(
    commits: CommitIndex, group: list[int], before: Commit, after: Commit, log: memoryview, id_head: bytes
) -> int:
    """Replace damaged records between two valid ones. Returns how many of them lost no message.

    Each readable batch gets a record. If the frames do not reach the next valid record they are damaged too, and one
    record with an impossible hash covers the rest. Surplus records have no messages.
    """
    read, last = list[Commit](), before
    while last.next_seq < after.first_seq and len(read) < len(group):
        is_last_place = len(read) + 1 == len(group)
        batch = read_batch(log, last.end, after.start, last.next_seq, id_head, one_timestamp=not is_last_place)
        if batch is None or batch.next_seq > after.first_seq:
            break
        read.append(batch)
        last = batch
    whole = len(group)
    if (last.next_seq, last.end) != (after.first_seq, after.start):
        if len(read) == whole:
            read.pop()
        whole = len(read)
        start, seq = (read[-1].end, read[-1].next_seq) if read else (before.end, before.next_seq)
        read.append(Commit(seq, after.start, after.timestamp, 0, after.first_seq - seq, 0, after.start - start))
    for position in group:
        at = position - group[0]
        nothing = Commit(after.first_seq, after.start, after.timestamp, 0, 0, 0, 0)
        commits.replace(position, read[at] if at < len(read) else nothing)
    return whole


def _read_on(commits: CommitIndex, log: memoryview, first_seq: int, known: Known, *, tail_damaged: bool) -> int:
    """Add records for the complete batches after the last record. Returns how many.

    A batch is written before its record. A single batch after the records may therefore be unacknowledged or half
    written, and is ignored. It gets a record if its record is known to have been lost: records are damaged or cut off,
    those of several batches are missing, a page of zeros begins here, later numbers were given to messages, or a later
    segment exists.
    """
    last = commits[-1] if commits else Commit(first_seq, 0, 0, 0, 0, 0, 0)
    found = list[Commit]()
    while last.next_seq != known.next_first_seq:
        batch = read_batch(log, last.end, len(log), last.next_seq, known.id_head)
        if batch is None or (known.next_first_seq is not None and batch.next_seq > known.next_first_seq):
            break
        found.append(batch)
        last = batch
    lost = tail_damaged or commits.ends_with_a_page or len(found) > 1 or known.next_first_seq is not None
    if not lost and found and found[0].first_seq >= known.end:
        return 0
    for batch in found:
        commits.append(batch)
    return len(found)


def read_batch(
    log: memoryview, start: int, limit: int, first_seq: int, id_head: bytes, *, one_timestamp: bool = True
) -> Commit | None:
    """The batch whose frames begin at ``start`` with message ``first_seq``; None if there is no complete frame.

    All messages of a batch have the same timestamp, so a batch ends where it changes. Frames do not hold the deferral.
    """
    at, seq, timestamp = start, first_seq, 0
    while at + MESSAGE_HEAD_BYTES <= limit:
        size, kind, stamp, attempts, message_id = MESSAGE_HEAD.unpack_from(log, at)
        end = at + 4 + size
        if kind != MESSAGE or attempts != 1 or size < MESSAGE_HEAD_BYTES - 4 or end > limit:
            break
        if not is_id_of(message_id, seq, id_head):
            break
        if one_timestamp and seq > first_seq and stamp != timestamp:
            break
        at, seq, timestamp = end, seq + 1, stamp
    if seq == first_seq:
        return None
    return Commit(first_seq, at, timestamp, xxh3_64_intdigest(log[start:at]), seq - first_seq, 0, at - start)


def is_id_of(message_id: bytes, seq: int, id_head: bytes) -> bool:
    """Tell whether an id is that of message ``seq`` in the topic of ``id_head``, under any node id."""
    head = message_id[:6]
    if message_id[6:] != b"%010x" % (seq & SEQ_MASK) or not _HEX_DIGITS.issuperset(head):
        return False
    return head == id_head or (int(head, 16) ^ int(id_head, 16)) & TOPIC_MASK == 0
