"""A simulated cluster: the HTTP API of nodes and a registry, with figures that change at each request.

``python -m bench.simulated --nodes 20 --topics 1000 --channels 5 --clients 50000`` serves ``/stats`` and ``/info`` of
these nodes, each on its own port, and the registry that lists them. Half of the nodes are ours (histograms, ages, a
boot id), the others are Go's (percentiles). Each topic is on two nodes, one of each kind.

A response is a template in which the digits of the numbers are overwritten, so that the simulation takes little
processor time. Numbers therefore keep their number of digits. ``message_bytes`` of every topic is the Unix time of the
response in milliseconds, so that the age of a figure can be computed wherever it arrives.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import parse_qs

import numpy as np
import uvloop

TOPIC_NODES = 2
BUCKETS = range(640, 760)
"""About 1 ms to 14 ms."""
CHANGED_BUCKETS = 24
"""Number of buckets of a channel's histogram that change between two responses."""


def topic_name(number: int) -> str:
    return f"topic-{number:05}.events"


def topics_of(node: int, nodes: int, topics: int) -> list[int]:
    return [topic for topic in range(topics) if node in {topic % nodes, (topic + 1) % nodes}]


STAMP, COUNTER, BUCKET, GAUGE = 13, 10, 7, 4
"""Digits; each kind of number has its own width."""


class Numbers:
    """The numbers of a response, by width: offsets and current values."""

    def __init__(self, body: bytearray) -> None:
        """``body`` contains each number as a run of nines with one of the widths."""
        self.body = np.frombuffer(body, np.uint8)
        self.groups: dict[int, tuple[Any, Any]] = {}
        starts: dict[int, list[int]] = {width: [] for width in (STAMP, COUNTER, BUCKET, GAUGE)}
        for run in re.finditer(b"9{%d,}" % GAUGE, body):
            starts[run.end() - run.start()].append(run.start())
        for width, places in starts.items():
            values = np.full(len(places), 10 ** (width - 1), np.int64)
            self.groups[width] = (np.array(places, np.int64).reshape(-1, 1) + np.arange(width), values)
            self.write(width)

    def write(self, width: int, which: Any = slice(None)) -> None:
        """Overwrite the numbers ``which``: all, or those at some indices."""
        places, values = self.groups[width]
        powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
        self.body[places[which]] = values[which, None] // powers % 10 + ord("0")


class Node:
    """One node's responses."""

    def __init__(self, number: int, nodes: int, topics: int, channels: int, clients: int) -> None:
        self.ours = number % 2 == 0
        self.number = number
        self.port = 0
        self.topics = [topic_name(topic) for topic in topics_of(number, nodes, topics)]
        self._channels = channels
        self._clients = max(1, clients // (topics * channels * min(TOPIC_NODES, nodes)))
        self.body = bytearray(json.dumps(self._stats(self.topics, with_clients=False), separators=(",", ":")).encode())
        self._with_clients: bytes | None = None
        self.numbers = Numbers(self.body)
        self._random = np.random.default_rng(number)

    def stats(self) -> bytearray:
        """Return the response after changing its numbers; of each histogram, only some buckets change."""
        for width, (_, values) in self.numbers.groups.items():
            if width == STAMP:
                values[:] = time.time_ns() // 1_000_000
            elif width == COUNTER:
                values += self._random.integers(1, 500, len(values))
            elif width == GAUGE:
                values[:] = self._random.integers(1000, 9999, len(values))
            else:
                # Different buckets of each channel at each request.
                some = self._random.choice(len(BUCKETS), CHANGED_BUCKETS, replace=False)
                which = (np.arange(0, len(values), len(BUCKETS))[:, None] + some).reshape(-1)
                values[which] += 3
                self.numbers.write(width, which)
                continue
            self.numbers.write(width)
        return self.body

    def stats_with_clients(self) -> bytes:
        if self._with_clients is None:
            self._with_clients = json.dumps(self._stats(self.topics, with_clients=True)).encode()
        return self._with_clients

    def stats_of(self, topic: str) -> bytes:
        """Return the response for one topic, with its clients."""
        return json.dumps(self._stats({topic} & {*self.topics}, with_clients=True)).encode()

    def describe(self) -> dict[str, Any]:
        return {
            "version": "1.3.0",
            "broadcast_address": "127.0.0.1",
            "hostname": f"node-{self.number:02}",
            "http_port": self.port,
            "tcp_port": self.port,
            "start_time": 1_700_000_000,
        }

    def _stats(self, topics: Iterable[str], *, with_clients: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {"version": "1.3.0", "health": "OK", "start_time": 1_700_000_000}
        if self.ours:
            answer["boot_id"] = f"{self.number:016x}"
        answer["topics"] = [self._topic(name, with_clients) for name in topics]
        return answer

    def _topic(self, name: str, with_clients: bool) -> dict[str, Any]:
        topic = {
            "topic_name": name,
            "channels": [self._channel(f"channel-{number}", with_clients) for number in range(self._channels)],
            "depth": placeholder(GAUGE),
            "backend_depth": 0,
            "message_count": placeholder(COUNTER),
            "message_bytes": placeholder(STAMP),
            "paused": False,
            "e2e_processing_latency": {"count": 0, "percentiles": None},
        }
        return topic | ({"oldest_unfinished_age_ns": placeholder(COUNTER)} if self.ours else {})

    def _channel(self, name: str, with_clients: bool) -> dict[str, Any]:
        channel: dict[str, Any] = {
            "channel_name": name,
            "depth": placeholder(GAUGE),
            "backend_depth": 0,
            "in_flight_count": placeholder(GAUGE),
            "deferred_count": 0,
            "message_count": placeholder(COUNTER),
            "requeue_count": placeholder(COUNTER),
            "timeout_count": 17,
            "client_count": self._clients,
            "clients": [self._client(number) for number in range(self._clients)] if with_clients else [],
            "paused": False,
        }
        if self.ours:
            channel["oldest_unfinished_age_ns"] = placeholder(COUNTER)
            histogram = {
                "scale": 5,
                "zero_count": 0,
                "offset": BUCKETS[0],
                "counts": [placeholder(BUCKET)] * len(BUCKETS),
            }
            channel["latency_histogram"] = histogram
        else:
            percentiles = [
                {"quantile": 0.99, "value": placeholder(COUNTER)},
                {"quantile": 0.5, "value": placeholder(COUNTER)},
            ]
            channel["e2e_processing_latency"] = {"count": 100, "percentiles": percentiles}
        return channel

    def _client(self, number: int) -> dict[str, Any]:
        return {
            "client_id": f"worker-{number}",
            "hostname": f"worker-{number}.example.org",
            "version": "V2",
            "remote_address": f"10.0.{self.number}.{number % 250}:{40000 + number}",
            "state": 3,
            "ready_count": 200,
            "in_flight_count": 3,
            "message_count": 10_000,
            "finish_count": 9_990,
            "requeue_count": 7,
            "connect_ts": 1_700_000_000,
            "sample_rate": 0,
            "deflate": False,
            "snappy": False,
            "user_agent": "go-nsq/1.1.0",
            "tls": False,
        }


def placeholder(width: int) -> int:
    """Return the placeholder for a number of this width: a run of nines."""
    return 10**width - 1


class Registry:
    """nsqlookupd's responses about the nodes."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def answer(self, path: str) -> bytes | None:
        if path == "/nodes":
            return json.dumps(
                {"producers": [node.describe() | {"topics": node.topics, "tombstones": []} for node in self.nodes]}
            ).encode()
        if path == "/topics":
            return json.dumps({"topics": sorted({topic for node in self.nodes for topic in node.topics})}).encode()
        return b'{"channels":[],"producers":[]}' if path in ("/channels", "/lookup") else None


class Connection(asyncio.Protocol):
    """Keep-alive HTTP for GETs without bodies, the only requests that the collector sends."""

    def __init__(self, interface: Node | Registry) -> None:
        self.interface = interface
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            target = self._received[:end].split(b" ", 2)[1].decode()
            self._received = self._received[end + 4 :]
            body = self._answer(*target.partition("?")[::2])
            status = b"200 OK" if body is not None else b"404 Not Found"
            head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % (status, len(body or b"")))
            self._transport.write(bytes(body or b""))

    def _answer(self, path: str, query: str) -> bytes | bytearray | None:
        if isinstance(self.interface, Registry):
            return self.interface.answer(path)
        if path == "/stats":
            if topic := parse_qs(query).get("topic"):
                return self.interface.stats_of(topic[0])
            return self.interface.stats() if "include_clients=false" in query else self.interface.stats_with_clients()
        return json.dumps(self.interface.describe()).encode() if path == "/info" else None


async def serve(nodes: list[Node]) -> None:
    loop = asyncio.get_running_loop()

    async def listen(interface: Node | Registry) -> int:
        server = await loop.create_server(lambda: Connection(interface), "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    for node in nodes:
        node.port = await listen(node)
    port = await listen(Registry(nodes))
    print(f"HTTP: listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 (its session does not receive the signals of the benchmark's)
        await asyncio.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulated", description=__doc__)
    for name, usual in (("nodes", 20), ("topics", 1000), ("channels", 5), ("clients", 50_000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    uvloop.run(serve([Node(n, given.nodes, given.topics, given.channels, given.clients) for n in range(given.nodes)]))


if __name__ == "__main__":
    main()
