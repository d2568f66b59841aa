"""Read-only inspection of a topic's directory: its contents and their damage."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from brokerd.file_header import HEADER_BYTES, data_start
from brokerd.log.commit_repair import SegmentContext, repair_commits
from brokerd.log.commits import Commit, CommitIndex, CommitRecords
from brokerd.log.files import LogFiles
from brokerd.log.headers import SUFFIX, Entry, HeaderFile
from nsqwire.counted import counted

_REBUILT: Final = "a start or --rebuild reads the messages from the .log"


class LogReport(NamedTuple):
    """The contents of a log. ``messages`` counts the readable ones. A line of ``damage`` begins with a file's name."""

    segments: int
    messages: int
    is_exact: bool
    """False if commit records are missing or damaged: a rebuild may find more messages."""
    bytes: int
    damage: list[str]
    orphans: list[Path]
    """The ``.idx`` and ``.hdr`` files whose ``.log`` is missing."""
    foreign_files: list[Path]


def inspect_log(directory: Path, id_head: bytes, holes: Sequence[tuple[int, int]] = ()) -> LogReport:
    """Read all segments of the topic whose ids begin with ``id_head``, under any node id.

    ``holes`` are the ranges ``[start, end)`` of numbers that the topic's state says no message has: emptied, lost
    before, or left out at a takeover. Raises OSError if a file cannot be read.
    """
    files = LogFiles.of(directory)
    messages, is_exact, damage, end = 0, True, list[str](), None
    for path, following in zip_longest(files.segments, files.segments[1:]):
        first_seq = int(path.stem)
        if end is not None and first_seq > end and not any(low <= end and first_seq <= high for low, high in holes):
            damage.append(f"{path.name}: messages {end} to {first_seq - 1}, before its first, are in no file")
        commits, complaints = _commits(path, is_newest=following is None)
        is_exact = is_exact and not complaints
        if complaints and not commits:
            context = SegmentContext(id_head, 0, None if following is None else int(following.stem))
            commits = _read_from_frames(path, first_seq, context)
        undamaged, damaged = _check(path, commits)
        messages += undamaged
        damage += [*complaints, *damaged, *_damage_of_headers(path)]
        end = max([first_seq, *(commit.next_seq for commit in commits)])
    held = {path.stem for path in files.segments}
    orphans = [path for path in files.side_files if path.suffix in (".idx", SUFFIX) and path.stem not in held]
    damage += [f"{path.name}: its .log is missing; --set-aside moves the {path.suffix} away" for path in orphans]
    nbytes = sum(path.stat().st_size for path in [*files.segments, *files.side_files])
    return LogReport(len(files.segments), messages, is_exact, nbytes, damage, orphans, files.foreign_files)


def _commits(path: Path, *, is_newest: bool) -> tuple[list[Commit], list[str]]:
    """A segment's valid commit records, and a line for each problem of its ``.idx``."""
    index = path.with_suffix(".idx")
    try:
        data = index.read_bytes()
    except FileNotFoundError:
        return [], [f"{index.name}: missing; {_REBUILT}"]
    records = CommitRecords(memoryview(data))
    if (topic := records.other_topic(path.parent)) is not None:
        return [], [f"{index.name}: belongs to topic number {topic}; {_REBUILT}"]
    commits, damaged = [commit for _, commit in records.valid()], records.damaged()
    if is_newest and damaged and damaged[-1] == len(commits) + len(damaged) - 1:
        damaged.pop()  # a kill interrupted its writing, before the messages were acknowledged
    if not commits and not damaged and _has_data(path):
        return [], [f"{index.name}: empty, although the .log is not; {_REBUILT}"]
    if not damaged:
        return commits, []
    count = f"{counted(len(damaged), 'commit record is', 'commit records are')} damaged"
    return commits, [f"{index.name}: {count}; {_REBUILT}"]


def _damage_of_headers(path: Path) -> list[str]:
    """A line for each damaged range in a segment's ``.hdr``, or for the missing file."""
    side, index = path.with_suffix(SUFFIX), path.with_suffix(".idx")
    headers = HeaderFile.existing(side)
    if headers is None:
        is_missing = index.exists() and CommitRecords(memoryview(index.read_bytes())).says_headers
        return [f"{side.name}: missing; its messages are delivered without headers"] if is_missing else []
    try:
        found = [each for each in headers.entries() if not isinstance(each, Entry)]
    finally:
        headers.close()
    return [
        f"{side.name}: damaged from byte {start} to {end - 1}; messages are delivered without these headers"
        for start, end in found
    ]


def _read_from_frames(path: Path, first_seq: int, context: SegmentContext) -> list[Commit]:
    """The commit records that a rebuild would write for a segment without any."""
    if not path.stat().st_size:
        return []
    index = CommitIndex(None, create=True)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_,
        memoryview(map_) as log,
    ):
        repair_commits(index, [], log, Commit(first_seq, data_start(bytes(log[:HEADER_BYTES])), 0, 0, 0, 0, 0), context)
    return [index[position] for position in range(len(index))]


def _has_data(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(mmap.PAGESIZE)
    return any(head[data_start(head) :])


def _check(path: Path, commits: list[Commit]) -> tuple[int, list[str]]:
    """The number of readable messages of ``commits``, and a line for each damaged batch."""
    if not path.stat().st_size:
        lost = sum(commit.messages for commit in commits)
        return 0, [f"{path.name}: empty; {counted(lost, 'message is', 'messages are')} lost"] if lost else []
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_,
        memoryview(map_) as log,
    ):
        damaged = list(_damaged(log, commits))
    lost = sum(commit.messages for commit in damaged)
    lines = [
        f"{path.name}: {counted(commit.messages, 'message is', 'messages are')} damaged, "
        f"from number {commit.first_seq} on"
        for commit in damaged
    ]
    return sum(commit.messages for commit in commits) - lost, lines


def _damaged(log: memoryview, commits: list[Commit]) -> Iterator[Commit]:
    for commit in commits:
        if commit.messages and (commit.end > len(log) or not commit.matches(log)):
            yield commit
