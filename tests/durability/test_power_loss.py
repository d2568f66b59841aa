"""A power loss loses only messages that were not synced.

A broker in a process of its own takes publishes and records its syncs; then it is killed. From the record, data paths
are built as a power loss at any time may have left them (:mod:`tests.durability.power_loss`), and brokers are started
over them. ``POWER_LOSSES`` is the number of data paths for each setting, ``POWER_LOSS_SEED`` the seed. With
``POWER_LOSS_RAISE``, the first failure ends the test, with its traceback.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

import brokerd.broker as broker_module
import brokerd.journal.journal as journal_module
import brokerd.log.log as log_module
from nsqwire import encoding
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.power_loss import Record
from tests.failures import tally
from tests.harness import header_commands
from tests.harness.daemon import Daemon
from tests.harness.v2 import V2Client
from tests.harness.waiting import DEADLINE_S, wait_until

CASES = int(os.environ.get("POWER_LOSSES", "80"))
SEED = int(os.environ.get("POWER_LOSS_SEED") or secrets.randbelow(10**9))
AFTER = "after"
"""The channel that reads a topic whose channels were lost."""

pytestmark = pytest.mark.timeout(180 + 2 * CASES)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 16384)
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 32768)
    monkeypatch.setattr(broker_module, "boot_id", lambda: "the machine was restarted")


class Story:
    """A recording broker, the published messages, and the times of their acknowledgements."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.data_path, self._record = folder / "data", folder / "record"
        self.data_path.mkdir()
        files = [f"--record={self._record}", f"--data-path={self.data_path}"]
        self.broker = Daemon("tests.durability.recording_broker", *files, *flags).launch()
        self.published: dict[str, set[bytes]] = defaultdict(set)
        self.blocks: dict[bytes, bytes] = {}
        """The header blocks of the messages that have headers, by body."""
        self.acknowledged: list[tuple[int, str, bytes]] = []
        self.finished: dict[str, set[bytes]] = defaultdict(set)

    def publish(self, topic: str, chance: Random, count: int) -> None:
        """Publish ``count`` times, with each command, and consume some of the messages on channel ``c`` of the
        topic."""
        peer, consumer = V2Client(self.broker.tcp), V2Client(self.broker.tcp)
        peer.command(encoding.identify({"feature_negotiation": True, "headers": True}))
        consumer.sub(topic, "c")
        ready = waiting = 0
        for number in range(count):
            bodies = [
                b"%b %d %d " % (topic.encode(), number, at) + chance.randbytes(chance.choice([1, 60, 700, 9000]))
                for at in range(chance.choice([1, 1, 1, 4]))
            ]
            self.published[topic].update(bodies)
            blocks = [encode_headers({"n": str(number), "x": "h" * chance.choice([1, 3000])})] * len(bodies)
            has_headers, is_deferred = chance.random() < 0.5, len(bodies) == 1 and chance.random() < 0.1
            if has_headers:
                self.blocks.update(zip(bodies, blocks, strict=True))
                if len(bodies) > 1:
                    peer.ok(header_commands.hmpub(topic, list(zip(blocks, bodies, strict=True))))
                elif is_deferred:
                    peer.ok(header_commands.hdpub(topic, 5000, blocks[0], bodies[0]))
                else:
                    peer.ok(header_commands.hpub(topic, blocks[0], bodies[0]))
            elif len(bodies) > 1:
                peer.mpub(topic, bodies)
            elif is_deferred:
                peer.dpub(topic, 5000, bodies[0])
            else:
                peer.pub(topic, bodies[0])
            waiting += len(bodies) == 1 and not is_deferred
            now = time.monotonic_ns()
            self.acknowledged += [(now, topic, body) for body in bodies]
            if waiting and chance.random() < 0.2:
                ready, waiting = ready + 1, waiting - 1
                consumer.send(b"RDY %d\n" % ready)
                message_id, _, body = consumer.message()
                if chance.random() < 0.8:
                    ready -= 1
                    consumer.send(b"RDY %d\n" % ready)
                    self.finished[topic].add(body)
                    consumer.finish(message_id)

    def publish_at_once(self, topics: int, count: int, seed: int) -> None:
        """Publish to several topics, each from a connection and a thread of its own."""
        threads = [
            threading.Thread(target=self.publish, args=(f"t{number}", Random(seed + number), count))
            for number in range(topics)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)

    def record(self) -> Record:
        """The record so far."""
        return Record.read(self._record, self.data_path)

    def kill(self) -> Record:
        """End the broker by SIGKILL and return the record."""
        self.broker.end(signal.SIGKILL)
        self.broker.close()
        return self.record()


def drain(node: Node, topic: str, channel: str) -> dict[bytes, bytes]:
    """The bodies of all messages of a channel, each once, with their header blocks."""
    got: list[Delivery] = []
    target = node.broker.topic(topic).channel(channel)
    client = node.subscribe(topic, channel, 100_000, got.append, takes_headers=True)
    for wait_s in (0, 10):
        node.pass_until(node.now + wait_s)
    target.unsubscribe(client)
    bodies = {each.body: each.header_block for each in got}
    assert len(bodies) == len(got), f"{topic}/{channel}: a message came twice"
    return bodies


def check(folder: Path, story: Story, owed: dict[str, set[bytes]]) -> None:
    """A broker starts on ``folder``, delivers all durable messages and none that was not published, and goes on."""
    node = Node(folder)
    for name in [*owed, *(name for name in node.broker.topics if name not in owed)]:
        topic = node.broker.topic(name)
        for channel in list(topic.channels) or [AFTER]:
            got = drain(node, name, channel)
            altered = got.keys() - story.published[name]
            if altered:
                raise AssertionError(f"{name}: {[body[:20] for body in altered]} were not published")
            if missing := owed.get(name, set()) - got.keys():
                raise Lost(f"{name}: {sorted(body[:8] for body in missing)} of {len(owed[name])} are missing")
            for body, block in got.items():
                wanted = story.blocks.get(body, b"")
                is_right = block == wanted or (not block and body not in owed.get(name, ()))
                if not is_right:
                    raise AssertionError(f"{name}: {body[:20]!r} has headers {block[:20]!r}, not {wanted[:20]!r}")
        topic.publish([b"new"])
        for channel in topic.channels:
            assert b"new" in drain(node, name, channel)
    node.broker.close()


def synced_ns(record: Record, instant: int) -> int:
    """The start of the last complete round of syncs at an instant; everything written before it is durable."""
    return max((each.began_ns for each in record.rounds if each.ended_ns < record.ends_ns(instant)), default=0)


class Lost(AssertionError):
    """A message that was durable is missing."""


def lose_power(story: Story, record: Record, tmp_path: Path, fault: str, *, acknowledges: bool) -> None:
    """Check data paths of instants all over the record: with all, some, and none of the data that was not synced."""
    failures, lost = [], 0
    for case in range(CASES):
        chance = Random(SEED + case)
        instant = chance.randint(0, len(record.syncs))
        folder = tmp_path / f"lost{case}"
        record.build(instant, folder, chance if case % 3 else None)
        until = record.ends_ns(instant) if acknowledges else synced_ns(record, instant)
        owed: dict[str, set[bytes]] = defaultdict(set)
        for at, topic, body in story.acknowledged:
            if at < until and body not in story.finished[topic]:
                owed[topic].add(body)
        try:
            check(folder, story, owed)
        except Exception as error:  # whatever it is, it is reported with the seed
            lost += isinstance(error, Lost)
            failures.append(f"POWER_LOSS_SEED={SEED + case}, instant {instant} of {len(record.syncs)}: {error!r}")
            if os.environ.get("POWER_LOSS_RAISE"):
                raise
        shutil.rmtree(folder, ignore_errors=True)  # a thread may still remove directories of deleted topics in it
    tally.record(f"power loss, {fault}", tries=CASES, lost=lost, unexpected=len(failures) - lost, seed=SEED)
    assert not failures, "\n".join([f"{len(failures)} of {CASES}", *failures[:20]])


def test_with_sync_every_1_no_acknowledged_message_is_lost(tmp_path: Path) -> None:
    """Whenever the power fails, and whatever else is on the disk."""
    story = Story(tmp_path, "--sync-every=1", "--sync-timeout=100ms")
    story.publish_at_once(3, 60, SEED)
    record = story.kill()
    lose_power(story, record, tmp_path, "--sync-every=1", acknowledges=True)


@pytest.mark.parametrize("every", [7, 2500])
def test_with_another_value_messages_before_the_last_sync_are_kept(every: int, tmp_path: Path) -> None:
    """Later messages may be lost. The broker starts, and delivers only published messages."""
    story = Story(tmp_path, f"--sync-every={every}", "--sync-timeout=50ms")
    story.publish_at_once(3, 100, SEED)
    record = story.kill()
    lose_power(story, record, tmp_path, f"--sync-every={every}", acknowledges=False)


def test_everything_is_synced_within_the_timeout(tmp_path: Path) -> None:
    """Without another publish: the messages, and the FINs that came after the last of them."""
    story = Story(tmp_path, "--sync-every=100000", "--sync-timeout=20ms")
    story.publish_at_once(1, 20, SEED)
    consumer = V2Client(story.broker.tcp)
    consumer.sub("last", "c", 10)
    V2Client(story.broker.tcp).pub("last", b"finished")
    folders = (tmp_path / f"lost{number}" for number in itertools.count())

    def left_after_a_loss_of_power() -> set[bytes]:
        record, folder = story.record(), next(folders)
        record.build(len(record.syncs), folder, None)
        node = Node(folder)
        try:
            return set(drain(node, "last", "c"))
        finally:
            node.broker.close()

    wait_until(lambda: left_after_a_loss_of_power() == {b"finished"}, "the message is synced")
    message_id, _, _ = consumer.message()
    consumer.finish(message_id)
    wait_until(lambda: left_after_a_loss_of_power() == set(), "the FIN is synced")
    record = story.kill()
    record.build(len(record.syncs), tmp_path / "lost", None)
    node = Node(tmp_path / "lost")
    got = drain(node, "t0", "c")
    assert story.published["t0"] - story.finished["t0"] == got.keys()
    assert got == {body: story.blocks.get(body, b"") for body in got}
    node.broker.close()
