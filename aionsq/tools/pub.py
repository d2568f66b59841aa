"""``nsq pub``: publish the records of standard input, or messages given on the command line.

NSQ's to_nsq, with its flags and ``--message``, ``--defer`` and ``--batch-size``. ``nsq pub`` takes topic and messages
as arguments too. Differences: the last record needs no delimiter; records are sent in batches, several at a time; and
the number of messages stored is printed at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from aionsq.producer import Producer
from aionsq.publish import Ids
from aionsq.tools.flags import ProgressFlags, ToolFailed, WrongUsage, default_nsqd, producer_options
from aionsq.tools.names import check_names
from aionsq.tools.process import INTERRUPTED, Run, Tool
from aionsq.tools.progress import progress
from aionsq.tools.records import Records, Throttle, batches
from nsqdaemon.declaration import shown_value
from nsqdaemon.settings import setting
from nsqwire.counted import counted
from nsqwire.errors import BadHeaders, NSQError
from nsqwire.headers import checked_headers

NAME = "to_nsq"

BATCH_BYTES: Final = 1024 * 1024
UNDER_WAY: Final = 8
READ_BYTES: Final = 256 * 1024
STDIN: Final = 0


@dataclass(frozen=True, kw_only=True)
class PubFlags(ProgressFlags):
    """Flags of to_nsq and ``nsq pub``."""

    topic: str = setting("", "Topic to publish to.")
    nsqd_tcp_address: tuple[str, ...] = setting(
        (), "nsqd to publish to, host:port; each of several receives every record (nsq pub: default 127.0.0.1:4150)."
    )
    delimiter: str = setting("\n", "Byte that separates records.", shown="newline")
    message: tuple[str, ...] = setting((), "Message to publish instead of standard input; may be given several times.")
    defer: timedelta = setting("0s", "Delay before the messages are delivered.", min="0s")
    rate: int = setting(0, "Records per second; 0: unlimited.", min=0)
    batch_size: int = setting(200, "Most records in one MPUB.", min=1)
    header: tuple[str, ...] = setting(
        (), "Header of each message, name=value; may be given several times. Only brokerd has headers."
    )
    ids: bool = setting(False, "Print the id of each stored message, one a line; only brokerd reports them.")
    producer_opt: tuple[str, ...] = setting((), "Option of the client, name,value; docs/client.md.")


class Publisher:
    """Publishes batches to every nsqd, UNDER_WAY at a time, and counts the messages that all nsqds have stored."""

    def __init__(
        self,
        producers: Sequence[Producer],
        topic: str,
        defer: timedelta,
        headers: Mapping[str, str],
        print_ids: Callable[[Sequence[Ids]], object] | None = None,
    ) -> None:
        self.stored = 0
        self.not_stored = 0
        """Number of messages not known to be stored by every nsqd."""
        self._producers = producers
        self._topic = topic
        self._defer = defer
        self._headers = headers
        self._print_ids = print_ids
        self._under_way: deque[tuple[int, asyncio.Future[list[Ids]]]] = deque()

    async def publish(self, batch: Sequence[bytes]) -> None:
        """Send a batch once fewer than UNDER_WAY are outstanding. Raises the error of an earlier batch."""
        try:
            while len(self._under_way) >= UNDER_WAY:
                await self._take_oldest()
        except BaseException:
            self.not_stored += len(batch)
            raise
        answers = [answer for producer in self._producers for answer in self._sent(producer, batch)]
        answer = asyncio.gather(*answers)
        answer.add_done_callback(_retrieve)
        self._under_way.append((len(batch), answer))

    async def finish(self) -> None:
        """Wait for all outstanding batches and count them; then raise the first error, if any."""
        failure: Exception | None = None
        while self._under_way:
            try:
                await self._take_oldest()
            except NSQError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _sent(self, producer: Producer, batch: Sequence[bytes]) -> list[asyncio.Future[Ids]]:
        if self._defer:  # NSQ has no command for several deferred messages
            return [producer.dpub(self._topic, self._defer, record, headers=self._headers) for record in batch]
        if len(batch) == 1:
            return [producer.pub(self._topic, batch[0], headers=self._headers)]
        return [producer.mpub(self._topic, batch, headers=self._headers)]

    async def _take_oldest(self) -> None:
        count, answer = self._under_way.popleft()
        try:
            found = await answer
        except BaseException:
            self.not_stored += count
            raise
        self.stored += count
        if self._print_ids is not None:
            self._print_ids(found)


def _retrieve(answer: asyncio.Future[list[Ids]]) -> None:
    """Have asyncio report no failure that nobody awaits: the tool ends at the first error, or at a closed pipe."""
    if not answer.cancelled():
        answer.exception()


async def pub(flags: PubFlags, run: Run) -> int:
    """Publish until the input ends or the tool is stopped. Raises ToolFailed."""
    if not flags.topic:
        raise WrongUsage("a topic is required" if run.is_subcommand else "--topic required")
    check_names("topic", flags.topic)
    delimiter = os.fsencode(flags.delimiter)
    if len(delimiter) != 1:
        raise WrongUsage("--delimiter must be a single byte")
    addresses = flags.nsqd_tcp_address or ((default_nsqd(),) if run.is_subcommand else ())
    if not addresses:
        raise WrongUsage("--nsqd-tcp-address required")
    headers = headers_of(flags.header)
    options = producer_options(flags.producer_opt, NAME)
    if headers:
        options = replace(options, headers=True)
    if flags.ids:
        options = replace(options, publish_ids=True)
    if flags.defer > options.max_req_timeout:
        longest = shown_value(options.max_req_timeout)
        raise WrongUsage(f"--defer is more than {longest}; see --producer-opt max_req_timeout")
    if flags.rate:
        run.note(f"Throttling messages rate to max:{flags.rate}/second")
    async with AsyncExitStack() as stack:
        producers = []
        for address in dict.fromkeys(addresses):
            try:
                producer = Producer(address, options)
            except ValueError as error:
                raise ToolFailed(str(error)) from None
            producers.append(await stack.enter_async_context(producer))
        publisher = Publisher(producers, flags.topic, flags.defer, headers, print_ids if flags.ids else None)
        await stack.enter_async_context(progress(flags.progress, lambda: publisher.stored))
        failure = await _publish_all(flags, run, publisher, delimiter)
    done = f"{counted(publisher.stored, 'message')} stored in {flags.topic}"
    if failure is not None:
        raise ToolFailed(f"{failure} ({done}, {publisher.not_stored} not)")
    if not run.stop.is_set():
        run.note(done)
        return 0
    run.note(f"interrupted; {done}")
    return INTERRUPTED if run.is_subcommand else 0  # to_nsq is normally ended by a signal, which is not a failure


def headers_of(texts: Sequence[str]) -> Mapping[str, str]:
    """Return the headers ``name=value`` of a repeated flag. Raises ToolFailed."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ToolFailed(f"--header {text}: not name=value", status=2)
        pairs.append((name, value))
    try:
        return checked_headers(pairs)
    except BadHeaders as error:
        raise ToolFailed(f"--header: {error}", status=2) from None


def print_ids(found: Sequence[Ids]) -> None:
    """Print the ids of a batch, one a line. Raises ToolFailed if a node did not report them."""
    if not all(found):
        raise ToolFailed("this nsqd does not report the ids of messages (Go's); the messages are stored")
    print(*(message_id for ids in found for message_id in ids), sep="\n", flush=True)


async def _publish_all(flags: PubFlags, run: Run, publisher: Publisher, delimiter: bytes) -> Exception | None:
    """Publish everything, and wait for outstanding batches. Returns the first error, or None."""
    failure: Exception | None = None
    try:
        now = asyncio.get_running_loop().time
        throttle = Throttle(flags.rate, now()) if flags.rate else None
        async for batch in _given(flags) if flags.message else _read(flags, delimiter, run.stop):
            if throttle is not None and (wait := throttle.take(len(batch), now())):
                await _sleep(wait, run.stop)
            if run.stop.is_set():
                break
            await publisher.publish(batch)
    except NSQError as error:
        failure = error
    try:
        await publisher.finish()
    except NSQError as error:
        failure = failure or error  # report the first error
    return failure


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


async def _given(flags: PubFlags) -> AsyncIterator[Sequence[bytes]]:
    for batch in batches([os.fsencode(text) for text in flags.message], most=_most(flags), most_bytes=BATCH_BYTES):
        yield batch


async def _read(flags: PubFlags, delimiter: bytes, stop: asyncio.Event) -> AsyncIterator[Sequence[bytes]]:
    """Yield the records of standard input in batches. A complete record does not wait for more input."""
    records = Records(delimiter)
    async for data in _standard_input(stop):
        for batch in batches(records.received(data), most=_most(flags), most_bytes=BATCH_BYTES):
            yield batch
    if not stop.is_set():
        for batch in batches(records.ended(), most=1, most_bytes=BATCH_BYTES):
            yield batch


def _most(flags: PubFlags) -> int:
    """Return the largest number of records in a batch; with ``--rate``, at most those of a tenth of a second."""
    return min(flags.batch_size, max(1, flags.rate // 10)) if flags.rate else flags.batch_size


async def _standard_input(stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield the bytes of standard input of any kind, without blocking the event loop, until the end or ``stop``."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            readable: asyncio.Future[None] = loop.create_future()
            try:
                loop.add_reader(STDIN, _set, readable)
            except OSError:
                await asyncio.sleep(0)  # a regular file is always readable, and the event loop cannot watch it
            else:
                try:
                    # Watch only while input is wanted: a watched descriptor with unread input keeps waking the loop.
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


def with_words(flags: PubFlags, words: Sequence[str]) -> PubFlags:
    """Take the topic, unless ``--topic`` names it, and messages from the arguments that are not flags."""
    topic, messages = flags.topic, list(words)
    if not topic and messages:
        topic = messages.pop(0)
    return replace(flags, topic=topic, message=(*flags.message, *messages))


main = Tool(
    NAME,
    "pub",
    PubFlags,
    pub,
    "Publish the records of standard input, or messages given as arguments.",
    words="[TOPIC [MESSAGE ...]]",
    with_words=with_words,
    examples=[
        ("nsq pub orders hello", "publish one message"),
        ("nsq pub orders '{\"id\":1}' '{\"id\":2}' --defer 10m", "two, to be delivered in ten minutes"),
        ("nsq pub orders < messages.txt", "a message for each line"),
        ("nsq pub orders --ids hello", "print the message's id, for nsq messages"),
        ("nsq pub orders -- --hello", "a message that begins with a dash"),
    ],
)
