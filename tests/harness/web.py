"""HTTP for tests: httpx with the suite's deadline in place of five seconds, and without the environment's proxies."""

from __future__ import annotations

from typing import Any

import httpx

from tests.harness.waiting import DEADLINE_S


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=DEADLINE_S, **{"trust_env": False, **options})


def post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, timeout=DEADLINE_S, **{"trust_env": False, **options})


def client(**options: Any) -> httpx.Client:
    """Cookies and connections of its own, as a browser has."""
    return httpx.Client(timeout=DEADLINE_S, **{"trust_env": False, **options})
