"""``nsq pub``: publish the records of standard input, or messages given on the command line.

NSQ's to_nsq, with its flags, and ``--message``. Differences: the last record counts without a delimiter behind it too;
records go out in batches, several under way at once; and what was stored is told at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from aionsq.errors import ClientError
from aionsq.options import ProducerOptions
from aionsq.producer import Producer
from aionsq.tools import process
from aionsq.tools.process import ToolFailed
from nsqwire.errors import NSQError
from nsqwire.settings import Settings, load, setting
from nsqwire.version import version_text

PROG = "nsq pub"

BATCH_BYTES = 1024 * 1024
BATCHES_UNDER_WAY = 8
READ_BYTES = 256 * 1024
INTERRUPTED = 130
STDIN = 0


@dataclass(frozen=True, kw_only=True)
class PubSettings(Settings, env=""):
    """Flags of ``nsq pub``."""

    topic: str = setting("", "Topic to publish to.", file=False)
    message: tuple[str, ...] = setting((), "Publish this instead of standard input.", file=False)
    delimiter: str = setting("\n", "The character between records.", shown="newline", file=False)
    nsqd_tcp_address: tuple[str, ...] = setting(
        (), "nsqd to publish to, host:port; each of several gets every record (default 127.0.0.1:4150).", file=False
    )
    rate: int = setting(0, "Records a second; 0: as fast as they come.", min=0, file=False)
    batch_size: int = setting(200, "Most records in one MPUB.", min=1, file=False)
    producer_opt: tuple[str, ...] = setting((), "Option of the client, name,value.", file=False)
    version: bool = setting(False, "Print the version and end.", file=False)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    settings = load(PubSettings, prog=PROG, argv=argv, environ=os.environ, version_text=version_text("nsq_pub"))
    return process.run(PROG, lambda stop: pub(settings, stop))


class Publisher:
    """Publishes batches to every nsqd, a few under way at once, and counts what all of them have stored."""

    def __init__(self, producers: Sequence[Producer], topic: str) -> None:
        self.stored = 0
        self._producers = producers
        self._topic = topic
        self._under_way: deque[tuple[int, asyncio.Future[Any]]] = deque()

    async def publish(self, batch: Sequence[bytes]) -> None:
        """Send a batch once there is room for it. Raises what an earlier one failed with."""
        while len(self._under_way) >= BATCHES_UNDER_WAY:
            await self._take_oldest()
        answers = [
            each.pub(self._topic, batch[0]) if len(batch) == 1 else each.mpub(self._topic, batch)
            for each in self._producers
        ]
        self._under_way.append((len(batch), asyncio.gather(*answers)))

    async def finish(self) -> None:
        """Wait for all that is under way. Raises what one failed with, after counting those that did not."""
        failure: Exception | None = None
        while self._under_way:
            try:
                await self._take_oldest()
            except (ClientError, NSQError) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _take_oldest(self) -> None:
        count, answer = self._under_way.popleft()
        await answer
        self.stored += count


async def pub(settings: PubSettings, stop: asyncio.Event) -> int:
    """Publish until the input ends or ``stop`` is set. Raises ToolFailed."""
    if not settings.topic:
        raise ToolFailed("--topic required")
    delimiter = settings.delimiter.encode()
    if len(delimiter) != 1:
        raise ToolFailed("--delimiter must be a single byte")
    options = process.with_texts(ProducerOptions(), settings.producer_opt, "--producer-opt")
    async with AsyncExitStack() as stack:
        producers = []
        for address in dict.fromkeys(settings.nsqd_tcp_address or (process.DEFAULT_NSQD,)):
            try:
                producer = Producer(address, options)
            except ValueError as error:
                raise ToolFailed(str(error)) from None
            producers.append(await stack.enter_async_context(producer))
        publisher = Publisher(producers, settings.topic)
        failure: Exception | None = None
        try:
            batches = _given(settings) if settings.message else _batches(settings, delimiter, stop)
            async for batch in batches:
                await publisher.publish(batch)
                if settings.rate:
                    await asyncio.sleep(len(batch) / settings.rate)
                if stop.is_set():
                    break
            await publisher.finish()
        except (ClientError, NSQError) as error:
            failure = error
            try:
                await publisher.finish()
            except (ClientError, NSQError):
                pass  # the first reason is the one to tell
    done = f"{publisher.stored} message{'' if publisher.stored == 1 else 's'} stored in {settings.topic}"
    if failure is not None:
        raise ToolFailed(f"{failure} ({done})")
    process.note(PROG, f"interrupted; {done}" if stop.is_set() else done)
    return INTERRUPTED if stop.is_set() else 0


async def _given(settings: PubSettings) -> AsyncIterator[list[bytes]]:
    for start in range(0, len(settings.message), settings.batch_size):
        yield [text.encode(errors="surrogateescape") for text in settings.message[start : start + settings.batch_size]]


async def _batches(settings: PubSettings, delimiter: bytes, stop: asyncio.Event) -> AsyncIterator[list[bytes]]:
    """The records of standard input, empty ones left out, in batches; what has been read is not kept waiting."""
    most = min(settings.batch_size, max(1, settings.rate // 10)) if settings.rate else settings.batch_size
    rest = b""
    async for data in _standard_input(stop):
        *records, rest = (rest + data).split(delimiter)
        for batch in _cut(records, most):
            yield batch
    if rest and not stop.is_set():
        yield [rest]


def _cut(records: Sequence[bytes], most: int) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    size = 0
    for record in records:
        if not record:
            continue
        if not batches or len(batches[-1]) >= most or size + len(record) > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += len(record)
    return batches


async def _standard_input(stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Read without holding up the event loop, whatever standard input is; ends when ``stop`` is set."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            readable: asyncio.Future[None] = loop.create_future()
            try:
                loop.add_reader(STDIN, _set, readable)
            except OSError:
                await asyncio.sleep(0)  # a file: always readable, and nothing the event loop could wait for
            else:
                try:
                    # Only while it is wanted: an unread descriptor would wake the loop at every turn.
                    await asyncio.wait((readable, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    loop.remove_reader(STDIN)
            data = b"" if stop.is_set() else os.read(STDIN, READ_BYTES)
            if not data:
                return
            yield data
    finally:
        stopped.cancel()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
