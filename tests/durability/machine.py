"""The state of a story in which a broker is compared with a model, and what each of its steps does.

The steps are in tests/durability/test_model.py.
"""

from __future__ import annotations

import errno
import itertools
import os
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from brokerd.channel import Channel
from brokerd.client import Client
from brokerd.forwarding import RETRY_S
from brokerd.journal.recovery import recover
from brokerd.log.headers import HeaderFile
from brokerd.peek import PAGE, PeekState, peek
from brokerd.scheduler import SLICE_SECONDS
from brokerd.syncer import Done
from brokerd.topic import Topic
from nsqwire.errors import Drained, PublishFailed, TopicFull, WouldBeDropped
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.fuse import FUSE, Killed
from tests.durability.model import (
    DUE_TOLERANCE_S,
    ChannelModel,
    Expected,
    Status,
    TopicModel,
    check_killed,
)
from tests.harness.policies import policy_for


class Disk:
    """A disk that may be full, in a process that may have used up its descriptors."""

    is_full = False
    has_descriptors = True

    def unless_full(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*args, **kwargs)

        return guarded

    def unless_out_of_descriptors_or_open(self, open_: Callable[[HeaderFile], int]) -> Callable[[HeaderFile], int]:
        def guarded(file: HeaderFile) -> int:
            if not self.has_descriptors and file.path is not None and file._fd < 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return open_(file)

        return guarded

    def unless_out_of_descriptors(self, map_: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if not self.has_descriptors:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return map_(*args, **kwargs)

        return guarded


DISK = Disk()
CHANNELS = ["a", "b", "c#ephemeral"]
DEAD_TOPIC = "dead"
WALL_S = 1_800_000_000.0
"""Unix time when a story begins: rounding must not depend on the time of day."""
DELAYS_S = [0.05, 1.0, 5.0, 100.0]


@dataclass
class Consumer:
    channel: str
    client: Client


LEFT_OUT_NUMBERS = (0, 0, 1000)
"""How many numbers each start leaves out, as a takeover does."""


class Machine(RuleBasedStateMachine):
    """One topic with its channels. Each step changes the model first, then the broker; then they are compared."""

    def __init__(self, directory: Callable[[], Path], clock: list[Node]) -> None:
        super().__init__()
        self._directory = directory
        self._clock = clock
        self._numbers = itertools.count()
        self.model = TopicModel()
        self.published: set[bytes] = set()
        self.blocks: dict[bytes, bytes] = {}
        """The header blocks of the messages that were published with headers, by body."""
        self.may_lack_headers = False
        """True once a file with headers was damaged."""
        self.may_redeliver = False
        """True once a file with commit records was damaged. They say which messages were deferred publishes: one of
        these that left a channel whose cursor is below it may be redelivered after the next checkpoint and start."""
        self.deferred: set[bytes] = set()
        self.emptied: set[bytes] = set()
        self.removed: set[tuple[str, bytes]] = set()
        """The channels and messages that an operator or a publisher has removed, or that are in the dead topic."""
        self.consumers: list[Consumer] = []
        self.deliveries: list[Delivery] = []
        self.background: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.written: list[Callable[[], None]] = []
        self.unstored: list[tuple[int, Done]] = []
        """What to call once the dead topic's messages below a number are on the disk."""
        self.moved: Counter[bytes] = Counter()
        """How often each message has left a channel for the dead topic, and how often it is there from before the last
        start."""
        self.copies: list[tuple[int, bytes]] = []
        """The messages of the dead topic, with their numbers."""
        self.read_end = 0
        """The dead topic's messages below this number are in ``copies``."""
        self.stored_end = 0
        """The dead topic's messages below this number are on the disk."""
        self.moves_from = 0.0
        """When dead messages are moved at the latest, because nothing was in the way a second before."""
        self.topics_made = 0
        self.was_full = self.was_damaged = False
        self.may_count_left_out = False
        """True once numbers were left out on a full disk: without a record of them, damage counts them as lost."""
        self.awaited: list[Topic] = []
        """Topics whose channels lookup is asked for."""
        self.is_drained = False
        self.seen: dict[str, tuple[float, range]] = {}
        """Until when each publish with a deduplication id is remembered, and its numbers."""
        self.knows_seen = True
        """False once the broker may remember others than those in ``seen``: a file was damaged, or the topic deleted,
        or a kill came within a publish that was stored, and finished by all channels."""

    @initialize(
        in_background=st.booleans(),
        retains=st.booleans(),
        reads_in_a_slice=st.sampled_from([3, 1000]),
        max_attempts=st.sampled_from([0, 1, 2, 3]),
        retry_delay=st.sampled_from(["", "", "2s..3s"]),
        msg_ttl_s=st.sampled_from([None, None, 0.0, 1.517, 40.017]),
        stores_later=st.booleans(),
        left_out_numbers=st.sampled_from(LEFT_OUT_NUMBERS),
    )
    def start(
        self,
        in_background: bool,
        retains: bool,
        reads_in_a_slice: int,
        max_attempts: int,
        retry_delay: str,
        msg_ttl_s: float | None,
        stores_later: bool,
        left_out_numbers: int,
    ) -> None:
        """With ``msg_ttl_s`` None, messages never expire in this story, and the wall clock is stepped. With
        ``stores_later``, a thread writes to the disk what was published to the dead topic. With ``left_out_numbers``,
        each start is a takeover."""
        FUSE.put_out()
        DISK.is_full, DISK.has_descriptors = False, True
        self.in_background, self.stores_later = in_background, stores_later
        self.reads_in_a_slice, self.left_out_numbers = reads_in_a_slice, left_out_numbers
        retention = timedelta(days=1000 if retains else 0)
        self.path = self._directory()
        self._clock.clear()
        self.node = Node(
            self.path,
            wall=WALL_S,
            mem_queue_size=1_000_000,
            retention=retention,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            msg_ttl=timedelta(seconds=msg_ttl_s or 0),
        )
        self.has_ttl = msg_ttl_s is not None
        ChannelModel.published_at.clear()
        ChannelModel.policy = self.node.broker.runtime.policies.default
        self.may_rewind = True
        self._clock[:] = [self.node]
        self.topic = self.node.broker.topic("t")
        self._opened()

    def teardown(self) -> None:
        FUSE.put_out()
        DISK.is_full, DISK.has_descriptors = False, True
        if hasattr(self, "node"):
            self.node.kill()

    def _open(self) -> None:
        FUSE.put_out()
        warnings = recover(self.path).warnings
        assert not warnings, "a kill leaves no journal that recovery warns about"
        self.may_count_left_out = self.may_count_left_out or bool(self.left_out_numbers and DISK.is_full)
        self.node.open(self.left_out_numbers)
        self._opened()

    def _opened(self) -> None:
        ChannelModel.policy = policy_for(self.node.broker.runtime.policies, "t", "a")
        self.consumers.clear()
        self.deliveries.clear()
        self.background.clear()
        self.written.clear()
        self.unstored.clear()
        self.copies.clear()
        self.read_end = 0
        self.node.wall += 1e-6  # a start takes time: no later publish has the timestamp of one that a kill prevented
        self.topic = self.node.broker.topic("t")
        self.awaited.clear()
        self.is_drained = False
        DISK.has_descriptors = True
        reads = itertools.count(0.0, SLICE_SECONDS / self.reads_in_a_slice)  # not how fast the machine is
        self.node.broker.runtime.scheduler.clock = lambda: next(reads)
        if self.stores_later:
            self.node.broker.runtime.when_stored = lambda done: self.unstored.append((self.dead_topic_end, done))
        if self.in_background:
            self.node.broker.storage.checkpoint_in_background(lambda work, done: self.background.append((work, done)))

    def accept(self, found: TopicModel, expected: TopicModel | None = None, *, may_lose_topics: bool = False) -> None:
        """Go on with what the broker has after a start. The dead topic has all that left its channel.

        What was moved without descriptors, when nothing was compared, is no longer ``expected``.
        """
        self.model = found
        copies = self.read_dead_topic()
        lost, unseen = self.moved - copies, copies - self.moved
        assert not lost or may_lose_topics, f"the dead topic lost {sorted(lost)[:3]}"
        for name, channel in expected.channels.items() if expected is not None else ():
            there = found.channels[name].messages if name in found.channels else {}
            for body in channel.messages.keys() - there.keys():
                if channel.messages[body].status is Status.DEAD and unseen[body]:
                    del channel.messages[body]
                    self.removed.add((name, body))
                    unseen[body] -= 1
        self.moved, self.stored_end = copies, self.read_end

    # -- one step -------------------------------------------------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """The block changes the model and then the broker, which may be killed anywhere within it."""
        before, before_published = self.model.copy(), set(self.published)
        try:
            yield
            self.settle()
        except Killed:
            sent = {(self.channel_of(each.client), each.body): each.attempts for each in self.deliveries}
            is_complete = self.is_exact
            self.node.kill()
            self._open()
            found, now = self.found(), self.node.now
            before, after = before.restarted(now), self.model.restarted(now)
            published = self.published - before_published
            if is_complete:
                moved = self.read_dead_topic() - self.moved
                check_killed(found, before, after, published=published, sent=sent, moved=moved, now=now)
            self.accept(found)
            self.settle()

    @contextmanager
    def refusable(self) -> Iterator[None]:
        """A step that may be refused without any change: journal and disk are full, or no file can be opened."""
        before, published, consumers = self.model.copy(), set(self.published), list(self.consumers)
        self.topic_was_full = self.is_publish = False
        with self.step():
            try:
                yield
                assert not self.topic_was_full, "accepted above the bound"
                assert not (self.is_publish and self.is_drained), "accepted while the node is drained"
            except Drained:
                assert self.is_publish, "refused without a reason"
                assert self.is_drained, "refused without a reason"
                self._refused(before, published, consumers)
            except TopicFull:
                assert self.topic_was_full or not DISK.has_descriptors, "refused without a reason"
                self._refused(before, published, consumers)
            except WouldBeDropped:
                assert ChannelModel.policy.limits_waiting, "refused without a reason"
                self._refused(before, published, consumers)
            except (PublishFailed, OSError) as error:
                if not DISK.is_full and DISK.has_descriptors and "no checkpoint was written" not in str(error):
                    raise AssertionError("refused without a reason") from error
                self._refused(before, published, consumers)

    def _refused(self, model: TopicModel, published: set[bytes], consumers: list[Consumer]) -> None:
        self.model, self.published, self.consumers = model, published, consumers
        ChannelModel.policy = policy_for(self.node.broker.runtime.policies, "t", "a")

    def settle(self) -> None:
        """Let the broker do everything that is due now, and compare."""
        self.pass_until(self.node.now)

    def pass_until(self, when: float) -> None:
        self.node.pass_until(when)
        for each in self.deliveries:
            self.model.pass_time(each.at)
            channel = self.model.channels[self.channel_of(each.client)]
            channel.deliver(each.body, each.attempts, each.client.number, each.message_id, each.at)
            if each.client.takes_headers:
                self.check_headers(each.body, each.header_block)
        self.deliveries.clear()
        self.model.pass_time(when)
        for each in self.model.channels.values():
            each.drop_excess()
        self.compare()

    def compare(self) -> None:
        """The counters equal the model's, and no consumer waits for a ready message."""
        is_refused = DISK.is_full or self.is_drained or not DISK.has_descriptors
        if is_refused or not self.node.journal_is_complete:
            self.moves_from = self.node.now + RETRY_S + DUE_TOLERANCE_S
        if not DISK.has_descriptors:
            return
        self.compare_dead_topic()
        assert self.topic.depth == len(self.model.waiting)
        assert self.topic.channels.keys() == self.model.channels.keys()
        for name, expected in self.model.channels.items():
            channel = self.topic.channels[name]
            counts = (channel.depth, channel.in_flight_count, channel.deferred_count)
            wanted = tuple(map(expected.count, (Status.QUEUED, Status.IN_FLIGHT, Status.DEFERRED)))
            assert counts == wanted, f"depth, in flight, deferred of {name}: {counts}, not {wanted}"
            assert len(channel.dead) == expected.count(Status.DEAD), f"dead of {name}"
            assert channel.message_count <= len(self.published), f"messages of {name}"
            age = channel.oldest_unfinished_age_ns(self.node.wall_ns())
            assert (age is not None) == bool(wanted[0] or wanted[1])
        for consumer in self.consumers:
            client, channel = consumer.client, self.topic.channels[consumer.channel]
            in_flight = self.model.channels[consumer.channel].in_flight_to(client.number)
            assert client.in_flight_count == len(in_flight)
            assert client.free <= 0 or not channel.depth or channel.paused, f"a consumer of {channel.name} waits"

    def compare_dead_topic(self) -> None:
        """Dead messages leave their channel only for the dead topic, and do so unless something is in the way."""
        copies = self.read_dead_topic()
        dead = Counter[bytes]()
        for name, expected in self.model.channels.items():
            channel = self.topic.channels[name]
            bodies = {body for body, message in expected.messages.items() if message.status is Status.DEAD}
            if len(channel.dead) < len(bodies):
                frames = map(channel.frame_of, (message.seq for message in channel.dead))
                for body in bodies - {bytes(frame[34:]) for frame in frames if frame is not None}:
                    del expected.messages[body]
                    self.removed.add((name, body))
                    self.moved[body] += 1
            dead.update(body for body in bodies if body in expected.messages)
        stored = Counter(body for seq, body in self.copies if seq < self.stored_end or not self.stores_later)
        lost = self.moved - stored
        assert not lost, f"left their channel, and are not on the disk in the dead topic: {sorted(lost)[:3]}"
        twice = copies - self.moved
        assert not twice or self.stores_later or self.was_full, f"moved more than once: {sorted(twice)[:3]}"
        if ChannelModel.policy.dead_topic and not self.unstored and self.node.now >= self.moves_from:
            assert not dead, f"not moved to the dead topic: {sorted(dead)[:3]}"

    def read_dead_topic(self) -> Counter[bytes]:
        """How often each message is in the dead topic. They have the headers of the originals."""
        topic = self.node.broker.topics.get(DEAD_TOPIC)
        if topic is not None:
            for first, count in topic.messages.holes.outside(self.read_end, self.dead_topic_end):
                for seq in range(first, first + count):
                    frame = topic.log.frame(seq)
                    assert frame is not None, "what the dead topic has can be read"
                    self.copies.append((seq, bytes(frame[34:])))
                    self.check_headers(bytes(frame[34:]), topic.messages.header_block_of(frame))
        self.read_end = self.dead_topic_end
        return Counter(body for _, body in self.copies)

    @property
    def dead_topic_end(self) -> int:
        topic = self.node.broker.topics.get(DEAD_TOPIC)
        return 0 if topic is None else topic.log.next_seq

    def check_headers(self, body: bytes, block: bytes) -> None:
        """A message has the headers that it was published with, and none of another message, whatever was damaged."""
        expected = self.blocks.get(body, b"")
        lost = self.may_lack_headers and not block
        assert block == expected or lost, f"{body[:20]!r} has headers {block!r}, not {expected!r}"

    def channel_of(self, client: Client) -> str:
        return next(each.channel for each in self.consumers if each.client is client)

    # -- what the broker holds ------------------------------------------------------------------------------------

    def found(self) -> TopicModel:
        """The model that the broker now agrees with; nothing is in flight."""
        topic = self.topic
        start, end = topic.messages.routed_end, topic.log.next_seq
        deferral = {
            seq: commit.defer_ms / 1000
            for commit in topic.log.deferred_from(start)
            for seq in range(commit.first_seq, commit.next_seq)
        }
        frames = ((seq, topic.log.frame(seq)) for seq in range(start, end))
        waits = topic.messages.waits
        waiting = {
            bytes(frame[34:]): deferral.get(seq, 0.0) for seq, frame in frames if frame is not None and waits(seq)
        }
        channels = {name: self._found_channel(channel) for name, channel in topic.channels.items()}
        return TopicModel(waiting, channels, topic.paused)

    def _found_channel(self, channel: Channel) -> ChannelModel:
        assert not channel.in_flight_count
        found = ChannelModel(paused=channel.paused, now=self.node.now)
        failed = {seq: failures for seq, (failures, _) in channel.in_flight.failed.items()}
        states = {
            PeekState.READY: Status.QUEUED,
            PeekState.DEFERRED: Status.DEFERRED,
            PeekState.DEAD: Status.DEAD,
        }
        for state, status in states.items():
            for offset in itertools.count(0, PAGE):
                page = peek(channel, state, offset=offset, limit=PAGE, max_body_bytes=10_000)
                for message in page["messages"]:
                    when, seq = 0.0, int(message["id"][6:], 16)
                    if message["due"]:
                        when = channel.in_flight.aside.get(seq).when  # figures are rounded
                        shown = self.node.now + (message["due"] - self.node.wall_ns()) / 1e9
                        assert abs(shown - when) < DUE_TOLERANCE_S
                    body = b64decode(message["body"])
                    assert body not in found.messages, f"{body[:20]!r} is there twice"
                    self.check_headers(body, encode_headers(message["headers"]) if "headers" in message else b"")
                    failures = message["death"]["failures"] if "death" in message else failed.pop(seq, 0)
                    reason = message["death"]["reason"] if "death" in message else ""
                    found.messages[body] = Expected(status, message["attempts"], when, failures=failures, reason=reason)
                if offset + PAGE >= page["total"]:
                    break
        assert not failed, f"{channel.name} has failures of messages that it does not have"
        return found

    @property
    def is_exact(self) -> bool:
        """True if a restart finds just what the model has."""
        return self.node.journal_is_complete and self.removes_in_time and not self.may_redeliver

    @property
    def removes_in_time(self) -> bool:
        """False without descriptors: the broker cannot read how old messages are, and may remove none."""
        return DISK.has_descriptors or not (self.has_ttl or ChannelModel.policy.limits_waiting)
