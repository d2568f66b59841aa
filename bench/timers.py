"""The rows for many channels that have pending timers: deferred messages and message timeouts."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator

from bench import lateness, wire
from bench.lateness import Watched
from bench.load import Load
from bench.measure import Measured, Options, Row, create, mebibytes
from bench.processes import LoadProcesses
from bench.server import brokerd

CHANNELS_PER_TOPIC = 100
MESSAGES_PER_TOPIC = 5
WATCHED_CHANNELS = 200


def timers(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish deferred messages to many channels; on some of these, a consumer lets each message time out once.

    The consumer measures how late messages arrive, by the wall clock, which their timestamps come from.
    """
    topics = [f"timers{i}" for i in range(math.ceil(options.channels / CHANNELS_PER_TOPIC))]
    per_topic = min(CHANNELS_PER_TOPIC, options.channels)
    names = [f"c{i}" for i in range(per_topic)]
    channels = len(topics) * per_topic
    pairs = [(topic, name) for name in names for topic in topics]
    watched = pairs[: max(len(topics), WATCHED_CHANNELS)]
    commands = deferrals(options, topics)
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, dict.fromkeys(topics, names))
        before = server.processor_seconds()
        seen: Watched = processes.run(lateness.watch, server.tcp, watched, commands, len(watched) * MESSAGES_PER_TOPIC)
        fired = len(commands) * per_topic
        spent = Measured(Load(fired, seen.seconds, seen.processor_seconds), server.processor_seconds() - before, None)
        anonymous = mebibytes(server.anonymous_bytes())
    deferred = spent.row("timers defer", f"DPUB, lateness with {channels:,} channels", options)
    yield lateness.shown(deferred, seen.deferred_ns, anonymous)
    timed_out = Row(
        name="timers timeout",
        what=f"msg_timeout, lateness with {channels:,} channels",
        twin=options.twin,
        size=options.size,
        messages=len(seen.timeouts_ns),
        seconds=seen.seconds,
    )
    yield lateness.shown(timed_out, seen.timeouts_ns, anonymous)


def deferrals(options: Options, topics: list[str]) -> list[bytes]:
    """Return DPUB commands whose delays are spread over ``options.seconds``; each body begins with its delay."""
    dice = random.Random(1)
    commands = []
    for topic in topics * MESSAGES_PER_TOPIC:
        defer_ms = lateness.EARLIEST_MS + dice.randrange(int(options.seconds * 1000))
        body = struct.pack(">i", defer_ms).ljust(options.size, b"\0")
        commands.append(wire.dpub(topic, defer_ms, body))
    return commands
