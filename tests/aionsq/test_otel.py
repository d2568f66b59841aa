"""Traces of producers and consumers: spans of the OpenTelemetry SDK, and their context in headers."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from datetime import timedelta

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aionsq import BlockingProducer, Consumer, ConsumerOptions, Producer, ProducerOptions, otel
from nsqwire.envelope import from_envelope
from nsqwire.errors import BadMessage
from nsqwire.headers import decode_headers
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

QUICK = ConsumerOptions(default_requeue_delay=timedelta(0), backoff_multiplier=timedelta(milliseconds=10))


class Traced:
    """A tracing, and the spans that it has ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        self.tracing = otel.Tracing(provider)
        self.provider = provider

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traced():
    return Traced()


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that it is linked to."""
    return [link.context.span_id for link in span.links]


async def test_a_message_is_processed_in_the_trace_of_its_publish(broker, traced):
    """The publish is a child of the caller's span, and the handler's span a child of the publish, and linked to it."""
    seen = []

    async def handle(message):
        seen.append((dict(message.headers), trace.get_current_span().get_span_context().span_id))
        with traced.tracer.start_as_current_span("inside"):
            await asyncio.sleep(0)
        consumer.begin_stop()

    async with Producer(broker.tcp_address, ProducerOptions(publish_ids=True), tracing=traced.tracing) as producer:
        with traced.tracer.start_as_current_span("request"):
            (message_id,) = await producer.pub("orders", b"hello", headers={"Tenant": "a"})
    consumer = Consumer("orders", "c", nsqd_tcp_addresses=[broker.tcp_address], options=QUICK, tracing=traced.tracing)
    await consumer.run(handle)

    publish, process = traced.span("publish orders"), traced.span("process orders")
    assert publish.parent.span_id == traced.span("request").context.span_id
    assert process.parent.span_id == publish.context.span_id
    assert linked(process) == [publish.context.span_id]
    assert traced.span("inside").parent.span_id == process.context.span_id
    assert {span.context.trace_id for span in (publish, process, traced.span("inside"))} == {publish.context.trace_id}
    assert (publish.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    host, port = broker.tcp_address.split(":")
    assert dict(publish.attributes) == {
        "messaging.system": "nsq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.destination.name": "orders",
        "messaging.message.body.size": 5,
        "messaging.message.id": message_id,
        "server.address": host,
        "server.port": int(port),
    }
    assert dict(process.attributes) == {
        **publish.attributes,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.subscription.name": "c",
        "messaging.nsq.message.attempts": 1,
    }
    ((headers, current),) = seen
    assert (headers["tenant"], headers["traceparent"].split("-")[2]) == ("a", f"{publish.context.span_id:016x}")
    assert current == process.context.span_id
    assert (publish.status.status_code, process.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)


async def test_each_message_of_an_mpub_has_a_context_of_its_own(broker, traced):
    """A create span for each, to which the span of the MPUB is linked; the loop's span is the child of one of them."""
    async with Producer(broker.tcp_address, ProducerOptions(publish_ids=True), tracing=traced.tracing) as producer:
        ids = await producer.mpub("t", [b"one", b"three"])
    processed = {}
    options = ConsumerOptions(max_in_flight=2)
    async with Consumer(
        "t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options, tracing=traced.tracing
    ) as consumer:
        async for message in consumer:
            processed[message.body] = trace.get_current_span().get_span_context().span_id
            if len(processed) == 2:
                break
    assert not trace.get_current_span().get_span_context().is_valid

    created, publish = traced.spans("create t"), traced.span("publish t")
    assert [span.attributes["messaging.message.id"] for span in created] == list(ids)
    assert [span.attributes["messaging.message.body.size"] for span in created] == [3, 5]
    assert linked(publish) == [span.context.span_id for span in created]
    assert (publish.kind, publish.attributes["messaging.batch.message_count"]) == (SpanKind.CLIENT, 2)
    by_id = {span.context.span_id: span for span in traced.spans("process t")}
    parents = {body: by_id[span_id].parent.span_id for body, span_id in processed.items()}
    assert parents == {b"one": created[0].context.span_id, b"three": created[1].context.span_id}


async def test_messages_taken_one_by_one_are_received_and_processed_together(broker, traced):
    """``next_message`` has a span for each, ``process_batch`` one for all, linked to the context of each."""
    async with Producer(broker.tcp_address, tracing=traced.tracing) as producer:
        for body in (b"a", b"b"):
            await producer.pub("t", body)
    options = ConsumerOptions(max_in_flight=2)
    async with Consumer(
        "t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options, tracing=traced.tracing
    ) as consumer:
        messages = [await consumer.next_message(), await consumer.next_message()]
        with pytest.raises(KeyError), traced.tracing.process_batch(messages, "t", "c"):
            raise KeyError("missing")
        for message in messages:
            message.finish()
    published = [span.context.span_id for span in traced.spans("publish t")]
    received, process = traced.spans("receive t"), traced.span("process t")
    assert {span.kind for span in received} == {SpanKind.CLIENT}
    assert sorted(each for span in received for each in linked(span)) == sorted(linked(process)) == sorted(published)
    assert process.parent is None
    assert process.attributes["messaging.batch.message_count"] == 2
    assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert [event.name for event in process.events] == ["exception"]


async def test_errors_are_recorded(broker, traced):
    """Of a publish that was not sent, of a handler and of a loop's body."""

    def handle(message):
        if message.attempts == 1:
            raise ValueError("no such order")
        consumer.begin_stop()

    async def fail_in_a_loop():
        address = broker.tcp_address
        async with Consumer("u", "c", nsqd_tcp_addresses=[address], options=QUICK, tracing=traced.tracing) as consumer:
            async for _ in consumer:
                raise OSError("broken")

    async with Producer(broker.tcp_address, tracing=traced.tracing) as producer:
        with pytest.raises(BadMessage):
            await producer.pub("t", b"")
        await producer.pub("t", b"one")
        await producer.pub("u", b"two")
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=QUICK, tracing=traced.tracing)
    await consumer.run(handle)
    with pytest.raises(OSError, match="broken"):
        await fail_in_a_loop()
    assert not trace.get_current_span().get_span_context().is_valid

    refused, stored = traced.spans("publish t")
    first, second = traced.spans("process t")
    for span, error_type, text in (
        (refused, "BadMessage", "a message body cannot be empty"),
        (first, "ValueError", "no such order"),
        (traced.span("process u"), "OSError", "broken"),
    ):
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, error_type)
        assert text in span.status.description
        assert [event.name for event in span.events] == ["exception"]
    assert {span.status.status_code for span in (stored, second)} == {StatusCode.UNSET}
    assert (first.parent.span_id, second.parent.span_id) == (stored.context.span_id, stored.context.span_id)
    assert [span.attributes["messaging.nsq.message.attempts"] for span in (first, second)] == [1, 2]


async def test_a_blocking_publish_is_a_child_of_the_callers_span(broker, traced):
    """Although another thread publishes."""

    def publish():
        with BlockingProducer(broker.tcp_address, tracing=traced.tracing) as producer:
            for name in ("first", "second"):
                with traced.tracer.start_as_current_span(name):
                    producer.pub("t", name.encode())

    await asyncio.to_thread(publish)
    parents = [span.parent.span_id for span in traced.spans("publish t")]
    assert parents == [traced.span(name).context.span_id for name in ("first", "second")]


async def test_a_node_without_headers_gets_bare_bodies_or_envelopes(nsqd, traced):
    """Tracing never fails a publish; an envelope carries the context if the producer says so."""
    async with Producer(nsqd.address, tracing=traced.tracing) as producer:
        await producer.pub("t", b"bare")
    options = ProducerOptions(headers_fallback="envelope")
    async with Producer(nsqd.address, options, tracing=traced.tracing) as producer:
        await producer.pub("t", b"enveloped")
    bare, enveloped = (peer.commands[1] for peer in nsqd.peers)
    assert (bare.line, bare.body) == ("PUB t", b"bare")
    assert enveloped.line == "PUB t"
    block, body = from_envelope(enveloped.body)
    assert body == b"enveloped"

    consuming = ConsumerOptions(open_envelopes=True)
    async with Consumer(
        "t", "c", nsqd_tcp_addresses=[nsqd.address], options=consuming, tracing=traced.tracing
    ) as consumer:
        peer = await nsqd.consumer(2)
        peer.message(enveloped.body)
        async for message in consumer:
            assert (message.body, dict(message.headers)) == (b"enveloped", decode_headers(block))
            break
    assert traced.span("process t").parent.span_id == traced.spans("publish t")[1].context.span_id


async def test_a_trace_that_the_caller_gave_is_kept_and_baggage_that_is_too_long_is_left_out(broker, traced, caplog):
    caplog.set_level("INFO", "aionsq")
    """The headers of the caller come first; the message is published in any case."""
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    much = baggage.set_baggage("b", "x" * 4000, baggage.set_baggage("a", "x" * 4000))
    token = context.attach(much)
    try:
        async with Producer(broker.tcp_address, tracing=traced.tracing) as producer:
            await producer.pub("t", b"one", headers={"kind": "new"})
            context.detach(token)
            await producer.pub("t", b"two", headers={"TraceParent": given})
    finally:
        assert not baggage.get_all()
    found = {}
    options = ConsumerOptions(max_in_flight=2, headers=True)
    async with Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options) as consumer:
        async for message in consumer:
            found[message.body] = dict(message.headers)
            if len(found) == 2:
                break
    assert found.pop(b"one").keys() == {"kind", "traceparent"}
    assert found == {b"two": {"traceparent": given}}
    assert "value of header baggage has 8005 characters, more than 4096" in caplog.text


async def test_instrumenting_traces_what_is_created_after_it(broker, traced):
    """Until it is undone."""
    before = Producer(broker.tcp_address)
    otel.instrument(traced.provider)
    try:
        within = Producer(broker.tcp_address)
        consumer = Consumer("within", "c", nsqd_tcp_addresses=[broker.tcp_address])
    finally:
        otel.uninstrument()
    after = Producer(broker.tcp_address)
    for name, producer in (("before", before), ("within", within), ("after", after)):
        async with producer:
            await producer.pub(name, b"x")
    await consumer.run(lambda message: consumer.begin_stop())
    assert [len(traced.spans(f"publish {name}")) for name in ("before", "within", "after")] == [0, 1, 0]
    assert len(traced.spans("process within")) == 1


PRELUDE = """
    import asyncio, json, sys
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from aionsq import Consumer, Producer, otel

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    otel.instrument()
    address = sys.argv[1]

    def show():
        print(json.dumps([
            [span.name, span.context.trace_id, span.context.span_id, span.parent and span.parent.span_id]
            for span in exporter.get_finished_spans()
        ]))
"""
PUBLISHER = """
    async def main():
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            async with Producer(address) as producer:
                await producer.pub("orders", b"hello")

    asyncio.run(main())
    show()
"""
CONSUMER = """
    async def main():
        async with Consumer("orders", "mail", nsqd_tcp_addresses=[address]) as consumer:
            async for message in consumer:
                with trace.get_tracer("mail").start_as_current_span("send mail"):
                    break

    asyncio.run(main())
    show()
"""


async def test_publisher_and_consumer_in_two_processes_share_one_trace(broker):
    """From the caller's span in the first to the work of the loop in the second."""

    async def spans_of(script):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(script), broker.tcp_address,
            stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(DEADLINE_S):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return {name: (trace_id, span_id, parent) for name, trace_id, span_id, parent in json.loads(out)}

    published = await spans_of(PUBLISHER)
    consumed = await spans_of(CONSUMER)
    assert set(published) == {"checkout", "publish orders"}
    assert set(consumed) == {"process orders", "send mail"}
    spans = {**published, **consumed}
    assert len({trace_id for trace_id, _, _ in spans.values()}) == 1
    chain = ["checkout", "publish orders", "process orders", "send mail"]
    assert [spans[name][2] for name in chain] == [None, *(spans[name][1] for name in chain[:-1])]
