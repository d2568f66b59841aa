"""A ledger of a broker's guarantees and deliveries, which must agree after every crash.

Producers and consumers write to it. The rules are checked as each message arrives, and at the end for those that never
arrived. It uses neither sockets nor processes, and takes every time as an argument.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

EARLY_NS = 20_000_000
"""How early a message may appear to arrive, because two clocks are compared."""
LAST_INSTANT_NS = 100_000_000
"""A FIN sent less than this before the kill may be lost; an older one must not."""


@dataclass(slots=True)
class Publish:
    """One message as its producer knows it."""

    topic: str
    defer_ms: int
    acknowledged: bool = False


@dataclass(slots=True)
class Progress:
    """One message on one channel, as its consumers have seen it."""

    message_id: bytes
    attempts: int
    life: int
    """Number of broker starts before its last delivery."""
    consumer: int
    """The connection that received its last delivery."""
    finished_ns: int | None = None
    confirmed: bool = False
    """Whether a command after the FIN was answered, so that the broker has processed the FIN."""
    not_before_ns: int = 0
    """After a confirmed REQ with a delay, the earliest permitted delivery."""
    requeue_due_ns: int = 0


@dataclass
class Ledger:
    """Messages as their producers and consumers know them, and the guarantees that the broker violated."""

    channels: tuple[str, ...]
    published: dict[int, Publish] = field(default_factory=dict)
    progress: dict[tuple[str, int], Progress] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    """A sentence for each violated guarantee."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of events by kind, such as deliveries."""
    life: int = 0
    killed_ns: list[int] = field(default_factory=list)
    acknowledged_count: int = 0
    unfinished: set[tuple[str, int]] = field(default_factory=set)
    """(channel, serial) of messages that were acknowledged and not finished yet."""

    def publish(self, topic: str, defer_ms: int = 0) -> bytes:
        """Record a new message and return its unique body."""
        serial = len(self.published)
        self.published[serial] = Publish(topic, defer_ms)
        return body_of(serial)

    def acknowledged(self, bodies: list[bytes]) -> None:
        """Record that the broker answered OK: every channel must deliver each of these messages."""
        for body in bodies:
            serial = serial_of(body)
            self.published[serial].acknowledged = True
            self.acknowledged_count += 1
            for channel in self.channels:
                progress = self.progress.get((channel, serial))
                if progress is None or progress.finished_ns is None:
                    self.unfinished.add((channel, serial))

    def delivered(
        self,
        topic: str,
        channel: str,
        message_id: bytes,
        timestamp_ns: int,
        attempts: int,
        body: bytes,
        now_ns: int,
        consumer: int = 0,
    ) -> int | None:
        """Check one delivery to the connection ``consumer``. Returns the message's serial, or None if it needs no
        answer: it was not published here, or a later delivery was read first, on another connection."""
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
            self.progress[channel, serial] = Progress(message_id, attempts, self.life, consumer)
            return serial
        self.counts["redeliveries"] += 1
        if progress.message_id != message_id:
            self.violations.append(f"{name} changed its id from {progress.message_id!r} to {message_id!r}")
        is_same_life = self.life == progress.life
        if attempts < progress.attempts and is_same_life and consumer != progress.consumer:
            self.counts["read after a later delivery"] += 1
            return None
        if attempts < progress.attempts or (attempts == progress.attempts and is_same_life):
            when = "" if is_same_life else ", and then a kill"
            self.violations.append(f"{name} had attempt {progress.attempts} before{when}")
        if now_ns < progress.not_before_ns - EARLY_NS:
            early_ms = (progress.not_before_ns - now_ns) / 1e6
            self.violations.append(f"{name} came {early_ms:.0f} ms before its requeue was due")
        if progress.finished_ns is not None:
            self._came_back_finished(name, progress)
        progress.attempts, progress.life, progress.consumer = attempts, self.life, consumer
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
        """Record that a FIN is being sent."""
        self.progress[channel, serial].finished_ns = now_ns
        self.unfinished.discard((channel, serial))
        self.counts["finishes"] += 1

    def requeueing(self, channel: str, serial: int, due_ns: int) -> None:
        """Record that a REQ is being sent; ``due_ns`` is now plus its delay."""
        self.progress[channel, serial].requeue_due_ns = due_ns
        self.counts["requeues"] += 1

    def refused(self, channel: str, serial: int, attempts: int) -> None:
        """Record that the broker refused an answer, because the message has timed out and will be redelivered."""
        progress = self.progress[channel, serial]
        if progress.attempts != attempts:
            return  # it has been redelivered already, and the answer to that delivery counts
        progress.finished_ns, progress.requeue_due_ns = None, 0
        if self.published[serial].acknowledged:
            self.unfinished.add((channel, serial))

    def confirmed(self, channel: str, answers: Iterable[tuple[int, int]]) -> None:
        """Record that the broker has processed the answers to these (serial, attempts)."""
        for serial, attempts in answers:
            progress = self.progress[channel, serial]
            if progress.attempts == attempts:
                progress.confirmed = progress.finished_ns is not None
                progress.not_before_ns = progress.requeue_due_ns

    def killed(self, now_ns: int) -> None:
        """Record that the broker was killed at this time; later deliveries are from its next start."""
        self.killed_ns.append(now_ns)
        self.life += 1

    def close(self) -> None:
        """End the ledger after the drain: acknowledged messages that are not finished are lost."""
        for channel, serial in sorted(self.unfinished):
            publish = self.published[serial]
            was = "never came back to be finished" if (channel, serial) in self.progress else "never came"
            self.violations.append(
                f"{publish.topic}/{channel} message {serial} (defer {publish.defer_ms} ms) was acknowledged and {was}"
            )


def body_of(serial: int) -> bytes:
    """Return the body of a message: its serial and bytes derived from it, together 11 to about 720 bytes."""
    return b"%d:" % serial + random.Random(serial).randbytes(serial * 7919 % 701 + 9)


def serial_of(body: bytes) -> int:
    """Return the serial of a body, or -1 if the body is invalid."""
    number, colon, _ = body.partition(b":")
    return int(number) if colon and number.isdigit() and len(number) < 18 else -1
