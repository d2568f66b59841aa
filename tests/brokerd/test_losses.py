"""Messages lost to damage: each is counted and logged once, the others are delivered, and no id is reused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.client import Client
from brokerd.file_header import HEADER_BYTES
from brokerd.journal.recovery import recover
from brokerd.kernel.commit import RECORD_BYTES
from brokerd.log import log as log_module
from brokerd.repair import main as repair
from tests.brokerd.clockwork import Delivery, Node

SEGMENT_BYTES = 8192
BODY_BYTES = 1000
IN_A_SEGMENT = SEGMENT_BYTES // (34 + BODY_BYTES)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", SEGMENT_BYTES)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", SEGMENT_BYTES)


def body(number: int) -> bytes:
    return (b"%06d " % number).ljust(BODY_BYTES, b"x")


class Story:
    """A topic ``t``, its files, and the messages that its consumers received."""

    def __init__(self, data_path: Path, **settings: object) -> None:
        self.data_path = data_path
        self.node = Node(data_path, **settings)  # type: ignore[arg-type]
        self.published = 0

    def publish(self, count: int, **options: int) -> None:
        for _ in range(count):
            self.node.broker.topic("t").publish([body(self.published)], **options)
            self.published += 1

    def create(self, *channels: str) -> None:
        for channel in channels:
            self.node.broker.topic("t").channel(channel)

    def consume(self, channel: str, ready_count: int = 1000) -> tuple[Client, list[Delivery]]:
        got: list[Delivery] = []
        client = self.node.subscribe("t", channel, ready_count, got.append)
        self.node.pass_until(self.node.now)
        return client, got

    def finish(self, channel: str, client: Client, got: list[Delivery]) -> None:
        lines = memoryview(b"".join(b"FIN %b\n" % each.message_id for each in got))
        found = self.node.broker.topic("t").channel(channel)
        assert found.finish(client, lines, len(got), self.node.wall_ns()) == []

    def files(self, suffix: str = ".log") -> list[Path]:
        return sorted(self.data_path.glob(f"topics/t.*/*{suffix}"))

    def restart(self, damage: Callable[[], object]) -> None:
        """Kill the broker with SIGKILL, damage its files, start it."""
        self.node.kill()
        damage()
        self.node.open()

    def lost(self) -> int:
        return self.node.broker.storage.lost_message_count

    def check_new_ids(self, before: list[Delivery]) -> None:
        """Check that a new message has an id that no earlier one had."""
        ids = {each.message_id for each in before}
        self.create("new")
        self.publish(1)
        _, got = self.consume("new")
        assert got[-1].body == body(self.published - 1)
        assert got[-1].message_id not in ids
        assert int(got[-1].message_id[6:], 16) >= self.published - 1


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def numbers(got: list[Delivery]) -> list[int]:
    return sorted(int(each.body[:6]) for each in got)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("requeued", [False, True], ids=["in flight", "requeued"])
def test_a_damaged_message_that_was_delivered_before_is_counted_and_logged(
    requeued: bool, story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """In an older segment, in flight at the kill or requeued before it: it does not count as finished."""
    story.create("a", "b")
    story.publish(3 * IN_A_SEGMENT)
    for channel in ("a", "b"):
        client, got = story.consume(channel)
        if requeued:
            for each in got:
                story.node.broker.topic("t").channel(channel).requeue(
                    client, memoryview(b"REQ %b 9\n" % each.message_id), 1, 1000, story.node.now
                )
    damaged = story.files()[0]
    story.restart(lambda: [overwrite(damaged, HEADER_BYTES + at * (34 + BODY_BYTES) + 50, b"?") for at in (2, 4)])
    story.node.pass_until(story.node.now + 2000)
    for channel in ("a", "b"):
        client, got = story.consume(channel)
        assert numbers(got) == sorted(set(range(story.published)) - {2, 4})
        story.finish(channel, client, got)
        assert story.node.broker.topic("t").channel(channel).depth == 0
    assert story.lost() == 2
    assert "numbers 2 to 2 are damaged in" in caplog.text
    assert str(damaged) in caplog.text
    assert caplog.text.count("1 message is lost") == 2


@pytest.mark.parametrize("zeroed", [True, False], ids=["zeroed", "missing"])
@pytest.mark.parametrize("finished", [0, 20])
def test_an_index_is_rebuilt_from_its_log(zeroed: bool, finished: int, story: Story) -> None:
    """Each of 50 messages is delivered although no commit record is left, and no id is reused."""
    story.create("c")
    story.publish(50)
    client, before = story.consume("c", finished)
    if finished:
        story.finish("c", client, before)

    def damage() -> None:
        for index in story.files(".idx"):
            overwrite(index, 0, bytes(4096)) if zeroed else index.unlink()

    story.restart(damage)
    _, got = story.consume("c")
    assert numbers(got) == list(range(finished, 50))
    assert story.lost() == 0
    story.check_new_ids(before + got)


def test_a_batch_whose_record_is_zeroed_is_delivered(story: Story) -> None:
    """An index without any record is damaged: the only batch of its log was acknowledged."""
    story.node.broker.topic("t").publish([b"%06d" % number for number in range(50)])
    story.create("c")
    story.restart(lambda: overwrite(story.files(".idx")[0], 0, bytes(4096)))
    assert numbers(story.consume("c")[1]) == list(range(50))


def test_a_missing_segment_is_counted_and_named(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """Any of three segments: its unfinished messages are lost and counted once for two channels; the rest is
    delivered."""
    story.create("a", "b")
    story.publish(3 * IN_A_SEGMENT)
    client, got = story.consume("a", 3)
    story.finish("a", client, got)
    client, got = story.consume("b", 2)
    story.finish("b", client, got)
    delivered = got
    for which in (1, 0):
        name = story.files()[which].name
        story.restart(story.files()[which].unlink)
        assert name in caplog.text or which == 0
    assert story.lost() == IN_A_SEGMENT - 2
    assert (
        f"{IN_A_SEGMENT} messages are lost: numbers {IN_A_SEGMENT} to {2 * IN_A_SEGMENT - 1} are missing" in caplog.text
    )
    for channel in ("a", "b"):
        client, got = story.consume(channel)
        assert numbers(got) == list(range(2 * IN_A_SEGMENT, 3 * IN_A_SEGMENT))
        story.finish(channel, client, got)
        delivered = delivered + got
    story.check_new_ids(delivered)


def test_failed_deliveries_of_lost_messages_are_not_kept(tmp_path: Path) -> None:
    """Of a lost message nothing remains in the data path, so that checkpoints do not grow for ever."""
    story = Story(tmp_path, max_attempts=3)
    story.create("c")
    story.publish(2 * IN_A_SEGMENT)
    client, got = story.consume("c", 1)
    requeued = memoryview(b"REQ %b 60000\n" % got[0].message_id)
    assert story.node.broker.topic("t").channel("c").requeue(client, requeued, 1, 60.0, story.node.now) == []

    def failures() -> list[int]:
        [channel] = recover(tmp_path).state.channels.values()
        return list(channel.failed)

    assert failures() == [0]
    story.restart(story.files()[0].unlink)
    story.node.broker.close()
    assert failures() == []


def test_a_slow_channel_skips_a_missing_segment_after_a_fast_one_has_finished(story: Story) -> None:
    """The range that is missing is remembered until every channel has passed it."""
    story.create("a", "b")
    story.publish(3 * IN_A_SEGMENT)
    client, got = story.consume("b", 2)
    story.finish("b", client, got)
    story.restart(story.files()[0].unlink)
    for channel in ("a", "b"):
        client, got = story.consume(channel)
        assert numbers(got) == list(range(IN_A_SEGMENT, 3 * IN_A_SEGMENT))
        story.finish(channel, client, got)


@pytest.mark.parametrize("what", ["newest log", "folder", "topics"])
def test_missing_files_at_the_end_are_counted(what: str, story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """The newest segment without its index, the topic's folder, or all topics: the messages known from the state are
    lost."""
    story.create("c")
    story.publish(20)
    client, before = story.consume("c", 20)
    story.finish("c", client, before[:5])

    def damage() -> None:
        if what == "newest log":
            story.files()[-1].unlink()
            story.files(".idx")[-1].unlink()
        else:
            shutil.rmtree(story.data_path / "topics" / ("t.0" if what == "folder" else ""))

    held = int(story.files()[-1].stem) if what == "newest log" else 5
    story.restart(damage)
    _, got = story.consume("c")
    assert numbers(got) == list(range(5, held))
    assert story.lost() == 20 - held
    assert f"{20 - held} messages are lost" in caplog.text
    story.check_new_ids(before)
    story.restart(lambda: None)
    assert story.lost() == 0, "it is counted once, and not at each start"


def test_a_cut_segment_is_counted(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """The newest log is cut after its second message; its commit records say how many there were."""
    story.create("c")
    story.publish(IN_A_SEGMENT + 5)
    story.restart(lambda: story.files()[-1].open("r+b").truncate(HEADER_BYTES + 2 * (34 + BODY_BYTES)))
    _, got = story.consume("c")
    assert numbers(got) == list(range(IN_A_SEGMENT + 2))
    assert story.lost() == 3
    assert f"are missing from {story.files()[-1]}" in caplog.text
    line, text = b"PUB t\n", body(0)
    command = line + len(text).to_bytes(4) + text
    taken = story.node.broker.topic("t").publish_commands(bytearray(command), len(command), line, (10_000, 10_000))
    assert taken == (0, 0), "it has no number for another message"
    story.check_new_ids(got)


@pytest.mark.parametrize("name", ["5.log", "README", "00000000000000000005.log.bak", "x.idx"])
def test_strange_files_beside_segments_are_left_alone(
    name: str, story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """They cost no message, are named in the log, and stay."""
    story.create("c")
    story.publish(20)
    stray = story.files()[0].with_name(name)
    story.restart(lambda: stray.write_bytes(b"not ours"))
    assert f"{stray} is not the broker's and is left alone" in caplog.text
    assert numbers(story.consume("c")[1]) == list(range(20))
    assert story.lost() == 0
    assert stray.read_bytes() == b"not ours"


@pytest.mark.parametrize("number", [3, IN_A_SEGMENT, 20, 5000])
def test_a_copied_segment_loses_nothing(number: int, story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """Files with another segment's contents are skipped and renamed; their name can then be used."""
    story.create("c")
    story.publish(20)
    story.consume("c", 20)
    source, name = story.files()[1], story.files()[1].with_name(f"{number:020d}.log")
    if name.exists():
        return

    def damage() -> None:
        shutil.copy(source, name)
        shutil.copy(source.with_suffix(".idx"), name.with_suffix(".idx"))

    story.restart(damage)
    assert f"{name} " in caplog.text
    assert f"{name.name}.foreign" in caplog.text
    story.publish(20)
    _, got = story.consume("c")
    assert numbers(got) == list(range(40))
    assert story.lost() == 0


def test_the_index_of_another_topic_is_rebuilt(story: Story) -> None:
    """It describes messages with the same numbers, but at other places and times."""
    story.create("c")
    story.publish(5)
    story.node.broker.topic("other").publish([b"1", b"2"])
    story.node.broker.topic("other").publish([b"3"])
    [other] = story.data_path.glob("topics/other.*/*.idx")
    story.restart(lambda: shutil.copy(other, story.files(".idx")[0]))
    assert numbers(story.consume("c")[1]) == list(range(5))
    assert story.lost() == 0


def test_swapped_indexes_lose_nothing(story: Story) -> None:
    """An index of another segment is rebuilt."""
    story.create("c")
    story.publish(20)
    first, second = story.files(".idx")[:2]

    def damage() -> None:
        first.rename(first.with_name("x"))
        second.rename(first)
        first.with_name("x").rename(second)

    story.restart(damage)
    assert numbers(story.consume("c")[1]) == list(range(20))
    assert story.lost() == 0


def test_indexes_of_two_topics_that_changed_places_lose_nothing(
    story: Story, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The batches have the same sizes, so that only the topic's number in an index shows whose it is."""
    story.create("c")
    other = story.node.broker.topic("other")
    other.channel("c")
    for number in range(3):
        story.publish(1)
        other.publish([body(number)])
    [one] = story.files(".idx")
    [two] = story.data_path.glob("topics/other.*/*.idx")

    def damage() -> None:
        aside = one.with_suffix(".x")
        one.rename(aside)
        two.rename(one)
        aside.rename(two)
        repair([str(story.data_path)])

    story.restart(damage)
    assert f"{one.name}: belongs to topic number 1; a start or --rebuild reads" in capsys.readouterr().out
    assert f"{one} belongs to topic number 1 and is rebuilt" in caplog.text
    assert numbers(story.consume("c")[1]) == [0, 1, 2]
    assert story.node.broker.topic("other").channel("c").depth == 3
    assert story.lost() == 0


def test_damage_to_finished_messages_is_no_loss(story: Story) -> None:
    """Of a damaged batch of ten messages, seven were finished: three are lost."""
    story.create("c")
    story.node.broker.topic("t").publish([b"%06d" % number for number in range(10)])
    client, got = story.consume("c", 7)
    story.finish("c", client, got)
    story.restart(lambda: overwrite(story.files()[0], HEADER_BYTES + 36, b"?"))
    assert story.lost() == 3
    assert story.node.broker.topic("t").lost_message_count == 3
    assert story.node.broker.topic("t").channel("c").depth == 0


def test_a_deferred_message_whose_record_is_damaged_comes_once_when_due(story: Story) -> None:
    """Only the commit record has its deferral; the journal has it for each channel that received the message."""
    story.create("a", "b")
    story.publish(2)
    story.publish(1, defer_ms=10_000)
    story.publish(2)
    story.restart(lambda: overwrite(story.files(".idx")[0], 0, bytes(4096)))
    consumers = [story.consume(channel) for channel in ("a", "b")]
    for channel, (client, got) in zip(("a", "b"), consumers, strict=True):
        assert numbers(got) == [0, 1, 3, 4]
        story.finish(channel, client, got)
    story.node.pass_until(story.node.now + 11)
    assert [numbers(got) for _, got in consumers] == [[0, 1, 2, 3, 4]] * 2


@pytest.fixture
def large_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 32 * SEGMENT_BYTES)


FRAME_BYTES = 34 + BODY_BYTES
IN_A_BATCH, BATCHES = 10, 12


def publish_batches(story: Story) -> None:
    for _ in range(BATCHES):
        count = range(story.published, story.published + IN_A_BATCH)
        story.node.broker.topic("t").publish([body(number) for number in count])
        story.published += IN_A_BATCH


def flip(path: Path, at: int, bits: int = 1) -> None:
    overwrite(path, at, bytes([path.read_bytes()[at] ^ bits]))


def test_a_deferred_message_of_a_paused_topic_comes_although_the_index_is_lost(story: Story) -> None:
    """Its delay is lost with the record. The message is not skipped although a consumer was waiting when it was
    published."""
    story.create("c")
    story.consume("c")
    story.node.broker.topic("t").pause()
    story.publish(1, defer_ms=60_000)
    story.consume("c")
    story.restart(lambda: [index.unlink() for index in story.files(".idx")])
    story.node.broker.topic("t").unpause()
    _, got = story.consume("c")
    assert numbers(got) == [0]
    assert story.lost() == 0


@pytest.mark.usefixtures("large_segments")
@pytest.mark.parametrize("field", ["size", "type", "timestamp", "attempts", "node id", "number"])
@pytest.mark.parametrize("message", [0, 34, 40, 119])
def test_without_an_index_damage_to_a_frames_head_loses_that_message(
    message: int, field: str, story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """In the first message, within a batch, and in the first and last of a batch: all others are delivered unchanged.

    Timestamp and node id can be altered unnoticed.
    """
    at = {"size": 3, "type": 7, "timestamp": 12, "attempts": 17, "node id": 18, "number": 33}[field]
    story.create("c")
    publish_batches(story)

    def damage() -> None:
        story.files(".idx")[0].unlink()
        flip(story.files()[0], HEADER_BYTES + message * FRAME_BYTES + at, 4 if field == "size" else 1)

    story.restart(damage)
    _, got = story.consume("c")
    lost = set() if field in ("timestamp", "node id") else {message}
    assert set(numbers(got)) == set(range(story.published)) - lost
    assert {each.body for each in got} <= {body(number) for number in range(story.published)}
    assert story.lost() == len(lost)
    if lost:
        assert f"1 message is lost: numbers {message} to {message} are damaged in {story.files()[0]}" in caplog.text
    assert "rebuilt from messages that could not be checked" in caplog.text
    story.check_new_ids(got[:])
    story.restart(lambda: None)
    assert story.lost() == 0, "it is counted once, and not at each start"


@pytest.mark.usefixtures("large_segments")
@pytest.mark.parametrize("page", [0, 3, 12])
def test_without_an_index_a_zeroed_page_loses_the_messages_in_it(page: int, story: Story) -> None:
    """Complete messages before and after it are delivered, and their numbers are not reused."""
    story.create("c")
    publish_batches(story)

    def damage() -> None:
        story.files(".idx")[0].unlink()
        overwrite(story.files()[0], page * 4096, bytes(4096))

    story.restart(damage)
    _, got = story.consume("c")
    start, end = max(0, page * 4096 - HEADER_BYTES), (page + 1) * 4096 - HEADER_BYTES
    hit = range(start // FRAME_BYTES, (end - 1) // FRAME_BYTES + 1)
    assert set(numbers(got)) == set(range(story.published)) - set(hit)
    assert story.lost() == len(hit)
    story.check_new_ids(got)


@pytest.mark.usefixtures("large_segments")
def test_without_indexes_each_topic_loses_only_its_damaged_messages(story: Story) -> None:
    """The logs of two topics have the same numbers."""
    publish_batches(story)
    story.create("c")
    for _ in range(BATCHES):
        story.node.broker.topic("other").publish([body(number) for number in range(IN_A_BATCH)])
    story.node.broker.topic("other").channel("c")
    [other] = story.data_path.glob("topics/other.*/*.log")

    def damage() -> None:
        for log, message in ((story.files()[0], 15), (other, 0)):
            log.with_suffix(".idx").unlink()
            flip(log, HEADER_BYTES + message * FRAME_BYTES)

    story.restart(damage)
    assert numbers(story.consume("c")[1]) == [number for number in range(story.published) if number != 15]
    got: list[Delivery] = []
    story.node.subscribe("other", "c", 1000, got.append)
    story.node.pass_until(story.node.now)
    assert len(got) == BATCHES * IN_A_BATCH - 1
    assert [story.node.broker.topic(name).lost_message_count for name in ("t", "other")] == [1, 1]


@pytest.mark.usefixtures("large_segments")
@pytest.mark.parametrize("records", [1, 2, 4])
def test_damage_to_records_and_to_a_frame_of_them_loses_one_batch_at_most(records: int, story: Story) -> None:
    """Records in the middle of an index, and a size in the first of their batches."""
    story.create("c")
    publish_batches(story)

    def damage() -> None:
        for record in range(4, 4 + records):
            flip(story.files(".idx")[0], HEADER_BYTES + record * RECORD_BYTES + 5)
        flip(story.files()[0], HEADER_BYTES + 34 * FRAME_BYTES)

    story.restart(damage)
    _, got = story.consume("c")
    assert set(range(story.published)) - set(numbers(got)) <= set(range(30, 40))
    assert story.lost() == story.published - len(got) > 0


@pytest.mark.usefixtures("large_segments")
def test_numbers_that_a_rebuilt_index_lacks_are_missing_from_a_file_that_exists(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """The last pages of the log are zeroed too; no nonexistent file is named."""
    story.create("c")
    publish_batches(story)
    story.consume("c")

    def damage() -> None:
        story.files(".idx")[0].unlink()
        with story.files()[0].open("r+b") as file:
            file.truncate(HEADER_BYTES + 100 * FRAME_BYTES)

    story.restart(damage)
    assert story.lost() == 20
    assert f"20 messages are lost: numbers 100 to 119 are missing from {story.files()[0]}" in caplog.text


def test_ids_are_not_reused_after_a_rewind_and_the_loss_of_all_files(story: Story) -> None:
    """The channel begins again at the first message, but the journal still has the number of messages."""
    story.create("c")
    story.publish(5)
    client, got = story.consume("c")
    story.finish("c", client, got)
    client.ready_count = 0
    story.node.broker.topic("t").channel("c").rewind(0)
    story.restart(lambda: shutil.rmtree(story.data_path / "topics"))
    story.check_new_ids(got)
