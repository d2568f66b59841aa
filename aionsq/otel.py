"""Tracing with OpenTelemetry: spans of publishes and of messages, and their context in headers of messages.

Requires ``nsq-client[otel]``. :func:`instrument` traces all producers and consumers that are created after it;
:class:`Tracing` traces a single one. Without an OpenTelemetry SDK in the process, spans are not recorded.

Spans follow OpenTelemetry's conventions for messaging: ``publish <topic>``, for an MPUB with a span ``create <topic>``
for each message, ``receive <topic>`` and ``process <topic>``. A message's creation context is in its headers, in the
format of the process's propagators, by default W3C's ``traceparent`` and ``tracestate``. docs/tracing.md is the guide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from aionsq import tracing
from aionsq.addresses import is_unix_path, split_address
from aionsq.errors import Refused
from aionsq.message import Message
from nsqwire.errors import BadHeaders
from nsqwire.names import is_ephemeral
from nsqwire.version import product_version

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
"""Schema of the semantic conventions that the spans follow."""

Attributes = dict[str, AttributeValue]


class Tracing:
    """Traces producers and consumers: ``Producer(…, tracing=Tracing())``."""

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        """The defaults are the provider and the propagators of the process."""
        self._tracer = trace.get_tracer("aionsq", product_version(), tracer_provider, SCHEMA_URL)
        self._propagator = propagator

    @contextmanager
    def process_batch(self, messages: Sequence[Message], topic: str, channel: str) -> Iterator[Span]:
        """A span for processing several messages together, current in the block and linked to each message's span.

        An exception in the block is recorded in the span.
        """
        attributes = _attributes("process", topic, channel)
        attributes["messaging.batch.message_count"] = len(messages)
        links = [link for message in messages if (link := _link(self._context_of(message))) is not None]
        with self._tracer.start_as_current_span(
            f"process {topic}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, error, record=False)  # the context manager records it
                raise

    # --- called by producers and consumers ---

    def publish(
        self, topic: str, bodies: Sequence[bytes], headers: Sequence[Mapping[str, str]], *, batch: bool
    ) -> tracing.PublishTrace:
        attributes = _attributes("send", topic)
        if batch:
            attributes["messaging.batch.message_count"] = len(bodies)
            created = [self._create(topic, body) for body in bodies]
            links = [Link(span.get_span_context()) for span in created]
            span = self._tracer.start_span(f"publish {topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links)
            return _Publish(span, [self._headers_of(each) for each in created], created)
        attributes["messaging.message.body.size"] = len(bodies[0])
        span = self._tracer.start_span(f"publish {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        return _Publish(span, [self._headers_of(span)])

    def receive(self, message: Message, topic: str, channel: str, began_ns: int) -> None:
        link = _link(self._context_of(message))
        self._tracer.start_span(
            f"receive {topic}",
            kind=SpanKind.CLIENT,
            attributes={**_attributes("receive", topic, channel), **_message_attributes(message)},
            links=[link] if link is not None else [],
            start_time=began_ns,
        ).end()

    def process(self, message: Message, topic: str, channel: str) -> tracing.ProcessTrace:
        context = self._context_of(message)
        link = _link(context)
        span = self._tracer.start_span(
            f"process {topic}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes={**_attributes("process", topic, channel), **_message_attributes(message)},
            links=[link] if link is not None else [],
        )
        return _Process(span, trace.set_span_in_context(span, context))

    # --- inside ---

    def _create(self, topic: str, body: bytes) -> Span:
        attributes = _attributes("create", topic)
        attributes["messaging.message.body.size"] = len(body)
        return self._tracer.start_span(f"create {topic}", kind=SpanKind.PRODUCER, attributes=attributes)

    def _headers_of(self, span: Span) -> Mapping[str, str]:
        """The headers that carry the span's context."""
        headers: dict[str, str] = {}
        (self._propagator or propagate.get_global_textmap()).inject(headers, trace.set_span_in_context(span))
        return {name.lower(): value for name, value in headers.items()}

    def _context_of(self, message: Message) -> Context:
        """The current context, updated from the message's headers."""
        try:
            headers = dict(message.headers)
        except BadHeaders:
            headers = {}
        return (self._propagator or propagate.get_global_textmap()).extract(headers)


class _Publish:
    """The span of a publish."""

    def __init__(self, span: Span, headers: Sequence[Mapping[str, str]], created: Sequence[Span] = ()) -> None:
        """``created`` are the spans of the messages of a batch."""
        self.headers = headers
        self._span = span
        self._created = created

    def ended(self, error: BaseException | None, ids: Sequence[str], address: str) -> None:
        if not self._span.is_recording():
            return
        self._span.set_attributes(_server(address))
        if error is not None:
            _fail(self._span, error)
        if self._created:
            for number, span in enumerate(self._created):
                if len(ids) == len(self._created):
                    span.set_attribute("messaging.message.id", ids[number])
                span.end()
        elif len(ids) == 1:
            self._span.set_attribute("messaging.message.id", ids[0])
        self._span.end()


class _Process:
    """The span of processing one message. It is current in the task until :meth:`ended`."""

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._task = asyncio.current_task()
        self._token: Token[Context] = contexts.attach(context)

    def ended(self, error: BaseException | None) -> None:
        if asyncio.current_task() is self._task:  # otherwise the loop's task has ended, and another task ends its span
            contexts.detach(self._token)
        if error is not None:
            _fail(self._span, error)
        self._span.end()


def instrument(tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None) -> Tracing:
    """Trace all producers and consumers that are created from now on. Returns their Tracing."""
    new = Tracing(tracer_provider, propagator)
    tracing.set_default_tracing(new)
    return new


def uninstrument() -> None:
    """Stop tracing producers and consumers that are created from now on."""
    tracing.set_default_tracing(None)


_NAMES: Final = {"send": "publish"}
"""Operation names by operation type, where they differ."""


def _attributes(operation: str, topic: str, channel: str | None = None) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "nsq",
        "messaging.operation.type": operation,
        "messaging.operation.name": _NAMES.get(operation, operation),
        "messaging.destination.name": topic,
    }
    if is_ephemeral(topic):
        attributes["messaging.destination.temporary"] = True
    if channel is not None:
        attributes["messaging.destination.subscription.name"] = channel
    return attributes


def _message_attributes(message: Message) -> Attributes:
    return {
        "messaging.message.id": message.id.decode(errors="replace"),
        "messaging.message.body.size": len(message.body),
        "messaging.nsq.message.attempts": message.attempts,
        **_server(message.nsqd_address),
    }


def _server(address: str) -> Attributes:
    if not address or is_unix_path(address):
        return {"server.address": address} if address else {}
    host, port = split_address(address)
    return {"server.address": host, "server.port": port}


def _link(context: Context) -> Link | None:
    """A link to the span in a context that was extracted from a message's headers; None without one."""
    found = trace.get_current_span(context).get_span_context()
    return Link(found) if found.is_valid and found.is_remote else None


def _fail(span: Span, error: BaseException, *, record: bool = True) -> None:
    """Record the error. ``error.type`` is nsqd's code, or the class of the exception."""
    span.set_attribute("error.type", error.code if isinstance(error, Refused) else type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__qualname__))
    if record:
        span.record_exception(error)
