"""Headers of messages: what the client sends and receives, with a scripted nsqd."""

from __future__ import annotations

import asyncio
import json
import struct
from datetime import timedelta

import pytest

from aionsq import (
    BlockingProducer,
    Consumer,
    ConsumerOptions,
    HeadersNotSupported,
    Producer,
    ProducerOptions,
    Refused,
)
from nsqwire.envelope import in_envelope
from nsqwire.errors import BadBody, BadHeaders, BadMessage

ERROR, MESSAGE, MESSAGE_WITH_HEADERS = 1, 2, 3
WITH_HEADERS = ProducerOptions(headers=True)
ENVELOPES = ProducerOptions(headers=True, headers_fallback="envelope")


@pytest.fixture
async def header_nsqd(nsqd):
    """A scripted nsqd that takes headers, as brokerd does."""
    nsqd.identify_answer["headers"] = True
    return nsqd


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def block(**headers: str) -> bytes:
    return json.dumps(headers, separators=(",", ":")).encode()


async def test_publishes_with_headers_are_hpub_hmpub_and_hdpub(header_nsqd):
    """The node is asked for headers, and gets the block before the body; names are in lower case."""
    async with Producer(header_nsqd.address, WITH_HEADERS) as producer:
        await producer.pub("orders", b"one", headers={"Tenant": "a", "kind": "new"})
        await producer.mpub("orders", [b"two", b"three"], headers={"tenant": "b"})
        await producer.mpub("orders", [b"four", b"five"], headers=[{"tenant": "c"}, {}])
        await producer.dpub("orders", timedelta(seconds=1.5), b"six", headers={"tenant": "d"})
    identify, hpub, same, each, hdpub = header_nsqd.peers[0].commands
    assert json.loads(identify.body)["headers"] is True
    assert (hpub.line, hpub.body) == ("HPUB orders", sized(block(tenant="a", kind="new")) + b"one")
    messages = sized(sized(block(tenant="b")) + b"two") + sized(sized(block(tenant="b")) + b"three")
    assert (same.line, same.body) == ("HMPUB orders", struct.pack(">i", 2) + messages)
    messages = sized(sized(block(tenant="c")) + b"four") + sized(sized(b"{}") + b"five")
    assert (each.line, each.body) == ("HMPUB orders", struct.pack(">i", 2) + messages)
    assert (hdpub.line, hdpub.body) == ("HDPUB orders 1500", sized(block(tenant="d")) + b"six")


async def test_without_the_option_bytes_on_the_wire_are_nsqs(header_nsqd):
    """IDENTIFY does not name headers, and a publish without headers is a PUB with or without the option."""
    async with Producer(header_nsqd.address) as plain, Producer(header_nsqd.address, WITH_HEADERS) as asked:
        await plain.pub("t", b"one")
        await asked.pub("t", b"two", headers={})
        await asked.mpub("t", [b"three"], headers=[{}])
    first, second = header_nsqd.peers
    assert "headers" not in json.loads(first.commands[0].body)
    assert [(each.line, each.body) for each in first.commands[1:]] == [("PUB t", b"one")]
    assert [each.line for each in second.commands[1:]] == ["PUB t", "MPUB t"]


async def test_publishes_with_headers_of_one_turn_go_out_together(header_nsqd):
    """As publishes without headers do; each has its own headers."""
    async with Producer(header_nsqd.address, WITH_HEADERS) as producer:
        await asyncio.gather(*(producer.pub("t", b"x", headers={"n": str(number)}) for number in range(100)))
    commands = header_nsqd.peers[0].commands[1:]
    assert [each.line for each in commands] == ["HMPUB t"]
    messages = b"".join(sized(sized(block(n=str(number))) + b"x") for number in range(100))
    assert commands[0].body == struct.pack(">i", 100) + messages


async def test_a_refused_hmpub_is_sent_again_one_by_one(header_nsqd):
    """nsqd refuses the command for one message; the others are stored."""

    def refuse_hmpub(peer, command):
        peer.frame(ERROR, b"E_BAD_MESSAGE HMPUB message too big")

    def answer(peer, command):
        if command.body.endswith(b"bad"):
            peer.frame(ERROR, b"E_BAD_MESSAGE HPUB message too big")
        else:
            peer.frame(0, b"OK")

    header_nsqd.on["HMPUB"] = refuse_hmpub
    header_nsqd.on["HPUB"] = answer
    async with Producer(header_nsqd.address, WITH_HEADERS) as producer:
        bodies = [b"good"] * 19 + [b"bad"]
        publishes = [producer.pub("t", body, headers={"a": "b"}) for body in bodies]
        results = await asyncio.gather(*publishes, return_exceptions=True)
    assert results[:19] == [()] * 19
    assert isinstance(results[19], Refused)


@pytest.mark.parametrize("options", [ProducerOptions(), WITH_HEADERS], ids=["not asked", "not granted"])
async def test_headers_that_the_node_does_not_take_are_an_error(nsqd, options):
    """Nothing is sent, and other publishes are not affected."""
    async with Producer(nsqd.address, options) as producer:
        with pytest.raises(HeadersNotSupported, match="not stored"):
            await producer.pub("t", b"one", headers={"tenant": "a"})
        with pytest.raises(HeadersNotSupported):
            await producer.mpub("t", [b"one"], headers=[{"tenant": "a"}])
        await producer.pub("t", b"two")
    assert [(each.line, each.body) for each in nsqd.peers[0].commands[1:]] == [("PUB t", b"two")]


async def test_a_publish_that_waits_for_a_node_learns_then_that_it_takes_no_headers(nsqd):
    """The producer was not connected when the message was published."""
    producer = Producer(nsqd.address, WITH_HEADERS)
    with pytest.raises(HeadersNotSupported, match=f"nsqd {nsqd.address} does not take headers"):
        await producer.pub("t", b"one", headers={"tenant": "a"})
    await producer.close()
    assert nsqd.peers[0].lines("PUB", "HPUB") == []


async def test_headers_are_dropped_or_enveloped_if_the_producer_says_so(nsqd):
    """``headers_fallback``, for all kinds of publishes."""
    for fallback in ("drop", "envelope"):
        async with Producer(nsqd.address, ProducerOptions(headers=True, headers_fallback=fallback)) as producer:
            await producer.pub("t", b"one", headers={"a": "1"})
            await producer.mpub("t", [b"two", b"three"], headers=[{"a": "2"}, {}])
            await producer.dpub("t", timedelta(seconds=1), b"four", headers={"a": "4"})
    dropped, enveloped = (peer.commands[1:] for peer in nsqd.peers)
    assert [each.line for each in dropped] == [each.line for each in enveloped] == ["PUB t", "MPUB t", "DPUB t 1000"]
    assert [each.body for each in dropped] == [
        b"one", struct.pack(">i", 2) + sized(b"two") + sized(b"three"), b"four"
    ]  # fmt: skip
    one, two, four = (
        in_envelope(block(a=number), body) for number, body in (("1", b"one"), ("2", b"two"), ("4", b"four"))
    )
    assert one == b"\xffNSQHDR1\x00\x00\x00\x09" + b'{"a":"1"}' + b"one"
    assert [each.body for each in enveloped] == [one, struct.pack(">i", 2) + sized(two) + sized(b"three"), four]


async def test_of_several_nodes_one_that_takes_headers_is_chosen(start_nsqd):
    """A publish with headers goes there, others go to each in turn."""
    old, new = await start_nsqd(), await start_nsqd()
    new.identify_answer["headers"] = True
    async with Producer([old.address, new.address], WITH_HEADERS) as producer:
        for _ in range(4):
            await producer.pub("t", b"x", headers={"a": "b"})
            await producer.pub("t", b"y")
        assert (old.peers[0].lines("HPUB"), new.peers[0].lines("HPUB")) == ([], ["HPUB t"] * 4)
        assert old.peers[0].lines("PUB")


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"no spaces": "x"}, "header name 'no spaces' is not"),
        ({"a": "x", "A": "y"}, "header a appears twice"),
        ({"a": "new\nline"}, "value of header a has a control character"),
        ({"a": "x" * 4097}, "value of header a has 4097 characters, more than 4096"),
    ],
)
async def test_invalid_headers_fail_alone_and_are_not_sent(header_nsqd, headers, says):
    """The error names the header."""
    async with Producer(header_nsqd.address, WITH_HEADERS) as producer:
        with pytest.raises(BadHeaders, match=says):
            await producer.pub("t", b"one", headers=headers)
        with pytest.raises(ValueError, match="headers are given for 1 message, and bodies for 2"):
            producer.mpub("t", [b"a", b"b"], headers=[{}])
    assert header_nsqd.peers[0].lines("PUB", "HPUB") == []


async def test_the_limits_of_sizes_count_headers_and_envelopes(nsqd, start_nsqd):
    """The body is bounded by max_msg_size alone, an HMPUB and an enveloped message with their headers."""
    broker = await start_nsqd()
    broker.identify_answer["headers"] = True
    limits = ProducerOptions(headers=True, headers_fallback="envelope", max_msg_size=10, max_body_size=100)
    async with Producer(broker.address, limits) as producer:
        await producer.pub("t", b"0123456789", headers={"a": "b" * 200})
        with pytest.raises(BadMessage, match="message of 11 bytes"):
            await producer.pub("t", b"0123456789x", headers={"a": "b"})
        with pytest.raises(BadBody, match="headers included"):
            await producer.mpub("t", [b"0"] * 5, headers={"a": "b" * 20})
    async with Producer(nsqd.address, limits) as producer:
        with pytest.raises(BadMessage, match="with its envelope"):
            await producer.pub("t", b"0123456789", headers={"a": "b"})
        await producer.pub("t", b"last")
    assert nsqd.peers[0].lines("PUB") == ["PUB t"]


async def test_the_blocking_producer_publishes_headers(header_nsqd):
    """All three methods."""

    def publish():
        with BlockingProducer(header_nsqd.address, WITH_HEADERS) as producer:
            producer.pub("t", b"one", headers={"a": "1"})
            producer.mpub("t", [b"two"], headers={"a": "2"})
            producer.dpub("t", timedelta(seconds=1), b"three", headers={"a": "3"})

    await asyncio.to_thread(publish)
    assert header_nsqd.peers[0].lines()[1:] == ["HPUB t", "HMPUB t", "HDPUB t 1000"]


def with_headers(number: int, headers: bytes, body: bytes) -> bytes:
    return struct.pack(">qH16s", 5, 1, b"%016x" % number) + sized(headers) + body


async def test_a_consumer_receives_headers(header_nsqd):
    """Of messages of frame type 3; those of type 2 have none."""
    options = ConsumerOptions(headers=True, max_in_flight=10)
    async with Consumer("t", "c", nsqd_tcp_addresses=[header_nsqd.address], options=options) as consumer:
        peer = await header_nsqd.consumer()
        assert json.loads(peer.commands[0].body)["headers"] is True
        peer.frame(MESSAGE_WITH_HEADERS, with_headers(1, block(tenant="a", kind="new"), b"one"))
        peer.message(b"two", id=b"%016x" % 2)
        peer.frame(MESSAGE_WITH_HEADERS, with_headers(3, b"not JSON", b"three"))
        first, second, third = [await consumer.next_message() for _ in range(3)]
        assert (dict(first.headers), first.body, first.timestamp) == ({"tenant": "a", "kind": "new"}, b"one", 5)
        assert (dict(second.headers), second.body) == ({}, b"two")
        assert third.body == b"three"
        with pytest.raises(BadHeaders, match="not JSON"):
            _ = third.headers
        for message in (first, second, third):
            message.finish()
        await header_nsqd.until(lambda: len(peer.lines("FIN")) == 3)


async def test_a_consumer_that_did_not_ask_ignores_frames_with_headers(header_nsqd):
    """As every frame of a type that was not agreed on."""
    async with Consumer("t", "c", nsqd_tcp_addresses=[header_nsqd.address]) as consumer:
        peer = await header_nsqd.consumer()
        assert "headers" not in json.loads(peer.commands[0].body)
        peer.frame(MESSAGE_WITH_HEADERS, with_headers(1, block(tenant="a"), b"one"))
        peer.message(b"two")
        message = await consumer.next_message()
        assert message.body == b"two"
        message.finish()


async def test_a_consumer_opens_envelopes_if_the_option_is_set(nsqd):
    """Anything else than an envelope stays as it is."""
    enveloped = in_envelope(block(tenant="a"), b"body")
    others = [b"\xffNSQHDR1", enveloped[:20], in_envelope(b"[1]", b"body"), b"plain"]
    for opens in (True, False):
        options = ConsumerOptions(open_envelopes=opens, max_in_flight=10)
        async with Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], options=options) as consumer:
            peer = await nsqd.consumer(0 if opens else 1)
            for body in (enveloped, *others):
                peer.message(body)
            first, *rest = [await consumer.next_message() for _ in range(1 + len(others))]
            expected = ({"tenant": "a"}, b"body") if opens else ({}, enveloped)
            assert (dict(first.headers), first.body) == expected
            assert [(dict(each.headers), each.body) for each in rest] == [({}, body) for body in others]
            for message in (first, *rest):
                message.finish()
