"""HTTP for tests: httpx with DEADLINE_S as the timeout, and without the environment's proxies."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx

from tests.harness.waiting import DEADLINE_S


@cache
def certificates() -> ssl.SSLContext:
    """The certificate authorities that httpx trusts. It would read them for each client, slower than most requests."""
    return httpx.create_ssl_context(trust_env=False)


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, **_usual(options))


def post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, **_usual(options))


def client(**options: Any) -> httpx.Client:
    """Return a client with its own cookies and connections, like a browser."""
    return httpx.Client(**_usual(options))


def async_client(**options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(**_usual(options))


def _usual(options: dict[str, Any]) -> dict[str, Any]:
    return {"timeout": DEADLINE_S, "trust_env": False, "verify": certificates(), **options}
