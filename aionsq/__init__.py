"""An NSQ client for asyncio.

:class:`Producer` publishes, :class:`Consumer` consumes, :class:`Lookup` queries nsqlookupd, and
:class:`BlockingProducer` publishes from code that does not use asyncio.

The client works with this project's broker and registry and with Go's nsqd and nsqlookupd. ``docs/client.md`` is the
guide. The state machines (``ready``, ``backoff``, ``discovery``, ``handshake``) use neither sockets nor clocks.
"""

from aionsq.backoff import BackoffStrategy
from aionsq.blocking import BlockingProducer
from aionsq.consumer import Consumer
from aionsq.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    ConsumerStopped,
    HeadersNotSupported,
    HTTPFailed,
    InvalidArgument,
    ProducerClosed,
    ProducerFull,
    PublishTimedOut,
    Refused,
    TLSRequired,
    WrongType,
)
from aionsq.lookup import Lookup
from aionsq.message import Message
from aionsq.node import Node
from aionsq.options import ConnectionOptions, ConsumerOptions, ProducerOptions, with_text, with_texts
from aionsq.producer import Headers, Producer
from aionsq.publish import Ids
from nsqwire.errors import BadBody, BadChannel, BadHeaders, BadMessage, BadTopic, Invalid, NSQError

__all__ = [
    "BackoffStrategy",
    "BadBody",
    "BadChannel",
    "BadHeaders",
    "BadMessage",
    "BadTopic",
    "BlockingProducer",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionOptions",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStopped",
    "HTTPFailed",
    "Headers",
    "HeadersNotSupported",
    "Ids",
    "Invalid",
    "InvalidArgument",
    "Lookup",
    "Message",
    "NSQError",
    "Node",
    "Producer",
    "ProducerClosed",
    "ProducerFull",
    "ProducerOptions",
    "PublishTimedOut",
    "Refused",
    "TLSRequired",
    "WrongType",
    "with_text",
    "with_texts",
]
