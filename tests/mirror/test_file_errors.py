"""An error of a file of either member names the file, and what could not be done with it."""

from __future__ import annotations

import errno
import re
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokerd.mirror.actions import Action, Create, Delete, MakeDirectory, Rename, Resize, Write
from brokerd.mirror.manifest import File
from brokerd.mirror.stamps import Stamps
from brokerd.replica import MirrorState, Replica
from brokerd.small_file import FILE_BYTES
from brokerd.stamp_file import read_stamps, write_stamps
from tests.harness.pair import LONG_LEASE
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

FULL = re.escape("[Errno 28] No space left on device")
IO_ERROR = re.escape("[Errno 5] Input/output error")
LOG, NEW = f"topics/t.0/{0:020d}.log", "checkpoint.new"
ROOM = 1000
"""The size to which files may grow."""


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    replica = Replica(tmp_path, MirrorState(member="m"))
    for directory in ("topics", "topics/t.0", "topics/u.1"):
        replica.apply(MakeDirectory(directory))
    replica.apply(Create(LOG, ROOM))
    yield replica
    replica.close()


@contextmanager
def little_room(nbytes: int = ROOM) -> Iterator[None]:
    """The system refuses to let files grow over this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("action", "path", "text"),
    [
        (Write(LOG, ROOM, b"x"), LOG, "cannot be written: [Errno 27] File too large"),
        (Write(LOG, ROOM - 1, b"xy"), LOG, "cannot be written: only a part of the data was"),
        (Write("away/f", 0, b"x"), "away/f", "cannot be written: [Errno 2] No such file or directory"),
        (Create(NEW, ROOM + 1), NEW, "cannot be created: [Errno 27] File too large"),
        (Resize(LOG, ROOM + 1), LOG, "cannot be resized: [Errno 27] File too large"),
        (Rename(LOG, "topics/u.1"), LOG, "cannot be renamed: [Errno 21] Is a directory"),
        (Delete(f"{LOG}/f"), f"{LOG}/f", "cannot be deleted: [Errno 20] Not a directory"),
        (MakeDirectory("away/d"), "away/d", "cannot be created: [Errno 2] No such file or directory"),
    ],
)
def test_an_action_that_fails_names_its_file(
    tmp_path: Path, replica: Replica, action: Action, path: str, text: str
) -> None:
    with little_room(), pytest.raises(OSError, match=re.escape(text)) as error:
        replica.apply(action)
    assert str(error.value) == f"{tmp_path / path} {text}"
    assert error.value.filename == str(tmp_path / path)


def test_a_join_that_fails_names_the_file(tmp_path: Path, replica: Replica) -> None:
    """A new file of the primary finds no room, before the first action is applied."""
    manifest = [File("topics", -1, 0), File("topics/t.0", -1, 0), File(LOG, ROOM + 1, 0)]
    with little_room(), pytest.raises(OSError, match="File too large") as error:
        replica.prepare(manifest)
    assert str(error.value) == f"{tmp_path / LOG} cannot be prepared: [Errno 27] File too large"


def test_stamps_that_cannot_be_stored_name_their_file(tmp_path: Path) -> None:
    with little_room(0), pytest.raises(OSError, match="File too large") as error:
        write_stamps(tmp_path, Stamps())
    assert str(error.value) == f"{tmp_path}/mirror.stamps cannot be written: [Errno 27] File too large"


def test_a_small_file_is_overwritten_without_more_space(tmp_path: Path) -> None:
    """A longer one, which something else wrote, is cut."""
    path = tmp_path / "mirror.stamps"
    path.write_bytes(b"garbage " * 125)
    with little_room(FILE_BYTES):
        write_stamps(tmp_path, Stamps("s1", "s2"))
    assert read_stamps(tmp_path) == Stamps("s1", "s2")
    assert path.stat().st_size == FILE_BYTES


def test_a_follower_that_cannot_write_does_not_take_the_lead_from_the_other_member(start_pair: StartPair) -> None:
    """The primary is killed while the follower's disk is full, which nobody has noticed yet."""
    pair = start_pair(lease="5s", disks_fail=True)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    primary.post("/pub", b"x", topic="t")
    pair.wait_until_in_sync()
    follower.fail(write=errno.ENOSPC)
    primary.end(signal.SIGKILL)
    follower.wait_for_log("MIRROR: the campaign failed: .*/mirror.json cannot be written")
    primary.start()
    assert pair.wait_for_primary() is primary
    assert primary.topics()["t"]["depth"] == 1
    assert sum("the campaign failed" in line for line in follower.log) == 1
    follower.fail()
    pair.wait_until_in_sync()


def test_a_follower_whose_disk_is_full_names_the_file(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE, disks_fail=True)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    follower.fail(write=errno.ENOSPC)
    primary.post("/pub", b"x", topic="t")
    data = re.escape(str(follower.data_path))
    follower.wait_for_log(f"MIRROR: cannot follow: {data}/.* cannot be (written|created): {FULL}")
    # It tries to join again, and says so once.
    follower.wait_for_log(f"MIRROR: cannot follow: {data}/mirror.json cannot be written: {FULL}")
    follower.fail()
    pair.wait_until_in_sync()
    follower.wait_for_log("MIRROR: has the primary's files, and follows")
    assert sum("joins the primary" in line for line in follower.log) == 1


@pytest.mark.parametrize("flag", ["--sync-every=1", "--sync-timeout=100ms"])
def test_a_follower_whose_disk_cannot_be_synced_names_the_file(start_pair: StartPair, flag: str) -> None:
    """It is not in sync any more, whether it acknowledges before or after a sync."""
    pair = start_pair(flag, lease=LONG_LEASE, disks_fail=True)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    follower.fail(sync=errno.EIO)
    primary.post("/pub", b"x", topic="t")
    data = re.escape(str(follower.data_path))
    follower.wait_for_log(f"MIRROR: cannot follow: {data}.* cannot be synced: {IO_ERROR}")
    wait_until(lambda: primary.mirror_figures()["under_replicated"], "the primary is alone")
    follower.fail()
    pair.wait_until_in_sync()


def test_a_follower_whose_data_path_was_removed_names_it(start_pair: StartPair) -> None:
    """An operator empties it by ``rm -r`` and does not end the process. With a new directory, the follower joins."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    shutil.rmtree(follower.data_path)
    primary.post("/topic/create", topic="t")
    follower.wait_for_log(f"MIRROR: cannot follow: .*No such file or directory: '{re.escape(str(follower.data_path))}'")
    follower.data_path.mkdir()
    pair.wait_until_in_sync()
    assert not [line for line in follower.log if "Traceback" in line]


def test_a_primary_that_cannot_read_a_file_names_it(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE, disks_fail=True)
    primary = pair.wait_for_primary()
    primary.post("/pub", b"x", topic="t")
    primary.fail(read=errno.EIO)
    primary.post("/channel/create", topic="t", channel="c")
    data = re.escape(str(primary.data_path))
    primary.wait_for_log(f"MIRROR: the connection of .* is closed: a file cannot be read: {IO_ERROR}: '{data}/.*'")
    primary.fail()
    pair.wait_until_in_sync()
