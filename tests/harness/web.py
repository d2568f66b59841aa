"""HTTP for tests: httpx with DEADLINE_S as the timeout, and without the environment's proxies."""

from __future__ import annotations

from typing import Any

import httpx

from tests.harness.waiting import DEADLINE_S


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=DEADLINE_S, **{"trust_env": False, **options})


def post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, timeout=DEADLINE_S, **{"trust_env": False, **options})


def client(**options: Any) -> httpx.Client:
    """Return a client with its own cookies and connections, like a browser."""
    return httpx.Client(timeout=DEADLINE_S, **{"trust_env": False, **options})
