"""How the web process ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import pytest
from django.db import connection
from django.test import Client
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.database import url_of
from tests.harness.waiting import DEADLINE_S, is_readable

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def frozen_redis() -> Iterator[socket.socket]:
    """A listener in place of a Redis that hangs: it accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def session(account: Callable[..., object]) -> str:
    """The cookie of a signed-in viewer."""
    client = Client()
    client.force_login(account("viewer"))
    return f"sessionid={client.cookies['sessionid'].value}"


def get(url: str, session: str) -> None:
    """Request ``url`` and accept that the server ends meanwhile."""
    with suppress(httpx.TransportError):
        httpx.get(url, headers={"Cookie": session}, trust_env=False, timeout=DEADLINE_S)


def open_websocket(url: str, session: str) -> None:
    """Open a websocket and keep it until the server closes it."""
    with (
        suppress(WebSocketException, OSError),
        connect(url.replace("http", "ws", 1), additional_headers={"Cookie": session}, proxy=None) as opened,
    ):
        opened.recv(timeout=DEADLINE_S)


def test_the_web_process_ends_while_redis_does_not_answer(start_web, frozen_redis, session):
    """SIGTERM ends it with a request and a websocket in progress that wait for Redis."""
    host, port = frozen_redis.getsockname()
    web = start_web(DATABASE_URL=url_of(connection.settings_dict), REDIS_URL=f"redis://{host}:{port}")
    with ThreadPoolExecutor() as threads, ExitStack() as connections:
        for call, path in ((get, "/api/v1/snapshot"), (open_websocket, "/ws/cluster")):
            threads.submit(call, web.base + path, session)
            assert is_readable(frozen_redis), f"{path} reads from Redis"
            accepted, _ = frozen_redis.accept()
            connections.enter_context(accepted)
        status = web.terminate()
    assert status == 0, web.output
