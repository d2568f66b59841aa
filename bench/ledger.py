"""What a broker promised and what it then did: the account that a crash must not upset.

Written by producers and consumers as they go; the rules are checked as each message arrives, and at the end for those
that never did. Knows neither sockets nor processes, and is given every time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

EARLY_NS = 20_000_000
"""How much before its due time a message may seem to arrive: two clocks are compared."""
LAST_INSTANT_NS = 100_000_000
"""A FIN younger than this at the kill may be lost without breaking a promise; older ones may not."""


@dataclass(slots=True)
class Publish:
    """One message as its producer knows it."""

    topic: str
    defer_ms: int
    acknowledged: bool = False


@dataclass(slots=True)
class Progress:
    """One message as one channel's consumers have seen it."""

    message_id: bytes
    attempts: int
    life: int
    """In which life of the broker it was last delivered."""
    finished_ns: int | None = None
    confirmed: bool = False
    """The FIN was followed by an answer to a later command: the broker had worked through it."""
    not_before_ns: int = 0
    """A delayed REQ, once confirmed, forbids delivery before this."""
    requeue_due_ns: int = 0


@dataclass
class Ledger:
    """``violations`` are broken promises, in words; ``counts`` is how much was put to the test."""

    channels: tuple[str, ...]
    published: dict[int, Publish] = field(default_factory=dict)
    progress: dict[tuple[str, int], Progress] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    life: int = 0
    killed_ns: list[int] = field(default_factory=list)
    acknowledged_count: int = 0
    unfinished: set[tuple[str, int]] = field(default_factory=set)
    """(channel, serial) of what was acknowledged and no consumer has finished yet."""

    def publish(self, topic: str, defer_ms: int = 0) -> bytes:
        """Enter a new message and return its body, which no other message has."""
        serial = len(self.published)
        self.published[serial] = Publish(topic, defer_ms)
        return body_of(serial)

    def acknowledged(self, bodies: list[bytes]) -> None:
        """The broker answered OK: from now on it owes each of these to every channel."""
        for body in bodies:
            serial = serial_of(body)
            self.published[serial].acknowledged = True
            self.acknowledged_count += 1
            for channel in self.channels:
                progress = self.progress.get((channel, serial))
                if progress is None or progress.finished_ns is None:
                    self.unfinished.add((channel, serial))

    def delivered(
        self, topic: str, channel: str, message_id: bytes, timestamp_ns: int, attempts: int, body: bytes, now_ns: int
    ) -> int | None:
        """Hold one delivery against everything known; returns the message's serial, ``None`` if it is not ours."""
        self.counts["deliveries"] += 1
        serial = serial_of(body)
        publish = self.published.get(serial)
        if publish is None or body != body_of(serial) or publish.topic != topic:
            self.violations.append(f"{topic}/{channel} delivered {body[:60]!r}, which nobody published there")
            return None
        name = f"{topic}/{channel} message {serial} (attempt {attempts})"
        due = timestamp_ns + publish.defer_ms * 1_000_000
        if publish.defer_ms and attempts == 1:
            self.counts["deferred deliveries"] += 1
        if now_ns < due - EARLY_NS:
            self.violations.append(f"{name} came {(due - now_ns) / 1e6:.0f} ms before its deferral was over")
        progress = self.progress.get((channel, serial))
        if progress is None:
            self.progress[channel, serial] = Progress(message_id, attempts, self.life)
            return serial
        self.counts["redeliveries"] += 1
        if progress.message_id != message_id:
            self.violations.append(f"{name} changed its id from {progress.message_id!r} to {message_id!r}")
        if attempts < progress.attempts or (attempts == progress.attempts and self.life == progress.life):
            self.violations.append(f"{name} had attempt {progress.attempts} before")
        if now_ns < progress.not_before_ns - EARLY_NS:
            early_ms = (progress.not_before_ns - now_ns) / 1e6
            self.violations.append(f"{name} came {early_ms:.0f} ms before its requeue was due")
        if progress.finished_ns is not None:
            self._came_back_finished(name, progress)
        progress.attempts, progress.life = attempts, self.life
        progress.finished_ns, progress.confirmed = None, False
        progress.not_before_ns = progress.requeue_due_ns = 0
        if publish.acknowledged:
            self.unfinished.add((channel, serial))
        return serial

    def _came_back_finished(self, name: str, progress: Progress) -> None:
        assert progress.finished_ns is not None
        if progress.life == self.life:
            if progress.confirmed:
                self.violations.append(f"{name} came back although it was finished")
            return
        age_ns = self.killed_ns[progress.life] - progress.finished_ns
        if progress.confirmed and age_ns > LAST_INSTANT_NS:
            self.violations.append(f"{name} came back although it was finished {age_ns / 1e6:.0f} ms before the kill")
        elif progress.confirmed:
            self.counts["finished in the last instant, redelivered"] += 1
        else:
            self.counts["redelivered while their finish was under way"] += 1

    def finishing(self, channel: str, serial: int, now_ns: int) -> None:
        """A FIN is on its way."""
        self.progress[channel, serial].finished_ns = now_ns
        self.unfinished.discard((channel, serial))
        self.counts["finishes"] += 1

    def requeueing(self, channel: str, serial: int, due_ns: int) -> None:
        """A REQ is on its way; ``due_ns`` is now plus its delay."""
        self.progress[channel, serial].requeue_due_ns = due_ns
        self.counts["requeues"] += 1

    def refused(self, channel: str, serial: int, attempts: int) -> None:
        """The broker said that the message is not in flight any more: it timed out first, and will come again."""
        progress = self.progress[channel, serial]
        if progress.attempts != attempts:
            return  # it has come again already, and what counts is the answer given then
        progress.finished_ns, progress.requeue_due_ns = None, 0
        if self.published[serial].acknowledged:
            self.unfinished.add((channel, serial))

    def confirmed(self, channel: str, answers: Iterable[tuple[int, int]]) -> None:
        """The broker has worked through the answers given for these (serial, attempts)."""
        for serial, attempts in answers:
            progress = self.progress[channel, serial]
            if progress.attempts == attempts:
                progress.confirmed = progress.finished_ns is not None
                progress.not_before_ns = progress.requeue_due_ns

    def killed(self, now_ns: int) -> None:
        """The broker is dead; what comes next is from its next life."""
        self.killed_ns.append(now_ns)
        self.life += 1

    def close(self) -> None:
        """Everything there is has been delivered and finished: whatever is still owed was lost."""
        for channel, serial in sorted(self.unfinished):
            publish = self.published[serial]
            was = "never came back to be finished" if (channel, serial) in self.progress else "never came"
            self.violations.append(
                f"{publish.topic}/{channel} message {serial} (defer {publish.defer_ms} ms) was acknowledged and {was}"
            )


def body_of(serial: int) -> bytes:
    """A body that names its serial and can be told from a damaged one: 10 to some 700 bytes."""
    return b"%d:" % serial + random.Random(serial).randbytes(serial * 7919 % 701 + 9)


def serial_of(body: bytes) -> int:
    """The serial a body names, -1 if it names none."""
    number, colon, _ = body.partition(b":")
    return int(number) if colon and number.isdigit() and len(number) < 18 else -1
