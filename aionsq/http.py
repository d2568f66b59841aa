"""The HTTP faces of nsqd and nsqlookupd: one request, its answer or HTTPFailed."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import httpx

from aionsq.connection import reason_of
from aionsq.errors import HTTPFailed

DEFAULT_TIMEOUT = timedelta(seconds=5)


def base_url(address: str) -> str:
    """``host:port``, or a URL with or without a path, as a URL without a trailing slash.

    Raises ValueError where the port is missing, or no number.
    """
    try:
        url = httpx.URL(address if "://" in address else f"http://{address}")
    except httpx.InvalidURL:
        raise ValueError(f"{address!r} is not host:port") from None
    if not url.host or (url.port is None and "://" not in address):
        raise ValueError(f"{address!r} is not host:port")
    return str(url).rstrip("/")


def host_port(host: str, port: int) -> str:
    """An address as ``host:port``, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class HTTPClient:
    """Keeps connections open between requests; to be closed, or used with ``async with``."""

    def __init__(
        self,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``headers`` go with each request; ``tls`` is for HTTPS, by default with the system's authorities."""
        # Brokers are addressed directly: a proxy for the outside world has no business here.
        self._transport = httpx.AsyncHTTPTransport(verify=tls or True, trust_env=False)
        self._client = httpx.AsyncClient(
            transport=self._transport,
            trust_env=False,
            headers=dict(headers or {}),
            timeout=httpx.Timeout(timeout.total_seconds(), connect=(connect_timeout or timeout).total_seconds()),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get_json(self, url: str, params: Mapping[str, str]) -> Any:
        """GET a JSON document; the envelope of nsqlookupd before 1.0 is taken off. Raises HTTPFailed."""
        response = await self._request("GET", url, params)
        try:
            document = json.loads(response.content)
        except ValueError:
            raise HTTPFailed(url, response.status_code, "the answer is not JSON") from None
        if isinstance(document, dict) and document.keys() >= {"status_code", "data"}:
            if document["status_code"] != 200:
                raise HTTPFailed(url, int(document["status_code"]), str(document.get("status_txt")))
            return document["data"]
        return document

    async def get_text(self, url: str) -> str:
        """GET a text. Raises HTTPFailed."""
        return (await self._request("GET", url, {})).text

    async def post(self, url: str, params: Mapping[str, str], body: bytes = b"") -> str:
        """POST, expect success, and return the answer's text. Raises HTTPFailed."""
        return (await self._request("POST", url, params, body)).text

    async def _request(self, method: str, url: str, params: Mapping[str, str], body: bytes = b"") -> httpx.Response:
        try:
            request = self._client.build_request(
                method, url, params=dict(params), content=body, headers={"Accept": "application/vnd.nsq; version=1.0"}
            )
            response = await self._answer(request)
            if response.status_code == 403 and (port := https_port(response.content)) is not None:
                at = request.url.copy_with(scheme="https", port=port)
                response = await self._answer(self._client.build_request(method, at, content=body))
        except httpx.TimeoutException:
            raise HTTPFailed(url, None, "timed out") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HTTPFailed(url, None, _cause(error)) from error
        if response.status_code != 200:
            raise HTTPFailed(url, response.status_code, _message(response))
        return response

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        # Bypasses the client's send(), which logs each request at INFO, because lookups are polled.
        response = await self._transport.handle_async_request(request)
        try:
            await response.aread()
        finally:
            await response.aclose()
        return response


def https_port(body: bytes) -> int | None:
    """The port in ``{"message":"TLS_REQUIRED","https_port":4152}``, the 403 response of an nsqd that requires TLS."""
    try:
        port = json.loads(body)["https_port"]
    except (ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 0 < port < 65536 else None


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or response.reason_phrase


def _cause(error: BaseException) -> str:
    """The operating system's reason below httpx's layers, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return reason_of(cause)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
