"""Topics without traffic close their files, which no client notices."""

from __future__ import annotations

import errno
from datetime import timedelta
from pathlib import Path

import pytest

from brokerd.file_header import HEADER_BYTES
from brokerd.log.batch import BodyBatch
from brokerd.log.commits import CommitIndex
from brokerd.log.log import Log
from brokerd.log.segment import Segment
from tests.brokerd.clockwork import START_S, Delivery, Node


def open_below(directory: Path) -> list[str]:
    """Files below ``directory`` that this process has open or mapped, without the journal."""
    descriptors = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    maps = Path("/proc/self/maps").read_text().split()
    return [str(path) for path in [*descriptors, *maps] if str(path).startswith(f"{directory}/topics")]


def test_a_quiet_topic_lets_go_of_its_files_and_takes_them_up_again(tmp_path: Path) -> None:
    """The files are opened again to publish, to read and to compute the age; messages in flight can still be
    answered."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    got = node.consumer("t", "c", ready_count=2)
    topic.publish([b"a", b"b" * 20_000, b"c"])
    node.pass_until(START_S)
    topic.unmap_if_idle()
    assert open_below(tmp_path), "it is not quiet yet"
    topic.unmap_if_idle()
    assert open_below(tmp_path) == []
    for _ in range(3):
        assert topic.oldest_unfinished_age_ns(node.wall_ns()) is not None
        topic.unmap_if_idle()
    topic.unmap_if_idle()
    assert open_below(tmp_path) == []
    topic.publish([b"d", b"e" * 20_000])
    assert open_below(tmp_path)
    topic.unmap_if_idle()
    topic.unmap_if_idle()
    node.pass_until(START_S + 60)
    again = node.consumer("t", "c")
    node.pass_until(START_S + 60)
    assert sorted(body[:1] for _, _, body in got[2:] + again) == [b"a", b"b", b"c", b"d", b"e"]
    node.broker.close()


def test_unsent_slices_outlive_the_closing_of_idle_files(tmp_path: Path) -> None:
    """A slice of the map keeps the map alive."""
    node = Node(tmp_path)
    node.broker.topic("t").publish([b"x" * 100])
    frame = node.broker.topic("t").log.frame(0)
    node.broker.topic("t").log.unmap()
    assert frame is not None
    assert bytes(frame[34:]) == b"x" * 100
    node.broker.close()


def test_a_log_in_memory_stays_where_it_is() -> None:
    """There is no file to read it from again."""
    log = Log(None)
    log.append(BodyBatch([b"body"], b"000000", 1))
    log.unmap()
    assert log.contains(0)
    assert bytes(log.segments[0].map[HEADER_BYTES + 34 : HEADER_BYTES + 38]) == b"body"


def megabytes_finished(node: Node) -> bytes:
    """Publish and finish enough to make the newest segment large. Returns the last id."""
    topic = node.broker.topic("t")
    got: list[Delivery] = []
    client = node.subscribe("t", "c", 10_000, got.append)
    for _ in range(40):
        topic.publish([b"x" * 50_000])
    node.pass_until(node.now)
    lines = memoryview(b"".join(b"FIN %b\n" % each.message_id for each in got))
    assert topic.channel("c").finish(client, lines, len(got), node.wall_ns()) == []
    client.ready_count = 0
    return got[-1].message_id


def allocated(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.glob("topics/t.*/*"))


def test_a_topic_whose_messages_are_finished_gives_its_space_back(tmp_path: Path) -> None:
    """While idle it occupies a small segment; its next message has the next id, also after a restart or a kill."""
    node = Node(tmp_path)
    last = megabytes_finished(node)
    topic = node.broker.topic("t")
    assert allocated(tmp_path) > 1_000_000
    topic.unmap_if_idle()
    assert allocated(tmp_path) > 1_000_000, "it is not quiet yet"
    topic.unmap_if_idle()
    assert 0 < allocated(tmp_path) <= 300_000
    topic.unmap_if_idle()
    node.kill()
    node.open()
    assert node.broker.storage.lost_message_count == 0
    node.broker.topic("t").publish([b"next"])
    got: list[Delivery] = []
    node.subscribe("t", "c", 10, got.append)
    node.pass_until(node.now)
    assert [each.body for each in got] == [b"next"]
    assert int(got[0].message_id, 16) == int(last, 16) + 1
    node.broker.close()


def test_a_kill_while_the_space_is_given_back_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the creation of the new segment and the removal of the old one, both exist."""
    node = Node(tmp_path)
    last = megabytes_finished(node)
    monkeypatch.setattr(Segment, "remove", lambda self, **_: None)
    for _ in range(2):
        node.broker.topic("t").unmap_if_idle()
    assert len(list(tmp_path.glob("topics/t.*/*.log"))) > 1
    monkeypatch.undo()
    node.kill()
    node.open()
    topic = node.broker.topic("t")
    assert (topic.channel("c").depth, node.broker.storage.lost_message_count) == (0, 0)
    topic.publish([b"next"])
    frame = topic.log.frame(topic.log.next_seq - 1)
    assert frame is not None
    assert int(bytes(frame[18:34]), 16) == int(last, 16) + 1
    for _ in range(2):
        topic.unmap_if_idle()
    node.broker.close()


def test_unfinished_and_retained_messages_keep_their_space(tmp_path: Path) -> None:
    """One message in flight, one in the topic, or one within the retention."""
    for name, retention in (("in flight", 0), ("waiting", 0), ("kept", 1)):
        (tmp_path / name).mkdir()
        node = Node(tmp_path / name, retention=timedelta(hours=retention))
        megabytes_finished(node)
        topic = node.broker.topic("t")
        if name == "in flight":
            got = node.consumer("t", "c", ready_count=1)
        if name != "kept":
            topic.publish([b"one more"])
            node.pass_until(node.now)
            assert name != "in flight" or len(got) == 1
        for _ in range(3):
            topic.unmap_if_idle()
        frame = topic.log.frame(topic.log.next_seq - 1)
        assert frame is not None
        assert bytes(frame[34:40]) == (b"xxxxxx" if name == "kept" else b"one mo")
        node.broker.close()


def append(log: Log, size: int) -> int:
    """Append a message and return its number."""
    return log.append(BodyBatch([bytes(size)], b"000000", 1))[0]


def test_an_empty_newest_segment_is_replaced(tmp_path: Path) -> None:
    """A kill right after a segment was begun leaves it empty: a small segment replaces it, and its messages are
    kept."""
    directory = tmp_path / "t.0"
    directory.mkdir()
    log = Log(directory)
    while len(log.segments) < 2:
        append(log, 50_000)
    first = log.segments[-1].first_seq
    path = directory / f"{first:020d}.log"
    log.close()
    path.unlink()
    path.with_suffix(".idx").unlink()
    Segment.create(directory, first, 512 * 1024)
    log, _ = Log.recover(directory, b"000000", first)
    log.shrink()
    assert [segment.capacity for segment in log.segments] == [256 * 1024]
    assert append(log, 100) == first
    log.close()
    log, _ = Log.recover(directory, b"000000")
    assert log.next_seq == first + 1
    log.close()


def test_the_name_of_a_file_kept_for_reuse_may_be_taken(tmp_path: Path) -> None:
    """A directory of that name is foreign: it stays, and nothing fails because of it."""
    node = Node(tmp_path)
    node.broker.topic("t").publish([b"x"])
    node.broker.close()
    (directory,) = (tmp_path / "topics").iterdir()
    (directory / "retired").mkdir()
    node.open()
    assert node.broker.topics["t"].depth == 1
    assert (directory / "retired").is_dir()
    node.broker.close()


def test_a_segment_that_could_not_be_begun_is_begun_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous segment cannot be sealed on a full disk: nothing is left of the attempt, and the next one
    succeeds."""
    log = Node(tmp_path).broker.topic("t").log
    real = CommitIndex.seal

    def no_room(index: CommitIndex) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert append(log, 200_000) == 0
    monkeypatch.setattr(CommitIndex, "seal", no_room)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            append(log, 200_000)
    monkeypatch.setattr(CommitIndex, "seal", real)
    assert append(log, 200_000) == 1
