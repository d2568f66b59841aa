"""Asking nodes and registries over HTTP: timeouts, TLS and NSQ's own way of asking for HTTPS, in one place."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

import aiohttp
import httpx
from django.conf import settings

from aionsq.http import https_port

NSQ_VERSION_1 = {"Accept": "application/vnd.nsq; version=1.0"}


class Upgrading(httpx.AsyncBaseTransport):
    """A node that answers 403 and names its ``https_port`` is asked once more, there, over TLS."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        if response.status_code != 403 or request.url.scheme != "http":
            return response
        body = await response.aread()
        port = https_port(body)
        if port is None:
            return httpx.Response(403, headers=response.headers, content=body, request=request)
        await response.aclose()
        url = request.url.copy_with(scheme="https", port=port)
        headers = httpx.Headers(request.headers)
        headers["Host"] = url.netloc.decode("ascii")
        again = httpx.Request(request.method, url, headers=headers, content=request.content)
        again.extensions = request.extensions
        return await self._transport.handle_async_request(again)

    async def aclose(self) -> None:
        await self._transport.aclose()


@lru_cache(maxsize=4)
def tls_context(*, root_ca_file: str, cert: str, key: str, skip_verify: bool) -> ssl.SSLContext:
    """What ``--http-client-tls-*`` asks for. Raises OSError for a file that cannot be read or is no certificate."""
    context = ssl.create_default_context(cafile=root_ca_file or None)
    if cert:
        context.load_cert_chain(cert, key)
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls() -> ssl.SSLContext:
    told = settings.NSQADMIN
    return tls_context(
        root_ca_file=told.http_client_tls_root_ca_file,
        cert=told.http_client_tls_cert,
        key=told.http_client_tls_key,
        skip_verify=told.http_client_tls_insecure_skip_verify,
    )


def session() -> aiohttp.ClientSession:
    """For what is asked of every node every second, which costs httpx several times as much as it does aiohttp."""
    connector = aiohttp.TCPConnector(ssl=tls(), limit=0)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=settings.NSQADMIN.http_client_connect_timeout.total_seconds()
        ),
        headers=NSQ_VERSION_1,
        read_bufsize=1 << 20,
    )


@asynccontextmanager
async def answer(session: aiohttp.ClientSession, address: str, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """What ``address`` answers to GET ``path``; over TLS, if it answers 403 and names its ``https_port``."""
    async with session.get(f"http://{address}{path}", allow_redirects=False) as response:
        if response.status != 403 or (port := https_port(await response.read())) is None:
            yield response
            return
    url = response.url.with_scheme("https").with_port(port)
    async with session.get(url, allow_redirects=False) as response:
        yield response


def client(*, timeout_s: float | None = None) -> httpx.AsyncClient:
    """A client for nodes and registries; a request takes ``timeout_s`` between bytes (default: the settings').

    trust_env is off: a proxy meant for the internet must not stand between us and a broker beside us.
    """
    told = settings.NSQADMIN
    timeout = request_timeout_s() if timeout_s is None else timeout_s
    connect = min(timeout, told.http_client_connect_timeout.total_seconds())
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(
        transport=Upgrading(httpx.AsyncHTTPTransport(verify=tls(), limits=limits, trust_env=False)),
        timeout=httpx.Timeout(timeout, connect=connect),
        headers=NSQ_VERSION_1,
        trust_env=False,
    )


def request_timeout_s() -> float:
    """Patience with one whole request, in seconds."""
    timeout: float = settings.NSQADMIN.http_client_request_timeout.total_seconds()
    return timeout
