"""What the event loop itself asks of the disk. The rest is done in threads, so that a disk that hangs stops nobody.

Changed pages of mapped files are no system calls, and cannot be moved to a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nsqwire import encoding
from nsqwire.headers import encode_headers
from tests.failures.disk import FaultyDisk
from tests.harness import header_commands
from tests.harness.v2 import sized

if TYPE_CHECKING:
    from tests.failures.conftest import Connect, Start

LARGE = bytes(100_000)
WRITES = "a write into allocated space: to the system's page cache, and handing it over costs more than the write"
KNOWN_NAME = "a look at a name or an inode that the system has in memory, because the broker uses it"
MAPS = "opens a file that the broker used before, to map it or to write to it; its pages may come from the disk as well"
ALLOWED = {
    "pwrite log.segment.Segment._write_staged": WRITES,
    "pwrite log.headers.HeaderFile._write": WRITES,
    "ftruncate log.headers.HeaderFile._truncate": WRITES,
    "ftruncate log.headers.HeaderFile._write": WRITES,
    "pread log.headers.HeaderFile._bytes": "reads headers, as their messages are read from the map",
    "open log.segment.Segment._opened": MAPS,
    "open log.segment.Segment._mapped_again": MAPS,
    "open log.commits._map_file": MAPS,
    "open log.headers.HeaderFile.open": MAPS,
    "stat data_path.DataPath.check": KNOWN_NAME,
    "statvfs disk_reserve.DiskReserve.check": KNOWN_NAME,
    "lstat journal.recovery.next_generation": KNOWN_NAME,
    "stat journal.recovery.next_generation": KNOWN_NAME,
}
"""System calls that the event loop may make while it serves clients, each with the reason."""


def test_the_event_loop_asks_nothing_of_the_disk_but_what_is_listed(
    disk: FaultyDisk, start: Start, connect: Connect, tmp_path: Path
) -> None:
    """While topics are created and deleted, and segments, indexes and headers begin, grow and end."""
    broker, recorded = start(broker=disk.broker("--sync-timeout=20ms", "--disk-timeout=30s")), tmp_path / "recorded"
    publisher, consumer = connect(broker), connect(broker)
    publisher.command(encoding.identify({"feature_negotiation": True, "headers": True}))
    block = encode_headers({"a": "b"})
    with disk.fault(record=str(recorded)):
        consumer.sub("t", "c")
        for number in range(20):
            publisher.pub("t", LARGE)
            publisher.ok(header_commands.hpub("t", block, b"%d" % number))
            publisher.ok(b"DPUB t 60000\n" + sized(b"deferred"))
        for _ in range(300):  # each has a commit record
            publisher.pub("t", b"small")
        consumer.send(b"RDY 100\n")
        for _ in range(340):
            consumer.send(b"FIN %b\n" % consumer.message()[0])
        consumer.settle()
        for number in range(40):
            publisher.pub(f"t{number}", b"x")
        broker.post("/channel/create", topic="t1", channel="c")
        broker.post("/channel/empty", topic="t1", channel="c")
        broker.post("/topic/empty", topic="t2")
        broker.post("/topic/delete", topic="t3")
        broker.stats(include_histograms="true", previous_boot="true")
    lines = set(recorded.read_text().splitlines())
    assert "pwrite log.segment.Segment._write_staged" in lines
    assert "pwrite log.headers.HeaderFile._write" in lines
    assert lines - ALLOWED.keys() == set()
