"""The client of the auth servers."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import httpx

from brokerd.auth import BadGrant, Grant, read_grant
from nsqwire.errors import AuthFailed
from nsqwire.foreign_json import UNREADABLE_JSON

if TYPE_CHECKING:
    import ssl

    from brokerd.client import Client
    from brokerd.settings import BrokerSettings

MAX_ANSWER_BYTES: Final = 1024 * 1024

logger = logging.getLogger("brokerd")
logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log each URL, which contains the secret


class AuthServers:
    """The servers of ``--auth-http-address``. If one gives no valid answer, the next is queried."""

    def __init__(self, settings: BrokerSettings, tls: ssl.SSLContext) -> None:
        self._urls = [
            address if "://" in address else f"http://{address}/auth" for address in settings.auth_http_address
        ]
        self._posts = settings.auth_http_request_method == "post"
        self._request_timeout_s = settings.http_client_request_timeout.total_seconds() or None
        self._client = httpx.AsyncClient(
            verify=tls,
            timeout=httpx.Timeout(None, connect=settings.http_client_connect_timeout.total_seconds() or None),
            headers={"Accept": "application/vnd.nsq; version=1.0"},
            limits=httpx.Limits(max_keepalive_connections=0),  # a server may close an idle connection as it is reused
            follow_redirects=True,
            trust_env=False,  # nsqd uses no proxy
        )

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.aclose()

    async def request_grant(self, client: Client) -> Grant:
        """The grant of ``client`` from the first server that gives a valid answer. Raises AuthFailed if none does.

        The servers are queried in order, from a random one on.
        """
        start = random.randrange(len(self._urls))
        for url in self._urls[start:] + self._urls[:start]:
            try:
                async with asyncio.timeout(self._request_timeout_s):
                    return await self._request_from(url, _query(client))
            except TimeoutError:
                reason = "no answer in time"
            except (httpx.HTTPError, httpx.InvalidURL, OSError, BadGrant) as error:
                reason = str(error) or type(error).__name__
            logger.warning("PROTOCOL(V2): [%s] AUTH failed against %s - %s", client.remote_address, url, reason)
        raise AuthFailed("AUTH failed")

    async def _request_from(self, url: str, query: dict[str, bytes]) -> Grant:
        status, body = await self._request(url, query)
        if status == 403 and url.startswith("http://") and (https_url := _https_url(url, body)):
            status, body = await self._request(https_url, query)
        if status != 200:
            raise BadGrant(f"got status {status}")
        return read_grant(body)

    async def _request(self, url: str, query: dict[str, bytes]) -> tuple[int, bytes]:
        if self._posts:
            body = {name: [value.decode("utf-8", "replace")] for name, value in query.items()}
            request = self._client.build_request("POST", url, json=body)
        else:
            request = self._client.build_request("GET", f"{url}?{urlencode(query)}")
        answer = await self._client.send(request, stream=True)
        try:
            content = b""
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise BadGrant(f"answer of more than {MAX_ANSWER_BYTES} bytes")
            return answer.status_code, content
        finally:
            await answer.aclose()


def _query(client: Client) -> dict[str, bytes]:
    """The request parameters for a client, in alphabetic order."""
    return {
        "common_name": client.tls.common_name.encode() if client.tls else b"",
        "remote_ip": client.remote_address.rpartition(":")[0].strip("[]").encode(),
        "secret": client.secret,
        "tls": b"true" if client.tls else b"false",
    }


def _https_url(url: str, body: bytes) -> str | None:
    """The HTTPS URL of a server that refuses plain HTTP with an ``https_port`` in its answer; None without the port."""
    try:
        port = json.loads(body)["https_port"]
        if type(port) is not int or not 0 < port < 65536:
            return None
        parts = urlsplit(url)
    except UNREADABLE_JSON:
        return None
    host = parts.hostname or ""
    return parts._replace(scheme="https", netloc=f"[{host}]:{port}" if ":" in host else f"{host}:{port}").geturl()
