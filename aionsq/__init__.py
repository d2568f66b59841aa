"""An NSQ client for asyncio: publish with :class:`Producer`, consume with :class:`Consumer`, ask with :class:`Lookup`.

:class:`BlockingProducer` publishes from code that is not asyncio.

Works the same against this project's broker and registry and against Go's nsqd and nsqlookupd. ``docs/client.md`` is
the guide; the state machines (``ready``, ``backoff``, ``discovery``, ``handshake``) know neither sockets nor clocks.
"""

from aionsq.backoff import BackoffStrategy
from aionsq.blocking import BlockingProducer
from aionsq.consumer import Consumer
from aionsq.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    ConsumerStopped,
    HTTPFailed,
    ProducerClosed,
    ProducerFull,
    PublishTimedOut,
    Refused,
)
from aionsq.lookup import Lookup
from aionsq.message import Message
from aionsq.node import Node
from aionsq.options import ConnectionOptions, ConsumerOptions, ProducerOptions, with_text, with_texts
from aionsq.producer import Producer

__all__ = [
    "BackoffStrategy",
    "BlockingProducer",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionOptions",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStopped",
    "HTTPFailed",
    "Lookup",
    "Message",
    "Node",
    "Producer",
    "ProducerClosed",
    "ProducerFull",
    "ProducerOptions",
    "PublishTimedOut",
    "Refused",
    "with_text",
    "with_texts",
]
