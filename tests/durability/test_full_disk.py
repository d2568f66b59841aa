"""Journal and disk are full: changes that cannot be recorded are refused, acknowledged messages stay, consumers go
on."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import brokerd.journal.journal as journal_module
import brokerd.log.log as log_module
from brokerd import message_actions
from brokerd.dedup import digest_of
from brokerd.journal import records
from brokerd.journal.journal import Journal, NotCheckpointed
from brokerd.journal.recovery import RECORD_HEAD
from nsqwire.errors import PublishFailed
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.machine import Disk
from tests.harness.waiting import wait_until

FREE_KIB = [0, 4, 120]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Journals are of 16 KiB, so that a test can fill one."""
    disk = Disk()
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 16384)
    monkeypatch.setattr(Journal, "_allocate", disk.unless_full(Journal._allocate))
    monkeypatch.setattr(journal_module, "write_checkpoint", disk.unless_full(journal_module.write_checkpoint))
    return disk


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Node:
    """A topic ``t`` with a channel ``c``."""
    node = Node(tmp_path, retention=timedelta(hours=1))
    monkeypatch.setattr(time, "time_ns", node.wall_ns)
    node.broker.topic("t").channel("c")
    return node


def fill_the_journal(node: Node, disk: Disk) -> list[Delivery]:
    """Publish and finish until the journal is full on a full disk; return the message in flight."""
    disk.is_full = True
    topic, got = node.broker.topic("t"), list[Delivery]()
    channel = topic.channel("c")
    topic.publish([b"in flight"])
    client = node.subscribe("t", "c", 2, got.append)
    for _ in range(1000):
        topic.publish([b"finished"])
        node.pass_until(node.now)
        line = b"FIN %b\n" % got.pop().message_id
        assert not channel.finish(client, memoryview(line), 1, node.wall_ns())
    assert node.broker.storage.disk_error is not None
    return got


@pytest.mark.parametrize("how", ["kill", "close"])
def test_deferred_publishes_are_refused_rather_than_lost(how: str, node: Node, disk: Disk) -> None:
    """Acknowledged ones are kept; those sent when it is full are refused, and never delivered."""
    topic = node.broker.topic("t")
    topic.publish([b"kept"], defer_ms=60_000)
    fill_the_journal(node, disk)
    for _ in range(5):
        with pytest.raises(PublishFailed, match="No space left"):
            topic.publish([b"refused"], defer_ms=60_000)
    topic.publish([b"plain"])
    if how == "kill":
        node.kill()
    else:
        with pytest.raises(NotCheckpointed, match=r"the journal is incomplete.*will be delivered again"):
            node.broker.close()
    disk.is_full = False
    node.open()
    channel = node.broker.topic("t").channel("c")
    assert channel.deferred_count == 1
    got = node.consumer("t", "c", 2000)
    node.pass_until(node.now + 61)
    assert {body for _, _, body in got} == {b"finished", b"in flight", b"kept", b"plain"}


def test_deferred_publishes_survive_whose_routing_was_not_kept(node: Node, disk: Disk) -> None:
    """They waited in a paused topic, and their channel received them while the journal was full."""
    topic, waiting = node.broker.topic("t"), node.broker.topic("u")
    waiting.channel("c")
    waiting.pause()
    waiting.publish([b"1", b"2"], defer_ms=1000)
    fill_the_journal(node, disk)
    waiting.unpause()
    assert waiting.channel("c").deferred_count == 2
    waiting.pause()
    topic.pause()
    node.kill()
    disk.is_full = False
    node.open()
    assert node.broker.topic("u").channel("c").deferred_count == 2
    got = node.consumer("u", "c")
    node.pass_until(node.now + 10)
    node.pass_until(node.now + 10)
    assert sorted(body for _, _, body in got) == [b"1", b"2"]


def test_segments_that_were_finished_with_a_full_journal_are_no_loss(
    node: Node, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are removed to make space; after a kill their messages are not reported as lost."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 4096)
    node.broker.storage.retention = None
    node.broker.delete_topic("t")
    channel = node.broker.topic("t").channel("c")
    [last] = fill_the_journal(node, disk)
    line = memoryview(b"FIN %b\n" % last.message_id)
    assert not channel.finish(last.client, line, 1, node.wall_ns())
    assert node.broker.topic("t").log.first_seq > 0
    node.kill()
    disk.is_full = False
    node.open()
    assert node.broker.storage.lost_message_count == 0
    topic = node.broker.topic("t")
    topic.publish([b"next"])
    got = node.consumer("t", "c", 2000)
    node.pass_until(node.now)
    assert got[-1][2] == b"next"


def test_a_publish_that_was_finished_with_a_full_journal_is_not_stored_again(
    node: Node, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment is removed; after a kill, a repetition of the publish gets the same answer."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 4096)
    node.broker.storage.retention = None
    node.broker.delete_topic("t")
    topic, digest, got = node.broker.topic("t"), digest_of(b"1"), list[Delivery]()
    client = node.subscribe("t", "c", 1, got.append)
    assert topic.publish([b"once"], dedup_digest=digest) == range(1)
    node.pass_until(node.now)
    client.ready_count = 0
    for each in [*got, *fill_the_journal(node, disk)]:
        line = memoryview(b"FIN %b\n" % each.message_id)
        assert not topic.channel("c").finish(each.client, line, 1, node.wall_ns())
    assert topic.log.first_seq > 0
    node.kill()
    disk.is_full = False
    node.open()
    assert node.broker.topic("t").publish([b"once"], dedup_digest=digest) == range(1)


def test_changes_that_cannot_be_recorded_are_refused(node: Node, disk: Disk) -> None:
    """A rewind; and once the reserve is full too, topics, channels, pauses and deletions."""
    got = fill_the_journal(node, disk)
    broker, topic = node.broker, node.broker.topic("t")
    channel = topic.channel("c")
    with pytest.raises(OSError, match="No space left"):
        channel.rewind(0)
    assert channel.in_flight_count == len(got) == 1
    with pytest.raises(OSError, match="No space left"):  # noqa: PT012
        for number in range(1000):
            topic.channel(f"c{number}")
    channels = set(topic.channels)
    for refused in (
        lambda: broker.topic("u"),
        lambda: topic.channel("d"),
        lambda: topic.delete_channel("c"),
        lambda: broker.delete_topic("t"),
        topic.pause,
        channel.pause,
        channel.empty,
    ):
        with pytest.raises(OSError, match="No space left"):
            refused()
    assert (set(broker.topics), set(topic.channels), topic.paused, channel.paused) == ({"t"}, channels, False, False)
    assert (channel.in_flight_count, channel.gone) == (1, False)
    topic.channel("tail#ephemeral")
    broker.topic("tail#ephemeral").publish([b"x"])
    node.kill()
    disk.is_full = False
    node.open()
    assert set(node.broker.topic("t").channels) == channels


@pytest.mark.parametrize("is_checkpoint_taken", [False, True])
@pytest.mark.parametrize("has_died", ["on a full disk", "before"])
def test_a_channel_emptied_after_a_full_disk_keeps_its_dead_messages(
    has_died: str, is_checkpoint_taken: bool, node: Node, disk: Disk
) -> None:
    """Their deaths were not journalled, and the kill comes before the next checkpoint is written."""
    background = list[tuple[Callable[[], None], Callable[[BaseException | None], None]]]()
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    if has_died == "before":
        topic.publish([b"dead"])
        channel.bury([channel.messages.log.next_seq - 1])
        node.broker.storage.checkpoint()
    node.broker.storage.checkpoint_in_background(lambda work, done: background.append((work, done)))
    fill_the_journal(node, disk)
    if has_died != "before":
        node.broker.set_policy("t", "*", {"max_depth": 1, "overflow": "dead"})
        topic.publish([b"1", b"2", b"3", b"4"])
        node.pass_until(node.now)
    found = len(channel.dead)
    assert found
    disk.is_full = False
    if is_checkpoint_taken:
        node.pass_until(node.now + 2)
        assert background
    channel.empty()
    assert (channel.depth, channel.in_flight_count, len(channel.dead)) == (0, 0, found)
    node.kill()
    node.open()
    channel = node.broker.topic("t").channel("c")
    assert len(channel.dead) + channel.depth >= found
    node.broker.storage.checkpoint()
    channel.empty()
    node.kill()
    node.open()
    assert node.broker.topic("t").channel("c").depth == 0


def test_a_dead_message_does_not_wait_too_after_a_full_disk(node: Node, disk: Disk) -> None:
    """A deferred publish died before its turn. The channel passed its number while the journal was full, and passed
    others once there was space, before the next checkpoint."""
    topic = node.broker.topic("u")
    channel = topic.channel("c")
    topic.publish([b"0"])
    topic.publish([b"dead"], defer_ms=1_000_000)
    channel.bury([1])
    node.broker.storage.checkpoint()
    node.broker.storage.checkpoint_in_background(lambda work, done: None)
    fill_the_journal(node, disk)
    got = node.consumer("u", "c")
    topic.publish([b"1"])
    node.pass_until(node.now)
    disk.is_full = False
    node.pass_until(node.now + 2)
    topic.publish([b"2"])
    node.pass_until(node.now)
    assert [body for _, _, body in got] == [b"0", b"1", b"2"]
    node.kill()
    node.open()
    channel = node.broker.topic("u").channel("c")
    assert (channel.depth, channel.deferred_count, len(channel.dead)) == (3, 0, 1)


def leave_room(node: Node, disk: Disk, room: int) -> None:
    """Fill the disk, and the journal up to ``room`` bytes, with records that change nothing."""
    journal = node.broker.storage.journal
    assert journal is not None
    node.broker.storage.checkpoint()
    journal._switch()
    node.pass_until(node.now)
    disk.is_full = True
    record = records.finished(99, [])
    while journal._soft_end - journal._offset - len(record) - RECORD_HEAD.size >= room:
        journal.append(record)
    if journal._spare is not None:
        journal._spare.close()
        journal._spare = None


@pytest.mark.parametrize("room", range(50, 2500, 150))
@pytest.mark.parametrize("is_of_deferred", [False, True])
def test_a_rewind_on_a_full_disk_is_kept_or_refused(is_of_deferred: bool, room: int, node: Node, disk: Disk) -> None:
    """However much room the journal has: a kill does not undo it, or neither channel nor journal changes.

    Below the message that the channel goes back to, every second one is in flight; above it, every second one is a
    deferred publish that was finished.
    """
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"%d" % number for number in range(60)])
    got = list[Delivery]()
    client = node.subscribe("t", "c", 59, got.append)
    node.pass_until(node.now)
    client.ready_count = 60
    channel.offer(client)
    node.pass_until(node.now)
    for _ in range(30):
        topic.publish([b"backlog"])
        topic.publish([b"deferred"], defer_ms=1)
    node.pass_until(node.now + 10)
    client.ready_count = 90  # requeued messages are delivered first
    channel.offer(client)
    node.pass_until(node.now)
    client.ready_count = 0
    lines = [b"FIN %b\n" % each.message_id for each in got if each.body == b"deferred" or not int(each.body) % 2]
    assert not channel.finish(client, memoryview(b"".join(lines)), 60, node.wall_ns())
    assert (channel.head, channel.in_flight_count, channel.depth) == (60, 30, 30)
    leave_room(node, disk, room)
    try:
        again = channel.rewind(60 if is_of_deferred else 40)
    except OSError:
        assert (channel.head, channel.in_flight_count, channel.depth) == (60, 30, 30)
        assert node.journal_is_complete
        expected = 60
    else:
        assert again == 30
        expected = 90 if is_of_deferred else 100
    node.kill()
    disk.is_full = False
    node.open()
    assert node.broker.topic("t").channel("c").depth == expected


@pytest.mark.parametrize("room", range(50, 2500, 150))
@pytest.mark.parametrize("act", [message_actions.finish, message_actions.requeue])
def test_chosen_messages_on_a_full_disk_are_all_changed_or_none(
    act: Callable[..., message_actions.ActedOn], room: int, node: Node, disk: Disk
) -> None:
    """However much room the journal has: a kill does not undo it, or neither channel nor journal changes."""
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    for _ in range(60):
        topic.publish([b"waiting"])
        topic.publish([b"deferred"], defer_ms=3_600_000)
    frames = [channel.frame_of(seq) for seq in range(120)]
    ids = [bytes(frame[18:34]) for frame in frames if frame is not None]
    leave_room(node, disk, room)
    try:
        assert act(channel, ids[::4] + ids[1::4]).messages == 60
    except OSError:
        expected = (60, 60)
        assert node.journal_is_complete
    else:
        expected = (30, 30) if act is message_actions.finish else (90, 30)
    assert (channel.depth, channel.deferred_count) == expected
    node.kill()
    disk.is_full = False
    node.open()
    channel = node.broker.topic("t").channel("c")
    assert (channel.depth, channel.deferred_count) == expected


def test_a_full_journal_continues_by_itself_once_there_is_space(node: Node, disk: Disk) -> None:
    """No intervention is needed; later deliveries are recorded again."""
    got = fill_the_journal(node, disk)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    client = got[0].client
    assert not channel.finish(client, memoryview(b"FIN %b\n" % got[0].message_id), 1, node.wall_ns())
    disk.is_full = False
    node.pass_until(node.now + 2)
    assert node.broker.storage.disk_error is None
    topic.publish([b"later"], defer_ms=60_000)
    node.kill()
    node.open()
    channel = node.broker.topic("t").channel("c")
    assert (channel.depth, channel.deferred_count) == (0, 1)


# -- starting on a full disk --------------------------------------------------------------------------------------


def consume_all(node: Any, count: int) -> None:
    """Consume and finish the messages ``0`` to ``count - 1`` of channel ``c``; asserts that it has no others."""
    consumer = node.connect()
    consumer.sub("t", "c", 100)
    got = [consumer.message() for _ in range(count)]
    assert sorted(body for _, _, body in got) == sorted(b"%d" % number for number in range(count))
    consumer.finish(*(message_id for message_id, _, _ in got))
    assert node.channel("t", "c")["depth"] == node.channel("t", "c")["in_flight_count"] == 0


def test_a_node_starts_where_no_file_can_grow(start: Callable[..., Any]) -> None:
    """It delivers everything, refuses what it cannot store, and accepts publishes again once files can grow."""
    node = start()
    consumer = node.connect()
    consumer.sub("t", "c")
    node.connect().mpub("t", [b"%d" % number for number in range(50)])
    node.end("SIGKILL")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # the broker inherits it
    try:
        full = start(data_path=node.data_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kind, text = full.connect().command(b"PUB new\n\0\0\0\1x")
    assert (kind, text[:23]) == (1, b"E_PUB_FAILED PUB failed")
    kind, text = full.connect().command(b"DPUB t 1000\n\0\0\0\1x")
    assert (kind, text[:25]) == (1, b"E_DPUB_FAILED DPUB failed")
    assert full.ping() == 500
    consume_all(full, 50)
    resource.prlimit(full.broker.process.pid, resource.RLIMIT_FSIZE, limits)
    full.connect().pub("new", b"x")
    wait_until(lambda: full.ping() == 200)
    full.restart("SIGKILL")
    assert full.channel("t", "c")["depth"] == 0
    assert full.topics()["new"]["depth"] == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB; a plain directory if none can be mounted, on which the test passes as well."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], capture_output=True)
    yield path
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(small_disk: Path, free_kib: int) -> bool:
    """Fill the small disk up to ``free_kib``. Returns False, without doing anything, if it is a plain directory."""
    space = os.statvfs(small_disk)
    free = space.f_bavail * space.f_frsize
    if free > 64 * 1024 * 1024:
        return False
    fd = os.open(small_disk / "filler", os.O_CREAT | os.O_WRONLY, 0o600)
    os.posix_fallocate(fd, 0, free - free_kib * 1024)
    os.close(fd)
    return True


def use_up_the_space(node: Any, small_disk: Path) -> str:
    """Let no file of the node grow: fill the small disk, or limit the sizes of files if it is a plain directory.

    Returns the text of the error that the node then gets.
    """
    if fill(small_disk, free_kib=4):
        return os.strerror(errno.ENOSPC)
    limit_file_sizes(node)
    return os.strerror(errno.EFBIG)


def limit_file_sizes(node: Any) -> None:
    """Let no file of the node grow."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(node.broker.process.pid, resource.RLIMIT_FSIZE, (8192, hard))


@pytest.mark.parametrize("limit", ["file size", "disk"])
def test_the_health_recovers_although_nobody_publishes(limit: str, small_disk: Path, start: Callable[..., Any]) -> None:
    """A publish is refused; once there is space, /ping returns to OK without another publish."""
    data_path = small_disk / "data"
    data_path.mkdir()
    node = start(data_path=data_path)
    sizes = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == "disk":
        use_up_the_space(node, small_disk)
    else:
        limit_file_sizes(node)
    assert node.connect().command(b"PUB new\n\0\0\0\1x")[0] == 1
    assert node.ping() == 500
    (small_disk / "filler").unlink(missing_ok=True)
    resource.prlimit(node.broker.process.pid, resource.RLIMIT_FSIZE, sizes)
    wait_until(lambda: node.ping() == 200)
    node.connect().pub("new", b"x")


def test_publishes_are_refused_below_the_reserve_and_accepted_above_it(
    small_disk: Path, start: Callable[..., Any]
) -> None:
    """503 DISK_RESERVE, E_PUB_FAILED, and /ping says it; consumers go on. A restart does not help, space does."""
    data_path = small_disk / "data"
    data_path.mkdir()
    space = os.statvfs(small_disk)
    free = space.f_bavail * space.f_frsize
    step = min(free // 2, 2 * 10**9)  # more than journals, segments and other users of the disk take meanwhile
    node = start(f"--disk-reserve={free - step}", data_path=data_path)
    node.connect().pub("t", b"0")
    consumer = node.connect()
    consumer.sub("t", "c")
    with open(small_disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, step + step // 4)
    wait_until(lambda: node.ping() == 500)
    refused = node.broker.request("POST", "/pub?topic=t", b"x")
    assert (refused.status, refused.text) == (503, '{"message":"DISK_RESERVE"}')
    kind, text = node.connect().command(b"PUB t\n\0\0\0\1x")
    assert (kind, text[:37]) == (1, b"E_PUB_FAILED PUB failed the disk has ")
    consume_all(node, 1)
    node.restart("SIGKILL")
    assert node.broker.request("POST", "/pub?topic=t", b"x").status == 503
    (small_disk / "filler").unlink()
    wait_until(lambda: node.ping() == 200)
    node.connect().pub("t", b"x")


def test_a_node_that_is_drained_still_reports_its_disk(small_disk: Path, start: Callable[..., Any]) -> None:
    """Its health has both; the drain alone is not the disk's fault."""
    data_path = small_disk / "data"
    data_path.mkdir()
    node = start(data_path=data_path)
    node.connect().pub("t", b"0")
    node.broker.post("/drain")
    wait_until(lambda: node.broker.stats()["health"] == "NOK - the node is being drained: 1 message is left")
    assert "nsq_healthy 1" in node.broker.request("GET", "/metrics").text
    node.broker.post("/drain/cancel")
    error = use_up_the_space(node, small_disk)
    assert node.connect().command(b"PUB new\n\0\0\0\1x")[0] == 1
    node.broker.post("/drain")
    health = node.broker.stats()["health"]
    assert error in health
    assert health.endswith("; the node is being drained: 1 message is left")


@pytest.mark.parametrize("free_kib", FREE_KIB)
def test_a_node_starts_on_the_disk_that_it_filled(free_kib: int, small_disk: Path, start: Callable[..., Any]) -> None:
    """After a kill, with this much space left, or none."""
    data_path = small_disk / "data"
    data_path.mkdir()
    node = start(data_path=data_path)
    node.connect().sub("t", "c")
    node.connect().mpub("t", [b"%d" % number for number in range(50)])
    node.end("SIGKILL")
    fill(small_disk, free_kib)
    full = start(data_path=data_path)
    consume_all(full, 50)
    full.end("SIGKILL")
    (small_disk / "filler").unlink(missing_ok=True)
    again = start(data_path=data_path)
    wait_until(lambda: again.ping() == 200)
    again.connect().pub("new", b"x")
    again.end("SIGTERM")


def test_the_last_space_is_used_in_smaller_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments double, but a disk without room for the next size still takes messages; freed space is used."""
    node, free = Node(tmp_path), [2 * 1024 * 1024]
    allocate = os.posix_fallocate

    def of_what_is_free(fd: int, offset: int, size: int) -> None:
        if size > free[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", of_what_is_free)
    topic = node.broker.topic("t")
    for free[0] in (2 * 1024 * 1024, 512 * 1024, 256 * 1024):
        for _ in range(40):
            topic.publish([bytes(200_000)])
    assert {segment.capacity for segment in topic.log.segments[-4:]} == {256 * 1024}
    assert node.broker.storage.disk_error is None
    free[0] = 100_000
    with pytest.raises(PublishFailed, match="No space left on device"):
        topic.publish([bytes(200_000)])
    free[0] = 64 * 1024 * 1024
    for _ in range(20):
        topic.publish([bytes(200_000)])
    assert topic.log.segments[-1].capacity > 256 * 1024
    assert topic.depth == 140
