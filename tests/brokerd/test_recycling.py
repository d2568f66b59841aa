"""The file of a consumed segment is reused, but never while somebody still reads from it."""

from __future__ import annotations

import ctypes
import errno
import mmap
from pathlib import Path

import pytest

from brokerd.log import log as log_module
from brokerd.log import reclamation
from brokerd.log import segment as segment_module
from brokerd.log.batch import BodyBatch
from brokerd.log.commits import CommitIndex
from brokerd.log.log import Log
from brokerd.log.segment import RETIRED, Segment
from tests.harness.waiting import DEADLINE_S

ID_HEAD = b"9a4001"
BODY = b"x" * 1000


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log whose segments have their full size of 8 KiB from the first on."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 8192)
    return Log(tmp_path)


def append(log: Log, count: int) -> None:
    for _ in range(count):
        body = b"%06d" % log.next_seq + BODY
        log.append(BodyBatch([body], ID_HEAD, 5))


def test_a_consumed_segment_becomes_the_next_one(log: Log, tmp_path: Path) -> None:
    """The file gets another name; its old contents cannot be read from it."""
    append(log, 8)
    inode = (tmp_path / f"{0:020d}.log").stat().st_ino
    log.drop_below(7)
    assert (tmp_path / RETIRED).stat().st_ino == inode
    append(log, 7)
    assert [path.stat().st_ino for path in sorted(tmp_path.glob("*.log"))][-1] == inode
    frames = [log.frame(seq) for seq in range(7, 15)]
    assert [frame[34:40] for frame in frames if frame] == [b"%06d" % seq for seq in range(7, 15)]
    again, repairs = Log.recover(tmp_path, ID_HEAD)
    assert (again.first_seq, again.next_seq, repairs) == (7, 15, [])


def test_a_segment_for_a_larger_batch_leaves_the_retired_file_to_the_next(log: Log, tmp_path: Path) -> None:
    """Otherwise the file would stay until the next start, and no other one could be retired."""
    append(log, 8)
    inode = (tmp_path / f"{0:020d}.log").stat().st_ino
    log.drop_below(7)
    log.append(BodyBatch([bytes(10_000)], ID_HEAD, 5))
    assert (tmp_path / RETIRED).stat().st_ino == inode
    append(log, 3)
    assert [path.stat().st_ino for path in sorted(tmp_path.glob("*.log"))][-1] == inode
    assert not (tmp_path / RETIRED).exists()


def test_a_retired_file_that_could_not_be_reused_is_used_next_time(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk had no space for the new index. The retired file needs no space of its own, and no index is left."""
    append(log, 8)
    inode = (tmp_path / f"{0:020d}.log").stat().st_ino
    log.drop_below(7)
    append(log, 6)
    with monkeypatch.context() as patch:
        patch.setattr(CommitIndex, "begin", raise_no_space)
        with pytest.raises(OSError, match="No space left"):
            append(log, 1)
    assert [path.name for path in tmp_path.glob("*.idx")] == [f"{7:020d}.idx"]
    append(log, 1)
    assert [path.stat().st_ino for path in sorted(tmp_path.glob("*.log"))][-1] == inode
    assert not (tmp_path / RETIRED).exists()
    again, repairs = Log.recover(tmp_path, ID_HEAD)
    assert (again.first_seq, again.next_seq, repairs) == (7, 15, [])


def raise_no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_slice_that_a_socket_holds_keeps_its_bytes(log: Log, tmp_path: Path) -> None:
    """A slow consumer's segment is removed instead of reused, and its unread bytes do not change."""
    append(log, 8)
    frame = log.segments[0].map[0:100]
    before = bytes(frame)
    log.drop_below(7)
    assert not (tmp_path / RETIRED).exists()
    append(log, 20)
    assert bytes(frame) == before


def test_a_retired_file_does_not_outlive_the_process(log: Log, tmp_path: Path) -> None:
    """Recovery removes files kept for reuse."""
    append(log, 8)
    log.drop_below(7)
    log.close()
    Log.recover(tmp_path, ID_HEAD)
    assert not (tmp_path / RETIRED).exists()


def test_unsent_slices_outlive_the_removal_of_their_segment(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two removed segments, the one with a slice keeps its bytes; the other's memory is freed, and both files are
    removed."""
    monkeypatch.setattr(segment_module, "FREED_IN_A_THREAD_FROM", 1)
    append(log, 22)
    free, sending = log.segments[1:3]
    unused, frame = free._map, sending.map[0:100]
    before = bytes(frame)
    log.drop_below(21)
    reclamation._thread.submit(int).result(DEADLINE_S)
    assert unused is not None
    assert unused.closed
    assert bytes(frame) == before
    assert len(list(tmp_path.glob("*.log"))) == len(log.segments)


@pytest.mark.parametrize("is_read_again", [False, True])
@pytest.mark.parametrize("is_reused", [False, True])
def test_unsent_slices_outlive_a_segment_that_was_unmapped(
    is_reused: bool, is_read_again: bool, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow consumer's topic was idle, then its messages were finished by another: the bytes that wait to be sent are
    neither cut off with the file nor overwritten by its next messages."""
    monkeypatch.setattr(segment_module, "FREED_IN_A_THREAD_FROM", 1)
    if not is_reused:
        monkeypatch.setattr(Segment, "retire", lambda _: False)
    append(log, 8)
    frame = log.segments[0].map[0:6000]
    before = bytes(frame)
    log.unmap()
    if is_read_again:
        assert log.frame(0) is not None
    log.drop_below(7)
    append(log, 20)
    reclamation._thread.submit(int).result(DEADLINE_S)
    assert bytes(frame) == before


def test_the_index_of_a_segment_has_space_for_as_many_batches_as_that_of_the_last(tmp_path: Path) -> None:
    """An index that grows delays messages; the next segment is twice as large, and so is its index."""
    log = Log(tmp_path)
    while len(log.segments) < 3:
        append(log, 1)
    first, second, third = (segment.commits for segment in log.segments)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.idx"))]
    assert (len(first) - 2, len(second) - 2) == (252, 504)
    assert sizes == [16_384, 32_768, 65_536]
    assert len(third) == 2


def test_a_new_segment_is_not_read_ahead(tmp_path: Path) -> None:
    """The system would fill megabytes of a new file with zeros at the first access, and clients would wait."""
    log = Log(tmp_path)
    append(log, 1)
    assert resident_pages(log.segments[0]) <= 2


def resident_pages(segment: Segment) -> int:
    """Number of pages of a segment's file in memory."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(segment.map))
    pages = (ctypes.c_ubyte * (segment.capacity // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(segment.capacity), pages) == 0, ctypes.get_errno()
    return sum(page & 1 for page in pages)
