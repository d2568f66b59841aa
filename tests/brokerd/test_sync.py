"""``--sync-every=1``: an acknowledged message is on the disk, and survives a power loss, not just a kill."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
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
from nsqdaemon.input_budget import InputBudget
from nsqdaemon.listener import listen
from tests.harness.waiting import DEADLINE_S


class Disk:
    """Stands in for the disk: a sync takes until ``release``, or fails with ``error``; ``synced`` lists each."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.error: Exception | None = None
        self.begun = threading.Event()
        self.synced: list[set[str]] = []

    def sync(self, segments: Iterable[Path], directories: Iterable[Path], journal: Iterable[Path]) -> set[Path]:
        self.synced.append({path.parent.name.partition(".")[0] for path in segments})
        self.begun.set()
        assert self.release.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        return set()


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
    broker.storage.syncer = Syncer(
        every=1,
        timeout=timedelta(hours=1),
        journal=lambda: broker.storage.journal_paths,
        check_directory=broker.storage.require_data_path,
        failed=broker.storage.sync_failed,
    )
    listener = listen("127.0.0.1:0")
    budget = InputBudget(2**30, now=loop.time, call_later=loop.call_later)
    server = await serve_tcp(broker, listener.socket, budget, None, None)
    yield listener.socket.getsockname()
    server.close()
    for client in list(broker.clients):
        client.hang_up()
    disk.release.set()
    disk.error = None
    await broker.storage.syncer.close()
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
    """True if no peer is sent anything while the event loop has nothing else to do."""
    reads = [asyncio.ensure_future(peer.reader.read(1)) for peer in peers]
    done, _ = await asyncio.wait(reads, timeout=0.2)
    for read in reads:
        read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)
    return not done


async def test_ok_comes_once_the_message_is_on_the_disk(address: tuple[str, int], disk: Disk) -> None:
    """Not earlier; publishes that arrived meanwhile, to whatever topic, share the next sync."""
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
    """A later response to the same client follows the OK of its publish, and an error still closes the connection."""
    peer = await Peer.connect(address)
    peer.pub("a")
    peer.writer.write(b"SUB a c\nNONSENSE\n")
    assert await hears_nothing(peer)
    disk.release.set()
    assert [await peer.frame() for _ in range(3)] == [b"OK", b"OK", b"E_INVALID invalid command NONSENSE"]
    assert await peer.reader.read() == b""


async def test_a_failed_sync_acknowledges_nothing_and_is_final(address: tuple[str, int], disk: Disk) -> None:
    """This publish and the next one get an error, without a second sync: the contents of the disk are unknown."""
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


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), ImportError("no memory")])
async def test_a_sync_that_could_not_be_made_is_made_again(
    error: Exception, address: tuple[str, int], disk: Disk
) -> None:
    """Nothing is wrong with the disk: this publish gets an error, and the next sync includes its topic."""
    first, second = await Peer.connect(address), await Peer.connect(address)
    disk.error = error
    disk.release.set()
    first.pub("a")
    assert (await first.frame()).startswith(b"E_PUB_FAILED PUB failed")
    disk.error = None
    second.pub("b")
    assert await second.frame() == b"OK"
    assert disk.synced == [{"a"}, {"a", "b"}]


class Recording:
    """Stands in for the disk: each sync waits for ``release``, and is recorded with its segments and directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = threading.Event()
        self.release.set()
        self.begun = threading.Semaphore(0)
        self.syncs: list[tuple[set[str], set[Path]]] = []
        self.errors: list[OSError] = []
        monkeypatch.setattr(syncer_module, "sync", self._sync)

    def _sync(self, segments: Iterable[Path], directories: Iterable[Path], journal: Iterable[Path]) -> set[Path]:
        self.syncs.append(({path.name for path in segments}, set(directories)))
        self.begun.release()
        assert self.release.wait(10)
        return set()

    def syncer(self, every: int, timeout: timedelta = timedelta(hours=1), **given: Any) -> Syncer:
        given = {"journal": list, "check_directory": lambda: None, "failed": self.errors.append} | given
        return Syncer(every=every, timeout=timeout, **given)

    async def next(self) -> None:
        """Wait until the next sync begins."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)


async def test_files_that_were_moved_away_are_synced_once_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publish fails, and the next sync includes the files and directories that this one did not find."""
    segments = [Segment.create(tmp_path, first_seq, 4096) for first_seq in (0, 10)]
    is_moved = True

    def check() -> None:
        if is_moved:
            raise DataPathMoved(tmp_path)

    disk = Recording(monkeypatch)
    syncer = disk.syncer(1, check_directory=check)
    syncer.wrote(segments[0], 1)
    with pytest.raises(DataPathMoved):
        await syncer.synced()
    assert [type(error) for error in disk.errors] == [DataPathMoved]
    is_moved = False
    syncer.wrote(segments[1], 1)
    await syncer.synced()
    names = [f"{first_seq:020d}.log" for first_seq in (0, 10)]
    directories = set(tmp_path.joinpath("x").parents[:3])
    assert disk.syncs == [({names[0]}, directories), (set(names), directories)]
    await syncer.close()
    assert len(disk.syncs) == 2


async def test_messages_that_arrive_during_a_sync_are_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sync begins when the first ends if there are enough of them, although nothing more is published."""
    segment = Segment.create(tmp_path, 0, 4096)
    disk = Recording(monkeypatch)
    disk.release.clear()
    syncer = disk.syncer(2)
    syncer.wrote(segment, 2)
    await disk.next()
    syncer.wrote(segment, 2)
    disk.release.set()
    await disk.next()
    await syncer.close()
    assert [names for names, _ in disk.syncs] == [{f"{0:020d}.log"}] * 2


@pytest.mark.parametrize("during_a_sync", [False, True])
async def test_fewer_messages_are_synced_within_the_timeout(
    during_a_sync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those that arrived during a sync that took longer than the timeout."""
    segment = Segment.create(tmp_path, 0, 4096)
    disk = Recording(monkeypatch)
    syncer = disk.syncer(100, timedelta(milliseconds=20))
    if during_a_sync:
        disk.release.clear()
        syncer.wrote(segment, 100)
        await disk.next()
        syncer.wrote(segment, 1)
        asyncio.get_running_loop().call_later(0.05, disk.release.set)
    else:
        syncer.wrote(segment, 1)
    await disk.next()
    await syncer.close()


async def test_the_journal_is_synced_within_the_timeout_without_a_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once after each change: a consumer's FINs are on the disk although nobody publishes."""
    written = [0]
    disk = Recording(monkeypatch)
    syncer = disk.syncer(1, timedelta(milliseconds=20), journal_bytes=lambda: sum(written))
    for _ in range(2):
        written.append(100)
        await disk.next()
    await syncer.close()
    assert disk.syncs == [(set(), set())] * 2


async def test_the_directory_of_a_segment_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is synced again for another segment of the same name."""
    disk = Recording(monkeypatch)
    syncer = disk.syncer(1)
    for _ in range(2):
        segment = Segment.create(tmp_path, 0, 4096)
        for _ in range(2):
            syncer.wrote(segment, 1)
            await syncer.synced()
        segment.remove()
    directories = set(tmp_path.joinpath("x").parents[:3])
    assert [found for _, found in disk.syncs] == [directories, set()] * 2
    await syncer.close()


async def test_the_directory_of_a_new_journal_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory contains the journal's name."""
    journals = [tmp_path / "journal.1"]
    disk = Recording(monkeypatch)
    syncer = disk.syncer(1, journal=lambda: list(journals))
    for name in ("journal.2", "journal.3"):
        await syncer.synced()
        await syncer.synced()
        journals.append(tmp_path / name)
    await syncer.close()
    assert disk.syncs == [(set(), {tmp_path}), (set(), set())] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs SCHED_BATCH, which Linux has")
@pytest.mark.parametrize(("every", "policy"), [(1, "SCHED_OTHER"), (2500, "SCHED_BATCH")])
async def test_clients_wait_for_a_sync_only_if_their_acknowledgements_do(
    every: int, policy: str, tmp_path: Path
) -> None:
    """A sync in the background does not take the processor from the event loop."""
    policies: list[int] = []
    syncer = Syncer(
        every=every,
        timeout=timedelta(seconds=60),
        journal=list,
        check_directory=lambda: policies.append(os.sched_getscheduler(0)),
        failed=lambda error: None,
    )
    await syncer.synced()
    await syncer.close()
    assert policies == [getattr(os, policy)]


def test_each_file_is_synced_with_its_side_file_and_each_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that no longer exist were consumed in the meantime."""
    segment, journal = tmp_path / "0.log", tmp_path / "journal.1"
    files = [segment, segment.with_suffix(".idx"), journal]
    for path in files:
        path.write_bytes(b"x")
    calls: list[tuple[str, str]] = []
    for name in ("fdatasync", "fsync"):
        call = getattr(os, name)

        def recorded(fd: int, name: str = name, call: Any = call) -> None:
            calls.append((name, os.readlink(f"/proc/self/fd/{fd}")))
            call(fd)

        monkeypatch.setattr(os, name, recorded)
    syncer_module.sync(dict.fromkeys([segment, tmp_path / "gone.log"]), {tmp_path}, [journal])
    assert calls == [*(("fdatasync", str(path)) for path in files), ("fsync", str(tmp_path))]


@pytest.mark.parametrize("has_syncfs", [True, False])
def test_the_files_of_very_many_topics_are_synced_in_one_call_where_there_is_one(
    has_syncfs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM waits for it: a disk took ten seconds to sync the files of 5,000 topics one by one."""
    segments = [tmp_path / f"t.{number}" / "0.log" for number in range(200)]
    for path in segments[1:]:  # the first was consumed meanwhile
        path.parent.mkdir()
        path.touch()
        path.with_suffix(".idx").touch()
    calls: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(file_systems, "_syncfs", lambda: (lambda fd: calls.append("all")) if has_syncfs else None)
    syncer_module.sync(dict.fromkeys(segments), [path.parent for path in segments[1:]], [])
    if has_syncfs:
        assert calls == ["all"]
    else:
        assert {path.name for path in map(Path, calls)} >= {"0.log", "0.idx", "t.199"}
        assert len(calls) == 3 * 199


def test_a_sync_of_a_file_system_that_fails_is_an_error(tmp_path: Path) -> None:
    """The system's own call is used where it exists; its error for a bad descriptor is raised."""
    assert file_systems.sync_file_systems([tmp_path / "gone", tmp_path]) == (file_systems._syncfs() is not None)
    if (syncfs := file_systems._syncfs()) is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            syncfs(-1)
