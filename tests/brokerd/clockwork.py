"""A broker with a clock that the test advances, and that can be killed between any two of its writes."""

from __future__ import annotations

import heapq
import itertools
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from brokerd.broker import Broker
from brokerd.client import Client
from brokerd.settings import BrokerSettings
from nsqwire.frame import MESSAGE, MESSAGE_WITH_HEADERS, decode_message, decode_message_with_headers
from nsqwire.identify import Terms

MSG_TIMEOUT_S = 60.0
START_S = 1000.0
TERMS = Terms(output_buffer_timeout_ms=250, msg_timeout_ms=int(MSG_TIMEOUT_S * 1000), deflate_level=6)


class Handle:
    """A scheduled call."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run: Callable[[], None] | None = run

    def cancel(self) -> None:
        self.run = None


class Delivery(NamedTuple):
    """A message as it was sent to ``client``, ``at`` monotonic seconds."""

    at: float
    client: Client
    attempts: int
    message_id: bytes
    body: bytes
    header_block: bytes = b""


class Node:
    """One data path and the broker over it. Clocks are in seconds: monotonic ``now``, Unix ``wall``.

    With ``patch``, ``wall`` is also this process's time, set before the broker is opened.
    """

    def __init__(
        self,
        data_path: Path,
        *,
        wall: float | None = None,
        patch: pytest.MonkeyPatch | None = None,
        **settings: object,
    ) -> None:
        self.now, self.wall = START_S, time.time() if wall is None else wall
        if patch is not None:
            patch.setattr(time, "time_ns", self.wall_ns)
            patch.setattr(time, "time", lambda: self.wall)
        self.fired = 0
        self.path = data_path
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Handle]] = []
        self._settings = BrokerSettings(data_path=str(data_path), **settings)  # type: ignore[arg-type]
        self.open()

    def open(self, left_out_numbers: int = 0) -> None:
        """Start the broker; with ``left_out_numbers`` as the member of a pair that takes over."""
        self._calls.clear()
        self.broker = Broker(
            self._settings,
            now=lambda: self.now,
            call_soon=self._call_soon,
            call_at=self._call_at,
            left_out_numbers=left_out_numbers,
        )

    def kill(self) -> None:
        """End it like SIGKILL: what it wrote remains, and nothing else happens. Another broker can then be opened."""
        self.broker._data_path.close()
        for topic in self.broker.topics.values():
            for segment in topic.log.segments:
                segment.close()  # descriptors without an object that closes them

    @property
    def journal_is_complete(self) -> bool:
        """True if checkpoint and journals contain every change."""
        journal = self.broker.storage.journal
        assert journal is not None
        return journal.is_complete

    def wall_ns(self) -> int:
        return int(self.wall * 1e9)

    def _call_soon(self, run: Callable[[], None]) -> object:
        return self._call_at(self.now, run)

    def _call_at(self, when: float, run: Callable[[], None]) -> Handle:
        handle = Handle(run)
        heapq.heappush(self._calls, (when, next(self._order), handle))
        return handle

    def pass_until(self, when: float) -> None:
        """Let time pass up to and including ``when``."""
        while self._calls and self._calls[0][0] <= when:
            at, _, handle = heapq.heappop(self._calls)
            self.wall += max(0.0, at - self.now)
            self.now = max(self.now, at)
            if handle.run is not None:
                self.fired += 1
                handle.run()
        self.wall += when - self.now
        self.now = when

    def subscribe(
        self,
        topic: str,
        channel: str,
        ready_count: int,
        got: Callable[[Delivery], None],
        *,
        takes_headers: bool = False,
    ) -> Client:
        """Subscribe a client; ``got`` is called with each message that it is sent."""

        def send(frames: bytes | memoryview) -> None:
            data = bytes(frames)
            while data:
                size, kind = struct.unpack_from(">ii", data)
                read = decode_message_with_headers if kind == MESSAGE_WITH_HEADERS else decode_message
                message = read(data, 8, 4 + size)
                block = message.header_block
                assert takes_headers or kind == MESSAGE
                got(Delivery(self.now, client, message.attempts, message.id, message.body, block))
                data = data[4 + size :]

        client = Client(self.broker.next_client_number(), "127.0.0.1:1", TERMS, 0, send, lambda: None)
        client.takes_headers = takes_headers
        target = self.broker.topic(topic).channel(channel)
        target.subscribe(client)
        client.ready_count = ready_count
        target.offer(client)
        return client

    def consumer(self, topic: str, channel: str, ready_count: int = 100) -> list[tuple[float, int, bytes]]:
        """Subscribe; the list grows by ``(monotonic time, attempts, body)`` of each message as it is sent."""
        got: list[tuple[float, int, bytes]] = []
        self.subscribe(topic, channel, ready_count, lambda each: got.append((each.at, each.attempts, each.body)))
        return got
