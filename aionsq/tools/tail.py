"""``nsq tail``: print messages as they come.

NSQ's nsq_tail, with its flags. Differences: every message printed is finished before the tool ends, and ``--n`` counts
over all topics. Without an address it asks the registry at its default address.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from aionsq.consumer import Consumer
from aionsq.lookup import Lookup
from aionsq.message import Message
from aionsq.options import ConsumerOptions
from aionsq.tools import process
from aionsq.tools.process import ToolFailed
from nsqwire.settings import Settings, load, setting
from nsqwire.version import product_version, version_text

PROG = "nsq tail"


def _channel() -> str:
    return f"tail{random.randrange(1_000_000):06d}#ephemeral"


@dataclass(frozen=True, kw_only=True)
class TailSettings(Settings, env=""):
    """Flags of ``nsq tail``."""

    topic: tuple[str, ...] = setting((), "Topic to print; may be given several times.", file=False)
    channel: str = setting(_channel, "Channel to use for every topic.", shown="tail<6 digits>#ephemeral", file=False)
    n: int = setting(0, "End after this many messages, over all topics; 0: never.", min=0, file=False)
    max_in_flight: int = setting(200, "Messages that may be on their way at once.", min=1, file=False)
    print_topic: bool = setting(False, "Print the topic before each message.", file=False)
    nsqd_tcp_address: tuple[str, ...] = setting((), "nsqd to read from, host:port.", file=False)
    lookupd_http_address: tuple[str, ...] = setting(
        (), "nsqlookupd to find nsqds with, host:port (default 127.0.0.1:4161).", file=False
    )
    consumer_opt: tuple[str, ...] = setting((), "Option of the client, name,value.", file=False)
    version: bool = setting(False, "Print the version and end.", file=False)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    settings = load(TailSettings, prog=PROG, argv=argv, environ=os.environ, version_text=version_text("nsq_tail"))
    return process.run(PROG, lambda stop: tail(settings, stop))


class Printer:
    """Writes messages to standard output until there were enough; each is finished once it is written."""

    def __init__(self, limit: int, print_topic: bool, enough: asyncio.Event) -> None:
        self.failure: OSError | None = None
        """Why standard output takes no more."""
        self._left = limit or sys.maxsize
        self._print_topic = print_topic
        self._enough = enough
        self._unwritten: list[tuple[bytes, Message]] = []

    def show(self, topic: str, message: Message) -> None:
        """Print the message at the end of this turn of the event loop; after enough were printed it goes back."""
        message.disable_auto_response()
        if self._left == 0 or self.failure is not None:
            message.requeue(timedelta(0), backoff=False)
            return
        line = topic.encode() + b" | " + message.body if self._print_topic else message.body
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append((line + b"\n", message))
        self._left -= 1
        if self._left == 0:
            self._enough.set()

    def _write(self) -> None:
        batch, self._unwritten = self._unwritten, []
        try:
            sys.stdout.buffer.write(b"".join(line for line, _ in batch))
            sys.stdout.buffer.flush()
        except OSError as error:  # whoever read it has left, or the disk is full
            self.failure = error
            self._enough.set()
        for _, message in batch:
            if self.failure is None:
                message.finish()
            else:
                message.requeue(timedelta(0), backoff=False)


async def tail(settings: TailSettings, stop: asyncio.Event) -> int:
    """Print until ``stop`` is set or there were enough. Raises ToolFailed."""
    lookupds = settings.lookupd_http_address
    if not settings.topic:
        raise ToolFailed("--topic required")
    if settings.nsqd_tcp_address and lookupds:
        raise ToolFailed("use --nsqd-tcp-address or --lookupd-http-address not both")
    if not settings.nsqd_tcp_address and not lookupds:
        lookupds = process.lookupd_addresses()
    # Who watches a topic that does not exist yet wants to see its first message at once.
    options = ConsumerOptions(lookupd_poll_interval=timedelta(seconds=2), user_agent=f"nsq_tail/{product_version()}")
    options = process.with_texts(options, settings.consumer_opt, "--consumer-opt")
    in_flight = min(settings.max_in_flight, settings.n or settings.max_in_flight)
    options = process.with_texts(options, [f"max_in_flight,{in_flight}"], "--max-in-flight")
    if lookupds:
        await _need_an_answer(lookupds, settings.topic[0])
    printer = Printer(settings.n, settings.print_topic, stop)
    async with AsyncExitStack() as stack:
        runs = []
        for topic in dict.fromkeys(settings.topic):
            try:
                consumer = Consumer(
                    topic,
                    settings.channel,
                    nsqd_tcp_addresses=settings.nsqd_tcp_address,
                    lookupd_http_addresses=lookupds,
                    options=options,
                )
            except ValueError as error:
                raise ToolFailed(str(error)) from None
            await stack.enter_async_context(consumer)
            runs.append(asyncio.create_task(consumer.run(partial(printer.show, topic))))
        await stop.wait()
    await asyncio.gather(*runs)
    if printer.failure is not None:
        raise printer.failure
    return 0


async def _need_an_answer(lookupds: Sequence[str], topic: str) -> None:
    try:
        lookup = Lookup(lookupds)
    except ValueError as error:
        raise ToolFailed(str(error)) from None
    async with lookup:
        answer = await lookup.producers(topic)
    if len(answer.errors) == len(lookupds):
        raise ToolFailed(f"no nsqlookupd answers: {'; '.join(map(str, answer.errors))}")
