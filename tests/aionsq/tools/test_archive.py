"""Archive files: rotation, and repair after the writer was killed."""

from __future__ import annotations

import gzip
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aionsq.tools.archive import Archive, ArchiveRules
from aionsq.tools.archive_file import GzipFile, InUse, PlainFile, repair
from aionsq.tools.file_names import DEFAULT_DATETIME, DEFAULT_FORMAT, FileNames


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 7, 15, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Writing:
    """An archive with its clock and folders."""

    def __init__(self, folder: Path, form: str = DEFAULT_FORMAT, **rules) -> None:
        self.out = folder / "out"
        self.work = folder / rules.pop("work", "out")
        self.clock = Clock()
        for each in (self.out, self.work):
            each.mkdir(exist_ok=True)
        self.rules = ArchiveRules(output_dir=str(self.out), work_dir=str(self.work), **rules)
        self.form = form
        self.archive = self.another()

    def another(self) -> Archive:
        """One of a later process."""
        rules = self.rules
        names = FileNames(
            self.form,
            DEFAULT_DATETIME,
            topic="t",
            host="h",
            pid=1,
            revisions=rules.needs_revisions,
            gzip=rules.gzip,
        )
        return Archive(names, rules, "t/c", self.clock)

    def write(self, *bodies: bytes) -> None:
        self.archive.write(bodies)
        self.archive.sync()

    def kill(self) -> None:
        """Close the descriptor, which releases the lock, as for a killed process."""
        os.close(self.archive._file._fd)

    def files(self, folder: Path | None = None) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder or self.out)): content(path)
            for path in sorted((folder or self.out).rglob("*"))
            if path.is_file()
        }


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.fixture
def writing(tmp_path):
    return lambda form=DEFAULT_FORMAT, **rules: Writing(tmp_path, form, **rules)


def test_a_file_an_hour(writing):
    """By default the date in the name changes the file, and an existing file is appended to."""
    each = writing()
    each.write(b"one")
    each.clock.now += timedelta(hours=1)
    each.write(b"two", b"three")
    each.archive.close()
    each.archive = each.another()
    each.write(b"four")
    assert each.files() == {"t.h.2026-03-07_15.log": b"one\n", "t.h.2026-03-07_16.log": b"two\nthree\nfour\n"}


def test_rotation_by_size(writing):
    """Before the first message beyond the limit, so by up to one message late; a full file is not appended to."""
    each = writing(rotate_size=8)
    each.write(b"12345", b"6789", b"abc", b"d")
    assert list(each.files().values()) == [b"12345\n6789\n", b"abc\nd\n"]
    each.archive.close()
    each.archive = each.another()
    each.write(b"e" * 9)
    each.write(b"f")
    assert each.files() == {
        "t.h-000000.2026-03-07_15.log": b"12345\n6789\n",
        "t.h-000001.2026-03-07_15.log": b"abc\nd\neeeeeeeee\n",
        "t.h-000002.2026-03-07_15.log": b"f\n",
    }


def test_rotation_by_time(writing):
    """At a tick, with a new file at once; a new date starts revisions at 0 again."""
    each = writing(rotate_interval=timedelta(minutes=10))
    each.archive.tick()
    each.write(b"one")
    each.clock.now += timedelta(minutes=10)
    each.archive.tick()
    assert list(each.files()) == ["t.h-000000.2026-03-07_15.log"]
    each.clock.now += timedelta(seconds=1)
    each.archive.tick()
    each.clock.now += timedelta(hours=1)
    each.archive.tick()
    assert each.files() == {
        "t.h-000000.2026-03-07_15.log": b"one\n",
        "t.h-000001.2026-03-07_15.log": b"",
        "t.h-000000.2026-03-07_16.log": b"",
    }


def test_empty_files_are_skipped(writing):
    """A tick closes the file; the next message opens one."""
    each = writing(rotate_interval=timedelta(minutes=10), skip_empty_files=True)
    each.archive.tick()
    each.write(b"one")
    each.clock.now += timedelta(minutes=11)
    each.archive.tick()
    each.archive.tick()
    assert len(each.files()) == 1
    each.write(b"two")
    assert list(each.files().values()) == [b"one\n", b"two\n"]


def test_gzip_members(writing):
    """Each sync ends a member, so that synced data is readable; another process never appends to the file."""
    each = writing(gzip=True)
    each.write(b"one")
    each.write(b"two")
    assert each.files() == {"t.h-000000.2026-03-07_15.log.gz": b"one\ntwo\n"}
    each.archive.close()
    each.archive = each.another()
    each.write(b"three")
    each.archive.close()
    paths = sorted(each.out.iterdir())
    assert [path.name for path in paths] == ["t.h-000000.2026-03-07_15.log.gz", "t.h-000001.2026-03-07_15.log.gz"]
    assert subprocess.run(["zcat", *paths], capture_output=True, check=True).stdout == b"one\ntwo\nthree\n"
    assert paths[0].read_bytes().count(b"\x1f\x8b\x08") == 3


def test_the_level_of_gzip_is_the_one_asked_for(tmp_path):
    """The level affects the size."""
    sizes = []
    for level in (1, 9):
        file = GzipFile(str(tmp_path / f"{level}.gz"), level)
        file.append(b"".join(b"%d:%d\n" % (number, number * 37 % 1001) for number in range(20_000)))
        file.close()
        sizes.append((tmp_path / f"{level}.gz").stat().st_size)
    assert sizes[0] > sizes[1] > 0


def test_a_work_folder(writing):
    """A finished file is moved with its folders; an existing file of that name is not overwritten."""
    each = writing("<TOPIC>/<HOST><REV>.<DATETIME>", work="work")
    each.write(b"one")
    assert (each.files(), each.files(each.work)) == ({}, {"t/h-000000.2026-03-07_15": b"one\n"})
    (each.out / "t").mkdir()
    (each.out / "t/h-000000.2026-03-07_15").write_bytes(b"another's\n")
    each.archive.close()
    each.write(b"two")
    each.archive.close()
    assert each.files(each.work) == {}
    assert each.files() == {
        "t/h-000000.2026-03-07_15": b"another's\n",
        "t/h-000001.2026-03-07_15": b"one\n",
        "t/h-000002.2026-03-07_15": b"two\n",
    }


def test_a_file_that_two_processes_want(writing):
    """The second process uses the next revision; without revisions, it does not write to the first one's file."""
    each = writing(rotate_size=1000)
    each.write(b"one")
    second = each.another()
    second.write([b"two"])
    assert list(each.files().values()) == [b"one\n", b"two\n"]
    plain = Writing(each.out.parent, "<TOPIC>.plain")
    plain.write(b"one")
    with pytest.raises(InUse, match="is being written by another process"):
        plain.another().write([b"two"])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("work", ["out", "work"])
def test_files_of_a_killed_process_are_repaired_at_the_start(writing, compressed, work):
    """The partial write is removed, whatever the date; files in a work folder are moved. A live writer's file stays."""
    each = writing(gzip=compressed, work=work, rotate_size=10_000)
    each.write(b"whole")
    (path,) = each.work.iterdir()
    with path.open("ab") as file:
        file.write(gzip.compress(b"torn" * 100)[:-5] if compressed else b"torn")
    each.another().recover()
    assert len(list(each.work.iterdir())) == 1  # its writer lives
    each.kill()
    each.clock.now += timedelta(days=1)
    each.another().recover()
    assert list(each.files().values()) == [b"whole\n"]
    assert each.files(each.work) == (each.files() if work == "out" else {})


def test_an_interrupted_move_is_completed(writing):
    """Killed between the two steps, a file has both names."""
    each = writing(work="work")
    each.write(b"one")
    (path,) = each.work.iterdir()
    os.link(path, each.out / path.name)
    each.kill()
    each.another().recover()
    assert each.files() == {path.name: b"one\n"}
    assert each.files(each.work) == {}


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.binary(max_size=40).map(lambda body: body.replace(b"\n", b" ")), min_size=1), max_size=5
    ),
    kept=st.floats(0, 1),
    compressed=st.booleans(),
    padding=st.sampled_from([b"", bytes(4096)]),
)
def test_cut_anywhere_a_file_is_whole_after_repair(tmp_path_factory, batches, kept, compressed, padding):
    """Every line in it was written, in order; everything synced before the cut is there. Zeros left by a power failure
    are removed too."""
    path = tmp_path_factory.mktemp("cut") / ("f.gz" if compressed else "f")
    file = GzipFile(str(path), 6) if compressed else PlainFile(str(path), exclusive=True)
    synced = [(0, 0)]
    lines: list[bytes] = []
    for batch in batches:
        lines += batch
        file.append(b"".join(body + b"\n" for body in batch))
        file.sync()
        synced.append((path.stat().st_size, len(lines)))
    os.close(file._fd)
    size = int(path.stat().st_size * kept)
    os.truncate(path, size)
    with path.open("ab") as end:
        end.write(padding)
    repair(str(path))
    found = content(path).split(b"\n")
    assert found.pop() == b""
    assert found == lines[: len(found)]
    assert len(found) >= max(count for end, count in synced if end <= size)
    before = path.read_bytes()
    assert repair(str(path)) == 0
    assert path.read_bytes() == before
