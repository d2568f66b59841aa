"""The row for messages that expire on many channels, and how late they die."""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from bench import lateness, load, wire
from bench.errors import BenchError
from bench.load import Clock, Load
from bench.measure import Options, Row, ask, ask_all, create, measure
from bench.policies import set_policy
from bench.processes import LoadProcesses
from bench.server import Server, brokerd
from bench.timers import CHANNELS_PER_TOPIC

TTL_MS = 3000
MESSAGES_PER_TOPIC = 1
SETTLE_S = 1.0
PATIENCE_S = 120.0


def expired(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish messages to many channels without consumers, where they expire and die. How late is measured by the
    broker's own times: a message's timestamp, its time to live, and when it died."""
    topics = [f"expired{i}" for i in range(math.ceil(options.channels / CHANNELS_PER_TOPIC))]
    names = [f"c{i}" for i in range(min(CHANNELS_PER_TOPIC, options.channels))]
    count = len(topics) * len(names) * MESSAGES_PER_TOPIC
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, dict.fromkeys(topics, names))
        set_policy(server, {"msg_ttl": f"{TTL_MS}ms", "expired": "dead"})
        died = measure(server, lambda: expire(server, topics, options, count))
        paths = [f"/channel/peek?topic={topic}&channel={name}&state=dead" for topic in topics for name in names]
        late = array("q", map(late_ns, dead_messages(ask_all(server.http, "GET", paths))))
    if len(late) != count:
        raise BenchError(f"{len(late)} of {count} messages are dead")
    row = died.row("expired", f"msg_ttl, lateness with {len(paths):,} channels", options)
    yield lateness.shown(row, late, row.anonymous_mb)


def expire(server: Server, topics: list[str], options: Options, count: int) -> Load:
    """Publish to each topic, evenly over ``--seconds``, and wait until ``count`` messages have died."""
    sock, replies = load.publisher(server.tcp)
    clock = Clock()
    with sock:
        for topic in topics * MESSAGES_PER_TOPIC:
            time.sleep(options.seconds / len(topics) / MESSAGES_PER_TOPIC)
            sock.sendall(wire.pub(topic, options.body))
            replies.wait(1)
    until = time.monotonic() + PATIENCE_S
    time.sleep(TTL_MS / 1000 + SETTLE_S)  # Statistics of many channels would delay what expires meanwhile.
    while waiting(server):
        if time.monotonic() > until:
            raise BenchError("some messages have not expired")
        time.sleep(SETTLE_S)
    return clock.load(count)


def waiting(server: Server) -> int:
    stats = json.loads(ask(server.http, "GET", "/stats?format=json"))
    return sum(channel["depth"] for topic in stats["topics"] for channel in topic["channels"])


def dead_messages(answers: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        yield from json.loads(answer)["messages"]


def late_ns(message: dict[str, Any]) -> int:
    return int(message["death"]["died"]) - int(message["timestamp"]) - TTL_MS * 1_000_000
