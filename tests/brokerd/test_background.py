"""Threads beside the event loop divide what would stop it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import background, syncer, write_out
from brokerd.log import reclamation
from tests.harness.waiting import DEADLINE_S

SIZES = st.integers(0, 1 << 40)


@given(SIZES, SIZES)
def test_pieces_are_the_whole_range_in_order(start: int, length: int) -> None:
    """There are not so many that a sync takes long, and they are not so large that the event loop waits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(background.time, "sleep", lambda _: None)
        found = list(background.pieces(start, start + length))
    edges = [edge for piece in found for edge in piece]
    assert edges[1:-1:2] == edges[2::2]
    assert not length or (edges[0], edges[-1]) == (start, start + length)
    assert all(first < end for first, end in found)
    assert len(found) <= background.MAX_PIECES
    assert all(end - first < length / background.MAX_PIECES + background.PIECE_BYTES + 1 for first, end in found)
    assert all((first - start) % background.PIECE_BYTES == 0 for first, _ in found)


@pytest.mark.parametrize("nbytes", [256 * 1024, (9 << 20) + 4096])
def test_a_removed_segment_of_any_size_is_freed(nbytes: int, tmp_path: Path) -> None:
    """One that was made for a large message has no power of two as its size; pieces of a map begin at pages."""
    path = tmp_path / "0.log"
    path.write_bytes(bytes(nbytes))
    fd = os.open(path, os.O_RDWR)
    map_ = mmap.mmap(fd, nbytes)
    reclamation.free_in_a_thread(fd, nbytes, map_).result(DEADLINE_S)
    assert map_.closed
    assert path.stat().st_size == 0


def test_a_segment_is_written_in_parts_before_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An fdatasync of megabytes would stop the event loop on the same processor."""
    segment = tmp_path / "0.log"
    segment.write_bytes(bytes(400_000))
    calls: list[tuple[str, int, int]] = []
    system = write_out._sync_file_range()
    assert system is not None, "this system has no sync_file_range(2)"

    def written(fd: int, offset: int, nbytes: int, flags: int) -> int:
        calls.append(("write", offset, nbytes))
        return system(fd, offset, nbytes, flags)

    def synced(fd: int) -> None:
        calls.append(("sync", 0, os.fstat(fd).st_size))

    monkeypatch.setattr(write_out, "_sync_file_range", lambda: written)
    monkeypatch.setattr(os, "fdatasync", synced)
    syncer.sync({segment: (100_000, 400_000)}, [], [])
    assert calls == [
        ("write", 100_000, 131_072),
        ("write", 231_072, 131_072),
        ("write", 362_144, 37_856),
        ("sync", 0, 400_000),
    ]


def test_the_kernel_writes_the_requested_range(tmp_path: Path) -> None:
    """The call's arguments are those of sync_file_range(2): a wrong descriptor is refused, a range is not."""
    system = write_out._sync_file_range()
    assert system is not None, "this system has no sync_file_range(2)"
    path = tmp_path / "file"
    path.write_bytes(bytes(300_000))
    with path.open("rb") as file:
        assert system(file.fileno(), 131_072, 131_072, 2) == 0
        assert system(file.fileno(), -1, 131_072, 2) == -1
        assert system(1 << 20, 0, 131_072, 2) == -1
