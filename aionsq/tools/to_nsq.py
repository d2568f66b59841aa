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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from aionsq.errors import ConnectFailed
from aionsq.message import Message
from aionsq.options import ProducerOptions
from aionsq.producer import Producer
from aionsq.publish import Ids, failed
from aionsq.tools.delivery import DeliveryFlags, consume, delivery_options, mode_setting, warn_of_few
from aionsq.tools.flags import Sources, ToolFailed, WrongUsage, producer_options, sources
from aionsq.tools.hostpool import pool_of
from aionsq.tools.json_filter import FieldMissing, JSONFilter, NotJSON
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
    _refuse_loops(flags, where, topics)
    options = delivery_options(flags, NAME)
    warn_of_few(flags, run)
    timings = AddressTimings(flags.status_every, flags.destination_nsqd_tcp_address, run.note)
    async with Destinations(flags, producer_options(flags.producer_opt, NAME), timings) as destinations:
        relay = Relay(flags, destinations)
        consumers = [where.consumer(topic, flags.channel, options) for topic in topics]
        await consume(
            *(flags, run, where, consumers),
            work=lambda each: each.run(partial(relay.handle, flags.destination_topic or each.topic)),
            count=lambda: relay.done,
        )
    return 0


def _refuse_loops(flags: ToNSQFlags, where: Sources, topics: Sequence[str]) -> None:
    """Raise ToolFailed if a topic would be published to itself, in an endless loop."""
    if not flags.destination_topic or flags.destination_topic in topics:
        for address in flags.destination_nsqd_tcp_address:
            if address in where.nsqd_tcp_addresses:
                topic = flags.destination_topic or topics[0]
                raise ToolFailed(f"topic {topic} of {address} would be published to itself; use --destination-topic")


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
