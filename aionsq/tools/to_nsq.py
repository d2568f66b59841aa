"""``nsq to-nsq``: publish each message of a channel to other nsqds.

NSQ's nsq_to_nsq, with its flags. Differences: destinations that are not connected are skipped; messages are never given
up; if JSON is required, a message that is not JSON is requeued instead of lost (``--non-json`` changes this); numbers
keep their digits; publishing a topic to itself is refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aionsq.consumer import Consumer
from aionsq.errors import ConnectFailed
from aionsq.message import Message
from aionsq.options import ProducerOptions
from aionsq.producer import Producer
from aionsq.publish import Ids, failed
from aionsq.subscription import Subscription
from aionsq.tools.delivery import DeliveryFlags, consume, delivery_options, mode_setting, warn_of_few
from aionsq.tools.flags import ToolFailed, WrongUsage, producer_options, sources
from aionsq.tools.hostpool import pool_of
from aionsq.tools.json_filter import FieldMissing, JSONFilter, NotJSON
from aionsq.tools.one_server import is_one_server
from aionsq.tools.process import Run, Tool
from aionsq.tools.timings import AddressTimings
from nsqdaemon.settings import setting
from nsqwire.names import is_valid_name
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

NAME = "nsq_to_nsq"

RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class ToNSQFlags(DeliveryFlags):
    """Flags of nsq_to_nsq."""

    topic: tuple[str, ...] = setting((), "Topic to consume; may be given several times.")
    channel: str = setting(NAME, "Channel to consume.")
    destination_topic: str = setting("", "Topic to publish to.", shown="the topic consumed")
    destination_nsqd_tcp_address: tuple[str, ...] = setting((), "nsqd to publish to, host:port.")
    mode: str = mode_setting()
    require_json_field: str = setting("", "Publish only JSON objects that have this field.")
    require_json_value: str = setting("", "Publish only if the required field has this value.")
    whitelist_json_field: tuple[str, ...] = setting(
        (), "Publish only this field of a JSON object; may be given several times."
    )
    non_json: str = setting(
        "requeue",
        "Treatment of messages that are not JSON objects if fields are required or whitelisted: requeue, pass "
        "(publish unchanged) or drop.",
        choices=("requeue", "pass", "drop"),
    )
    producer_opt: tuple[str, ...] = setting((), "Option of the publishing client, as name,value; see docs/client.md.")


class Destinations:
    """The nsqds to publish to; use it with ``async with``."""

    def __init__(self, flags: ToNSQFlags, options: ProducerOptions, timings: AddressTimings) -> None:
        """Raises ToolFailed for an invalid address."""
        addresses = list(dict.fromkeys(flags.destination_nsqd_tcp_address))
        try:
            self._producers = {address: Producer(address, options) for address in addresses}
        except ValueError as error:
            raise WrongUsage(f"--destination-nsqd-tcp-address: {error}") from None
        self._pool = pool_of(flags.mode, addresses, random.random)
        self._timings = timings
        self._connecting: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Destinations:
        """Connect. Raises ConnectFailed if none can be reached; otherwise unreachable ones are retried."""
        tried = await asyncio.gather(*(_started(each) for each in self._producers.values()))
        failures = [failure for failure in tried if failure is not None]
        if len(failures) == len(tried):
            raise failures[0]
        for producer, failure in zip(self._producers.values(), tried, strict=True):
            if failure is not None:
                log.warning("%s; retrying", failure)
                self._connecting.append(asyncio.create_task(_connect(producer)))
        return self

    async def __aexit__(self, *exception: object) -> None:
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*(each.close() for each in self._producers.values()))

    def publish(self, topic: str, body: bytes) -> asyncio.Future[Ids]:
        """Publish to the connected nsqd that the mode chooses. Returns Producer's future, or one with ConnectFailed."""
        now = time.monotonic()
        for _ in self._producers:
            address = self._pool.pick(now)
            if self._producers[address].connections:
                break
            self._pool.failed(address, now)
        else:
            return failed(ConnectFailed(address, "not connected"))
        answer = self._producers[address].pub(topic, body)
        answer.add_done_callback(partial(self._answered, address, now))
        return answer

    def _answered(self, address: str, began_at: Seconds, answer: asyncio.Future[Ids]) -> None:
        now = time.monotonic()
        if answer.cancelled() or answer.exception() is not None:
            self._pool.failed(address, now)
        else:
            self._pool.succeeded(address, now - began_at, now)
            self._timings.succeeded(address, now - began_at)


async def _started(producer: Producer) -> ConnectFailed | None:
    try:
        await producer.start()
    except ConnectFailed as error:
        return error
    return None


async def _connect(producer: Producer) -> None:
    unreachable = True
    while unreachable:
        await asyncio.sleep(RETRY_SECONDS)
        unreachable = await _started(producer) is not None
    log.info("connected to nsqd %s", *producer.connections)


class Relay:
    """Publishes the messages that pass the filter; a message is finished once its destination has stored it."""

    def __init__(self, flags: ToNSQFlags, destinations: Destinations) -> None:
        self.done = 0
        """Number of messages processed, including those that the filter rejected."""
        self._filter = JSONFilter(flags.require_json_field, flags.require_json_value, flags.whitelist_json_field)
        self._non_json = flags.non_json
        self._destinations = destinations

    def handle(self, topic: str, message: Message) -> None:
        """Publish one message to ``topic``; does not wait."""
        message.disable_auto_response()
        try:
            body = self._filter.apply(message.body)
        except FieldMissing as error:
            self._requeue(message, f"ERROR: {error}")
            return
        except NotJSON as error:
            if self._non_json == "requeue":
                self._requeue(message, f"ERROR: {error}")
                return
            log.error("%s: %s message %s", error, _DONE_WITH[self._non_json], message.id.decode())
            body = message.body if self._non_json == "pass" else None
        if body is None:
            self._finish(message)
        else:
            self._destinations.publish(topic, body).add_done_callback(partial(self._published, message))

    def _published(self, message: Message, answer: asyncio.Future[Ids]) -> None:
        if answer.cancelled():
            message.requeue()
        elif (error := answer.exception()) is not None:
            self._requeue(message, str(error))
        else:
            self._finish(message)

    def _finish(self, message: Message) -> None:
        message.finish()
        self.done += 1

    def _requeue(self, message: Message, reason: str) -> None:
        log.warning("%s; requeued message %s, attempt %d", reason, message.id.decode(), message.attempts)
        message.requeue()


class Loops:
    """Stops the tool before it consumes a topic from an nsqd and publishes it to the same topic of the same nsqd."""

    def __init__(self, flags: ToNSQFlags, run: Run) -> None:
        self.found = ""
        """The first loop that was found, as the tool's error."""
        self._flags = flags
        self._run = run

    async def would_begin(self, topic: str, address: str) -> bool:
        """Whether consuming ``topic`` from the nsqd at ``address`` would be a loop; the tool then stops."""
        if self._flags.destination_topic not in ("", topic):
            return False
        destinations = self._flags.destination_nsqd_tcp_address
        are_same = await asyncio.gather(*(is_one_server(address, each) for each in destinations))
        same = [each for each, is_same in zip(destinations, are_same, strict=True) if is_same]
        if same and not self.found:
            spelled = "" if address in same else f", which is the destination {same[0]},"
            self.found = f"topic {topic} of {address}{spelled} would be published to itself; use --destination-topic"
        if same:
            self._run.stop.set()
        return bool(same)


class _Source(Consumer):
    """A consumer that does not connect to an nsqd where a loop would begin. A registry may list one at any time."""

    def __init__(self, loops: Loops, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loops = loops

    async def _open(self, address: str) -> tuple[Subscription, int]:
        if await self._loops.would_begin(self.topic, address):
            self.begin_stop()
            raise asyncio.CancelledError  # ends this attempt without a failure that would be logged and retried
        return await super()._open(address)


_DONE_WITH: Final = {"pass": "passing on", "drop": "dropping"}


async def to_nsq(flags: ToNSQFlags, run: Run) -> int:
    """Publish until stopped. Raises ToolFailed."""
    if not flags.topic or not flags.channel:
        raise WrongUsage("--topic and --channel are required")
    if not all(map(is_valid_name, flags.topic)):
        raise WrongUsage("--topic is invalid")
    if flags.destination_topic and not is_valid_name(flags.destination_topic):
        raise WrongUsage("--destination-topic is invalid")
    if not is_valid_name(flags.channel):
        raise WrongUsage("--channel is invalid")
    where = sources(flags, local=run.is_subcommand)
    if not flags.destination_nsqd_tcp_address:
        raise WrongUsage("--destination-nsqd-tcp-address required")
    topics = list(dict.fromkeys(flags.topic))
    options = delivery_options(flags, NAME)
    warn_of_few(flags, run)
    timings = AddressTimings(flags.status_every, flags.destination_nsqd_tcp_address, run.note)
    async with Destinations(flags, producer_options(flags.producer_opt, NAME), timings) as destinations:
        relay = Relay(flags, destinations)
        loops = Loops(flags, run)
        make = partial(_Source, loops)
        consumers = [where.consumer(topic, flags.channel, options, make=make) for topic in topics]
        await consume(
            *(flags, run, where, consumers),
            work=lambda each: each.run(partial(relay.handle, flags.destination_topic or each.topic)),
            count=lambda: relay.done,
        )
    if loops.found:
        raise ToolFailed(loops.found)
    return 0


main = Tool(
    NAME,
    "to-nsq",
    ToNSQFlags,
    to_nsq,
    "Publish each message of topics to other nsqds.",
    examples=[
        (
            "nsq to-nsq --topic orders --channel copy --destination-nsqd-tcp-address 10.0.0.7:4150",
            "to the topic of the same name",
        ),
    ],
)
