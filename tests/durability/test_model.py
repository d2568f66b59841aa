"""The broker compared with a model: for any sequence of steps, and kills at any moment, its contents are as expected.

Hypothesis draws the steps. ``BROKER_MODEL_EXAMPLES`` sets the number of such stories, for a long run. Each run has
other ones: its seed is printed, and ``BROKER_MODEL_SEED`` gives the same again. With ``BROKER_MODEL_QUICK``, a story
that fails is not made shorter.
"""

from __future__ import annotations

import copy
import errno
import itertools
import logging
import os
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import brokerd.dead
import brokerd.delivery
import brokerd.in_flight
import brokerd.journal.journal as journal_module
import brokerd.log.log as log_module
from bench.wire import dpub
from brokerd import message_actions
from brokerd.channel import Channel
from brokerd.client import Client
from brokerd.journal.journal import Journal, NotCheckpointed
from brokerd.journal.recovery import recover
from brokerd.log.commits import CommitIndex
from brokerd.log.files import remove_log
from brokerd.log.segment import Segment
from brokerd.peek import PAGE, PeekState, peek
from brokerd.removal import Removal
from brokerd.scheduler import SLICE_SECONDS
from brokerd.topic import Topic
from nsqwire.errors import PublishFailed, TopicFull, WouldBeDropped
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.fuse import FUSE, Killed, fused_commit_append, fused_commit_extend, fused_journal_put
from tests.durability.model import (
    DUE_TOLERANCE_S,
    ChannelModel,
    Expected,
    Status,
    TopicModel,
    check_killed,
    check_redelivered,
    check_same,
)

EXAMPLES = int(os.environ.get("BROKER_MODEL_EXAMPLES", "0"))
PHASES = [Phase.generate] if "BROKER_MODEL_QUICK" in os.environ else list(Phase)
SEED = int(os.environ.get("BROKER_MODEL_SEED", "0")) or secrets.randbits(32)


class Disk:
    """The free space of the system."""

    is_full = False
    has_descriptors = True

    def unless_full(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*args, **kwargs)

        return guarded

    def unless_out_of_descriptors(self, map_: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if not self.has_descriptors:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return map_(*args, **kwargs)

        return guarded


DISK = Disk()
CHANNELS = ["a", "b", "c#ephemeral"]
WALL_S = 1_800_000_000.0
"""Unix time when a story begins: rounding must not depend on the time of day."""
DELAYS_S = [0.05, 1.0, 5.0, 100.0]


@dataclass
class Consumer:
    channel: str
    client: Client


class BrokerMachine(RuleBasedStateMachine):
    """One topic with its channels. Each step changes the model first, then the broker; then they are compared."""

    def __init__(self, directory: Callable[[], Path], clock: list[Node]) -> None:
        super().__init__()
        self._directory = directory
        self._clock = clock
        self._numbers = itertools.count()
        self.model = TopicModel()
        self.published: set[bytes] = set()
        self.deferred: set[bytes] = set()
        self.emptied: set[bytes] = set()
        self.consumers: list[Consumer] = []
        self.deliveries: list[Delivery] = []
        self.background: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.written: list[Callable[[], None]] = []
        self.topics_made = 0
        self.was_full = self.was_damaged = False
        self.awaited: list[Topic] = []
        """Topics whose channels lookup is asked for."""

    @initialize(
        in_background=st.booleans(),
        retains=st.booleans(),
        reads_in_a_slice=st.sampled_from([3, 1000]),
        max_attempts=st.sampled_from([0, 1, 2, 3]),
        retry_delay=st.sampled_from(["", "", "2s..3s"]),
        msg_ttl_s=st.sampled_from([None, None, 0.0, 1.517, 40.017]),
    )
    def start(
        self,
        in_background: bool,
        retains: bool,
        reads_in_a_slice: int,
        max_attempts: int,
        retry_delay: str,
        msg_ttl_s: float | None,
    ) -> None:
        """With ``msg_ttl_s`` None, messages never expire in this story, and the wall clock is stepped."""
        FUSE.put_out()
        DISK.is_full, DISK.has_descriptors = False, True
        self.in_background = in_background
        self.reads_in_a_slice = reads_in_a_slice
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
        self.retains = retains
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
        assert not warnings, "a kill leaves no journal that recovery wonders about"
        self.node.open()
        self._opened()

    def _opened(self) -> None:
        ChannelModel.policy = self.node.broker.runtime.policies.policy_for("t", "a")
        self.consumers.clear()
        self.deliveries.clear()
        self.background.clear()
        self.written.clear()
        self.topic = self.node.broker.topic("t")
        self.awaited.clear()
        DISK.has_descriptors = True
        reads = itertools.count(0.0, SLICE_SECONDS / self.reads_in_a_slice)  # not how fast the machine is
        self.node.broker.runtime.scheduler.clock = lambda: next(reads)
        if self.in_background:
            self.node.broker.storage.checkpoint_in_background(lambda work, done: self.background.append((work, done)))

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
                check_killed(found, before, after, published=published, sent=sent, now=now)
            self.model = found
            self.settle()

    @contextmanager
    def refusable(self) -> Iterator[None]:
        """A step that may be refused without any change: journal and disk are full, or no file can be opened."""
        before, published, consumers = self.model.copy(), set(self.published), list(self.consumers)
        self.topic_was_full = False
        with self.step():
            try:
                yield
                assert not self.topic_was_full, "accepted above the bound"
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
        ChannelModel.policy = self.node.broker.runtime.policies.policy_for("t", "a")

    def settle(self) -> None:
        """Let the broker do everything that is due now, and compare."""
        self.pass_until(self.node.now)

    def pass_until(self, when: float) -> None:
        self.node.pass_until(when)
        for each in self.deliveries:
            self.model.pass_time(each.at)
            channel = self.model.channels[self.channel_of(each.client)]
            channel.deliver(each.body, each.attempts, each.client.number, each.message_id, each.at)
        self.deliveries.clear()
        self.model.pass_time(when)
        for each in self.model.channels.values():
            each.drop_excess()
        self.compare()

    def compare(self) -> None:
        """The counters equal the model's, and no consumer waits for a ready message."""
        if not DISK.has_descriptors:
            return
        assert self.topic.depth == len(self.model.waiting)
        assert self.topic.channels.keys() == self.model.channels.keys()
        for name, expected in self.model.channels.items():
            channel = self.topic.channels[name]
            counts = (channel.depth, channel.in_flight_count, channel.deferred_count)
            wanted = tuple(map(expected.count, (Status.QUEUED, Status.IN_FLIGHT, Status.DEFERRED)))
            assert counts == wanted, f"depth, in flight, deferred of {name}: {counts}, not {wanted}"
            assert len(channel.dead) == expected.count(Status.DEAD), f"dead of {name}"
            age = channel.oldest_unfinished_age_ns(self.node.wall_ns())
            assert (age is not None) == bool(wanted[0] or wanted[1])
        for consumer in self.consumers:
            client, channel = consumer.client, self.topic.channels[consumer.channel]
            held = self.model.channels[consumer.channel].held_by(client.number)
            assert client.in_flight_count == len(held)
            assert client.free <= 0 or not channel.depth or channel.paused, f"a consumer of {channel.name} waits"

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
        waiting = {bytes(frame[34:]): deferral.get(seq, 0.0) for seq, frame in frames if frame is not None}
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
                    failures = message["death"]["failures"] if "death" in message else failed.pop(seq, 0)
                    reason = message["death"]["reason"] if "death" in message else ""
                    found.messages[body] = Expected(status, message["attempts"], when, failures=failures, reason=reason)
                if offset + PAGE >= page["total"]:
                    break
        assert not failed, f"{channel.name} has failures of messages that it does not have"
        return found

    # -- publishers -----------------------------------------------------------------------------------------------

    def bodies(self, count: int, padding: int) -> list[bytes]:
        return [b"m%d-" % next(self._numbers) + b"x" * padding for _ in range(count)]

    @rule(count=st.sampled_from([1, 1, 5, 20]), padding=st.sampled_from([0, 10, 300]))
    def publish(self, count: int, padding: int) -> None:
        bodies = self.bodies(count, padding)
        with self.refusable():
            self._published(bodies)
            self.model.publish(bodies, 0, self.node.now)
            self.topic.publish(bodies)

    def _published(self, bodies: list[bytes]) -> None:
        self.topic_was_full = not self.model.admits(len(bodies))
        self.published.update(bodies)

    @rule(count=st.sampled_from([1, 3]), delay_s=st.sampled_from(DELAYS_S))
    def publish_deferred(self, count: int, delay_s: float) -> None:
        bodies = self.bodies(count, 0)
        with self.refusable():
            self._published(bodies)
            self.deferred.update(bodies)
            self.model.publish(bodies, delay_s, self.node.now)
            self.topic.publish(bodies, defer_ms=int(delay_s * 1000))

    @rule(delays_s=st.lists(st.sampled_from(DELAYS_S), min_size=2, max_size=12))
    def publish_run_of_deferred(self, delays_s: list[float]) -> None:
        """DPUBs in one read, each with its own delay."""
        bodies = self.bodies(len(delays_s), 0)
        with self.refusable():
            self._published(bodies)
            self.deferred.update(bodies)
            for body, delay_s in zip(bodies, delays_s, strict=True):
                self.model.publish([body], delay_s, self.node.now)
            sent = b"".join(
                dpub("t", int(delay_s * 1000), body) for body, delay_s in zip(bodies, delays_s, strict=True)
            )
            self.topic.publish_deferred(memoryview(sent), len(bodies), sum(map(len, bodies)))

    # -- consumers ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(name=st.sampled_from(CHANNELS), ready_count=st.sampled_from([0, 1, 3, 50]))
    def subscribe(self, name: str, ready_count: int) -> None:
        with self.refusable():
            self.model.channels.setdefault(name, ChannelModel())
            self.model.route(self.node.now)
            client = self.node.subscribe("t", name, ready_count, self.deliveries.append)
            self.consumers.append(Consumer(name, client))

    def pick(self, data: st.DataObject) -> tuple[Consumer, Channel, ChannelModel]:
        consumer = data.draw(st.sampled_from(self.consumers), label="consumer")
        return consumer, self.topic.channels[consumer.channel], self.model.channels[consumer.channel]

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer, channel, model = self.pick(data)
        with self.step():
            model.leave(consumer.client.number)
            if consumer.channel.endswith("#ephemeral") and len(channel.clients) == 1:
                del self.model.channels[consumer.channel]
            self.consumers.remove(consumer)
            channel.unsubscribe(consumer.client)
            self.topic.client_left(channel)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), ready_count=st.sampled_from([0, 1, 5, 100]))
    def ready(self, data: st.DataObject, ready_count: int) -> None:
        consumer, channel, _ = self.pick(data)
        with self.step():
            consumer.client.ready_count = ready_count
            channel.offer(consumer.client)

    @precondition(lambda self: len(self.consumers) < 6 and not self.model.paused)
    @rule(
        name=st.sampled_from(CHANNELS),
        count=st.sampled_from([1, 5, 20]),
        defer_s=st.sampled_from([0.0, 0.0, 0.05]),
        share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        killed=st.sampled_from([False, False, True]),
    )
    def consume(self, name: str, count: int, defer_s: float, share: float, killed: bool) -> None:
        """A consumer connects, receives messages and finishes some of them; random steps rarely do so in this order."""
        self.subscribe(name=name, ready_count=50)
        if defer_s:
            self.publish_deferred(count=count, delay_s=defer_s)
            self.pass_time(seconds=defer_s)
        else:
            self.publish(count=count, padding=10)
        for consumer in [each for each in self.consumers if each.channel == name]:
            if consumer in self.consumers and share:  # a kill may come at any of these
                self._finish(consumer, share, reverse=False)
        if killed:
            self.kill()

    @precondition(lambda self: any(each.client.in_flight_count for each in self.consumers))
    @rule(data=st.data(), share=st.sampled_from([0.1, 0.5, 1.0]), reverse=st.booleans())
    def finish(self, data: st.DataObject, share: float, reverse: bool) -> None:
        self._finish(self.pick(data)[0], share, reverse=reverse)

    def _finish(self, consumer: Consumer, share: float, *, reverse: bool) -> None:
        channel, model = self.topic.channels[consumer.channel], self.model.channels[consumer.channel]
        held = model.held_by(consumer.client.number)
        held = sorted(held, key=lambda body: model.messages[body].message_id, reverse=reverse)
        held = held[: max(1, int(len(held) * share))]
        lines = b"".join(b"FIN %b\n" % model.messages[body].message_id for body in held)
        if held:
            with self.step():
                for body in held:
                    del model.messages[body]
                assert not channel.finish(consumer.client, memoryview(lines), len(held), self.node.wall_ns())

    @precondition(lambda self: any(each.client.in_flight_count for each in self.consumers))
    @rule(data=st.data(), delay_s=st.sampled_from([0.0, 0.0, *DELAYS_S]))
    def requeue(self, data: st.DataObject, delay_s: float) -> None:
        consumer, channel, model = self.pick(data)
        held = model.held_by(consumer.client.number)
        if held:
            message = model.messages[data.draw(st.sampled_from(held), label="body")]
            with self.step():
                model.fail(message, self.node.now, delay_s=delay_s)
                line = memoryview(b"REQ %b 9\n" % message.message_id)
                assert not channel.requeue(consumer.client, line, 1, delay_s, self.node.now)

    @precondition(lambda self: any(each.client.in_flight_count for each in self.consumers))
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        consumer, channel, model = self.pick(data)
        held = model.held_by(consumer.client.number)
        if held:
            body = data.draw(st.sampled_from(held), label="body")
            with self.step():
                model.touch(body, self.node.now)
                line = memoryview(b"TOUCH %b\n" % model.messages[body].message_id)
                assert not channel.touch(consumer.client, line, 1, self.node.now)

    # -- operators ------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(CHANNELS[:2]))
    def create_channel(self, name: str) -> None:
        with self.refusable():
            self.model.channels.setdefault(name, ChannelModel())
            self.model.route(self.node.now)
            self.topic.channel(name)

    @rule(
        max_attempts=st.sampled_from([0, 1, 2, 3]),
        retry_delay=st.sampled_from(["", "1s..3s"]),
        msg_ttl=st.sampled_from(["", "2017ms", "30017ms"]),
        expired=st.sampled_from(["drop", "dead"]),
        max_depth=st.sampled_from([0, 0, 1, 4, 15]),
        overflow=st.sampled_from(["reject", "drop-oldest", "dead"]),
        is_deleted=st.booleans(),
        killed=st.sampled_from([False, False, True]),
    )
    def change_the_policy(
        self,
        max_attempts: int,
        retry_delay: str,
        msg_ttl: str,
        expired: str,
        max_depth: int,
        overflow: str,
        is_deleted: bool,
        killed: bool,
    ) -> None:
        """An operator sets or deletes the policy of all channels; a kill follows, or comes within."""
        policies = self.node.broker.runtime.policies
        values = {"max_attempts": max_attempts, "retry_delay": retry_delay}
        if self.has_ttl:
            values |= {"msg_ttl": msg_ttl, "expired": expired}
        if max_depth and DISK.has_descriptors:
            values |= {"max_depth": max_depth, "overflow": overflow}
        before = policies.policy_for("t", "a")
        after = policies.default if is_deleted else policies.default.changed_by(values)
        is_set = ("t", "*") in policies.values
        with self.refusable():
            ChannelModel.policy = after
            if is_deleted:
                assert self.node.broker.delete_policy("t", "*") == is_set
            else:
                self.node.broker.set_policy("t", "*", values)
        found = ChannelModel.policy = self.node.broker.runtime.policies.policy_for("t", "a")
        assert found in (before, after)
        if killed and self.node.journal_is_complete:
            self.kill()
            assert ChannelModel.policy == found

    @precondition(lambda self: self.model.channels)
    @rule(data=st.data(), really=st.sampled_from([True, False, False]))
    def delete_channel(self, data: st.DataObject, really: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.channels)), label="channel")
        if really:
            with self.refusable():
                del self.model.channels[name]
                self.consumers = [each for each in self.consumers if each.channel != name]
                self.topic.delete_channel(name)

    @rule(paused=st.booleans())
    def pause_topic(self, paused: bool) -> None:
        with self.refusable():
            self.model.paused = paused
            self.model.route(self.node.now)
            self.topic.pause() if paused else self.topic.unpause()

    @precondition(lambda self: self.model.channels)
    @rule(data=st.data(), paused=st.booleans())
    def pause_channel(self, data: st.DataObject, paused: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.channels)), label="channel")
        with self.refusable():
            self.model.channels[name].paused = paused
            self.topic.channels[name].pause() if paused else self.topic.channels[name].unpause()

    @rule()
    def empty_topic(self) -> None:
        waiting = set(self.model.waiting)
        with self.refusable():
            self.model.waiting.clear()
            self.topic.empty()
        self.emptied |= waiting - self.model.waiting.keys()

    @precondition(lambda self: self.model.channels)
    @rule(data=st.data())
    def empty_channel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.channels)), label="channel")
        with self.refusable():
            model = self.model.channels[name]
            model.messages = {body: each for body, each in model.messages.items() if each.status is Status.DEAD}
            self.topic.channels[name].empty()

    @precondition(lambda self: self.model.channels and DISK.has_descriptors)
    @rule(
        data=st.data(),
        share=st.sampled_from([0.1, 0.3, 0.5, 1.0]),
        verb=st.sampled_from(["finish", "requeue", "bury"]),
        at_checkpoint=st.booleans(),
        killed=st.booleans(),
    )
    def act_on_messages(self, data: st.DataObject, share: float, verb: str, at_checkpoint: bool, killed: bool) -> None:
        """An operator finishes, requeues or buries messages in any state, also those in flight with another client."""
        name = data.draw(st.sampled_from(sorted(self.model.channels)), label="channel")
        channel, model = self.topic.channels[name], self.model.channels[name]
        ids = {}
        for seq in range(self.topic.log.first_seq, self.topic.messages.routed_end):
            frame = channel.frame_of(seq)
            if frame is not None:
                ids[bytes(frame[34:])] = bytes(frame[18:34])
        held = sorted(model.messages)
        assert ids.keys() >= set(held), "each message has an id"
        taken = data.draw(st.permutations(held), label="bodies")[: int(len(held) * share) + 1]
        gone = [message_id for body, message_id in ids.items() if body not in model.messages][:3]
        with self.refusable():
            for body in taken:
                message = model.messages[body]
                if verb == "finish":
                    del model.messages[body]
                elif verb == "bury":
                    if message.status is not Status.DEAD:
                        message.die("operator")
                elif message.status is Status.DEAD:
                    message.revive()
                else:
                    message.requeue()
            act = getattr(message_actions, verb)
            assert act(channel, [ids[body] for body in taken] + gone) == (len(taken), gone)
        if at_checkpoint:
            self.checkpoint()
        if killed:
            self.kill()

    @precondition(
        lambda self: DISK.has_descriptors and any(each.count(Status.DEAD) for each in self.model.channels.values())
    )
    @rule(data=st.data(), verb=st.sampled_from(["requeue", "requeue", "finish"]), rate=st.sampled_from([0, 0, 1, 100]))
    def act_on_the_dead(self, data: st.DataObject, verb: str, rate: int) -> None:
        """An operator requeues all dead messages of a channel, or removes them."""
        names = [name for name, each in self.model.channels.items() if each.count(Status.DEAD)]
        name = data.draw(st.sampled_from(sorted(names)), label="channel")
        channel, model = self.topic.channels[name], self.model.channels[name]
        numbers = [int(message["id"][6:], 16) for message in self.dead_of(channel)]
        bodies = [b64decode(message["body"]) for message in self.dead_of(channel)]
        assert (sorted(numbers), len(bodies)) == (numbers, model.count(Status.DEAD))
        chosen, now = message_actions.ChosenDead(), self.node.now
        before = {body: copy.copy(model.messages[body]) for body in bodies}
        with self.refusable():
            for at, body in enumerate(bodies):
                if verb == "finish":
                    del model.messages[body]
                else:
                    model.messages[body].revive(now + at / rate if rate else 0.0)
            if verb == "finish":
                done = sum(message_actions.finish_dead(channel, chosen))
            else:
                try:
                    done = sum(message_actions.requeue_dead(channel, chosen, rate=rate, now=now))
                except WouldBeDropped:  # of a later portion; the earlier ones are requeued
                    assert model.policy.limits_waiting, "refused without a reason"
                    left = {b64decode(message["body"]) for message in self.dead_of(channel)}
                    model.messages |= {body: message for body, message in before.items() if body in left}
                    done = len(bodies)
            assert done == len(bodies)

    @staticmethod
    def dead_of(channel: Channel) -> list[Any]:
        return list(peek(channel, PeekState.DEAD, offset=0, limit=10_000, max_body_bytes=10_000)["messages"])

    @precondition(lambda self: self.retains and self.model.channels and DISK.has_descriptors)
    @rule(
        data=st.data(),
        while_in_flight=st.sampled_from([True, True, False]),
        at_checkpoint=st.sampled_from([True, True, False]),
        ready_count=st.sampled_from([0, 0, None, 1]),
        killed=st.sampled_from([True, True, False]),
    )
    def rewind_channel(
        self, data: st.DataObject, while_in_flight: bool, at_checkpoint: bool, ready_count: int | None, killed: bool
    ) -> None:
        """All kept and delivered messages are ready again; deferred publishes only if they were finished.

        A checkpoint just before it may list messages in flight, and after a kill right behind it, only the rewind
        record says that they are not.
        """
        name = data.draw(st.sampled_from(sorted(self.model.channels)), label="channel")
        if while_in_flight and len(self.consumers) < 6 and not self.model.paused:
            self.consume(name=name, count=5, defer_s=0.0, share=0.1, killed=False)
        if at_checkpoint:
            self.checkpoint()
        if name not in self.topic.channels:
            return  # a kill came, and it was ephemeral
        channel, model = self.topic.channels[name], self.model.channels[name]
        for consumer in self.consumers:
            if consumer.channel == name and ready_count is not None:
                consumer.client.ready_count = ready_count
                channel.offer(consumer.client)
        head = channel.head
        seq = data.draw(st.integers(self.topic.log.first_seq, self.topic.messages.routed_end), label="seq")
        frames = [self.topic.log.frame(each) for each in range(seq, self.topic.messages.routed_end)]
        bodies = [bytes(frame[34:]) for frame in frames if frame is not None]
        assert len(bodies) == len(frames), "what is kept can be read"
        if bodies:
            with self.refusable():
                for at, body in enumerate(bodies, seq):
                    kept, message = body not in self.emptied, model.messages.get(body)
                    comes_again = message is None or message.status is Status.DEAD
                    if kept and (comes_again or (at < head and body not in self.deferred)):
                        model.messages[body] = Expected(Status.QUEUED)
                channel.rewind(seq)
        if killed:
            self.kill()

    # -- time and ends --------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.05, 1.0, 3.0, 30.0, 61.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        with self.step():
            self.pass_until(self.node.now + seconds)

    @rule()
    def rest(self) -> None:
        """The topic has been idle for a while."""
        with self.step():
            self.topic.unmap_if_idle()
            self.topic.unmap_if_idle()

    @precondition(lambda self: not self.has_ttl)
    @rule(seconds=st.sampled_from([-3600.0, -1.0, 1.0, 3600.0]))
    def step_the_wall_clock(self, seconds: float) -> None:
        self.node.wall += seconds

    @precondition(lambda self: self.background or self.written)
    @rule()
    def write_checkpoint(self) -> None:
        """The thread that writes checkpoints continues: it writes, or reports that it has written."""
        with self.step():
            if self.written:
                self.written.pop(0)()
            else:
                work, done = self.background.pop(0)
                error = self.write(work)
                self.written.append(lambda: done(error))

    @staticmethod
    def write(work: Callable[[], None]) -> OSError | None:
        try:
            work()
        except OSError as error:
            if not DISK.is_full:
                raise
            return error
        return None

    @rule(how=st.sampled_from(["kill", "kill", "close", "checkpoint"]))
    def end(self, how: str) -> None:
        """One rule for all, because several would leave stories little time between two ends."""
        getattr(self, how)()

    @property
    def is_exact(self) -> bool:
        """True if a restart finds just what the model has."""
        return self.node.journal_is_complete and self.removes_in_time

    @property
    def removes_in_time(self) -> bool:
        """False without descriptors: the broker cannot read how old messages are, and may remove none."""
        return DISK.has_descriptors or not (self.has_ttl or ChannelModel.policy.limits_waiting)

    def close(self) -> None:
        for work, _ in self.background:
            self.write(work)
        is_complete = self.is_exact
        try:
            self.node.broker.close()
        except Killed:
            self.node.kill()
        except NotCheckpointed:
            assert DISK.is_full
        else:
            is_complete = self.removes_in_time
        self.reopen(is_complete=is_complete)

    def kill(self) -> None:
        is_complete = self.is_exact
        self.node.kill()
        self.reopen(is_complete=is_complete)

    def reopen(self, *, is_complete: bool) -> None:
        expected = self.model.restarted(self.node.now)
        FUSE.put_out()
        self._open()
        self.model = self.found()
        if is_complete:
            check_same(self.model, expected)
        else:
            check_redelivered(self.model, expected, self.published)
        with self.step():
            pass

    def checkpoint(self) -> None:
        """The state is written, whatever is in flight."""
        try:
            self.node.broker.storage.checkpoint()
        except OSError:
            assert DISK.is_full

    # -- lookup ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.topics_made < 4)
    @rule(held=st.booleans(), name=st.sampled_from([None, *CHANNELS]), again=st.booleans(), killed=st.booleans())
    def make_the_topic_again(self, held: bool, name: str | None, again: bool, killed: bool) -> None:
        """The topic is deleted and created again, and a consumer subscribes, perhaps during the request to lookup;
        perhaps it is deleted again before lookup answers, and a kill follows."""
        self._delete_the_topic(held)
        if name is not None:
            self.subscribe(name=name, ready_count=3)
        if again:
            self._delete_the_topic(held)
            if self.awaited:
                self.lookup_answers()
        if killed:
            self.kill()

    def _delete_the_topic(self, held: bool) -> None:
        self.topics_made += 1
        before, consumers = self.model, list(self.consumers)
        with self.step():
            self.model = TopicModel(held=held)
            self.consumers.clear()
            try:
                self.node.broker.delete_topic("t")
            except OSError:
                if not DISK.is_full:
                    raise
                self.model, self.consumers = before, consumers
                return
            DISK.is_full = False
            self.topic = self.node.broker.topic("t")
            if held:
                self.topic.suspend_routing()
                self.awaited.append(self.topic)

    @precondition(lambda self: self.awaited)
    @rule()
    def lookup_answers(self) -> None:
        """The topic may have been deleted meanwhile."""
        topic = self.awaited.pop(0)
        with self.step():
            if topic is self.topic:
                self.model.held = False
                self.model.route(self.node.now)
            topic.resume_routing()

    # -- disk and descriptors -------------------------------------------------------------------------------------

    @precondition(lambda self: DISK.has_descriptors)
    @rule(with_journal=st.booleans())
    def fill_the_disk(self, with_journal: bool) -> None:
        """No journal can be allocated and no checkpoint written; allocated ones may be full too."""
        DISK.is_full = self.was_full = True
        if with_journal:
            self.work_on_another_topic(count=400)

    @precondition(lambda self: DISK.is_full)
    @rule()
    def free_the_disk(self) -> None:
        DISK.is_full = False

    @precondition(lambda self: DISK.has_descriptors)
    @rule(count=st.sampled_from([20, 200]))
    def work_on_another_topic(self, count: int) -> None:
        """Its records fill the journal."""
        with self.step():
            try:
                topic = self.node.broker.topic("busy")
                channel = topic.channel("c")
            except OSError:
                if not DISK.is_full:
                    raise
                return
            got: list[Delivery] = []
            client = self.node.subscribe("busy", "c", 1, got.append)
            for _ in range(count):
                topic.publish([b"x"])
                channel.pump(self.node.now)
                lines = b"".join(b"FIN %b\n" % each.message_id for each in got)
                assert not channel.finish(client, memoryview(lines), len(got), self.node.wall_ns())
                got.clear()
            channel.unsubscribe(client)

    @precondition(lambda self: not self.has_ttl and not ChannelModel.policy.bounds_channel)
    @rule()
    def run_out_of_descriptors(self) -> None:
        """An idle topic closes its files, and they cannot be mapped again. Limits would be kept when a retry comes."""
        with self.step():
            self.topic.unmap_if_idle()
            self.topic.unmap_if_idle()
            DISK.has_descriptors = False
            for consumer in self.consumers:
                consumer.client.ready_count += 5
                self.topic.channels[consumer.channel].offer(consumer.client)

    @precondition(lambda self: not DISK.has_descriptors)
    @rule()
    def descriptors_are_free_again(self) -> None:
        """Consumers receive waiting messages within seconds."""
        with self.step():
            DISK.has_descriptors = True
            self.pass_until(self.node.now + 6)

    # -- damage ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.was_damaged)
    @rule(
        pattern=st.sampled_from(["checkpoint", "checkpoint.previous", "journal.*", "topics/t.*/*.idx"]),
        at=st.integers(0, 1 << 20),
        whole_page=st.booleans(),
    )
    def damage_a_file(self, pattern: str, at: int, whole_page: bool) -> None:
        """A bit is flipped, or a page zeroed, between a kill and the next start: no message is lost.

        A damaged checkpoint costs nothing at all. A damaged journal may cost a channel or a rewind. Zeros at the end of
        a journal look like its end. Messages that were finished and removed after it then count as lost.
        """
        is_complete = self.is_exact and not self.was_full
        FUSE.put_out()
        DISK.is_full = False
        self.was_damaged = True
        self.node.kill()
        files = [path for path in sorted(self.path.glob(pattern)) if path.read_bytes().strip(b"\0")]
        if files:
            damage(files[at % len(files)], at, whole_page=whole_page)
        expected = self.model.restarted(self.node.now)
        goes_unnoticed = pattern.startswith("journal") and recover(self.path).state.is_complete
        self.node.open()
        self._opened()
        self.model = found = self.found()
        if pattern.startswith("checkpoint") and is_complete:
            check_same(found, expected)
        elif not (pattern.startswith("journal") and self.retains):
            if pattern.startswith("journal"):
                expected.channels = {name: each for name, each in expected.channels.items() if name in found.channels}
                for name in found.channels.keys() - expected.channels.keys():  # it came back, and has what waited
                    for body in found.channels[name].messages:
                        expected.waiting.pop(body, None)
                found = found.copy()
                found.channels = {name: each for name, each in found.channels.items() if name in expected.channels}
            check_redelivered(found, expected, self.published)
            assert goes_unnoticed or not self.node.broker.storage.lost_message_count
        self.retains = self.retains and pattern.startswith("checkpoint")  # emptied messages may be redelivered
        with self.step():
            pass

    @rule(writes=st.integers(1, 40), how=st.sampled_from(["before", "torn", "after"]), cut=st.integers(0, 47))
    def light_fuse(self, writes: int, how: str, cut: int) -> None:
        """The process will be killed at its n-th write from now."""
        FUSE.writes, FUSE.how, FUSE.cut = writes, how, cut


def damage(path: Path, at: int, *, whole_page: bool) -> None:
    """Flip a bit, or zero a page, of the written part of a file."""
    data = bytearray(path.read_bytes())
    at %= len(data.rstrip(b"\0"))
    if whole_page:
        start = at - at % 512  # of a small file a part
        data[start : start + 512] = bytes(len(data[start : start + 512]))
    else:
        data[at] ^= 1 << at % 8
    path.write_bytes(data)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The node whose wall clock the test controls."""
    nodes: list[Node] = []
    monkeypatch.setattr(time, "time_ns", lambda: nodes[0].wall_ns() if nodes else int(WALL_S * 1e9))
    return nodes


@pytest.mark.timeout(24 * 3600 if EXAMPLES else 900)
def test_the_broker_agrees_with_the_model(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, clock: list[Node]
) -> None:
    """Messages are published, delivered, answered, timed out, emptied and deleted, with pauses, kills at any write, and
    starts.

    What was acknowledged is there; what was finished does not come back, unless the kill came within that very FIN;
    attempts and due times are kept; depth, in-flight and deferred counts are the model's after each step.
    """
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    monkeypatch.setattr(brokerd.dead, "ENTRIES_IN_A_BLOCK", 3)
    monkeypatch.setattr(brokerd.dead, "_UNUSED_NAMES", 0)
    monkeypatch.setattr(brokerd.delivery, "OUTBOX_BYTES", 2000)
    monkeypatch.setattr(brokerd.in_flight, "MIN_EVICTION_SPAN", 20)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # the process is killed, the machine runs on
    monkeypatch.setattr(journal_module, "PAUSES_PER_SNAPSHOT", 0)  # stories do not depend on how fast the machine is
    monkeypatch.setattr(Removal, "add", lambda self, directory: remove_log(directory))  # a killed process has no thread
    monkeypatch.setattr(Journal, "_put", fused_journal_put(Journal._put))
    monkeypatch.setattr(Journal, "_allocate", DISK.unless_full(Journal._allocate))
    monkeypatch.setattr(journal_module, "write_checkpoint", DISK.unless_full(journal_module.write_checkpoint))
    monkeypatch.setattr(Segment, "_mapped_again", DISK.unless_out_of_descriptors(Segment._mapped_again))
    monkeypatch.setattr(CommitIndex, "append", fused_commit_append(CommitIndex.append))
    monkeypatch.setattr(CommitIndex, "extend", fused_commit_extend(CommitIndex.extend))
    # pytest would keep each log record, with the traceback of its error, and so the open files of a story.
    monkeypatch.setattr(logging.getLogger("brokerd"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("brokerd"), "handlers", [logging.NullHandler()])
    print(f"BROKER_MODEL_SEED={SEED}")
    run_state_machine_as_test(
        seed(SEED)(lambda: BrokerMachine(lambda: tmp_path_factory.mktemp("data"), clock)),
        settings=settings(
            max_examples=EXAMPLES or 200,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
