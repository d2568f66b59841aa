"""The expected contents of a topic and its channels, with which the broker is compared.

Bodies identify messages. Times are monotonic seconds.
"""

from __future__ import annotations

import copy
import enum
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from brokerd.policy import Policy
from brokerd.publisher_actions import Outcome
from tests.brokerd.clockwork import MSG_TIMEOUT_S

MAX_MSG_TIMEOUT_S = 900.0
DUE_TOLERANCE_S = 1e-3


class Status(enum.Enum):
    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    DEFERRED = "deferred"
    DEAD = "dead"


@dataclass
class Expected:
    """One message of one channel. In flight to the client of number ``client`` until ``when``, or deferred until
    ``when``."""

    status: Status
    attempts: int = 0
    when: float = 0.0
    client: int = 0
    sent_at: float = 0.0
    message_id: bytes = b""
    failures: int = 0
    reason: str = ""
    """Why it died."""

    def requeue(self) -> None:
        self.status, self.when, self.client = Status.QUEUED, 0.0, 0

    def die(self, reason: str) -> None:
        self.status, self.when, self.client, self.reason = Status.DEAD, 0.0, 0, reason

    def revive(self, due: float = 0.0) -> None:
        self.attempts = self.failures = 0
        self.reason = ""
        self.defer(due) if due else self.requeue()

    def defer(self, due: float) -> None:
        self.status, self.when, self.client = Status.DEFERRED, due, 0


def number_of(body: bytes) -> int:
    """The place of a message in the order of publication."""
    return int(body[1 : body.index(b"-")])


@dataclass
class ChannelModel:
    """A channel's messages by body."""

    messages: dict[bytes, Expected] = field(default_factory=dict)
    paused: bool = False
    now: float = -math.inf
    """The time up to which events have passed; minus infinity if none have."""
    policy: ClassVar[Policy] = Policy()
    """That of all channels."""
    published_at: ClassVar[dict[bytes, float]] = {}
    """When each message was published."""

    def copy(self) -> ChannelModel:
        messages = {body: copy.copy(message) for body, message in self.messages.items()}
        return ChannelModel(messages, self.paused, self.now)

    def count(self, status: Status) -> int:
        return sum(message.status is status for message in self.messages.values())

    def in_flight_to(self, client: int) -> list[bytes]:
        return [body for body, message in self.messages.items() if message.client == client]

    def pass_time(self, now: float) -> None:
        """Messages that timed out or became due by ``now`` are ready, and those that are too old by then are gone.

        When several events are due, what is too much after one of them is gone before the next.
        """
        if math.isinf(self.now):
            self.now = now
        while (event := max(self._next_event(), self.now)) <= now:
            self._come_to(event)
            self._pass_event(event)
        self._come_to(now)

    def _come_to(self, when: float) -> None:
        if when > self.now:
            self.drop_excess()
        self.now = when

    def _next_event(self) -> float:
        timed = (each.when for each in self.messages.values() if each.status in (Status.IN_FLIGHT, Status.DEFERRED))
        expiring = (self.expires_at(body) for body, each in self.messages.items() if each.status is Status.QUEUED)
        return min([*timed, *expiring], default=math.inf)

    def _pass_event(self, now: float) -> None:
        for message in self.messages.values():
            if message.status is Status.IN_FLIGHT and message.when <= now:
                self.fail(message, message.when)
            if message.status is Status.DEFERRED and message.when <= now:
                message.requeue()
        expired = [body for body in self.queued() if self.expires_at(body) <= now]
        self._remove(expired, "expired", dies=self.policy.expired == "dead")

    def queued(self) -> list[bytes]:
        return [body for body, each in self.messages.items() if each.status is Status.QUEUED]

    def expires_at(self, body: bytes) -> float:
        ttl_s = self.policy.msg_ttl_ns / 1e9
        return self.published_at[body] + ttl_s if ttl_s else math.inf

    def drop_excess(self) -> None:
        """After the deliveries, the oldest of too many messages that wait are gone."""
        if self.policy.bounds_channel:
            waiting = sorted(self.queued(), key=number_of)
            excess = waiting[: max(0, len(waiting) - self.policy.max_depth)]
            self._remove(excess, "overflow", dies=self.policy.overflow == "dead")

    def _remove(self, bodies: list[bytes], reason: str, *, dies: bool) -> None:
        for body in bodies:
            if dies:
                self.messages[body].die(reason)
            else:
                del self.messages[body]

    def may_be_gone(self, body: bytes, now: float) -> bool:
        """True if the broker may have removed this message, or let it die, because of the limits of the policy."""
        return self.policy.bounds_channel or self.expires_at(body) <= now + DUE_TOLERANCE_S

    def fail(self, message: Expected, now: float, *, delay_s: float = 0.0, delays: bool = True) -> None:
        """A delivery failed: the message is ready again, after ``delay_s`` or by the policy, or dead."""
        if self.policy.counts_failures:
            message.failures += 1
        delay_s = delay_s or (self.policy.delay_s(message.failures) if delays else 0.0)
        message.defer(now + delay_s) if delay_s else message.requeue()
        if self.policy.is_last(message.failures):
            message.die("attempts")

    def cancel(self, body: bytes, due: float) -> Outcome:
        """What a cancel does here."""
        message = self.messages.get(body)
        if message is None:
            return Outcome.FINISHED
        if message.status is Status.IN_FLIGHT:
            return Outcome.IN_FLIGHT
        del self.messages[body]
        return Outcome.CANCELLED

    def defer(self, body: bytes, due: float) -> Outcome:
        """What a deferral until ``due`` does here."""
        message = self.messages.get(body)
        if message is None:
            return Outcome.FINISHED
        if message.status in (Status.IN_FLIGHT, Status.DEAD):
            return Outcome.IN_FLIGHT if message.status is Status.IN_FLIGHT else Outcome.DEAD
        message.defer(due)
        return Outcome.DEFERRED

    def deliver(self, body: bytes, attempts: int, client: int, message_id: bytes, now: float) -> None:
        """The broker sent a message: it must have been ready, and this must be its next attempt."""
        assert body in self.messages, f"{body[:20]!r} was sent, but is finished, dropped or was never published"
        message = self.messages[body]
        assert message.status is Status.QUEUED, f"{body[:20]!r} was sent while {message}"
        assert attempts == message.attempts + 1, f"{body[:20]!r} was sent at attempt {attempts}, it was {message}"
        message.status, message.attempts, message.client = Status.IN_FLIGHT, attempts, client
        message.sent_at, message.when, message.message_id = now, now + MSG_TIMEOUT_S, message_id

    def touch(self, body: bytes, now: float) -> None:
        message = self.messages[body]
        message.when = min(now + MSG_TIMEOUT_S, message.sent_at + MAX_MSG_TIMEOUT_S)

    def leave(self, client: int) -> None:
        for body in self.in_flight_to(client):
            self.fail(self.messages[body], 0.0, delays=False)


@dataclass
class TopicModel:
    """``waiting``: messages that no channel has received yet, body to seconds of deferral."""

    waiting: dict[bytes, float] = field(default_factory=dict)
    channels: dict[str, ChannelModel] = field(default_factory=dict)
    paused: bool = False
    awaits_lookup: bool = False
    """nsqlookupd is asked for its channels, and its messages wait."""

    def publish(self, bodies: list[bytes], defer_s: float, now: float) -> None:
        ChannelModel.published_at.update(dict.fromkeys(bodies, now))
        self.waiting.update(dict.fromkeys(bodies, defer_s))
        self.route(now)

    def admits(self, count: int) -> bool:
        """False if a bound of the topic refuses the publish of ``count`` messages."""
        most = max((channel.count(Status.QUEUED) for channel in self.channels.values()), default=0)
        policy = ChannelModel.policy
        return not policy.bounds_topic or len(self.waiting) + most + count <= policy.max_depth

    def route(self, now: float) -> None:
        """Give the waiting messages to the channels, unless they must wait."""
        if self.paused or self.awaits_lookup or not self.channels:
            return
        for body, defer_s in self.waiting.items():
            for channel in self.channels.values():
                message = channel.messages[body] = Expected(Status.QUEUED)
                if defer_s:
                    message.defer(now + defer_s)
        self.waiting.clear()

    def pass_time(self, now: float) -> None:
        for channel in self.channels.values():
            channel.pass_time(now)

    def copy(self) -> TopicModel:
        channels = {name: channel.copy() for name, channel in self.channels.items()}
        return TopicModel(dict(self.waiting), channels, self.paused, self.awaits_lookup)

    def restarted(self, now: float) -> TopicModel:
        """The state after a restart: messages in flight are ready, and ephemeral ones are gone."""
        again = self.copy()
        again.channels = {name: each for name, each in again.channels.items() if not name.endswith("#ephemeral")}
        for channel in again.channels.values():
            for message in channel.messages.values():
                if message.status is Status.IN_FLIGHT:
                    message.requeue()
        again.awaits_lookup = False
        again.route(now)
        return again

    def owed(self, name: str) -> set[bytes]:
        """The messages that a channel has, or receives once it exists and the topic routes its messages."""
        channel = self.channels.get(name)
        return set(self.waiting) | set(channel.messages if channel else ())


def check_same(found: TopicModel, expected: TopicModel) -> None:
    """A restart between two steps leaves exactly the same state."""
    assert (found.paused, found.waiting.keys()) == (expected.paused, expected.waiting.keys())
    assert found.channels.keys() == expected.channels.keys()
    for name, channel in expected.channels.items():
        assert found.channels[name].paused == channel.paused
        is_, was = found.channels[name].messages, channel.messages
        assert is_.keys() == was.keys(), f"{name}: missing {was.keys() - is_.keys()}, strange {is_.keys() - was.keys()}"
        for body, message in channel.messages.items():
            is_ = found.channels[name].messages[body]
            same = is_.status is message.status and abs(is_.when - message.when) < DUE_TOLERANCE_S
            same = same and (is_.attempts, is_.failures) == (message.attempts, message.failures)
            same = same and is_.reason == message.reason
            assert same, f"{body[:20]!r}: {is_}, but it was {message}"


def check_redelivered(
    found: TopicModel, expected: TopicModel, published: set[bytes], removed: set[tuple[str, bytes]]
) -> None:
    """After a restart with dropped or damaged records, no message is lost, but some may be redelivered.

    ``removed`` are the channels and messages that were removed, or moved to the dead topic, at any time: such a message
    may have come back after one restart with dropped records, and may be gone again after another.
    """
    assert found.channels.keys() == expected.channels.keys()
    lost = expected.waiting.keys() - found.waiting.keys()
    for name in expected.channels:
        lost &= {body for body in lost if body not in found.owed(name)} if found.channels else lost
        missing = expected.owed(name) - found.owed(name) - expected.waiting.keys()
        missing -= {body for channel, body in removed if channel == name}
        assert not missing, f"channel {name} lost {sorted(missing)[:3]}"
        strange = found.owed(name) - published
        assert not strange, f"channel {name} has what was never published: {sorted(strange)[:3]}"
    assert not lost, f"the topic lost {sorted(lost)[:3]}"


def check_killed(
    found: TopicModel,
    before: TopicModel,
    after: TopicModel,
    *,
    published: set[bytes],
    sent: dict[tuple[str, bytes], int],
    moved: Counter[bytes],
    now: float,
) -> None:
    """What a kill in the middle of one step may leave: each message as before the step, or as after it, which are given
    as a restart between steps would have left them.

    ``published`` was given to the topic during the step: it may not have come further yet. ``sent`` are the attempts of
    what was sent during the step. Each of them counts: the journal takes a delivery before it is sent. One that it took
    and that was not sent any more counts too. ``moved`` is how often each message was published to the dead topic.
    """
    assert found.paused in (before.paused, after.paused)
    lost = (before.waiting.keys() & after.waiting.keys()) - found.waiting.keys()
    assert not lost, f"the topic lost {sorted(lost)[:3]}"
    again = found.waiting.keys() - before.waiting.keys() - after.waiting.keys() - published
    assert not again, f"the topic has what it gave away: {sorted(again)[:3]}"
    missing = (before.channels.keys() & after.channels.keys()) - found.channels.keys()
    assert not missing, f"channels are gone: {missing}"
    for name, channel in found.channels.items():
        assert name in before.channels or name in after.channels, f"channel {name} came back"
        known = before.owed(name) | after.owed(name)
        assert channel.messages.keys() <= known, f"came back: {sorted(channel.messages.keys() - known)[:3]}"
        if name in before.channels and name in after.channels:
            attempts = {body: count for (of, body), count in sent.items() if of == name}
            _check_channel(name, found, before, after, attempts, moved, now)


def _check_channel(
    name: str,
    found: TopicModel,
    before: TopicModel,
    after: TopicModel,
    sent: dict[bytes, int],
    moved: Counter[bytes],
    now: float,
) -> None:
    was, will_be, is_ = before.channels[name], after.channels[name], found.channels[name]
    assert is_.paused in (was.paused, will_be.paused)
    owed = will_be.messages.keys() & before.owed(name)
    gone = owed - is_.messages.keys() - found.waiting.keys()
    lost = {body for body in gone if not is_.may_be_gone(body, now)}
    has_left = {body for body in lost if moved[body]}
    moved.subtract(has_left)  # each copy is that of one channel
    lost -= has_left
    assert not lost, f"channel {name} lost {sorted(lost)[:3]}"
    for body in owed & is_.messages.keys():
        message = is_.messages[body]
        states = [each.messages[body] for each in (was, will_be) if body in each.messages]
        shown = f"{body[:20]!r}: {message}, but it was {states}"
        if message.reason in ("expired", "overflow") and is_.may_be_gone(body, now):
            continue
        _check_failures(message, states, is_.policy, shown, now)
        if Status.DEAD in (message.status, *(each.status for each in states)):
            continue
        lowest = max(min(each.attempts for each in states), sent.get(body, 0))
        assert lowest <= message.attempts <= lowest + 1, shown
        if message.status is Status.DEFERRED and message.failures > states[0].failures:
            continue
        dues = [each.when for each in states if each.status is Status.DEFERRED]
        if message.status is Status.DEFERRED:
            assert any(abs(message.when - due) < DUE_TOLERANCE_S for due in dues), shown
        elif len(dues) == len(states):
            assert min(dues) <= now, f"{shown}: before its time"


def _check_failures(message: Expected, states: list[Expected], policy: Policy, shown: str, now: float) -> None:
    """Each failure counts once. The step may have come further than the model: up to two timeouts of one message."""
    fewest, most = min(each.failures for each in states), max(each.failures for each in states)
    if all(each.status is Status.DEAD for each in states):
        assert (message.status, message.failures) == (Status.DEAD, most), shown
    elif message.status is Status.DEAD and all(each.status is not Status.DEAD for each in states):
        assert policy.is_last(message.failures), shown
    else:
        assert fewest <= message.failures <= most + 2, shown
    if message.status is Status.DEFERRED and message.failures > fewest and not policy.delay_s(1):
        assert any(each.when for each in states), shown
    if message.status is Status.DEFERRED and message.failures > states[0].failures:
        latest = max([now + policy.delay_s(message.failures), *(each.when for each in states)])
        assert message.when <= latest + DUE_TOLERANCE_S, shown
