"""A follower joins with real files and threads, is dropped and killed at any moment, and ends with the same bytes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from brokerd.mirror.leader import FRAME_BYTES
from tests.brokerd.clockwork import Node
from tests.harness.waiting import wait_until
from tests.mirror.joins import Calls, Member, Primary, Story, small_journals

SEEDS = (1, 2, 3, 4)


def test_checkpoints_are_never_damaged_and_files_end_equal(tmp_path: Path) -> None:
    """``python -m tests.mirror.joins`` tells more stories."""
    counts = Counter[str]()
    for seed in SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        with small_journals():
            story = Story(seed, directory)
            story.tell()
        counts.update(story.counts)
    assert all(counts[end] for end in ("completed", "dropped", "killed", "killed at a call", "takeovers")), counts


def test_a_follower_that_takes_over_drops_what_came_without_commit_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The primary is lost within a large group: no message is cut, and nothing is said to be damaged."""
    chance = random.Random(1)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    primary, member = Primary(tmp_path / "a", "a", 1, chance), Member(tmp_path / "b", "b", Calls())
    topic = primary.broker.topic("t")
    topic.channel("c")
    topic.publish([b"acknowledged"] * 3)
    primary.end_turn(sweep=True)
    member.connect(1)
    primary.connected()
    follower = member.follower
    assert follower is not None

    def deliver() -> None:
        member.go_on()
        primary.go_on()
        primary.end_turn(sweep=True)
        primary.received(follower.take_output())
        data = bytes(primary.sent)
        primary.sent.clear()
        member.received(data)

    def is_in_sync() -> bool:
        deliver()
        leader = primary.leader
        return len(leader.record.in_sync) == 2 and leader.acknowledged == leader.group and not primary.sent

    wait_until(is_in_sync, "the follower is in sync")
    bodies = [b"%d" % number * 50_000 for number in range(10)] * 3
    for body in bodies:
        topic.publish([body])
    primary.end_turn(sweep=False)
    member.received(bytes(primary.sent[: 3 * FRAME_BYTES]))
    member.campaign()
    member.end()
    primary.end()
    node = Node(tmp_path / "b")
    received = node.consumer("t", "c", 2000)
    node.pass_until(node.now + 1)
    node.kill()
    messages = [body for _, _, body in received]
    assert messages[:3] == [b"acknowledged"] * 3
    assert messages[3:] == bodies[: len(messages) - 3]
    assert not [record for record in caplog.records if "damaged" in record.getMessage()]


def test_a_story_of_joins_can_go_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checkpoints that are prepared as other files are, one is damaged as long as the copy is under way."""
    monkeypatch.setattr("brokerd.replica.is_replaced", lambda path: False)
    with small_journals(), pytest.raises(AssertionError, match="its checksum does not match"):
        Story(1, tmp_path).tell()
