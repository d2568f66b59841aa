"""The row for messages that die: a million of them in one channel, requeued while the broker is killed."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

import numpy as np

from bench import load, wire
from bench.errors import BenchError
from bench.flow import FIN, REQ, Consumer
from bench.load import Clock, Load
from bench.measure import CHANNEL, TOPIC, Options, Row, ask, create_work, measure, mebibytes
from bench.paced import answered
from bench.policies import set_policy
from bench.processes import LoadProcesses
from bench.server import Address, Server
from bench.storage import data_directory, started

COUNT = 1_000_000
BATCH = 1000
STATS = 20
"""Requests for ``/stats``, of which the median counts."""
PERIOD_S = 0.002
REQUEUE = f"/channel/requeue?topic={TOPIC}&channel={CHANNEL}&state=dead"
PATIENCE_S = 120.0


class Publications:
    """Numbered messages, and which of them the broker has acknowledged. Each body begins with its number."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._next = 0
        self.uncertain: set[int] = set()
        """Numbers that were sent and not acknowledged: the broker may have stored them."""

    def acknowledged(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self._next), np.fromiter(self.uncertain, np.int64))

    def publish(self, address: Address, count: int) -> None:
        """Publish ``count`` messages in batches."""
        sock, replies = load.publisher(address)
        with sock:
            while count > 0:
                numbers = self._begin(min(BATCH, count))
                sock.sendall(wire.mpub(TOPIC, [self._body(number) for number in numbers]))
                replies.wait(1)
                self.uncertain -= set(numbers)
                count -= len(numbers)

    @contextmanager
    def flowing(self, address: Address, *, is_killed: bool = False) -> Iterator[None]:
        """Publish one message after the other while the block runs.

        Raises BenchError if a publish fails, unless the block kills the broker: the number sent last is then uncertain.
        """
        ended = threading.Event()
        errors: list[Exception] = []

        def publish() -> None:
            try:
                sock, replies = load.publisher(address)
                with sock:
                    while not ended.wait(PERIOD_S):
                        [number] = self._begin(1)
                        sock.sendall(wire.pub(TOPIC, self._body(number)))
                        replies.wait(1)
                        self.uncertain.remove(number)
            except (BenchError, OSError) as error:
                errors.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if errors and not is_killed:
            raise BenchError(f"the publisher beside the requeue failed: {errors[0]}") from errors[0]

    def _begin(self, count: int) -> range:
        numbers = range(self._next, self._next + count)
        self._next = numbers.stop
        self.uncertain |= set(numbers)
        return numbers

    def _body(self, number: int) -> bytes:
        return struct.pack("<q", number).ljust(self._size, b"\0")


def dead(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Let each message fail once and die; then requeue all while a publisher runs, and kill the broker, ``--rounds``
    times.

    Finally, finish all. Raises BenchError if an acknowledged message is missing then, or if one comes twice.
    """
    count = min(COUNT, options.messages)
    publications = Publications(max(8, options.size))
    also: dict[str, float] = {}
    with data_directory(options) as data_path:
        with started(options, data_path) as (server, _):
            create_work(server)
            set_policy(server, {"max_attempts": 1})
            publications.publish(server.tcp, count)
            also["anon MB before"] = mebibytes(server.anonymous_bytes()) or math.nan
            also["/stats before, ms"] = stats_ms(server)
            died = measure(server, lambda: fail_all(server, options, processes))
            also["/stats, ms"] = stats_ms(server)
            anonymous = mebibytes(server.anonymous_bytes())
            with publications.flowing(server.tcp):
                begun = time.perf_counter()
                requeued = requeue(server)
                seconds = time.perf_counter() - begun
                also["requeued/s"] = requeued / seconds
            server.stop()
        for _ in range(options.rounds):
            with started(options, data_path) as (server, _):
                fail_all(server, options, processes)
                with publications.flowing(server.tcp, is_killed=True):
                    kill_within(server, seconds)
        also["kills"] = float(options.rounds)
        with started(options, data_path) as (server, _):
            requeue(server)
            numbers = processes.run(receive, server.tcp, options.size, figures(server)["depth"], FIN)
            server.stop()
    check(numbers, publications)
    row = died.row("dead", f"{count:,} messages that fail once and die", options, also=also)
    yield dataclasses.replace(row, anonymous_mb=anonymous)


def kill_within(server: Server, seconds: float) -> None:
    """Kill the broker at a random moment of a requeue that takes about ``seconds``."""

    def begin() -> None:
        try:
            requeue(server)
        except (BenchError, OSError, HTTPException):
            return  # The broker was killed first.

    thread = threading.Thread(target=begin)
    thread.start()
    time.sleep(random.uniform(0, seconds))
    server.kill()
    thread.join()


def requeue(server: Server) -> int:
    return int(json.loads(ask(server.http, "POST", REQUEUE))["requeued"])


def figures(server: Server) -> dict[str, Any]:
    """Return the figures of the work channel in ``/stats``."""
    stats = json.loads(ask(server.http, "GET", f"/stats?format=json&topic={TOPIC}"))
    channel: dict[str, Any] = stats["topics"][0]["channels"][0]
    return channel


def stats_ms(server: Server) -> float:
    """Return the median time of ``/stats`` in ms."""
    times = []
    for _ in range(STATS):
        begun = time.perf_counter()
        ask(server.http, "GET", "/stats?format=json")
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def fail_all(server: Server, options: Options, processes: LoadProcesses) -> Load:
    """Requeue each message that waits, until all are dead."""
    waiting = figures(server)["depth"]
    clock = Clock()
    if waiting:
        processes.run(receive, server.tcp, options.size, waiting, REQ)
    until = time.monotonic() + PATIENCE_S
    while left := sum(figures(server)[name] for name in ("depth", "in_flight_count")):
        if time.monotonic() > until:
            raise BenchError(f"{left} messages have not died")
        time.sleep(0.01)
    return clock.load(waiting)


def receive(address: Address, size: int, count: int, answer: bytes) -> np.ndarray:
    """Receive ``count`` messages and answer each. Returns their numbers."""
    numbers: list[np.ndarray] = []
    consumer = Consumer(address, TOPIC, CHANNEL, max(8, size), answer)
    with consumer.sock:
        while count > 0:
            try:
                numbers.append(consumer.receive())
            except TimeoutError:
                raise BenchError(f"{count} messages have not arrived") from None
            count -= len(numbers[-1])
        consumer.sock.sendall(b"CLS\n")
        ended = b""
        while wire.CLOSE_WAIT not in ended:  # By then, the broker has processed all answers.
            ended += answered(consumer.sock.recv(4096))
    return np.concatenate(numbers) if numbers else np.empty(0, np.int64)


def check(numbers: np.ndarray, publications: Publications) -> None:
    once, times = np.unique(numbers, return_counts=True)
    if twice := int((times > 1).sum()):
        raise BenchError(f"{twice} messages were in the channel twice")
    if len(lost := np.setdiff1d(publications.acknowledged(), once)):
        raise BenchError(f"{len(lost)} acknowledged messages are lost, the first is number {lost[0]}")
