"""A damaged log can be opened: undamaged messages are read, and no damaged bytes are taken for a message."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from brokerd.file_header import HEADER_BYTES
from brokerd.log.batch import BodyBatch
from brokerd.log.commits import CommitIndex
from brokerd.log.log import Log

ID_HEAD = b"9a4001"
BATCHES = 60


class Written:
    """A log of several small segments and its contents: ``bodies`` by number, ``batches`` as ranges."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bodies: dict[int, bytes] = {}
        self.batches: list[range] = []
        chance = random.Random(5)
        directory.mkdir()
        log = Log(directory)
        log._capacity = 4096  # several segments without megabytes of messages
        for timestamp in range(BATCHES):
            self._append(
                log, timestamp, [chance.randbytes(chance.randint(1, 200)) for _ in range(chance.randint(1, 6))]
            )
        assert len(log.segments) > 2
        log.close()

    def _append(self, log: Log, timestamp: int, bodies: list[bytes]) -> None:
        first_seq, _ = log.append(BodyBatch(bodies, ID_HEAD, timestamp))
        self.batches.append(range(first_seq, first_seq + len(bodies)))
        self.bodies.update(enumerate(bodies, first_seq))

    def batch_of(self, seq: int) -> range:
        return next(batch for batch in self.batches if seq in batch)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("log") / "t.1")


def read_all(directory: Path) -> dict[int, bytes]:
    """Return all messages that a cursor reads from the beginning."""
    log, _ = Log.recover(directory, ID_HEAD)
    damaged = {seq for start, end in log.gaps() for seq in range(start, end)}
    for segment in log.segments:
        while segment.checked_end < segment.next_seq:
            for commit in segment.damaged_below(segment.checked_end):
                damaged.update(range(commit.first_seq, commit.next_seq))
    found = {seq: log.frame(seq) for seq in range(log.first_seq, log.next_seq) if seq not in damaged}
    log.close()
    return {seq: bytes(frame[34:]) for seq, frame in found.items() if frame is not None}


def damaged_copies(written: Written, folder: Path, rounds: int, chance: random.Random) -> list[tuple[Path, Path]]:
    copies = []
    for number in range(rounds):
        copy = folder / str(number)
        shutil.copytree(written.directory, copy)
        copies.append((copy, chance.choice(sorted(copy.iterdir()))))
    return copies


def test_an_undamaged_log_is_read_whole(written: Written) -> None:
    """The other tests rely on this."""
    assert read_all(written.directory) == written.bodies


def test_a_flipped_bit_loses_one_batch_at_most(written: Written, tmp_path: Path) -> None:
    """In a segment it costs its batch; in an index nothing, because the frames have the same information."""
    chance = random.Random(6)
    for copy, file in damaged_copies(written, tmp_path, 250, chance):
        data = bytearray(file.read_bytes())
        at = chance.randrange(len(data.rstrip(b"\0")))
        data[at] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        read = read_all(copy)
        lost = written.bodies.keys() - read.keys()
        assert all(written.bodies[seq] == body for seq, body in read.items()), (file.name, at)
        if file.suffix == ".idx":
            assert not lost, (file.name, at)
        else:
            assert not lost or lost <= set(written.batch_of(min(lost))), (file.name, at)
        shutil.rmtree(copy)


def test_a_cut_file_loses_only_the_cut_messages(written: Written, tmp_path: Path) -> None:
    """A cut segment loses no message that ended before the cut; a cut index loses none."""
    chance = random.Random(7)
    for copy, file in damaged_copies(written, tmp_path, 250, chance):
        at = chance.randrange(len(file.read_bytes().rstrip(b"\0")) + 1)
        os.truncate(file, at)
        read = read_all(copy)
        lost = written.bodies.keys() - read.keys()
        assert all(written.bodies[seq] == body for seq, body in read.items()), (file.name, at)
        if file.suffix == ".idx":
            assert not lost, (file.name, at)
        else:
            kept, seq = HEADER_BYTES, int(file.stem)
            while seq in written.bodies and kept + 34 + len(written.bodies[seq]) <= at:
                kept += 34 + len(written.bodies[seq])
                assert seq not in lost, (file.name, at, seq)
                seq += 1
        shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["killed", "full disk"])
@pytest.mark.parametrize("size", [10, 300])
def test_a_publish_that_came_to_nothing_hides_no_later_one(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before the commit record leaves frames, a full disk none. The record of the next message is lost."""
    log = Log(tmp_path)
    log.append(BodyBatch([b"first"], ID_HEAD, 1))
    with monkeypatch.context() as patch:
        patch.setattr(CommitIndex, "extend" if kind == "killed" else "growth", raise_no_space)
        with pytest.raises(OSError, match="space"):
            log.append(BodyBatch([b"y" * 400], ID_HEAD, 2))
    if kind == "killed":
        log, _ = Log.recover(tmp_path, ID_HEAD)
    log.append(BodyBatch([b"z" * size], ID_HEAD, 3))
    (index,) = tmp_path.glob("*.idx")
    index.unlink()
    assert read_all(tmp_path) == {0: b"first", 1: b"z" * size}


def test_a_damaged_size_with_a_high_bit_does_not_prevent_counting(tmp_path: Path) -> None:
    """A policy counts bytes before the batch was checked, from a message in the middle of it."""
    log = Log(tmp_path)
    log.append(BodyBatch([b"x" * 10] * 3, ID_HEAD, 1))
    log.close()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 44] |= 0x80
    path.write_bytes(data)
    again, _ = Log.recover(tmp_path, ID_HEAD)
    assert again.bytes_from(2) == 3 * 44
    again.close()


def raise_no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
