"""``nsq to-http``: send each message of a channel to an HTTP server.

NSQ's nsq_to_http, with its flags. Differences: any 2xx status is a success for GET too; the next address is tried if
one cannot be reached; messages are never given up; an unknown ``--mode`` is refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote_plus

import aiohttp
from yarl import URL

from aionsq.connection import reason_of
from aionsq.message import Message
from aionsq.tools.delivery import DeliveryFlags, consume, delivery_options, mode_setting, warn_of_few
from aionsq.tools.flags import WrongUsage, check_timeouts, sources
from aionsq.tools.hostpool import pool_of
from aionsq.tools.process import Run, Tool
from aionsq.tools.timings import AddressTimings
from nsqdaemon.node_http import HTTPTimeouts
from nsqdaemon.settings import setting
from nsqwire.version import NSQ_VERSION

log = logging.getLogger(__name__)

NAME = "nsq_to_http"

EVERY_ADDRESS: Final = "all"
PLACEHOLDER: Final = "%s"
CONTENT_TYPE: Final = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class ToHTTPFlags(HTTPTimeouts, DeliveryFlags):
    """Flags of nsq_to_http."""

    topic: str = setting("", "Topic to consume.")
    channel: str = setting(NAME, "Channel to consume.")
    post: tuple[str, ...] = setting((), "URL to POST each message to; the message is the body.")
    get: tuple[str, ...] = setting((), "URL to GET for each message; its one %s is replaced by the escaped message.")
    header: tuple[str, ...] = setting((), "Header of each request, 'Name: value'.")
    content_type: str = setting(CONTENT_TYPE, "Content-Type of POST requests.")
    mode: str = mode_setting((EVERY_ADDRESS,))
    n: int = setting(100, "Most simultaneous requests.", min=1)
    sample: float = setting(1.0, "Fraction of the messages to send, 0 to 1; the others are finished without sending.")
    http_client_request_timeout: timedelta = setting("20s", "Timeout of a request, including redirects.")


class NotAccepted(Exception):
    """A server did not accept the message. ``unsent``: it was not reached, so it received nothing of the message."""

    def __init__(self, address: str, reason: str, *, unsent: bool = False) -> None:
        super().__init__(f"{address}: {reason}")
        self.unsent = unsent


class Sender:
    """Sends the requests; use it with ``async with``."""

    def __init__(self, flags: ToHTTPFlags) -> None:
        """Raises ToolFailed for an invalid header or address."""
        headers = {"User-Agent": f"{NAME} v{NSQ_VERSION}"}
        if flags.post:
            headers["Content-Type"] = flags.content_type
        self._headers = _with_own(headers, flags.header)
        self._url_of = {
            address: _url_maker(address, is_template=bool(flags.get)) for address in flags.get or flags.post
        }
        self._method = "POST" if flags.post else "GET"
        self._timeout = aiohttp.ClientTimeout(
            total=flags.http_client_request_timeout.total_seconds(),
            sock_connect=flags.http_client_connect_timeout.total_seconds(),
        )
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # one connection per simultaneous request; --n limits these
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            auto_decompress=False,  # response bodies are not used
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, address: str, body: bytes) -> None:
        """Send a message to ``address``. Raises NotAccepted."""
        url = self._url_of[address](body)
        data = body if self._method == "POST" else None
        try:
            async with self._session.request(self._method, url, data=data, headers=self._headers) as response:
                if not 200 <= response.status < 300:
                    raise NotAccepted(address, f"{response.status} {response.reason or ''}".rstrip())
                async for _ in response.content.iter_any():
                    pass  # read to the end, so that the connection can be reused
        except aiohttp.ClientConnectorError as error:
            raise NotAccepted(address, reason_of(error.os_error), unsent=True) from None
        except aiohttp.ConnectionTimeoutError:
            raise NotAccepted(address, "timed out connecting", unsent=True) from None
        except TimeoutError:
            raise NotAccepted(address, "timed out") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise NotAccepted(address, str(error) or type(error).__name__) from None


def _with_own(headers: dict[str, str], texts: Sequence[str]) -> dict[str, str]:
    """Return ``headers`` with those of ``--header``, which replace headers of the same name. Raises ToolFailed."""
    for text in texts:
        name, _, value = (part.strip() for part in text.partition(":"))
        if (
            not name
            or not value
            or not name.isascii()
            or not value.isprintable()
            or set(name) & set(' \t"(),/;<=>?@[]{}')
        ):
            raise WrongUsage(f"--header value format should be 'Name: value', not {text!r}")
        headers = {known: old for known, old in headers.items() if known.lower() != name.lower()}
        headers[name] = value
    return headers


def _url_maker(address: str, *, is_template: bool) -> Callable[[bytes], URL]:
    """Return a function from a message to its URL. Raises ToolFailed."""
    flag = "--get" if is_template else "--post"
    try:
        url = URL(address, encoded=True)
    except ValueError as error:
        raise WrongUsage(f"{flag} {address}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise WrongUsage(f"{flag} {address}: not the URL of an HTTP server")
    if not is_template:
        return lambda body: url
    # In a printf string, a percent sign is written as %%.
    before, after = (part.replace("%%", "%") for part in address.split(PLACEHOLDER))
    return lambda body: URL(before + quote_plus(body) + after, encoded=True)


class Deliveries:
    """Sends messages to the addresses that the mode chooses."""

    def __init__(self, flags: ToHTTPFlags, sender: Sender, timings: AddressTimings) -> None:
        self.done = 0
        """Number of messages processed, including those skipped by ``--sample``."""
        self._addresses = list(dict.fromkeys(flags.get or flags.post))
        self._to_all = flags.mode == EVERY_ADDRESS
        self._unreachable: set[str] = set()
        self._pool = pool_of(flags.mode, self._addresses, random.random)
        self._sample = flags.sample
        self._sender = sender
        self._timings = timings

    async def handle(self, message: Message) -> None:
        """Send the message and finish it; on failure, requeue it with backoff."""
        if self._sample >= 1.0 or random.random() < self._sample:
            try:
                await (self._send_to_all if self._to_all else self._send_to_one)(message.body)
            except NotAccepted as error:
                level = logging.DEBUG if error.unsent else logging.WARNING  # the address was logged already
                log.log(level, "%s; requeued message %s, attempt %d", error, message.id.decode(), message.attempts)
                message.requeue()
                return
        self.done += 1

    async def _send_to_one(self, body: bytes) -> None:
        tried: set[str] = set()
        for left in reversed(range(len(self._addresses))):
            address = self._pool.pick(time.monotonic())
            if address in tried:  # the pool has picked addresses for other messages meanwhile
                address = next(each for each in self._addresses if each not in tried)
            tried.add(address)
            try:
                seconds = await self._send(address, body)
            except NotAccepted as error:
                self._pool.failed(address, time.monotonic())
                if not error.unsent or not left:
                    raise
            else:
                self._pool.succeeded(address, seconds, time.monotonic())
                return

    async def _send_to_all(self, body: bytes) -> None:
        outcomes = await asyncio.gather(*(self._send(each, body) for each in self._addresses), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _send(self, address: str, body: bytes) -> float:
        """Send a message to ``address``; returns the seconds it took. Raises NotAccepted.

        Logs once that an address cannot be reached and once that it answers again, not for each message.
        """
        began_at = time.monotonic()
        try:
            await self._sender.send(address, body)
        except NotAccepted as error:
            if not error.unsent:
                self._reached(address)
            elif address not in self._unreachable:
                self._unreachable.add(address)
                alone = self._to_all or len(self._addresses) == 1
                log.warning(
                    "%s; %s", error, "requeueing messages until it answers" if alone else "trying another address"
                )
            raise
        self._reached(address)
        seconds = time.monotonic() - began_at
        self._timings.succeeded(address, seconds)
        return seconds

    def _reached(self, address: str) -> None:
        if address in self._unreachable:
            self._unreachable.remove(address)
            log.info("%s: answers again", address)


def check(flags: ToHTTPFlags) -> None:
    """Raise ToolFailed for missing or conflicting flags."""
    if not flags.topic or not flags.channel:
        raise WrongUsage("--topic and --channel are required")
    if flags.content_type != CONTENT_TYPE:
        if not flags.post:
            raise WrongUsage("--content-type only used with --post")
        if not flags.content_type:
            raise WrongUsage("--content-type requires a value when used")
        if not flags.content_type.isprintable():
            raise WrongUsage(f"--content-type {flags.content_type!r}: not the value of a header")


def check_addresses(flags: ToHTTPFlags) -> None:
    """Raise ToolFailed for missing addresses, GET addresses without exactly one ``%s``, and a fraction or timeout
    out of range."""
    if not flags.get and not flags.post:
        raise WrongUsage("--get or --post required")
    if flags.get and flags.post:
        raise WrongUsage("use --get or --post not both")
    if any(address.count(PLACEHOLDER) != 1 for address in flags.get):
        raise WrongUsage("invalid GET address - must be a printf string")
    if not 0.0 <= flags.sample <= 1.0:
        raise WrongUsage("ERROR: --sample must be between 0.0 and 1.0")
    check_timeouts(flags)


async def to_http(flags: ToHTTPFlags, run: Run) -> int:
    """Deliver until stopped. Raises ToolFailed."""
    _with_own({}, flags.header)
    check(flags)
    where = sources(flags, local=run.is_subcommand)
    check_addresses(flags)
    options = delivery_options(flags, NAME)
    warn_of_few(flags, run)
    async with Sender(flags) as sender:
        deliveries = Deliveries(flags, sender, AddressTimings(flags.status_every, flags.get or flags.post, run.note))
        consumer = where.consumer(flags.topic, flags.channel, options)
        await consume(
            *(flags, run, where, [consumer]),
            work=lambda each: each.run(deliveries.handle, concurrency=flags.n),
            count=lambda: deliveries.done,
        )
    return 0


main = Tool(
    NAME,
    "to-http",
    ToHTTPFlags,
    to_http,
    "Send each message of a channel to an HTTP server.",
    examples=[
        ("nsq to-http --topic orders --post http://127.0.0.1:8000/orders", "as the body of a POST"),
        ("nsq to-http --topic hits --get 'http://127.0.0.1:8000/hit?path=%s'", "in the URL of a GET"),
    ],
)
