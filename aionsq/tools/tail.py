"""``nsq tail``: print messages as they arrive.

NSQ's nsq_tail, with its flags. Differences: every printed message is finished before the tool exits, ``--n`` counts the
messages of all topics, and ``--peek`` consumes nothing. ``nsq tail`` without an address uses the registry's default
address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from aionsq.message import Message
from aionsq.tools.backlog import Backlog
from aionsq.tools.flags import ConsumerFlags, Sources, ToolFailed, WrongUsage, consumer_options, sources
from aionsq.tools.names import check_names
from aionsq.tools.peek import ready_messages
from aionsq.tools.process import Run, Tool
from aionsq.tools.progress import progress
from nsqdaemon.settings import setting

log = logging.getLogger(__name__)

NAME = "nsq_tail"


def _channel() -> str:
    return f"tail{random.randrange(1_000_000):06d}#ephemeral"


@dataclass(frozen=True, kw_only=True)
class TailFlags(ConsumerFlags):
    """Flags of nsq_tail."""

    topic: tuple[str, ...] = setting((), "Topic to print; may be given several times.")
    channel: str = setting(
        _channel,
        "Channel to consume from each topic. Printed messages are finished: other consumers of the channel do not "
        "receive them. The first channel of a topic receives all messages that wait in it: of a topic without a "
        "channel, the whole unread backlog is printed and finished.",
        shown="tail<6 digits>#ephemeral",
    )
    n: int = setting(0, "Exit after this many messages of all topics together; 0: never.", min=0)
    peek: bool = setting(
        False,
        "Print the messages that wait in --channel, in the order of delivery, without consuming them, and exit. "
        "Requires brokerd: Go's nsqd cannot do this.",
    )
    print_topic: bool = setting(False, "Print the topic before each message.")
    print_headers: bool = setting(
        False, "Print the headers of each message before it, as a JSON object. Only brokerd has headers."
    )


def _line(topic: str, headers: Mapping[str, str], body: bytes, flags: TailFlags) -> bytes:
    if flags.print_headers:
        body = json.dumps(dict(headers), ensure_ascii=False).encode() + b" | " + body
    return topic.encode() + b" | " + body if flags.print_topic else body


class Printer:
    """Writes messages to standard output up to a limit, and finishes each once it is written."""

    def __init__(self, flags: TailFlags, enough: asyncio.Event) -> None:
        self.printed = 0
        self.failure: OSError | None = None
        """The error that ended writing to standard output."""
        self._left = flags.n or sys.maxsize
        self._flags = flags
        self._enough = enough
        self._unwritten: list[tuple[bytes, Message]] = []

    def show(self, topic: str, message: Message) -> None:
        """Print the message in the event loop's next iteration; requeue it if the limit is reached."""
        message.disable_auto_response()
        if self._left == 0 or self.failure is not None:
            message.requeue(timedelta(0), backoff=False)
            return
        line = _line(topic, message.headers, message.body, self._flags)
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
        except OSError as error:  # the reader has exited, or the disk is full
            self.failure = error
            self._enough.set()
        for _, message in batch:
            if self.failure is None:
                self.printed += 1
                message.finish()
            else:
                message.requeue(timedelta(0), backoff=False)


async def tail(flags: TailFlags, run: Run) -> int:
    """Print until stopped or the limit is reached. Raises ToolFailed."""
    if not flags.topic:
        raise WrongUsage("--topic required")
    check_names("topic", *flags.topic)
    check_names("channel", flags.channel)
    where = sources(flags, local=run.is_subcommand)
    if flags.peek:
        return await peek(flags, where, run)
    options = consumer_options(flags, NAME)
    options = replace(options, max_in_flight=min(options.max_in_flight, flags.n or options.max_in_flight))
    if flags.print_headers:
        options = replace(options, headers=True)
    printer = Printer(flags, run.stop)
    async with AsyncExitStack() as stack:
        topics = list(dict.fromkeys(flags.topic))
        backlog = await stack.enter_async_context(Backlog(where, lambda: [(topic, flags.channel) for topic in topics]))
        await stack.enter_async_context(progress(flags.progress, lambda: printer.printed, backlog.depth, prints=True))
        consumers = [where.consumer(topic, flags.channel, options) for topic in topics]
        runs = []
        for consumer in consumers:
            log.info("Adding consumer for topic: %s", consumer.topic)
            await stack.enter_async_context(consumer)
            runs.append(asyncio.create_task(consumer.run(partial(printer.show, consumer.topic))))
        await run.stop.wait()
    await asyncio.gather(*runs)
    if printer.failure is not None:
        raise printer.failure
    return 0


async def peek(flags: TailFlags, where: Sources, run: Run) -> int:
    """Print the ready messages of the channel of each topic, up to the limit. Raises ToolFailed and OSError."""
    left = flags.n or sys.maxsize
    async with Backlog(where, list) as backlog:
        for topic in dict.fromkeys(flags.topic):
            addresses = await backlog.http_addresses(topic)
            if not addresses.known:
                reasons = "; ".join(f"{server}: {reason}" for server, reason in addresses.failures.items())
                raise ToolFailed(f"no node with topic {topic} answers over HTTP: {reasons or 'no node has the topic'}")
            for server, reason in addresses.failures.items():
                run.note(f"{server}: {reason}")
            async with aclosing(ready_messages(backlog.client, addresses.known, topic, flags.channel)) as found:
                async for headers, body in found:
                    if left == 0 or run.stop.is_set():
                        break
                    sys.stdout.buffer.write(_line(topic, headers, body, flags) + b"\n")
                    left -= 1
            sys.stdout.buffer.flush()
    return 0


main = Tool(
    NAME,
    "tail",
    TailFlags,
    tail,
    "Print the messages of topics as they arrive, and finish them; --peek leaves them in their channel.",
    examples=[
        ("nsq tail --topic orders", "print new messages until Ctrl-C"),
        ("nsq tail --topic orders --n 10", "print ten, and end"),
        ("nsq tail --peek --topic orders --channel billing", "print what waits in a channel, and leave it there"),
    ],
)
