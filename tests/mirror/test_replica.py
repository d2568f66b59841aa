"""What a follower that joins reads of its files, and what the primary compares it with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES
from brokerd.journal.records import KINDS
from brokerd.journal.recovery import RECORD_HEAD, scan
from brokerd.mirror.actions import Create, Delete, MakeDirectory, Rename, Write
from brokerd.mirror.leader import FRAME_BYTES
from brokerd.mirror.manifest import BLOCK_BYTES, DIGEST_BYTES, Copy, File, missing
from brokerd.replica import MirrorState, Replica, sums_of

LOG, INDEX, OTHER = (f"topics/t.0/{0:020d}{suffix}" for suffix in (".log", ".idx", ".hdr"))
NEW = "checkpoint.new"
END = 3 * BLOCK_BYTES + 100
FILES = [
    File("topics", -1, 0),
    File("topics/t.0", -1, 0),
    File(LOG, 4 * BLOCK_BYTES, END),
    File(INDEX, BLOCK_BYTES, 500),
]


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def written(path: Path, contents: dict[str, bytes]) -> Path:
    (path / "topics/t.0").mkdir(parents=True)
    for name, data in contents.items():
        (path / name).write_bytes(data)
    return path


def test_only_what_a_follower_has_is_compared(tmp_path: Path) -> None:
    """A new follower sends no checksums. Each one gets the allocated files, and no file that the primary lacks."""
    log = bytes(range(256)) * (END // 256 + 1)
    primary = written(tmp_path / "primary", {LOG: log[:END] + bytes(4 * BLOCK_BYTES - END), INDEX: b"i" * 500})
    altered = log[:BLOCK_BYTES] + b"x" + log[BLOCK_BYTES + 1 : 2 * BLOCK_BYTES]
    followers = {
        "empty": (dict[str, bytes](), {LOG: 0, INDEX: 0}, [Copy(LOG, 0, END), Copy(INDEX, 0, 500)]),
        "behind": (
            {LOG: log[: BLOCK_BYTES + 7], INDEX: b"i" * 500, OTHER: b"h"},
            {LOG: 2, INDEX: 1},
            [Copy(LOG, BLOCK_BYTES, END)],
        ),
        "ahead": ({LOG: log[:END] + b"more", INDEX: b"i" * 900}, {LOG: 4, INDEX: 1}, []),
        "damaged": ({LOG: altered}, {LOG: 2, INDEX: 0}, [Copy(LOG, BLOCK_BYTES, END), Copy(INDEX, 0, 500)]),
    }
    for name, (contents, blocks, copies) in followers.items():
        path = written(tmp_path / name, contents)
        replica = Replica(path, MirrorState(member=name))
        sums = replica.prepare(FILES)
        assert {file: len(each) // DIGEST_BYTES for file, each in sums.items()} == blocks, name
        assert missing(FILES, sums, sums_of(primary, FILES, sums), BLOCK_BYTES) == copies, name
        sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in path.rglob("*.*") if file.is_file()}
        assert sizes == {LOG: 4 * BLOCK_BYTES, INDEX: BLOCK_BYTES}, name
        replica.close()


def test_checkpoints_stay_as_they_are_until_they_are_replaced(tmp_path: Path) -> None:
    """A member that lost its primary in the middle of a join can still read them."""
    for name, data in {"checkpoint": b"long" * 100, "checkpoint.previous": b"short", "checkpoint.new": b"half"}.items():
        (tmp_path / name).write_bytes(data)
    replica = Replica(tmp_path, MirrorState(member="b"))
    assert replica.prepare([File("checkpoint", 50, 50), File("checkpoint.previous", 60, 60)]) == {}
    replica.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "checkpoint": b"long" * 100,
        "checkpoint.previous": b"short",
    }


def test_a_file_that_was_renamed_is_synced_under_its_new_name(tmp_path: Path) -> None:
    replica = Replica(tmp_path, MirrorState(member="b"))
    for action in (Create(NEW, 0), Write(NEW, 0, b"state"), Rename(NEW, "checkpoint")):
        replica.apply(action)
    assert set(replica.take_unsynced()) == {tmp_path, tmp_path / "checkpoint"}
    assert replica.take_unsynced() == []
    replica.close()


@pytest.mark.usefixtures("busy_threads")
def test_every_file_that_a_join_prepares_is_synced_although_a_sync_runs_meanwhile(tmp_path: Path) -> None:
    """The event loop syncs what the stream has changed while a thread compares the files."""
    directories = [File(f"topics/t{number}.0", -1, 0) for number in range(100)]
    files = [File(f"{each.path}/{0:020d}.log", 0, 0) for each in directories]
    manifest = [File("topics", -1, 0), *directories, *files]
    replica, taken = Replica(tmp_path, MirrorState(member="b")), set[Path]()
    with ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(replica.prepare, manifest)
        while not prepared.done():
            taken.update(replica.take_unsynced())
        prepared.result()
    taken.update(replica.take_unsynced())
    assert taken == {tmp_path, *(tmp_path / file.path for file in manifest)}


@pytest.mark.parametrize("sent", range(1, 6))
def test_a_change_of_which_only_a_part_arrived_is_no_damage(sent: int, tmp_path: Path) -> None:
    """A large group of changes is sent in parts, and the primary may be lost after any of them."""
    size = 2 * FRAME_BYTES // 3  # so that parts end within records
    whole = [journal_record(number, size) for number in range(6)]
    (tmp_path / "journal.1").write_bytes(bytes(HEADER_BYTES))
    replica, at = Replica(tmp_path, MirrorState(member="b")), HEADER_BYTES
    replica.apply(Write("journal.1", at, whole[0]))
    at += len(whole[0])
    group = b"".join(whole[1:])
    parts = [group[start : start + FRAME_BYTES] for start in range(0, len(group), FRAME_BYTES)]
    for part in parts[:sent]:
        replica.apply(Write("journal.1", at, part))
        at += len(part)
    replica.cut_incomplete()
    replica.close()
    data = (tmp_path / "journal.1").read_bytes()
    found = [record for _, record in scan(data, HEADER_BYTES)]
    arrived = 1 + min(sent * FRAME_BYTES, len(group)) // len(whole[0])
    assert found == [each[RECORD_HEAD.size :] for each in whole[:arrived]]


def journal_record(number: int, size: int) -> bytes:
    """A record of a journal, of a kind that is known."""
    record = bytes([KINDS[0], number]) + bytes([number + 1]) * size
    return RECORD_HEAD.pack(len(record), xxh3_64_intdigest(record) & 0xFFFFFFFF) + record


def test_a_deleted_topic_takes_no_space(tmp_path: Path) -> None:
    """The space of a file is free once the file is closed, too."""
    replica, removed = Replica(tmp_path, MirrorState(member="b")), "topics/t.0.deleted"
    for action in (MakeDirectory("topics"), MakeDirectory("topics/t.0"), Create(LOG, 100), Write(LOG, 0, b"message")):
        replica.apply(action)
    assert any(LOG in target for target in open_files())
    for action in (Rename("topics/t.0", removed), Delete(removed)):
        replica.apply(action)
    assert [target for target in open_files() if str(tmp_path) in target] == []
    replica.close()


def open_files() -> list[str]:
    return [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
