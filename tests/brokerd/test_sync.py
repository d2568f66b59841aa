"""``--sync-every=1``: an acknowledgement means that the message is on the disk, not just safe from a kill."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from brokerd import file_systems
from brokerd import syncer as syncer_module
from brokerd.broker import Broker
from brokerd.data_path import DataPathMoved
from brokerd.log.segment import Segment
from brokerd.net.tcp import serve_tcp
from brokerd.settings import BrokerSettings
from brokerd.syncer import Syncer
from nsqwire.input_budget import InputBudget
from nsqwire.listening import listen


class Disk:
    """Stands in for the disk: a sync takes until ``release``, and fails with ``error``; ``synced`` lists each."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.error: OSError | None = None
        self.begun = threading.Event()
        self.synced: list[set[str]] = []

    def sync(self, segments: Iterable[Path], new: Iterable[Path], journal: Iterable[Path]) -> None:
        self.synced.append({path.parent.name.partition(".")[0] for path in segments})
        self.begun.set()
        assert self.release.wait(10)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(syncer_module, "sync", disk.sync)
    return disk


@pytest.fixture
async def address(tmp_path: Path, disk: Disk) -> AsyncIterator[tuple[str, int]]:
    """A broker in this process, with ``--sync-every=1`` on that disk."""
    loop = asyncio.get_running_loop()
    settings = BrokerSettings(data_path=str(tmp_path), sync_every=1)
    broker = Broker(settings, now=loop.time, call_soon=loop.call_soon, call_at=loop.call_at)
    broker.syncer = Syncer(
        every=1,
        timeout=timedelta(hours=1),
        journal=lambda: broker.journal_paths,
        check_directory=broker.require_data_path,
        failed=broker.sync_failed,
    )
    listener = listen("127.0.0.1:0")
    budget = InputBudget(2**30, now=loop.time, call_later=loop.call_later)
    server = await serve_tcp(broker, listener.socket, budget, None, None)
    yield listener.socket.getsockname()
    server.close()
    broker.close_clients()
    disk.release.set()
    disk.error = None
    await broker.syncer.close()
    broker.close()


class Peer:
    """A producer's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Peer:
        peer = cls(*await asyncio.open_connection(*address))
        peer.writer.write(b"  V2")
        return peer

    def pub(self, topic: str) -> None:
        self.writer.write(b"PUB %b\n\0\0\0\1x" % topic.encode())

    async def frame(self) -> bytes:
        size, _ = struct.unpack(">ii", await self.reader.readexactly(8))
        return await self.reader.readexactly(size - 4)


async def hears_nothing(*peers: Peer) -> bool:
    """True if none of the peers is sent anything while the loop has nothing else to do."""
    reads = [asyncio.ensure_future(peer.reader.read(1)) for peer in peers]
    done, _ = await asyncio.wait(reads, timeout=0.2)
    for read in reads:
        read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)
    return not done


async def test_ok_comes_once_the_message_is_on_the_disk(address: tuple[str, int], disk: Disk) -> None:
    """Not before; and those that came in meanwhile, of whatever topic, share one more sync."""
    first, second, third = [await Peer.connect(address) for _ in range(3)]
    first.pub("a")
    await asyncio.to_thread(disk.begun.wait, 10)
    second.pub("b")
    third.pub("c")
    assert await hears_nothing(first, second, third)
    disk.release.set()
    assert [await peer.frame() for peer in (first, second, third)] == [b"OK"] * 3
    assert disk.synced == [{"a"}, {"b", "c"}]


async def test_answers_keep_their_order(address: tuple[str, int], disk: Disk) -> None:
    """What a client is told after a publish comes after its OK, and an error still ends the connection."""
    peer = await Peer.connect(address)
    peer.pub("a")
    peer.writer.write(b"SUB a c\nNONSENSE\n")
    assert await hears_nothing(peer)
    disk.release.set()
    assert [await peer.frame() for _ in range(3)] == [b"OK", b"OK", b"E_INVALID invalid command NONSENSE"]
    assert await peer.reader.read() == b""


async def test_a_failed_sync_acknowledges_nothing_and_is_final(address: tuple[str, int], disk: Disk) -> None:
    """The publisher hears of it, and so does the next one, without a second try: what the disk holds is unknown."""
    peer = await Peer.connect(address)
    disk.error = OSError(5, "Input/output error")
    disk.release.set()
    peer.pub("a")
    assert await peer.frame() == b"E_PUB_FAILED PUB failed [Errno 5] Input/output error"
    assert await peer.reader.read() == b""
    later: Any = await Peer.connect(address)
    later.pub("a")
    assert (await later.frame()).startswith(b"E_PUB_FAILED PUB failed")
    assert len(disk.synced) == 1


async def test_files_that_were_moved_away_are_synced_once_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgement fails, and the next sync includes what this one could not find."""
    segments = [Segment.create(tmp_path, first_seq, 4096) for first_seq in (0, 10)]
    synced: list[set[str]] = []
    errors: list[OSError] = []
    is_moved = True

    def sync(segments: Iterable[Path], new: Iterable[Path], journal: Iterable[Path]) -> None:
        synced.append({path.name for path in new})

    def check() -> None:
        if is_moved:
            raise DataPathMoved(tmp_path)

    monkeypatch.setattr(syncer_module, "sync", sync)
    syncer = Syncer(every=1, timeout=timedelta(hours=1), journal=list, check_directory=check, failed=errors.append)
    syncer.wrote(segments[0], 1)
    with pytest.raises(DataPathMoved):
        await syncer.synced()
    assert [type(error) for error in errors] == [DataPathMoved]
    is_moved = False
    syncer.wrote(segments[1], 1)
    await syncer.synced()
    names = [f"{first_seq:020d}.log" for first_seq in (0, 10)]
    assert synced == [{names[0]}, set(names)]
    await syncer.close()
    assert len(synced) == 2


def test_a_real_disk_is_synced_with_its_side_files(tmp_path: Path) -> None:
    """Files that are gone were consumed meanwhile; everything else must be there to be synced."""
    segment, journal = tmp_path / "0.log", tmp_path / "journal.1"
    for path in (segment, segment.with_suffix(".idx"), journal):
        path.write_bytes(b"x")
    syncer_module.sync([segment, tmp_path / "gone.log"], [segment], [journal])


@pytest.mark.parametrize("has_syncfs", [True, False])
def test_the_files_of_very_many_topics_are_synced_in_one_call_where_there_is_one(
    has_syncfs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM waits for it: one by one, the files of 5,000 topics took a disk ten seconds."""
    segments = [tmp_path / f"t.{number}" / "0.log" for number in range(200)]
    for path in segments[1:]:  # the first was consumed meanwhile
        path.parent.mkdir()
        path.touch()
        path.with_suffix(".idx").touch()
    calls: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(file_systems, "_syncfs", lambda: (lambda fd: calls.append("all")) if has_syncfs else None)
    syncer_module.sync(segments, segments[1:], [])
    if has_syncfs:
        assert calls == ["all"]
    else:
        assert {path.name for path in map(Path, calls)} >= {"0.log", "0.idx", "t.199"}
        assert len(calls) == 3 * 199


def test_a_sync_of_a_file_system_that_fails_is_an_error(tmp_path: Path) -> None:
    """The system's own call is used where it is there; what it says of a bad descriptor is raised."""
    assert file_systems.sync_file_systems([tmp_path / "gone", tmp_path]) == (file_systems._syncfs() is not None)
    if (syncfs := file_systems._syncfs()) is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            syncfs(-1)
