"""Recovery of a topic's log: opens its segments and repairs their commit records.

A segment is foreign if its contents contradict its name: its messages belong to another topic, have other numbers, or
have numbers of the segment before it. It is renamed, because the topic may need the name for another segment.
"""

from __future__ import annotations

from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from brokerd.log.commit_repair import SegmentContext
from brokerd.log.commits import CommitRecords
from brokerd.log.files import LogFiles
from brokerd.log.frames import Frames, is_id_of
from brokerd.log.headers import SUFFIX, HeaderFile
from brokerd.log.segment import Segment, timestamp_in
from nsqwire.frame import MESSAGE, MESSAGE_HEAD

FOREIGN = ".foreign"
"""Suffix of a segment's file whose contents contradict its name."""


class Orphan(NamedTuple):
    """An ``.idx`` or ``.hdr`` without its segment; ``end`` is the number after the last message in it."""

    path: Path
    end: int


class Recovered(NamedTuple):
    """A topic's recovered log."""

    segments: list[Segment]
    orphans: list[Orphan]
    written_end: int
    """The number after the last message that any file mentions, even if the message cannot be read."""
    notes: list[str]
    """A line for each file that was repaired, renamed or is missing."""


def recover_segments(files: LogFiles, id_head: bytes, known_end: int, unsynced_ns: int | None) -> Recovered:
    """Open and repair a topic's segments. Messages below ``known_end`` are known to have been written.

    ``unsynced_ns`` is that of :class:`brokerd.log.commit_repair.SegmentContext`. Raises OSError if a file cannot
    be read.
    """
    segments, notes, written_end = list[Segment](), list[str](), 0
    for path in files.segments:
        segment = Segment.open(path)
        belongs = _belongs(segment.commits, path) and _records_match_log(segment, id_head)
        end = _recorded_end(segment.commits) if belongs else 0
        reason = _contradiction(segment, id_head, belongs=belongs, before=written_end, known_end=known_end)
        if reason is not None:
            segment.unmap()
            notes.append(f"{path} {reason}: foreign segment, renamed to {_set_aside(path)}")
            continue
        if not belongs:
            notes.append(f"{path.with_suffix('.idx')} belongs to {_owner(segment.commits, path)} and is rebuilt")
            segment.commits.truncate(0)
            segment.damaged_records = []
        segments.append(segment)
        segment.written_end = max(segment.first_seq, end)
        written_end = max(written_end, segment.written_end)
    newest_ns = 0 if unsynced_ns is None else max([_newest_ns(segment.commits) for segment in segments], default=0)
    for segment, following in zip_longest(segments, segments[1:]):
        next_first_seq = None if following is None else following.first_seq
        repair = segment.recover(SegmentContext(id_head, known_end, next_first_seq, unsynced_ns, newest_ns))
        if segment.lacks_headers:
            assert segment.path is not None, "segments in memory are not recovered"
            side = segment.path.with_suffix(SUFFIX)
            notes.append(f"{side} is missing: messages of the segment are delivered without their headers")
        if any(repair):
            rebuilt = f"{repair.rebuilt} rebuilt from messages that could not be checked"
            notes.append(f"{segment.path}: commit records were damaged: {rebuilt}, {repair.dropped} dropped")
    held = {segment.path for segment in segments}
    orphans = [
        Orphan(path, _recorded_end(commits))
        for path in files.side_files
        if path.suffix == ".idx" and path.with_suffix(".log") not in held and path.exists()
        if _belongs(commits := CommitRecords(memoryview(path.read_bytes())), path)
    ]
    ends = [written_end, known_end, *(orphan.end for orphan in orphans), *(each.next_seq for each in segments)]
    orphans += _orphaned_headers(files, held)
    return Recovered(segments, orphans, max(ends), notes)


def _orphaned_headers(files: LogFiles, held: set[Path | None]) -> list[Orphan]:
    """The ``.hdr`` files without their segments. Their numbers may be those of messages that were never stored."""
    found = []
    for path in files.side_files:
        is_alone = path.suffix == SUFFIX and path.with_suffix(".log") not in held
        if is_alone and (headers := HeaderFile.existing(path)) is not None:
            found.append(Orphan(path, headers.last_seq + 1))
            headers.close()
    return found


def _belongs(commits: CommitRecords, path: Path) -> bool:
    """Return whether the valid commit records are those of the segment with the name and the directory of ``path``."""
    if commits.other_topic(path.parent) is not None:
        return False
    first_seq = int(path.stem)
    position, commit = next(commits.valid(), (0, None))
    return commit is None or commit.first_seq == first_seq or (position > 0 and commit.first_seq > first_seq)


def _owner(commits: CommitRecords, path: Path) -> str:
    """The owner of ``commits``, which do not belong to the segment ``path``."""
    topic = commits.other_topic(path.parent)
    return "another segment" if topic is None else f"topic number {topic}"


def _records_match_log(segment: Segment, id_head: bytes) -> bool:
    """Return whether the commit records describe the contents of the log.

    They do if any batch has the timestamp of its record, to the nanosecond. Otherwise the first batch, if its frames
    can be read, must have the count and length in its record.
    """
    log, first = segment.map[: segment.found_bytes], None
    for _, commit in segment.commits.valid():
        if commit.messages:
            first = first or commit
            has_id = _has_id_at(log, commit.start, commit.first_seq, id_head)
            if has_id and timestamp_in(log, commit.start) == commit.timestamp:
                return True
    batch = None if first is None else Frames(log, id_head).batch(first.start, len(log), first.first_seq)
    return first is None or batch is None or (batch.end, batch.messages) == (first.end, first.messages)


def _recorded_end(commits: CommitRecords) -> int:
    """The number after the last message of the last valid commit record; 0 if there is none."""
    last = next((commits[at] for at in reversed(range(len(commits))) if commits.checks(at)), None)
    return 0 if last is None else last.next_seq


def _newest_ns(commits: CommitRecords) -> int:
    """The timestamp of the last valid commit record; 0 if there is none."""
    return next((commits[at].timestamp for at in reversed(range(len(commits))) if commits.checks(at)), 0)


def _contradiction(segment: Segment, id_head: bytes, *, belongs: bool, before: int, known_end: int) -> str | None:
    """The reason why a file is not a segment of the topic; None if it is one, even a damaged one.

    ``belongs`` is true if its commit records fit its name; ``before`` is the end of the segments before it.
    """
    log, first_seq, start = segment.map[: segment.found_bytes], segment.first_seq, segment.start
    if first_seq >> 62:
        return "has a number that no message can have"
    if first_seq < before:
        return f"begins below message {before}, where the segment before it ends"
    if _has_id_at(log, start, first_seq, id_head):
        return None
    records = [commit for _, commit in segment.commits.valid()]
    for commit in records if belongs else ():
        if commit.messages and commit.end <= len(log) and commit.matches(log):
            return None if _has_id_at(log, commit.start, commit.first_seq, id_head) else "contains other messages"
    if (records and belongs) or _has_later_frames(Frames(log, id_head), start, first_seq):
        return None
    if records:
        return "contains other messages"
    is_empty = not any(log[start : start + MESSAGE_HEAD.size])
    return None if is_empty and first_seq in (before, known_end) else f"does not begin with message {first_seq}"


def _has_later_frames(frames: Frames, start: int, first_seq: int) -> bool:
    """Return whether the first frames are damaged, and the next ones can belong to a segment from ``first_seq`` on.

    ``start`` is the offset at which the first frame should begin.
    """
    limit = len(frames.log)
    first_two = list(islice(frames.undamaged(start, limit), 2))
    numbers = [seq for _, seq in first_two]
    if not first_two or (first_two[0][0] == start and numbers in ([numbers[0]], [numbers[0], numbers[0] + 1])):
        return False  # the first frames are undamaged, so these are other messages
    return frames.next_after(start, limit, first_seq) is not None


def _has_id_at(log: memoryview, offset: int, seq: int, id_head: bytes) -> bool:
    """Return whether the frame at ``offset`` has the id of message ``seq``."""
    if offset + MESSAGE_HEAD.size > len(log):
        return False
    _, kind, _, _, message_id = MESSAGE_HEAD.unpack_from(log, offset)
    return bool(kind == MESSAGE and is_id_of(message_id, seq, id_head))


def _set_aside(path: Path) -> str:
    """Rename a foreign segment's files. Returns the new name of its ``.log``."""
    for number in range(1_000_000):
        suffix = f"{FOREIGN}{number or ''}"
        aside = path.with_name(path.name + suffix)
        if not aside.exists():
            path.rename(aside)
            for side in (path.with_suffix(".idx"), path.with_suffix(SUFFIX)):
                if side.exists():
                    side.rename(side.with_name(side.name + suffix))
            return aside.name
    raise FileExistsError(f"{path} cannot be renamed")
