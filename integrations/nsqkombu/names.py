"""The topics and channels of kombu's queues and exchanges.

Publisher and consumer derive them from names alone, because NSQ stores no bindings:

- a queue is a topic of its name, with a channel of its name
- a direct exchange has a topic for each routing key, ``EXCHANGE.KEY``, or ``KEY`` if exchange and key have one name
- a topic exchange and a fanout exchange are one topic; each bound queue is a channel of it

Queues and exchanges that kombu deletes with their last consumer are ephemeral.
"""

from __future__ import annotations

import hashlib
import re

from nsqwire.names import EPHEMERAL_SUFFIX, MAX_NAME_BYTES

_INVALID = re.compile(r"[^.a-zA-Z0-9_-]")
_DIGEST_LENGTH = 8
_GENERATED = re.compile(r"(amq\.gen-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def nsq_name(text: str, *, is_ephemeral: bool = False) -> str:
    """Return ``text`` as a name of a topic or channel: 1 to 64 of the characters that NSQ permits.

    A name that NSQ does not permit is changed, and ends with a digest of ``text``, so that different texts get
    different names.
    """
    most = MAX_NAME_BYTES - (len(EPHEMERAL_SUFFIX) if is_ephemeral else 0)
    name = _INVALID.sub("_", text)
    if name != text or not 0 < len(name) <= most:
        digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_LENGTH // 2).hexdigest()
        name = f"{name[: most - _DIGEST_LENGTH - 1]}-{digest}"
    return name + EPHEMERAL_SUFFIX if is_ephemeral else name


def is_generated(name: str) -> bool:
    """Whether a queue's name is one that kombu or Celery generates for a temporary queue: a UUID."""
    return _GENERATED.fullmatch(name) is not None


def queue_topic(queue: str, prefix: str = "") -> str:
    """Return the topic of the messages that are published to a queue without an exchange."""
    return nsq_name(prefix + queue, is_ephemeral=is_generated(queue))


def route_topic(exchange: str, routing_key: str, *, is_ephemeral: bool, prefix: str = "") -> str:
    """Return the topic of a direct exchange's messages with one routing key."""
    if exchange in ("", routing_key):
        return queue_topic(routing_key, prefix)
    name = f"{prefix}{exchange}.{routing_key}" if routing_key else prefix + exchange
    return nsq_name(name, is_ephemeral=is_ephemeral or is_generated(routing_key))


def exchange_topic(exchange: str, *, is_ephemeral: bool, prefix: str = "") -> str:
    """Return the topic of a topic exchange or a fanout exchange."""
    return nsq_name(prefix + exchange, is_ephemeral=is_ephemeral)
