"""What the platform sends to every open browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis


@contextmanager
def messages_sent(redis: Redis, kind: str) -> Iterator[list[Any]]:
    """Collect the contents of the messages of one kind: of ``{"type": "job", "job": …}``, the job.

    The list grows until the end of the block.
    """
    from nsqplatform.cluster.live.broadcast import CLUSTER, unpacked
    from nsqplatform.cluster.store import LIVE

    sent: list[Any] = []
    over = threading.Event()
    subscription = redis.pubsub(ignore_subscribe_messages=False)
    subscription.subscribe(LIVE())
    assert subscription.get_message(timeout=10)["type"] == "subscribe"

    def listen() -> None:
        while not over.is_set():
            received = subscription.get_message(timeout=0.3)
            for each in unpacked(received["data"]) if received else ():
                message = json.loads(each.text)
                if each.group == CLUSTER and message["type"] == kind:
                    sent.append(message[kind])

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield sent
    finally:
        over.set()
        listener.join(10)
        subscription.close()
