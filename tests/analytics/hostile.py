"""Random archives of small clusters, made from a seed, with the irregularities of real ones.

Restarts, gaps, silent hours, readings there twice, late and shuffled ones, topics and channels deleted and created
again, a collector's clock set back, two collectors, times on a window's boundary, counts up to 10^17, Go nodes (which
read their figures at several instants, and restart with a backlog), and archives from before readings had an uptime, or
dead and dropped messages, which may begin within a process. All times are multiples of 1/64 s, so that sums of seconds
are exact.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nsqanalytics.schema import Sample

TICK = timedelta(microseconds=15_625)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HUGE = 10**17


@dataclass
class Figures:
    """The counters and gauges of a topic (``channel`` None) or a channel."""

    topic: str
    channel: str | None
    message_count: int = 0
    message_bytes: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    died_count: int = 0
    dropped_count: int = 0
    buckets: Counter[int] = field(default_factory=Counter)
    zeros: int = 0
    backlog: int = 0
    """Messages that waited when the process of a Go node began: it does not count them as received."""

    @property
    def left(self) -> int:
        """Unfinished messages of a channel."""
        return self.backlog + self.message_count - self.finish_count

    @property
    def finish_count(self) -> int:
        return self.zeros + self.buckets.total()

    def work(self, rng: random.Random, amount: int) -> None:
        """Publish some messages, and finish some of the waiting ones."""
        if self.channel is None:
            self.message_count += amount
            self.message_bytes += amount * rng.randrange(1, 100)
            return
        self.message_count += amount
        ready = self.left
        for _ in range(rng.randrange(3)):
            finished = rng.randrange(ready + 1)
            ready -= finished
            if rng.random() < 0.1:
                self.zeros += finished
            else:
                self.buckets[rng.randrange(600, 640)] += finished
        self.requeue_count += rng.choice((0, 0, 1))
        self.timeout_count += rng.choice((0, 0, 0, 2))
        self.died_count += rng.choice((0, 0, 3))
        self.dropped_count += rng.choice((0, 0, 0, 5))


class Node:
    """One broker's true state: counters since its start, its age, and whether it is a Go node."""

    def __init__(self, rng: random.Random, name: str, now: datetime) -> None:
        self.rng, self.name = rng, name
        self.races = random.Random(name)
        self.kind = rng.choice(("ours", "ours", "old", "go"))
        self.topics = rng.choice((("t",), ("t", "u")))
        self.is_huge = rng.random() < 0.15
        self.idleness = rng.choice((0.0, 0.3, 0.9))
        self.boots = 0
        self.figures: dict[tuple[str, str | None], Figures] = {}
        self.restart(now, now - rng.choice((timedelta(0), timedelta(hours=9))))

    def restart(self, now: datetime, started_at: datetime) -> None:
        self.boots += 1
        self.started_at = started_at
        before = self.figures
        self.figures = {}
        for topic in self.topics:
            self.create(topic)
        if self.kind == "go":
            for key, figures in self.figures.items():
                if key[1] is not None and key in before:
                    figures.backlog = before[key].left
        if started_at < now:
            self.work(50)

    def create(self, topic: str) -> None:
        for channel in (None, *("ab"[: self.rng.randrange(1, 3)])):
            self.figures[topic, channel] = Figures(topic, channel)

    def delete_something(self) -> None:
        """Delete a channel, or a topic with everything in it; it is created again at once, or later."""
        topic, channel = self.rng.choice(sorted(self.figures, key=str)) if self.figures else (self.topics[0], None)
        for key in [key for key in self.figures if key[0] == topic and channel in (None, key[1])]:
            del self.figures[key]
        if self.rng.random() < 0.7:
            if channel is None:
                self.create(topic)
            else:
                self.figures[topic, channel] = Figures(topic, channel)

    def work(self, factor: int = 1) -> None:
        scale = HUGE // 1000 if self.is_huge else 20
        for figures in self.figures.values():
            if self.rng.random() >= self.idleness:
                figures.work(self.rng, self.rng.randrange(scale) * factor)

    def read(self, now: datetime, taken_at: datetime, *, counts_dead: bool) -> list[Sample]:
        uptime = (now - self.started_at) // timedelta(microseconds=1) * 1000 if self.kind == "ours" else None
        read = [self._sample(figures, taken_at, uptime) for figures in self.figures.values()]
        lacking = dict.fromkeys(("dead_count", "died_count", "dropped_count"))
        return read if counts_dead else [replace(sample, **lacking) for sample in read]

    def _sample(self, figures: Figures, taken_at: datetime, uptime_ns: int | None) -> Sample:
        has_histogram = figures.channel is not None and self.kind != "go"
        first = min(figures.buckets, default=600)
        dense = [figures.buckets[n] for n in range(first, max(figures.buckets, default=599) + 1)]
        left = figures.left if figures.channel is not None else 0
        if self.kind == "go":  # its figures are not read at one instant
            left = max(0, left + self.races.choice((-2, 0, 0, 1)))
        in_flight = min(left, 3)
        return Sample(
            taken_at=taken_at,
            node=self.name,
            boot_id=f"{self.name}-{self.boots}",
            started_at=self.started_at,
            uptime_ns=uptime_ns,
            topic=figures.topic,
            channel=figures.channel,
            depth=left - in_flight,
            in_flight_count=in_flight,
            client_count=in_flight,
            message_count=figures.message_count,
            message_bytes=figures.message_bytes,
            requeue_count=figures.requeue_count,
            timeout_count=figures.timeout_count,
            dead_count=figures.died_count % 5,
            died_count=figures.died_count,
            dropped_count=figures.dropped_count,
            oldest_unfinished_age_ns=left or None,
            finish_count=figures.finish_count if has_histogram else None,
            hist_zero_count=figures.zeros if has_histogram else None,
            hist_offset=first if has_histogram else None,
            hist_counts=dense if has_histogram else None,
        )


def hostile_archive(seed: int, began: datetime) -> list[Sample]:
    """The samples in the order of writing, which is not that of time."""
    rng = random.Random(seed)
    samples = [sample for n in range(rng.randrange(1, 3)) for sample in _samples_of(rng, f"{seed}.{n}", began)]
    samples += rng.sample(samples, rng.choice((0, len(samples) // 4)))
    if rng.random() < 0.5:
        rng.shuffle(samples)
    return samples


def _samples_of(rng: random.Random, name: str, now: datetime) -> Iterator[Sample]:
    node = Node(rng, name, now)
    every = rng.choice((10 * SECOND, 40 * SECOND, 3 * MINUTE))
    missed, deletes = rng.choice((0.0, 0.1, 0.5)), rng.choice((0.0, 0.05))
    set_back_at, set_back = rng.randrange(120), rng.choice((1, 1, 5, 20)) * MINUTE
    error = timedelta(0)
    upgraded_at, is_mixed = rng.choice((0, 5, 15, 99)), rng.random() < 0.1
    skew = rng.choice((0, 0, 0, 7, 130)) * SECOND
    for step in range(rng.randrange(10, 60)):
        now += every + rng.randrange(64) * TICK
        if rng.random() < 0.05:
            now += rng.choice((5, 70, 200)) * MINUTE
        if rng.random() < 0.1:  # on the boundary of a window, or of an hour
            seconds = rng.choice((300, 3600))
            now += timedelta(seconds=seconds - now.timestamp() % seconds)
        if rng.random() < 0.04:
            node.restart(now, now - rng.randrange(1, 9) * SECOND)
        if rng.random() < deletes:
            node.delete_something()
        node.work()
        if step == set_back_at // 3:
            error = set_back if rng.random() < 0.5 else timedelta(0)
        if rng.random() >= missed:
            counts_dead = step >= upgraded_at and not (is_mixed and step % 2)
            yield from node.read(now, now - error - (skew if step % 2 else timedelta(0)), counts_dead=counts_dead)
