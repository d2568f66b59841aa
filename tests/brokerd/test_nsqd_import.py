"""Starting on a data directory of nsqd: its messages are imported, and its files are kept aside."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from brokerd import nsqd_import
from brokerd.journal.recovery import recover
from brokerd.journal.state import ChannelState, NodeState, TopicState

Start = Callable[..., Any]
BASE_NS = 1_700_000_000_000_000_000


def message(number: int, *, attempts: int = 0) -> bytes:
    """The ``number``-th message of its topic, as nsqd writes it."""
    return struct.pack(">qH", BASE_NS + number, attempts) + b"%016x" % (0xABC000 + number) + b"body %d" % number


def queue(directory: Path, name: str, messages: Iterable[bytes], *, read: int = 0, files: int = 1) -> None:
    """Write a disk queue of ``files`` files; its first ``read`` messages were read already."""
    records = [struct.pack(">i", len(data)) + data for data in messages]
    per_file = -(-len(records) // files)
    for number in range(files):
        part = b"".join(records[number * per_file : (number + 1) * per_file])
        (directory / f"{name}.diskqueue.{number:06d}.dat").write_bytes(part)
    read_offset = sum(map(len, records[:read]))
    meta = f"{len(records) - read}\n0,{read_offset}\n{files - 1},{len(part)}\n"
    (directory / f"{name}.diskqueue.meta.dat").write_text(meta)


def metadata(directory: Path, *topics: tuple[str, bool, list[tuple[str, bool]]]) -> None:
    """Write ``nsqd.dat``: (topic, paused, [(channel, paused)])."""
    listed = [
        {"name": name, "paused": paused, "channels": [{"name": c, "paused": p} for c, p in channels] or None}
        for name, paused, channels in topics
    ]
    (directory / "nsqd.dat").write_text(json.dumps({"topics": listed, "version": "1.3.0"}))


def drain(broker: Any, topic: str, channel: str, connect: Callable[..., Any]) -> list[tuple[int, bytes]]:
    """``(attempts, body)`` of all messages of a channel."""
    stats = broker.stats(topic=topic, channel=channel)["topics"][0]["channels"][0]
    client = connect(broker)
    client.ok(f"SUB {topic} {channel}\n".encode())
    client.send(b"RDY 500\n")
    return [client.message()[1:] for _ in range(stats["depth"])]


def test_topics_channels_pauses_and_messages_are_taken_over(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """Two channels at different positions of one topic, a paused topic's backlog, and a topic without channels."""
    metadata(
        tmp_path,
        ("orders", False, [("ahead", False), ("behind", True)]),
        ("held", True, [("c", False)]),
        ("lonely", False, []),
    )
    queue(tmp_path, "orders:behind", [message(n) for n in range(10)], read=2, files=3)
    queue(tmp_path, "orders:ahead", [message(n) for n in range(6, 10)])
    queue(tmp_path, "held:c", [message(n) for n in range(3)])
    queue(tmp_path, "held", [message(n) for n in range(3, 5)])
    queue(tmp_path, "lonely", [message(n) for n in range(4)])
    broker = start_broker(data_path=tmp_path)
    topics = {topic["topic_name"]: topic for topic in broker.stats()["topics"]}
    channels = {c["channel_name"]: c for topic in topics.values() for c in topic["channels"]}
    assert {name: (topic["depth"], topic["paused"]) for name, topic in topics.items()} == {
        "orders": (0, False),
        "held": (2, True),
        "lonely": (4, False),
    }
    assert {name: (channel["depth"], channel["paused"]) for name, channel in channels.items()} == {
        "ahead": (4, False),
        "behind": (8, True),
        "c": (3, False),
    }
    assert drain(broker, "orders", "ahead", connect) == [(1, b"body %d" % n) for n in range(6, 10)]
    assert not list(tmp_path.glob("*.dat"))
    assert (tmp_path / "nsqd-imported-1" / "nsqd.dat").exists()


def test_an_attempt_made_under_nsqd_counts(tmp_path: Path, start_broker: Start, connect: Callable[..., Any]) -> None:
    """A message that was in flight when nsqd ended is delivered with one more attempt, in that channel only."""
    metadata(tmp_path, ("t", False, [("tried", False), ("fresh", False)]))
    queue(tmp_path, "t:tried", [message(0), message(2, attempts=3), message(1)])
    queue(tmp_path, "t:fresh", [message(0), message(1)])
    broker = start_broker(data_path=tmp_path)
    assert sorted(drain(broker, "t", "tried", connect)) == [(1, b"body 0"), (1, b"body 1"), (4, b"body 2")]
    assert sorted(drain(broker, "t", "fresh", connect)) == [(1, b"body 0"), (1, b"body 1")]


def test_channels_with_different_messages_are_imported_separately(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """No channel receives messages that it had finished, however the channels' messages are interleaved."""
    metadata(tmp_path, ("t", False, [("even", False), ("odd", False)]))
    queue(tmp_path, "t:even", [message(n) for n in range(0, 20, 2)])
    queue(tmp_path, "t:odd", [message(n) for n in range(1, 20, 2)])
    broker = start_broker(data_path=tmp_path)
    broker.kill()
    broker = start_broker(data_path=tmp_path)  # imported messages are as durable as published ones
    assert sorted(drain(broker, "t", "even", connect)) == sorted((1, b"body %d" % n) for n in range(0, 20, 2))
    assert sorted(drain(broker, "t", "odd", connect)) == sorted((1, b"body %d" % n) for n in range(1, 20, 2))


def test_nsqd_having_run_again_in_between_adds_its_messages(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """Changing to nsqd and back loses nothing on either side."""
    start_broker(data_path=tmp_path).terminate()
    metadata(tmp_path, ("t", False, [("c", False)]))
    queue(tmp_path, "t:c", [message(0)])
    first = start_broker(data_path=tmp_path)
    first.terminate()
    metadata(tmp_path, ("t", False, [("c", False), ("new", False)]))
    queue(tmp_path, "t:c", [message(1)])
    queue(tmp_path, "t", [message(2)])
    broker = start_broker(data_path=tmp_path)
    assert sorted(body for _, body in drain(broker, "t", "c", connect)) == [b"body 0", b"body 1", b"body 2"]
    assert sorted(body for _, body in drain(broker, "t", "new", connect)) == [b"body 2"]
    assert (tmp_path / "nsqd-imported-2").is_dir()


def test_messages_that_waited_in_nsqds_topic_go_to_the_channels_that_nsqd_did_not_have(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """Nobody had subscribed while nsqd ran, or to another channel only."""
    metadata(tmp_path, ("none", False, [("c", False)]), ("other", False, [("c", False)]))
    start_broker(data_path=tmp_path).terminate()
    metadata(tmp_path, ("none", False, []), ("other", False, [("new", False)]))
    queue(tmp_path, "none", [message(0), message(1)])
    queue(tmp_path, "other:new", [message(2)])
    queue(tmp_path, "other", [message(3)])
    broker = start_broker(data_path=tmp_path)
    assert sorted(drain(broker, "none", "c", connect)) == [(1, b"body 0"), (1, b"body 1")]
    assert sorted(drain(broker, "other", "c", connect)) == [(1, b"body 3")]
    assert sorted(drain(broker, "other", "new", connect)) == [(1, b"body 2"), (1, b"body 3")]


def test_an_interrupted_import_is_repeated_although_the_files_of_an_earlier_one_were_deleted(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """The files that are kept may be deleted at any time. Files that were imported are kept, and not imported again."""
    metadata(tmp_path, ("t", False, [("c", False)]))
    start_broker(data_path=tmp_path).terminate()
    shutil.rmtree(tmp_path / "nsqd-imported-1")
    metadata(tmp_path, ("t", False, [("c", False)]))
    queue(tmp_path, "t:c", [message(0)])
    nsqd_import.stage(tmp_path, recover(tmp_path).state)  # a kill came before the messages were imported
    start_broker(data_path=tmp_path).terminate()
    kept = tmp_path / "nsqd-imported-1"
    kept.rename(tmp_path / "nsqd-import")  # a kill came before the files were renamed
    broker = start_broker(data_path=tmp_path)
    assert drain(broker, "t", "c", connect) == [(1, b"body 0")]
    assert kept.is_dir()


def test_an_imported_message_gets_no_number_of_one_whose_file_is_missing(tmp_path: Path) -> None:
    """The topic's directory was removed; its state still says which numbers, and so which ids, were given."""
    state = NodeState()
    state.topics[0] = TopicState(0, "t", 10)
    state.channels[0] = ChannelState(0, 0, "c", 10)
    metadata(tmp_path, ("t", False, [("c", False)]))
    queue(tmp_path, "t:c", [message(0)])
    nsqd_import.import_into(state, tmp_path, lambda number, name: nsqd_import.Place(tmp_path / name, b"9a4000"))
    assert state.channels[0].aside == {10: (0, 0)}
    assert (state.topics[0].routed_end, state.topics[0].holes) == (11, [(10, 11)])


def test_the_rest_of_a_damaged_queue_file_is_lost_and_reported(
    tmp_path: Path, start_broker: Start, connect: Callable[..., Any]
) -> None:
    """As in nsqd, a broken record ends the reading of its file; the next file is read."""
    metadata(tmp_path, ("t", False, [("c", False)]))
    queue(tmp_path, "t:c", [message(n) for n in range(6)], files=2)
    file = tmp_path / "t:c.diskqueue.000000.dat"
    data = bytearray(file.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 4] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    broker = start_broker(data_path=tmp_path)
    assert [body for _, body in drain(broker, "t", "c", connect)] == [b"body 0", b"body 3", b"body 4", b"body 5"]
    broker.wait_for_log(r"ERROR: DISKQUEUE\(t:c\): .*000000\.dat")


def test_metadata_that_cannot_be_read_ends_the_start_and_changes_nothing(tmp_path: Path, start_broker: Start) -> None:
    """One line names the file, and no file is changed."""
    (tmp_path / "nsqd.dat").write_text("{")
    queue(tmp_path, "t", [message(0)])
    broker = start_broker(data_path=tmp_path, ready=False)
    assert broker.wait_for_exit() == 1
    broker.wait_for_log(r"FATAL: failed to load metadata - failed to parse metadata in .*nsqd\.dat - ")
    assert sorted(path.name for path in tmp_path.glob("*.dat")) == [
        "nsqd.dat",
        "t.diskqueue.000000.dat",
        "t.diskqueue.meta.dat",
    ]
