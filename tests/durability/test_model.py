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
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

import brokerd.channel
import brokerd.dead
import brokerd.delivery
import brokerd.in_flight
import brokerd.journal.journal as journal_module
import brokerd.log.log as log_module
from bench.wire import dpub
from brokerd import message_actions, publisher_actions
from brokerd.channel import Channel
from brokerd.dedup import digest_of
from brokerd.forwarding import RETRY_S
from brokerd.journal.journal import Journal, NotCheckpointed
from brokerd.journal.recovery import recover
from brokerd.log.commits import CommitIndex
from brokerd.log.files import remove_log
from brokerd.log.headers import HeaderFile
from brokerd.log.segment import Segment
from brokerd.peek import PeekState, peek
from brokerd.publisher_actions import Outcome
from brokerd.removal import Removal
from nsqwire.errors import WouldBeDropped
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.fuse import (
    FUSE,
    Killed,
    fused_commit_append,
    fused_commit_extend,
    fused_header_write,
    fused_journal_put,
)
from tests.durability.machine import CHANNELS, DEAD_TOPIC, DELAYS_S, DISK, WALL_S, Consumer, Machine
from tests.durability.model import (
    DUE_TOLERANCE_S,
    ChannelModel,
    Expected,
    Status,
    TopicModel,
    check_redelivered,
    check_same,
)
from tests.harness.policies import policy_for

EXAMPLES = int(os.environ.get("BROKER_MODEL_EXAMPLES", "0"))
PHASES = [Phase.generate] if "BROKER_MODEL_QUICK" in os.environ else list(Phase)
DEDUP_WINDOW_S = 120.0
SEED = int(os.environ.get("BROKER_MODEL_SEED", "0")) or secrets.randbits(32)


class BrokerMachine(Machine):
    """The steps of a story."""

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

    @rule(count=st.sampled_from([1, 5, 60]), padding=st.sampled_from([0, 10, 300]))
    def publish_run(self, count: int, padding: int) -> None:
        """PUBs in one read with the command line of the read before, which are parsed only if that is necessary."""
        bodies, line = self.bodies(count, padding), b"PUB t\n"
        sent = b"".join(line + len(body).to_bytes(4) + body for body in bodies)
        with self.refusable():
            self._published(bodies)
            self.model.publish(bodies, 0, self.node.now)
            taken = self.topic.publish_commands(bytearray(sent), len(sent), line, (1 << 20, 1 << 20))
            if taken == (0, 0):
                self.topic.publish_messages(memoryview(sent), count, gap=len(line))
            else:
                assert taken == (count, count)

    def _published(self, bodies: list[bytes]) -> None:
        self.is_publish = True
        self.topic_was_full = not self.model.admits(len(bodies))
        self.published.update(bodies)

    @rule(
        count=st.sampled_from([1, 1, 3, 20]),
        padding=st.sampled_from([0, 10, 300]),
        size=st.sampled_from([0, 5, 200, 3000]),
        every=st.sampled_from([1, 1, 2]),
        delay_s=st.sampled_from([0.0, 0.0, *DELAYS_S]),
    )
    def publish_with_headers(self, count: int, padding: int, size: int, every: int, delay_s: float) -> None:
        """One message in ``every`` has headers, of about ``size`` bytes."""
        bodies = self.bodies(count, padding)
        blocks = [b"" if at % every else encode_headers({"of": body.decode()[:20], "x": "h" * size})
                  for at, body in enumerate(bodies)]  # fmt: skip
        with self.refusable():
            self._published(bodies)
            self.blocks.update({body: block for body, block in zip(bodies, blocks, strict=True) if block})
            if delay_s:
                self.deferred.update(bodies)
            self.model.publish(bodies, delay_s, self.node.now)
            self.topic.publish_with_headers(bodies, blocks, defer_ms=int(delay_s * 1000))

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

    @precondition(lambda self: self.knows_seen and DISK.has_descriptors)
    @rule(
        dedup_id=st.sampled_from("xyz"),
        count=st.sampled_from([1, 3]),
        delay_s=st.sampled_from([0.0, 0.0, 1.0]),
        killed=st.sampled_from([False, False, True]),
    )
    def publish_once(self, dedup_id: str, count: int, delay_s: float, killed: bool) -> None:
        """A publish with a deduplication id, perhaps one that was published before."""
        bodies, digest, now = self.bodies(count, 0), digest_of(dedup_id.encode()), self.node.now
        publish = partial(self.topic.publish, defer_ms=int(delay_s * 1000), dedup_digest=digest)
        until, seqs = self.seen.get(dedup_id, (0.0, range(0)))
        if seqs and now < until:
            with self.step():
                assert publish(bodies) == seqs, "it is stored already"
        else:
            topic, first_seq = self.topic, self.topic.log.next_seq
            with self.refusable():
                self._published(bodies)
                if delay_s:
                    self.deferred.update(bodies)
                self.model.publish(bodies, delay_s, self.node.now)
                assert publish(bodies) == range(first_seq, first_seq + count)
            frame = self.topic.log.frame(first_seq)
            self.seen.pop(dedup_id, None)
            if frame is not None and bytes(frame[34:]) == bodies[0]:
                self.seen[dedup_id] = now + DEDUP_WINDOW_S, range(first_seq, first_seq + count)
            elif self.topic is topic and self.topic.log.first_seq > first_seq:
                self.knows_seen = False  # it was stored, and all channels have finished it
        if killed:
            self.kill()

    @precondition(lambda self: self.published and DISK.has_descriptors)
    @rule(
        data=st.data(),
        verb=st.sampled_from(["cancel", "cancel", "defer"]),
        delay_s=st.sampled_from([0.0, *DELAYS_S]),
        share=st.sampled_from([0.1, 0.5]),
        just_published=st.sampled_from([0, 0, 3]),
        at_checkpoint=st.booleans(),
        killed=st.sampled_from([False, False, True]),
    )
    def act_as_publisher(
        self,
        data: st.DataObject,
        verb: str,
        delay_s: float,
        share: float,
        just_published: int,
        at_checkpoint: bool,
        killed: bool,
    ) -> None:
        """A publisher cancels messages in all channels, or defers them; those in flight stay with their clients. It may
        have published them just before, in one batch."""
        before = set(self.published)
        if just_published:
            self.publish_deferred(count=just_published, delay_s=100.0)
        ids, due = self.ids(), self.node.now + delay_s
        channels = self.model.channels
        kept = sorted({*self.model.waiting, *(body for each in channels.values() for body in each.messages)})
        if just_published:
            kept = [body for body in kept if body not in before]
        if not kept:
            return
        taken = data.draw(st.permutations(kept), label="bodies")[: int(len(kept) * share) + 1]
        waiting = set(taken) & self.model.waiting.keys()
        with self.refusable():
            expected = []
            for body in taken:
                if body in waiting:
                    if verb == "cancel":
                        del self.model.waiting[body]
                    in_topic = Outcome.CANCELLED if verb == "cancel" else Outcome.WAITING
                    expected.append(publisher_actions.ActedOn(ids[body], {}, in_topic))
                    continue
                found = {name: getattr(each, verb)(body, due) for name, each in channels.items()}
                expected.append(publisher_actions.ActedOn(ids[body], found))
            sent = [ids[body] for body in taken]
            if verb == "cancel":
                assert publisher_actions.cancel(self.topic, sent) == expected
            else:
                assert publisher_actions.defer(self.topic, sent, due) == expected
        if verb == "cancel":
            self.emptied |= waiting - self.model.waiting.keys()
            self.removed |= set(itertools.product(channels, taken))
        if at_checkpoint:
            self.checkpoint()
        if killed:
            self.kill()

    def ids(self) -> dict[bytes, bytes]:
        """The ids of all messages of the topic that can be read, by body."""
        channels, log = self.topic.channels.values(), self.topic.log
        ids = {}
        for seq in range(log.first_seq, log.next_seq):
            frames = (log.frame(seq), *(each.frame_of(seq) for each in channels))
            if (frame := next((each for each in frames if each is not None), None)) is not None:
                ids[bytes(frame[34:])] = bytes(frame[18:34])
        return ids

    # -- consumers ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(
        name=st.sampled_from(CHANNELS),
        ready_count=st.sampled_from([0, 1, 3, 50]),
        takes_headers=st.sampled_from([True, True, False]),
    )
    def subscribe(self, name: str, ready_count: int, takes_headers: bool = True) -> None:
        with self.refusable():
            self.model.channels.setdefault(name, ChannelModel())
            self.model.route(self.node.now)
            client = self.node.subscribe("t", name, ready_count, self.deliveries.append, takes_headers=takes_headers)
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
        in_flight = model.in_flight_to(consumer.client.number)
        in_flight = sorted(in_flight, key=lambda body: model.messages[body].message_id, reverse=reverse)
        in_flight = in_flight[: max(1, int(len(in_flight) * share))]
        lines = b"".join(b"FIN %b\n" % model.messages[body].message_id for body in in_flight)
        if in_flight:
            with self.step():
                for body in in_flight:
                    del model.messages[body]
                assert not channel.finish(consumer.client, memoryview(lines), len(in_flight), self.node.wall_ns())

    @precondition(lambda self: any(each.client.in_flight_count for each in self.consumers))
    @rule(data=st.data(), delay_s=st.sampled_from([0.0, 0.0, *DELAYS_S]))
    def requeue(self, data: st.DataObject, delay_s: float) -> None:
        consumer, channel, model = self.pick(data)
        in_flight = model.in_flight_to(consumer.client.number)
        if in_flight:
            message = model.messages[data.draw(st.sampled_from(in_flight), label="body")]
            with self.step():
                model.fail(message, self.node.now, delay_s=delay_s)
                line = memoryview(b"REQ %b 9\n" % message.message_id)
                assert not channel.requeue(consumer.client, line, 1, delay_s, self.node.now)

    @precondition(lambda self: any(each.client.in_flight_count for each in self.consumers))
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        consumer, channel, model = self.pick(data)
        in_flight = model.in_flight_to(consumer.client.number)
        if in_flight:
            body = data.draw(st.sampled_from(in_flight), label="body")
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
        dead_topic=st.sampled_from(["", "", DEAD_TOPIC]),
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
        dead_topic: str,
        is_deleted: bool,
        killed: bool,
    ) -> None:
        """An operator sets or deletes the policy of all channels; a kill follows, or comes within."""
        policies = self.node.broker.runtime.policies
        values = {"max_attempts": max_attempts, "retry_delay": retry_delay, "dead_topic": dead_topic}
        if self.has_ttl:
            values |= {"msg_ttl": msg_ttl, "expired": expired}
        if max_depth and DISK.has_descriptors:
            values |= {"max_depth": max_depth, "overflow": overflow}
        before = policy_for(policies, "t", "a")
        after = policies.default if is_deleted else policies.default.changed_by(values)
        is_set = ("t", "*") in policies.values
        with self.refusable():
            ChannelModel.policy = after
            if is_deleted:
                assert self.node.broker.delete_policy("t", "*") == is_set
            else:
                self.node.broker.set_policy("t", "*", values)
        found = ChannelModel.policy = policy_for(self.node.broker.runtime.policies, "t", "a")
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

    @precondition(lambda self: self.model.channels and DISK.has_descriptors and not self.is_drained)
    @rule(data=st.data(), count=st.sampled_from([1, 5]), is_freed=st.booleans())
    def empty_after_dropped_records(self, data: st.DataObject, count: int, is_freed: bool) -> None:
        """Messages die on a full disk, an operator empties their channel, and a kill follows."""
        self.change_the_policy(
            max_attempts=0,
            retry_delay="",
            msg_ttl="",
            expired="drop",
            max_depth=1,
            overflow="dead",
            dead_topic="",
            is_deleted=False,
            killed=False,
        )
        self.fill_the_disk(with_journal=True)
        self.publish(count=count, padding=10)
        if is_freed:
            self.free_the_disk()
        if self.model.channels:
            self.empty_channel(data)
        self.kill()

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
        ids = self.ids()
        kept = sorted(model.messages)
        assert ids.keys() >= set(kept), "each message has an id"
        taken = data.draw(st.permutations(kept), label="bodies")[: int(len(kept) * share) + 1]
        gone = [message_id for body, message_id in ids.items() if body not in model.messages][:3]
        with self.refusable():
            for body in taken:
                message = model.messages[body]
                if verb == "finish":
                    del model.messages[body]
                    self.removed.add((name, body))
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
            done = len(bodies)
            try:
                if verb == "finish":
                    done = sum(message_actions.finish_dead(channel, chosen))
                else:
                    done = sum(message_actions.requeue_dead(channel, chosen, rate=rate, now=now))
            except WouldBeDropped:
                assert model.policy.limits_waiting, "refused without a reason"
            except OSError as error:
                if not DISK.is_full and "no checkpoint was written" not in str(error):
                    raise
            # A later portion may have been refused; the earlier ones are done.
            left = {b64decode(message["body"]) for message in self.dead_of(channel)}
            model.messages |= {body: message for body, message in before.items() if body in left}
            assert done == len(bodies)

    @precondition(lambda self: self.model.channels and DISK.has_descriptors)
    @rule(
        data=st.data(),
        share=st.sampled_from([0.1, 0.5]),
        writes=st.sampled_from([0, 0, 1, 2, 3, 4, 6]),
        how=st.sampled_from(["before", "torn", "after"]),
        cut=st.integers(0, 47),
        killed=st.sampled_from([False, False, True]),
    )
    def move_the_dead(self, data: st.DataObject, share: float, writes: int, how: str, cut: int, killed: bool) -> None:
        """An operator buries messages, which the policy moves to the dead topic. A kill may come within, or follows."""
        policies = self.node.broker.runtime.policies
        values = {**policies.values.get(("t", "*"), {}), "dead_topic": DEAD_TOPIC}
        with self.refusable():
            ChannelModel.policy = policies.default.changed_by(values)
            self.node.broker.set_policy("t", "*", values)
        ChannelModel.policy = policy_for(self.node.broker.runtime.policies, "t", "a")
        if writes:
            self.light_fuse(writes=writes, how=how, cut=cut)
        if self.model.channels:
            self.act_on_messages(data=data, share=share, verb="bury", at_checkpoint=False, killed=killed)

    @precondition(lambda self: self.unstored)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def store(self, fails: bool) -> None:
        """What was published to the dead topic is on the disk, or an error is reported: it is published again."""
        end, done = self.unstored.pop(0)
        with self.step():
            if fails:
                self.moves_from = self.node.now + RETRY_S + DUE_TOLERANCE_S
            else:
                self.stored_end = max(self.stored_end, end)
            done(OSError(errno.EIO, os.strerror(errno.EIO)) if fails else None)

    @staticmethod
    def dead_of(channel: Channel) -> list[Any]:
        return list(peek(channel, PeekState.DEAD, offset=0, limit=10_000, max_body_bytes=10_000)["messages"])

    @precondition(lambda self: self.may_rewind and self.model.channels and DISK.has_descriptors)
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
        first = self.topic.log.first_seq  # above the routed end if all that waits was left out
        seq = data.draw(st.integers(first, max(first, self.topic.messages.routed_end)), label="seq")
        frames = {each: self.topic.log.frame(each) for each in range(seq, self.topic.messages.routed_end)}
        bodies = [bytes(frame[34:]) for frame in frames.values() if frame is not None]
        missing = (each for each, frame in frames.items() if frame is None)
        assert all(each in self.topic.messages.holes for each in missing), "what is kept can be read"
        if bodies:
            with self.refusable():
                for body in bodies:
                    kept, message = body not in self.emptied, model.messages.get(body)
                    comes_again = message is None or message.status is Status.DEAD
                    if kept and (comes_again or (seq < head and body not in self.deferred)):
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
            is_complete = self.removes_in_time and not self.may_redeliver
        self.reopen(is_complete=is_complete)

    def kill(self) -> None:
        is_complete = self.is_exact
        self.node.kill()
        self.reopen(is_complete=is_complete)

    def reopen(self, *, is_complete: bool) -> None:
        expected = self.model.restarted(self.node.now)
        FUSE.put_out()
        self._open()
        self.accept(self.found(), expected)
        if is_complete:
            check_same(self.model, expected)
        else:
            check_redelivered(self.model, expected, self.published, self.removed)
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
    @rule(
        awaits_lookup=st.booleans(), name=st.sampled_from([None, *CHANNELS]), again=st.booleans(), killed=st.booleans()
    )
    def make_the_topic_again(self, awaits_lookup: bool, name: str | None, again: bool, killed: bool) -> None:
        """The topic is deleted and created again, and a consumer subscribes, perhaps during the request to lookup;
        perhaps it is deleted again before lookup answers, and a kill follows."""
        self._delete_the_topic(awaits_lookup)
        if name is not None:
            self.subscribe(name=name, ready_count=3)
        if again:
            self._delete_the_topic(awaits_lookup)
            if self.awaited:
                self.lookup_answers()
        if killed:
            self.kill()

    def _delete_the_topic(self, awaits_lookup: bool) -> None:
        self.topics_made += 1
        self.knows_seen = False
        before, consumers = self.model, list(self.consumers)
        with self.step():
            self.model = TopicModel(awaits_lookup=awaits_lookup)
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
            if awaits_lookup:
                self.topic.suspend_routing()
                self.awaited.append(self.topic)

    @precondition(lambda self: self.awaited)
    @rule()
    def lookup_answers(self) -> None:
        """The topic may have been deleted meanwhile."""
        topic = self.awaited.pop(0)
        with self.step():
            if topic is self.topic:
                self.model.awaits_lookup = False
                self.model.route(self.node.now)
            topic.resume_routing()

    # -- disk and descriptors -------------------------------------------------------------------------------------

    @rule(is_drained=st.booleans(), takes_publishes=st.sampled_from([False, False, True]))
    def drain(self, is_drained: bool, takes_publishes: bool) -> None:
        """The node is drained, or no longer; a start ends it too. Consumers and operators notice nothing."""
        drain = self.node.broker.drain
        with self.step():
            if is_drained:
                drain.begin(timeout_s=60, takes_publishes=takes_publishes)
            else:
                was_drained = drain.draining is not None
                assert drain.cancel() == was_drained
            self.is_drained = is_drained and not takes_publishes
            queued = (Status.QUEUED, Status.IN_FLIGHT, Status.DEFERRED)
            left = sum(each.count(status) for each in self.model.channels.values() for status in queued)
            left += len(self.model.waiting) + sum(self.read_dead_topic().values())
            assert "busy" in self.node.broker.topics or drain.left == left

    @precondition(lambda self: DISK.has_descriptors)
    @rule(with_journal=st.booleans())
    def fill_the_disk(self, with_journal: bool) -> None:
        """No journal can be allocated and no checkpoint written; allocated ones may be full too."""
        DISK.is_full = self.was_full = True
        if with_journal and not self.is_drained:
            self.work_on_another_topic(count=400)

    @precondition(lambda self: DISK.is_full)
    @rule()
    def free_the_disk(self) -> None:
        DISK.is_full = False

    @precondition(lambda self: DISK.has_descriptors and not self.is_drained)
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
        pattern=st.sampled_from(
            ["checkpoint", "checkpoint.previous", "journal.*", "topics/t.*/*.idx", "topics/t.*/*.hdr"]
        ),
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
        self.may_lack_headers = pattern.endswith(".hdr")
        self.knows_seen = False
        self.node.kill()
        files = [path for path in sorted(self.path.glob(pattern)) if path.read_bytes().strip(b"\0")]
        if files:
            damage(files[at % len(files)], at, whole_page=whole_page)
        expected = self.model.restarted(self.node.now)
        goes_unnoticed = pattern.startswith("journal") and recover(self.path).state.is_complete
        self.node.open()
        self._opened()
        found = self.found()
        self.accept(found, expected, may_lose_topics=pattern.startswith("journal"))
        if (pattern.startswith("checkpoint") or pattern.endswith(".hdr")) and is_complete:
            check_same(found, expected)
        elif not (pattern.startswith("journal") and self.may_rewind):
            if pattern.startswith("journal"):
                expected.channels = {name: each for name, each in expected.channels.items() if name in found.channels}
                for name in found.channels.keys() - expected.channels.keys():  # it came back, and has what waited
                    for body in found.channels[name].messages:
                        expected.waiting.pop(body, None)
                found = found.copy()
                found.channels = {name: each for name, each in found.channels.items() if name in expected.channels}
            check_redelivered(found, expected, self.published, self.removed)
            assert goes_unnoticed or self.may_count_left_out or not self.node.broker.storage.lost_message_count
        self.may_redeliver = self.may_redeliver or pattern.endswith(".idx")
        # After damage of another kind, emptied messages may be redelivered.
        self.may_rewind = self.may_rewind and (pattern.startswith("checkpoint") or pattern.endswith(".hdr"))
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
    # A busy channel's messages come up to 10 ms late, in groups; the model has each at its time.
    monkeypatch.setattr(brokerd.channel, "BUSY_TICKS", sys.maxsize)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # the process is killed, the machine runs on
    monkeypatch.setattr(journal_module, "SNAPSHOTS_PER_PAUSE", 0)  # stories do not depend on how fast the machine is
    monkeypatch.setattr(Removal, "add", lambda self, directory: remove_log(directory))  # a killed process has no thread
    monkeypatch.setattr(Journal, "_put", fused_journal_put(Journal._put))
    monkeypatch.setattr(Journal, "_allocate", DISK.unless_full(Journal._allocate))
    monkeypatch.setattr(journal_module, "write_checkpoint", DISK.unless_full(journal_module.write_checkpoint))
    monkeypatch.setattr(Segment, "_mapped_again", DISK.unless_out_of_descriptors(Segment._mapped_again))
    monkeypatch.setattr(HeaderFile, "_write", DISK.unless_full(fused_header_write(HeaderFile._write)))
    monkeypatch.setattr(HeaderFile, "open", DISK.unless_out_of_descriptors_or_open(HeaderFile.open))
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
