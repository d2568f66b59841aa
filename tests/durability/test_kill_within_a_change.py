"""kill -9 between two journal records of one change: afterwards each message exists once, and is delivered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from brokerd.journal.journal import Journal
from brokerd.topic import Topic
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.fuse import FUSE, Killed, fused_journal_put

DELAY_S = 1.0
every_record = pytest.mark.parametrize("records", range(6))
"""How many records the change still writes before the kill; the largest numbers let it complete."""


@pytest.fixture(autouse=True)
def fuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Journal, "_put", fused_journal_put(Journal._put))
    yield
    FUSE.put_out()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def killed_within(node: Node, records: int, change: Callable[[], object]) -> Topic:
    """Kill the broker within ``change``. Returns topic ``t`` after the restart."""
    FUSE.writes, FUSE.how = records + 1, "before"
    with suppress(Killed):
        change()
    FUSE.put_out()
    node.kill()
    node.open()
    return node.broker.topics["t"]


@every_record
def test_a_deferred_message_that_waits_in_its_topic_reaches_the_next_channel(node: Node, records: int) -> None:
    """It was being routed to an ephemeral channel, which is gone after the kill."""
    topic = node.broker.topic("t")
    topic.publish([b"later"], defer_ms=int(DELAY_S * 1000))
    topic = killed_within(node, records, lambda: topic.channel("c#ephemeral"))
    waiting = topic.depth
    assert waiting or records, "nothing was routed before the first record"
    got = node.consumer("t", "a")
    node.pass_until(node.now + 2 * DELAY_S)
    assert len(got) == waiting


@every_record
def test_a_kill_while_a_topic_is_unpaused_counts_a_deferred_message_once(node: Node, records: int) -> None:
    """It is either in the topic or in the channel, and is delivered once."""
    topic = node.broker.topic("t")
    topic.channel("a")
    topic.pause()
    topic.publish([b"later"], defer_ms=int(DELAY_S * 1000))
    topic = killed_within(node, records, topic.unpause)
    assert topic.depth + topic.channels["a"].deferred_count == 1
    topic.unpause()
    got = node.consumer("t", "a")
    node.pass_until(node.now + 2 * DELAY_S)
    assert [body for _, _, body in got] == [b"later"]


def test_a_kill_while_a_run_of_publishes_is_written_loses_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a run that was written in part, no message counts as published, and none as lost."""
    line, bodies = b"PUB t\n", [b"%d" % number * 200 for number in range(60)]
    run = bytearray(b"".join(line + len(body).to_bytes(4) + body for body in bodies))
    topic = node.broker.topic("t")
    topic.publish([b"first"])
    written = os.pwrite

    def killed(file: int, data: memoryview, offset: int) -> int:
        written(file, data[: len(run) // 2], offset)
        raise Killed

    publish = partial(topic.publish_commands, run, len(run), line, (1 << 20, 1 << 20))
    monkeypatch.setattr(os, "pwrite", killed)
    with pytest.raises(Killed):
        publish()
    monkeypatch.undo()
    node.kill()
    node.open()
    assert "lost" not in caplog.text
    topic = node.broker.topics["t"]
    assert topic.depth == 1
    assert topic.publish_commands(run, len(run), line, (1 << 20, 1 << 20)) == (60, 60)
    got = node.consumer("t", "a")
    node.pass_until(node.now + DELAY_S)
    assert [body for _, _, body in got] == [b"first", *bodies]


def test_a_damaged_checkpoint_redelivers_no_finished_deferred_message(node: Node, tmp_path: Path) -> None:
    """A kill came before its routing was recorded, so the next start routed it again."""
    topic = node.broker.topic("t")
    topic.channel("a")
    topic = killed_within(node, 0, lambda: topic.publish([b"later"], defer_ms=int(DELAY_S * 1000)))
    got: list[Delivery] = []
    client = node.subscribe("t", "a", 1, got.append)
    node.pass_until(node.now + 2 * DELAY_S)
    assert not topic.channels["a"].finish(client, memoryview(b"FIN %b\n" % got[0].message_id), 1, 0)
    node.kill()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"x" + checkpoint.read_bytes()[1:])
    node.open()
    again = node.consumer("t", "a")
    node.pass_until(node.now + 2 * DELAY_S)
    assert not again
