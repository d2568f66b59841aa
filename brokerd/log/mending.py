"""Reading anew, from the frames in a log, the batches whose commit records do not check."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.log.commits import Commit, CommitIndex
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES

SEQ_MASK = (1 << 40) - 1


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
    rebuilt = lost = 0
    dropped = 0
    for position in sorted(damaged):
        before = commits[position - 1] if position else Commit(first_seq, 0, 0, 0, 0, 0, 0)
        after = _next_sound(commits, damaged, position)
        limit = after.start if after is not None else len(log)
        commit = _read_batch(log, before.end, limit, before.next_seq, id_head)
        if commit is None and after is None:
            dropped = len(commits) - position
            commits.truncate(position)
            break
        if commit is None and after is not None:
            # The frames are damaged too. The first of such records stands for all messages up to the next sound one,
            # with a hash that nothing matches; any further ones stand for none.
            missing = max(0, after.first_seq - before.next_seq)
            length = max(0, after.start - before.end)
            commit = Commit(before.next_seq, before.end + length, after.timestamp, 0, missing, 0, length)
            lost += missing
        else:
            rebuilt += 1
        assert commit is not None
        commits.replace(position, commit)
    if commits.was_cut or next_first_seq is not None:
        rebuilt += _read_on(commits, log, first_seq, id_head, next_first_seq)
    return Repair(rebuilt, dropped, lost)


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


def _next_sound(commits: CommitIndex, damaged: list[int], position: int) -> Commit | None:
    for later in range(position + 1, len(commits)):
        if later not in damaged:
            return commits[later]
    return None


def _read_batch(log: memoryview, start: int, limit: int, first_seq: int, id_head: bytes) -> Commit | None:
    """The batch whose frames begin at ``start``, with the number ``first_seq``; None if no whole frame is there.

    A batch was given one timestamp, so it ends where another begins. Its deferral, if it had one, is not in the frames.
    """
    at, seq, timestamp = start, first_seq, 0
    while at + MESSAGE_HEAD_BYTES <= limit:
        size, kind, stamp, attempts, message_id = MESSAGE_HEAD.unpack_from(log, at)
        sound = kind == MESSAGE and attempts == 1 and message_id == id_head + b"%010x" % (seq & SEQ_MASK)
        end = at + 4 + size
        if not sound or size < MESSAGE_HEAD_BYTES - 4 or end > limit or (seq > first_seq and stamp != timestamp):
            break
        at, seq, timestamp = end, seq + 1, stamp
    if seq == first_seq:
        return None
    return Commit(first_seq, at, timestamp, xxh3_64_intdigest(log[start:at]), seq - first_seq, 0, at - start)
