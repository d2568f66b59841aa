"""HTTP requests to nsqd and nsqlookupd. A failed request raises :class:`HTTPFailed`."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.arguments import check_type
from aionsq.errors import HTTPFailed
from nsqcluster import Client, Refused, RequestFailed
from nsqcluster.errors import Malformed

DEFAULT_TIMEOUT = timedelta(seconds=5)


class HTTPClient:
    """Base of Lookup and Node. It keeps connections open between requests: close it, or use it with ``async with``."""

    def __init__(
        self,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect_timeout: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``timeout`` bounds a whole request. ``headers`` are added to each request.

        ``tls`` is for HTTPS; by default the system's certificate authorities are trusted.
        """
        check_type("timeout", timeout, timedelta)
        check_type("connect_timeout", connect_timeout, timedelta | None)
        check_type("headers", headers, Mapping | None)
        check_type("tls", tls, ssl.SSLContext | None)
        self._client = Client(
            tls=tls,
            timeout_s=timeout.total_seconds(),
            connect_timeout_s=connect_timeout.total_seconds() if connect_timeout else None,
            headers=headers,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


@contextmanager
def failures() -> Iterator[None]:
    """Translate failures of nsqcluster into HTTPFailed."""
    try:
        yield
    except RequestFailed as error:
        raise http_failed(error) from error


def http_failed(error: RequestFailed) -> HTTPFailed:
    """Translate the failure of a request. The URL of the result has no query."""
    url = error.url.partition("?")[0]
    if isinstance(error, Refused):
        return HTTPFailed(url, error.status, error.message)
    return HTTPFailed(url, 200 if isinstance(error, Malformed) else None, error.reason)
