"""Recovery of a node's state: the newest valid checkpoint, and all later journal records.

Damaged records are skipped and reported. Records after the damage may be missing, so replay prefers delivering a
message again to losing it (:attr:`NodeState.is_complete`).
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES, data_start, is_intact
from brokerd.journal import records
from brokerd.journal.checkpoint import (
    CHECKPOINT,
    NEW,
    PREVIOUS,
    Damaged,
    OtherVersion,
    Position,
    position_of,
    read_checkpoint,
)
from brokerd.journal.records import KINDS
from brokerd.journal.state import Inapplicable, NodeState
from brokerd.zero_padding import end_of_contents
from nsqwire.counted import counted

logger = logging.getLogger("brokerd")

RECORD_HEAD = struct.Struct(">II")
MAX_RECORD_BYTES = 1024 * 1024
_NAME = re.compile(r"journal\.(0|[1-9][0-9]*)")
FILES = re.compile(rf"{re.escape(CHECKPOINT)}|{re.escape(PREVIOUS)}|{re.escape(NEW)}|{_NAME.pattern}")
"""The names of all files of journal and checkpoints."""
# Matches where a record may begin: a length of up to MAX_RECORD_BYTES, any check, and a known kind.
_CANDIDATE = re.compile(rb"(?=\0[\0-\x10].{6}[%b-%b])" % (bytes([KINDS[0]]), bytes([KINDS[-1]])), re.DOTALL)


_CONSEQUENCE = "some messages may be delivered again, and a channel created there has to be created again"


class CorruptState(Exception):
    """No checkpoint can be read; the text has the files and the reasons."""


class StateOfOtherVersion(CorruptState):
    """The checkpoint is not damaged: another version wrote it."""


class Recovered(NamedTuple):
    """The recovered state of a node.

    ``end`` is the end of the newest journal's records; its generation is 0 if there is no journal. ``newest`` and
    ``previous`` are the positions of the checkpoints, None for one that is missing or damaged. ``warnings`` has a line
    for each problem found; ``losses`` has those of them that lost changes.
    """

    state: NodeState
    end: Position
    newest: Position | None
    previous: Position | None
    warnings: list[str]
    losses: list[str]


def recover(directory: Path) -> Recovered:
    """Read the state of a stopped or killed node, without changing any file.

    Raises CorruptState if no checkpoint can be read, and OSError.
    """
    warnings, losses = list[str](), list[str]()
    state, start, newest, previous = _read_newest(directory, warnings)
    journals = journal_files(directory)
    later = {generation: path for generation, path in journals.items() if generation >= start.generation}
    end = max(start, Position(max(journals, default=0), 0))
    if start.generation and start.generation not in later:
        losses.append(_loss(f"{directory}/journal.{start.generation} is missing"))
        state.is_complete = False
    followed: Position | None = None
    for generation, path in sorted(later.items()):
        if followed is not None and generation > (expected := next_generation(directory, followed.generation)):
            losses.append(_loss(f"{path.with_suffix(f'.{expected}')} is missing"))
            state.is_complete, followed = False, None
        data = path.read_bytes()
        first = data_start(data)
        if first and any(data[:HEADER_BYTES]) and not is_intact(data):
            warnings.append(f"{path}: its header is damaged; nothing is lost by it")
        if (other := _other_generation(data, first, generation)) is not None:
            losses.append(_loss(f"{path} has the contents of journal.{other}"))
            state.is_complete, followed, end = False, None, Position(generation, first)
            continue
        offset = max(first, start.offset if generation == start.generation else 0)
        replay = _replay(state, path, data, offset, None if followed is None else followed.offset)
        if replay.read == 0 and offset == first and generation < max(later):
            losses.append(_loss(f"{path} is empty"))
            state.is_complete = False
        losses += replay.losses
        end = Position(generation, replay.end)
        followed = end if replay.read or offset > first else None
    return Recovered(state, end, newest, previous, warnings + losses, losses)


def _other_generation(data: bytes, first: int, generation: int) -> int | None:
    """The generation in a journal's first record, if that is not the one in its name; None otherwise."""
    record = _record_at(data, first)
    if record is None or record[0] != records.JOURNAL_BEGUN:
        return None
    found = int(records.BEGUN.unpack(record)[1])
    return None if found == generation else found


def _loss(problem: str) -> str:
    return f"{problem}: changes are lost; {_CONSEQUENCE}"


class _Replayed(NamedTuple):
    """The number of records ``read``, and the offset after the last one."""

    read: int
    end: int
    losses: list[str]


def _replay(state: NodeState, path: Path, data: bytes, start: int, previous_end: int | None) -> _Replayed:
    """Apply the records in a journal's ``data`` from ``start`` on. Damaged and inapplicable ones are counted.

    ``previous_end`` is the offset at which the records of the journal before it end; None if it is unknown.
    """
    read = damaged = inapplicable = 0
    end, losses = start, list[str]()
    for after, record in scan(data, start):
        if record is None:
            damaged += 1
            state.is_complete = False
            continue
        read, end = read + 1, after
        if record[0] == records.JOURNAL_BEGUN and previous_end is not None:
            ended = records.BEGUN.unpack(record)[3]
            if ended not in (0, previous_end):
                losses.append(_loss(f"{path}: the end of the journal before it is missing"))
                state.is_complete = False
        try:
            state.apply(record)
        except Inapplicable as error:
            logger.debug("%s: %s", path, error)
            inapplicable += 1
    if damaged:
        losses.append(_loss(f"{path}: damaged in {counted(damaged, 'place')}"))
    if inapplicable:
        passed = f"{counted(inapplicable, 'record')} cannot be applied"
        losses.append(f"{path}: {passed}: an earlier change is lost")
    return _Replayed(read, end, losses)


def scan(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Yield each record with the offset after it, and None once for each range of damaged bytes.

    The check of a record is written last, so a kill may leave the last record without it. That is not damage.
    """
    offset, used = start, end_of_contents(data, start)
    while offset < used:
        record = _record_at(data, offset)
        if record is not None:
            offset += RECORD_HEAD.size + len(record)
            yield offset, record
            continue
        found = (match.start() for match in _CANDIDATE.finditer(data, offset + 1))
        following = next((at for at in found if _record_at(data, at) is not None), None)
        if following is not None or any(data[offset + 4 : offset + 8]):
            yield offset, None
        if following is None:
            return
        offset = following


def _record_at(data: bytes, offset: int) -> bytes | None:
    if offset + RECORD_HEAD.size > len(data):
        return None
    length, check = RECORD_HEAD.unpack_from(data, offset)
    start = offset + RECORD_HEAD.size
    if not 0 < length <= MAX_RECORD_BYTES or start + length > len(data) or data[start] not in KINDS:
        return None
    record = data[start : start + length]
    return record if xxh3_64_intdigest(record) & 0xFFFFFFFF == check else None


def _read_newest(directory: Path, warnings: list[str]) -> tuple[NodeState, Position, Position | None, Position | None]:
    newest, previous = directory / CHECKPOINT, directory / PREVIOUS
    if not newest.exists() and not previous.exists():
        return NodeState(), Position(0, 0), None, None
    try:
        state, position = read_checkpoint(newest)
        return state, position, position, position_of(previous)
    except OtherVersion as error:
        # The logs beside it are likely to be of that version too: to read them now would take all messages for damaged.
        raise StateOfOtherVersion(
            f"{error}; nothing was changed. Start that version on it, or this one on an empty data path"
        ) from error
    except (Damaged, FileNotFoundError) as error:
        reason = str(error) if isinstance(error, Damaged) else f"{newest} is missing"
    try:
        state, position = read_checkpoint(previous)
    except (Damaged, FileNotFoundError) as error:
        also = str(error) if isinstance(error, Damaged) else f"{previous} is missing"
        raise CorruptState(f"{reason}, and {also}; nothing was changed, see `nsq repair`") from error
    warnings.append(f"{reason}; state recovered from {previous.name} and the journals since, nothing is lost by it")
    return state, position, None, position


def journal_files(directory: Path) -> dict[int, Path]:
    """The journals by generation. Symbolic links and directories with such names are ignored."""
    found = {int(match[1]): path for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))}
    return {generation: path for generation, path in found.items() if path.is_file() and not path.is_symlink()}


def next_generation(directory: Path, generation: int) -> int:
    """The generation after ``generation``. Skips those whose file name is that of a symbolic link or a directory."""
    generation += 1
    while (path := directory / f"journal.{generation}").is_symlink() or path.is_dir():
        generation += 1
    return generation
