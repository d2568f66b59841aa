"""HTTP client of nsqd and nsqlookupd."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from nsqcluster.addresses import base_url
from nsqcluster.decoding import decode
from nsqcluster.errors import (
    ConnectTimedOut,
    Interrupted,
    Malformed,
    NotReached,
    Refused,
    RequestFailed,
    TimedOut,
    reason_of,
    system_error,
)

T = TypeVar("T")
Params = Mapping[str, str | int]
Limiter = asyncio.Semaphore | nullcontext[None]

HEADERS: Final = {"Accept": "application/vnd.nsq; version=1.0"}
"""Makes nsqd and nsqlookupd before version 1.0 respond like later versions."""
TIMEOUT_S: Final = 5.0
NSQ_REFUSAL: Final = "E_BAD_PROTOCOL"
"""What nsqd's and nsqlookupd's TCP ports answer to HTTP."""
LARGEST_ANSWER: Final = 256 << 20
"""Largest response accepted, in bytes, so that a faulty server does not exhaust the memory."""


class Client:
    """Sends requests to nodes and registries, and keeps the connections open: close it, or use it with ``async with``.

    If a node responds 403 with its ``https_port``, the request is repeated there over TLS. Redirects are not followed,
    and the environment's proxies are not used. Every method that sends a request raises RequestFailed.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float | None = None,
        concurrency: int | None = None,
        server_concurrency: int | None = None,
        largest_answer: int = LARGEST_ANSWER,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``tls`` is for HTTPS; by default the system's certificate authorities are trusted.

        ``timeout_s`` bounds a request from connecting to the last byte of the response, ``connect_timeout_s`` only
        connecting. At most ``concurrency`` requests run at once, and at most ``server_concurrency`` to one server; the
        time for which a request waits to start does not count.
        """
        self._tls = tls
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(timeout_s, connect_timeout_s or timeout_s)
        self._largest = largest_answer
        self._headers = {**HEADERS, **(headers or {})}
        self._limiter = limiter(concurrency)
        self._server_limiters: defaultdict[str, Limiter] = defaultdict(lambda: limiter(server_concurrency))
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self, address: str, path: str, type: type[T], params: Params | None = None, *, timeout_s: float | None = None
    ) -> T:
        """GET a JSON document and decode it as ``type``."""
        url = url_of(address, path, params)
        return decode(await self._request("GET", url, b"", timeout_s), type, url)

    async def get_body(
        self, address: str, path: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> bytearray:
        """GET a document and return its bytes undecoded."""
        return await self._request("GET", url_of(address, path, params), b"", timeout_s)

    async def post(
        self,
        address: str,
        path: str,
        params: Params | None = None,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytearray:
        """POST and return the response's body. ``headers`` are sent beside those of every request."""
        return await self._request("POST", url_of(address, path, params), body, timeout_s, headers)

    async def stream(self, address: str, path: str, params: Params | None = None) -> AsyncIterator[bytes]:
        """GET a document of any length and yield its bytes as they arrive, each within the timeout."""
        url = url_of(address, path, params)
        target = URL(url, encoded=True)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._opened_response(target)
            try:
                pieces = response.content.iter_any()
                while True:
                    async with asyncio.timeout(self._timeout_s):
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    yield piece
            finally:
                response.close()
        except aiohttp.ConnectionTimeoutError:
            raise ConnectTimedOut(url, self._connect_timeout_s) from None
        except TimeoutError:
            raise TimedOut(url, self._timeout_s) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failure(url, error) from error

    async def _opened_response(self, url: URL) -> aiohttp.ClientResponse:
        """Send a GET, over TLS if the node requires it, and return the response with status 200, its body unread."""
        response = await self._send("GET", url, b"")
        if response.status == 403 and (port := https_port(await response.read())) is not None:
            response = await self._send("GET", url.with_scheme("https").with_port(port), b"")
        if response.status != 200:
            text = (await response.read()).decode(errors="replace")
            phrase = response.reason or ""
            raise Refused(str(url), response.status, message_of(text) or phrase, text=text, phrase=phrase)
        return response

    async def _send(
        self, method: str, url: URL, body: bytes, headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = self._opened()
        return await self._session.request(method, url, data=body or None, headers=headers, allow_redirects=False)

    async def _request(
        self, method: str, url: str, body: bytes, timeout_s: float | None, headers: Mapping[str, str] | None = None
    ) -> bytearray:
        within_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            target = URL(url, encoded=True)
            async with self._server_limiters[target.authority], self._limiter, asyncio.timeout(within_s):
                status, phrase, answer = await self._exchange(method, target, body, headers)
                if status == 403 and (port := https_port(answer)) is not None:
                    target = target.with_scheme("https").with_port(port)
                    status, phrase, answer = await self._exchange(method, target, body, headers)
        except aiohttp.ConnectionTimeoutError:
            raise ConnectTimedOut(url, self._connect_timeout_s) from None
        except TimeoutError as error:
            # The operating system's ETIMEDOUT is a TimeoutError too.
            raise TimedOut(url, within_s) if system_error(error) is None else failure(url, error) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failure(url, error) from error
        if status != 200:
            text = answer.decode(errors="replace")
            raise Refused(url, status, message_of(text) or phrase, text=text, phrase=phrase)
        return answer

    async def _exchange(
        self, method: str, url: URL, body: bytes, headers: Mapping[str, str] | None
    ) -> tuple[int, str, bytearray]:
        """Send one request; return status, reason phrase and body of the response."""
        async with await self._send(method, url, body, headers) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > self._largest:
                    raise Malformed(str(url), f"cannot read its {url.path}: longer than {self._largest >> 20} MiB")
            return response.status, response.reason or "", answer

    def _opened(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls or True, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )


def limiter(limit: int | None) -> Limiter:
    """Return a context that at most ``limit`` tasks enter at once; None: any number."""
    return asyncio.Semaphore(limit) if limit else nullcontext()


def url_of(address: str, path: str, params: Params | None = None) -> str:
    """Return the URL of a request; ``address`` is ``host:port`` or a URL. Raises NotReached for any other."""
    try:
        url = base_url(address) + path
    except ValueError as error:
        raise NotReached(f"http://{address}{path}", str(error)) from None
    # A name that a user sent may not be Unicode. The server answers that it does not have it.
    return f"{url}?{urlencode(params, quote_via=quote, safe='', errors='surrogatepass')}" if params else url


def failure(url: str, error: Exception) -> RequestFailed:
    """Translate an error of aiohttp."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return NotReached(url, reason_of(cause), cause if isinstance(cause, OSError) else None)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotReached(url, reason_of(error.os_error), error.os_error)
    if isinstance(error, (aiohttp.InvalidURL, ValueError)):
        return NotReached(url, f"invalid address: {error}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Interrupted(url, "disconnected without an answer")
    if isinstance(error, aiohttp.ClientResponseError):
        if NSQ_REFUSAL in error.message:
            return Interrupted(url, "it answers in NSQ's TCP protocol: this is not an HTTP address")
        reason = error.message.partition("\n")[0].removesuffix(":")  # below are the bytes, with a mark
        return Interrupted(url, f"the answer is not complete HTTP: {reason}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return Interrupted(url, f"the answer is not complete HTTP: {reason_of(error)}")
    return Interrupted(url, reason_of(error))


def https_port(body: bytes | bytearray) -> int | None:
    """Return the port in ``{"message":"TLS_REQUIRED","https_port":4152}``, the response of an nsqd that requires TLS.

    None for any other response, and if the node has no HTTPS port.
    """
    try:
        port = json.loads(body)["https_port"]
    except (ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 0 < port < 65536 else None


def message_of(text: str) -> str:
    """Return the ``message`` of a JSON error response, otherwise the first 200 characters of the text.

    Empty for a page of HTML.
    """
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return "" if text.lstrip().startswith("<") else text[:200]
