"""One sentence about a channel, from its figures. No clock and no I/O: figures and times are arguments.

The first rule that applies determines the sentence, in the order of :func:`diagnose`. An unknown figure is None, and a
rule that needs it does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Literal, NamedTuple

Cause = Literal[
    "topic_paused",
    "paused",
    "no_consumer",
    "requeued",
    "timed_out",
    "not_ready",
    "stuck",
    "growing",
    "draining",
    "deferred",
    "keeping_up",
    "no_backlog",
    "idle",
    "unknown",
]
SMALLEST_RATE = 0.05
"""Lower rates, in messages per second, count as 0, as on the pages."""
FAILING_SHARE = 0.1
"""Requeues or timeouts are the cause of a backlog if they end at least this share of the deliveries."""
KEEPS_UP_SHARE = 0.95
"""Consumers keep up if they finish at least this share of the incoming messages; the rest is in flight or deferred."""


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Time and author of a pause; None and empty if the audit trail does not have it."""

    since: datetime | None = None
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class ChannelFigures:
    """Figures of one channel at ``now``, over all nodes. Rates are per second, means of the last minute."""

    depth: int
    in_flight_count: int
    deferred_count: int
    client_count: int
    publish_rate: float | None
    finish_rate: float | None
    requeue_rate: float | None
    timeout_rate: float | None
    ready_count: int | None = None
    """Sum of the clients' RDY counts."""
    pause: Pause | None = None
    topic_pause: Pause | None = None
    topic_depth: int = 0
    paused_nodes: int = 0
    nodes: int = 1
    """Number of nodes that have the channel."""
    no_consumer_s: float | None = None
    """Time since the last record with a consumer; None if the newest record has one."""
    no_consumer_before: bool = False
    """Whether ``no_consumer_s`` reaches back to the first record, so that the time may be longer."""
    now: datetime
    down: tuple[str, ...] = ()
    """The nodes that have the channel and do not answer. The counts include their last known ones."""


class Diagnosis(NamedTuple):
    cause: Cause
    text: str


def diagnose(figures: ChannelFigures, zone: tzinfo) -> Diagnosis:
    """The sentence. ``zone`` is for times of day."""
    cause, text = _cause(figures, zone)
    if figures.down:
        silent = figures.down[0] if len(figures.down) == 1 else f"{len(figures.down)} nodes"
        text += (
            f" ({silent} {'does' if len(figures.down) == 1 else 'do'} not answer; counts include the last known values)"
        )
    return Diagnosis(cause, text[:1].upper() + text[1:])


def _cause(of: ChannelFigures, zone: tzinfo) -> Diagnosis:
    if of.pause is not None:
        return Diagnosis("paused", _paused(of, of.pause, zone))
    if of.topic_pause is not None:
        waiting = f"{_messages(of.topic_depth)} in the topic" if of.topic_depth else "new messages stay in the topic"
        return Diagnosis("topic_paused", f"Topic paused{_since(of.topic_pause, of.now, zone)}: {waiting}")
    if of.client_count == 0:
        return Diagnosis("no_consumer", _no_consumer(of))
    rates = (of.publish_rate, of.finish_rate, of.requeue_rate, of.timeout_rate)
    if any(rate is None for rate in rates):
        return Diagnosis("unknown", f"{_consumers(of)}, {_waiting(of.depth)}; rates are not known yet")
    return _with_rates(of, *(rate or 0.0 for rate in rates))


def _with_rates(of: ChannelFigures, published: float, finished: float, requeued: float, timed_out: float) -> Diagnosis:
    deliveries = finished + requeued + timed_out
    failures: tuple[tuple[Cause, float, str], ...] = (
        ("requeued", requeued, "is requeued"),
        ("timed_out", timed_out, "times out"),
    )
    for cause, failed, verb in failures:
        if failed >= SMALLEST_RATE and failed >= FAILING_SHARE * deliveries:
            text = f"{_every(failed / deliveries)} delivery {verb}: {_rate(failed)} of {_rate(deliveries)}"
            return Diagnosis(cause, f"{text}; {_waiting(of.depth)}")
    if of.depth == 0 or (of.depth < finished and finished >= KEEPS_UP_SHARE * published):  # less than a second's work
        return _without_backlog(of, published, finished)
    if finished < SMALLEST_RATE:
        if of.ready_count == 0:
            return Diagnosis("not_ready", f"{_consumers(of)}, not ready for messages (RDY 0): {_waiting(of.depth)}")
        return Diagnosis("stuck", f"{_rate(published)} in, nothing is finished: {_consumers(of)}; {_waiting(of.depth)}")
    per_message = _seconds(of.in_flight_count / finished)
    text = f"{_rate(published)} in, {_rate(finished)} out: {_consumers(of)}, {per_message} a message"
    if finished > published:
        return Diagnosis("draining", f"{text}; at this rate it drains in {_span(of.depth / (finished - published))}")
    return Diagnosis("growing", f"{text}; at this rate it never drains")


def _without_backlog(of: ChannelFigures, published: float, finished: float) -> Diagnosis:
    if published < SMALLEST_RATE and finished < SMALLEST_RATE:
        if of.deferred_count:
            return Diagnosis("deferred", f"No message is waiting; {of.deferred_count:,} deferred")
        return Diagnosis("idle", f"Idle: no message is waiting, {of.in_flight_count:,} in flight")
    rates = f"{_rate(published)} in, {_rate(finished)} out, {_consumers(of)}"
    if finished >= KEEPS_UP_SHARE * published:
        return Diagnosis("keeping_up", f"Keeps up: {rates}")
    return Diagnosis("no_backlog", f"No message is waiting: {rates}, {of.deferred_count:,} deferred")


def _paused(of: ChannelFigures, pause: Pause, zone: tzinfo) -> str:
    where = f" on {of.paused_nodes} of {of.nodes} nodes" if of.paused_nodes < of.nodes else ""
    return f"Paused{where}{_since(pause, of.now, zone)}: {_waiting(of.depth)}"


def _since(pause: Pause, now: datetime, zone: tzinfo) -> str:
    since = f" since {_time(pause.since, now, zone)}" if pause.since else ""
    return f"{since} by {pause.by}" if pause.by else since


def _no_consumer(of: ChannelFigures) -> str:
    if of.no_consumer_s is None:
        since = ""
    else:
        since = f" for {'at least ' if of.no_consumer_before else ''}{_span(of.no_consumer_s)}"
    published = f", {_rate(of.publish_rate)} in" if (of.publish_rate or 0.0) >= SMALLEST_RATE else ""
    return f"No consumer{since}: {_waiting(of.depth)}{published}"


def _consumers(of: ChannelFigures) -> str:
    """``one consumer, 10 of 10 in flight``; without the sum of RDY counts if that is not known, or 0."""
    number = "one consumer" if of.client_count == 1 else f"{of.client_count:,} consumers"
    of_ready = f" of {of.ready_count:,}" if of.ready_count else ""
    return f"{number}, {of.in_flight_count:,}{of_ready} in flight"


def _waiting(depth: int) -> str:
    return f"{_messages(depth)} waiting" if depth else "no message is waiting"


def _messages(count: int) -> str:
    return f"{count:,} {'message' if count == 1 else 'messages'}"


def _every(share: float) -> str:
    """The share of failed deliveries: ``Every``, ``Nearly every``, ``About every third``."""
    if share >= 0.995:
        return "Every"
    if share >= 0.75:
        return "Nearly every"
    number = round(1 / share)
    if number < 2:
        return "More than every second"
    words = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
    return f"About every {words.get(number, f'{number}th')}"


def _rate(rate: float | None) -> str:
    """As pages show rates: ``0/s``, ``0.4/s``, ``34/s``, ``1,250/s``."""
    if rate is None or rate < SMALLEST_RATE:
        return "0/s"
    return f"{rate:.1f}/s".replace(".0/s", "/s") if rate < 9.95 else f"{rate:,.0f}/s"


def _seconds(seconds: float) -> str:
    """The time of one message: ``0.6 s``, ``12 ms``."""
    if seconds < 0.0995:
        return f"{max(seconds * 1000, 0.1):.{1 if seconds < 0.00995 else 0}f} ms"
    return f"{seconds:.1f} s" if seconds < 99.5 else _span(seconds)


def _span(seconds: float) -> str:
    """A time in whole units: ``40 s``, ``6 min``, ``3 h``, ``12 d``; ``more than a year``."""
    for limit, unit, name in ((90, 1, "s"), (5_400, 60, "min"), (129_600, 3_600, "h"), (31_536_000, 86_400, "d")):
        if seconds < limit:
            return f"{max(1, round(seconds / unit))} {name}"
    return "more than a year"


def _time(at: datetime, now: datetime, zone: tzinfo) -> str:
    """``14:02``, with the date if it is not of the last 24 hours."""
    local = at.astimezone(zone)
    return f"{local:%H:%M}" if now - at < timedelta(days=1) else f"{local.day} {local:%b %Y %H:%M}"
