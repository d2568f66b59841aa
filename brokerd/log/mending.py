"""Reading anew, from the frames in a log, the batches whose commit records do not check."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.log.commits import Commit, CommitIndex
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES

SEQ_MASK = (1 << 40) - 1
TOPIC_MASK = (1 << 14) - 1
"""The topic's part of the 24 bits that an id begins with; the others are the node's id."""
_HEX_DIGITS = frozenset(b"0123456789abcdef")


class Repair(NamedTuple):
    """What was done at opening. ``lost`` counts messages of which only the place is known."""

    rebuilt: int
    """Commit records that were written anew."""
    dropped: int
    """Commit records at the end that no frame stands behind any more."""
    lost: int


def mend(
    commits: CommitIndex,
    damaged: list[int],
    log: memoryview,
    first_seq: int,
    id_head: bytes,
    *,
    next_first_seq: int | None,
) -> Repair:
    """Replace the ``damaged`` records, given by position, and drop those at the end that cannot be.

    A record also counts as damaged if its batch reaches beyond the log, which was cut then. Where records are missing
    at the end, because the file was cut or the segment after this one begins later, their batches are read from the log
    too; otherwise what stands behind the last record is a batch that was never acknowledged, and is left.
    """
    last = len(commits) - 1
    while last >= 0 and (last in damaged or commits[last].end > len(log)):
        if last not in damaged:
            damaged.append(last)
        last -= 1
    rebuilt = lost = dropped = 0
    tail_damaged = False
    for group in _runs(sorted(damaged)):
        before = commits[group[0] - 1] if group[0] else Commit(first_seq, 0, 0, 0, 0, 0, 0)
        if group[-1] + 1 < len(commits):
            missing = _bridge(commits, group, before, commits[group[-1] + 1], log, id_head)
            lost += missing
            rebuilt += 0 if missing else len(group)
        else:
            dropped = len(group)
            commits.truncate(group[0])
            tail_damaged = True
    if commits.was_cut or tail_damaged or next_first_seq is not None:
        added = _read_on(commits, log, first_seq, id_head, next_first_seq)
        rebuilt, dropped = rebuilt + added, max(0, dropped - added)
    return Repair(rebuilt, dropped, lost)


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
    """Replace damaged records between two sound ones. Returns how many messages are lost.

    The first of them comes to stand for all messages in between, the others for none. If the frames do not lead from
    one to the other they are damaged too, and it gets a hash that nothing matches.
    """
    read = _read_batch(log, before.end, after.start, before.next_seq, id_head, one_timestamp=False)
    messages, length = after.first_seq - before.next_seq, after.start - before.end
    whole = read is not None and (read.next_seq, read.end) == (after.first_seq, after.start)
    if read is None or not whole:
        read = Commit(before.next_seq, after.start, after.timestamp, 0, messages, 0, length)
    commits.replace(group[0], read)
    for position in group[1:]:
        commits.replace(position, Commit(after.first_seq, after.start, after.timestamp, 0, 0, 0, 0))
    return 0 if whole else messages


def _read_on(commits: CommitIndex, log: memoryview, first_seq: int, id_head: bytes, stop: int | None) -> int:
    """Add records for the whole batches behind the last one, up to message ``stop``. Returns how many."""
    added = 0
    while True:
        end, seq = (commits[-1].end, commits[-1].next_seq) if commits else (0, first_seq)
        commit = None if seq == stop else _read_batch(log, end, len(log), seq, id_head)
        if commit is None:
            return added
        commits.append(commit)
        added += 1


def _read_batch(
    log: memoryview, start: int, limit: int, first_seq: int, id_head: bytes, *, one_timestamp: bool = True
) -> Commit | None:
    """The batch whose frames begin at ``start``, with the number ``first_seq``; None if no whole frame is there.

    A batch was given one timestamp, so it ends where another begins. Its deferral, if it had one, is not in the frames.
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
    """Tell whether an id is that of message ``seq`` in the topic of ``id_head``, whatever the node's id was then."""
    head = message_id[:6]
    if message_id[6:] != b"%010x" % (seq & SEQ_MASK) or not _HEX_DIGITS.issuperset(head):
        return False
    return head == id_head or (int(head, 16) ^ int(id_head, 16)) & TOPIC_MASK == 0
