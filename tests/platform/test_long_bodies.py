"""Bodies of requests that are longer than the web process takes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.conf import settings

from nsqplatform.accounts.tokens import create_token
from tests.harness.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PIECE = b"x" * (1 << 20)
PIECES = 40
PATHS = ["/api/v1/session", "/api/v1/actions", "/api/topics", "/topics"]


def pieces() -> Iterator[bytes]:
    for _ in range(PIECES):
        yield PIECE


@pytest.mark.parametrize("path", ["/api/v1/messages", "/api/topics"])
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_a_long_body_is_refused_whether_its_length_is_announced_or_not(web, account, path, announced):
    """Also of a caller who may do it."""
    headers = {"Authorization": f"Bearer {create_token(user=account('admin'), name='script')}"}
    with httpx.Client(base_url=web.base, headers=headers, trust_env=False, timeout=DEADLINE_S) as client:
        answer = client.post(path, content=PIECE * PIECES if announced else pieces())
    assert answer.status_code == 413, answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_long_body_does_not_fill_the_disk(web, path):
    """Anybody can send one. Its end is dropped as it arrives."""

    def written() -> int:
        """The bytes in files that the process has open and that have no name any more."""
        total = 0
        for entry in Path(f"/proc/{web.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(entry).endswith(" (deleted)"):
                    total += entry.stat().st_size
        return total

    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nContent-Length: {1 << 31}\r\n\r\n"
    before = written()
    with socket.create_connection(("127.0.0.1", web.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode())
        wait_until(lambda: connection.sendall(PIECE) is None and written() > before, "a part of the body is kept")
        for _ in range(PIECES):  # more than the buffers of both sockets hold
            connection.sendall(PIECE)
        assert written() - before <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1
