"""A producer's commands on the wire, with a scripted nsqd."""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta

import pytest

from aionsq import (
    ConnectFailed,
    ConnectionLost,
    Producer,
    ProducerClosed,
    ProducerFull,
    ProducerOptions,
    PublishTimedOut,
    Refused,
)
from nsqwire.errors import BadBody, BadMessage, BadTopic, Invalid

RESPONSE, ERROR = 0, 1
MS = timedelta(milliseconds=1)


async def test_a_producer_that_is_cancelled_while_it_starts_closes_its_connections(nsqd, silent):
    """One nsqd is connected, and another does not answer."""

    producer = Producer([nsqd.address, silent])

    async def start():
        async with producer:
            pass

    starting = asyncio.create_task(start())
    peer = await nsqd.peer()
    await peer.processed()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProducerClosed):
        await producer.start()
    await nsqd.until(lambda: peer.closed)


async def test_publishing_sends_the_three_commands_of_nsq(nsqd):
    """PUB, MPUB and DPUB, each answered once nsqd says OK."""
    async with Producer(nsqd.address) as producer:
        await producer.pub("orders", b"one")
        await producer.mpub("orders", [b"two", bytearray(b"three")])
        await producer.dpub("orders", timedelta(seconds=1.5), memoryview(b"four"))
    pub, mpub, dpub = nsqd.peers[0].commands[1:]
    assert (pub.line, pub.body) == ("PUB orders", b"one")
    assert (mpub.line, mpub.body) == ("MPUB orders", struct.pack(">ii3si5s", 2, 3, b"two", 5, b"three"))
    assert (dpub.line, dpub.body) == ("DPUB orders 1500", b"four")


async def test_many_publishes_are_under_way_at_once(nsqd):
    """The second is sent before the first is answered, and answers go to the publishes in order."""
    held = []
    nsqd.on["PUB"] = lambda peer, command: held.append(peer)
    async with Producer(nsqd.address, ProducerOptions(gather=False)) as producer:
        publishes = [producer.pub("t", b"%d" % number) for number in range(1000)]
        await nsqd.until(lambda: len(held) == 1000)
        held[0].frame(RESPONSE, b"OK")
        await publishes[0]
        assert not publishes[1].done()
        for peer in held[1:]:
            peer.frame(RESPONSE, b"OK")
        await asyncio.gather(*publishes)
    assert [each.body for each in nsqd.peers[0].commands[1:]] == [b"%d" % number for number in range(1000)]


def bodies_of(command):
    """The messages of a PUB or an MPUB."""
    if not command.line.startswith("MPUB"):
        return [command.body]
    (count,) = struct.unpack_from(">i", command.body)
    bodies, at = [], 4
    for _ in range(count):
        (size,) = struct.unpack_from(">i", command.body, at)
        bodies.append(command.body[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(command.body)
    return bodies


async def test_many_publishes_of_one_turn_go_out_together(nsqd):
    """Publishes to one topic become MPUBs, in order; other commands, and few publishes, do not. Each has its result."""
    async with Producer(nsqd.address) as producer:
        bodies = [b"%d" % number for number in range(1000)]
        answers = [producer.pub("t", body) for body in bodies]
        answers += [producer.pub("u", b"few"), producer.dpub("u", MS, b"later"), producer.mpub("u", [b"a", b"b"])]
        assert await asyncio.gather(*answers) == [()] * 1003
    commands = nsqd.peers[0].commands[1:]
    assert len(commands) < 10
    assert [body for each in commands for body in bodies_of(each)] == [*bodies, b"few", b"later", b"a", b"b"]
    assert [each.line for each in commands[-3:]] == ["PUB u", "DPUB u 1", "MPUB u"]


@pytest.mark.parametrize(("code", "gathered_again"), [("E_BAD_MESSAGE", True), ("E_BAD_BODY", False)])
async def test_a_publish_that_nsqd_refuses_does_not_fail_the_others_of_its_mpub(nsqd, code, gathered_again):
    """nsqd refuses the whole MPUB; the publishes are sent again one by one, and only the invalid one fails."""
    refused = []

    def react(peer, command):
        if peer in refused:
            return
        if b"large" in bodies_of(command) or (code == "E_BAD_BODY" and command.line == "MPUB t"):
            refused.append(peer)
            peer.frame(ERROR, f"{code} {command.line.split()[0]} too big".encode())
        else:
            peer.frame(RESPONSE, b"OK")

    nsqd.on["PUB"] = nsqd.on["MPUB"] = react
    async with Producer(nsqd.address) as producer:
        answers = [producer.pub("t", b"%d" % n if n != 20 or code == "E_BAD_BODY" else b"large") for n in range(40)]
        ends = await asyncio.gather(*answers, return_exceptions=True)
        failed = [number for number, end in enumerate(ends) if end != ()]
        assert failed == ([20] if code == "E_BAD_MESSAGE" else [])
        assert all(isinstance(ends[number], Refused) for number in failed)
        await asyncio.gather(*(producer.pub("t", b"after") for _ in range(40)))
    last = nsqd.peers[-1].commands[-1]
    assert last.line == ("MPUB t" if gathered_again else "PUB t")


async def test_a_topic_that_may_not_be_written_fails_every_publish_of_it(nsqd):
    """An error for the whole MPUB is the result of each publish."""
    nsqd.on["MPUB"] = lambda peer, command: peer.frame(ERROR, b"E_UNAUTHORIZED AUTH failed for MPUB")
    async with Producer(nsqd.address) as producer:
        ends = await asyncio.gather(*(producer.pub("t", b"x") for _ in range(50)), return_exceptions=True)
    assert [(type(end), end.code) for end in ends] == [(Refused, "E_UNAUTHORIZED")] * 50


@pytest.mark.parametrize(
    ("publish", "error", "says"),
    [
        (lambda p: p.pub("bad topic", b"x"), BadTopic, "bad topic"),
        (lambda p: p.pub("t" * 65, b"x"), BadTopic, "not valid"),
        (lambda p: p.pub("t", b""), BadMessage, "cannot be empty"),
        (lambda p: p.pub("t", b"x" * 1001), BadMessage, "1001 bytes is larger than 1000"),
        (lambda p: p.mpub("t", []), BadBody, "MPUB without messages"),
        (lambda p: p.mpub("t", [b"x", b""]), BadMessage, "cannot be empty"),
        (lambda p: p.mpub("t", [b"x" * 1000] * 3), BadBody, "larger than 2000"),
        (lambda p: p.dpub("t", -MS, b"x"), Invalid, "delay -1ms is not within 0s..1h0m0s"),
        (lambda p: p.dpub("t", timedelta(hours=2), b"x"), Invalid, "delay 2h0m0s is not within 0s..1h0m0s"),
    ],
)
async def test_an_invalid_publish_fails_alone_and_is_not_sent(nsqd, publish, error, says):
    """nsqd would close the connection, and the publishes after it would be lost."""
    async with Producer(nsqd.address, ProducerOptions(max_msg_size=1000, max_body_size=2000)) as producer:
        before, bad, after = producer.pub("t", b"before"), publish(producer), producer.pub("t", b"after")
        with pytest.raises(error, match=says):
            await bad
        await asyncio.gather(before, after)
    assert [each.body for each in nsqd.peers[0].commands[1:]] == [b"before", b"after"]


async def test_an_mpub_as_large_as_allowed_is_sent(nsqd):
    """The limit is nsqd's: the body with its count and sizes."""
    async with Producer(nsqd.address, ProducerOptions(max_body_size=4 + 2 * (4 + 100))) as producer:
        await producer.mpub("t", [b"x" * 100, b"y" * 100])
        with pytest.raises(BadBody):
            await producer.mpub("t", [b"x" * 100, b"y" * 101])


async def test_a_refused_publish_fails_alone(nsqd):
    """nsqd closes the connection; later publishes are sent again on a new one, once each."""

    def react(peer, command):
        if command.body == b"refused":
            peer.frame(ERROR, b"E_PUB_FAILED PUB failed disk full")
        elif not any(each.body == b"refused" for each in peer.commands):
            peer.frame(RESPONSE, b"OK")

    nsqd.on["PUB"] = react
    async with Producer(nsqd.address) as producer:
        first, refused, *behind = [producer.pub("t", body) for body in (b"first", b"refused", b"b1", b"b2")]
        await first
        with pytest.raises(Refused, match="disk full") as raised:
            await refused
        assert (raised.value.code, raised.value.text) == ("E_PUB_FAILED", "PUB failed disk full")
        await asyncio.gather(*behind)
    assert [each.body for each in nsqd.peers[1].commands[1:]] == [b"b1", b"b2"]


async def test_a_lost_connection_leaves_it_open_whether_a_publish_was_stored(nsqd):
    """The future gets ConnectionLost; the next publish reconnects."""
    nsqd.on["PUB"] = lambda peer, command: peer.disconnect()
    async with Producer(nsqd.address) as producer:
        with pytest.raises(ConnectionLost, match=nsqd.address):
            await producer.pub("t", b"x")
        del nsqd.on["PUB"]
        await producer.pub("t", b"y")
    assert nsqd.peers[1].lines("PUB") == ["PUB t"]


async def test_with_resend_a_publish_survives_a_lost_connection(nsqd):
    """It may then be stored twice."""
    nsqd.on["PUB"] = lambda peer, command: peer.disconnect() if len(nsqd.peers) < 3 else peer.frame(RESPONSE, b"OK")
    async with Producer(nsqd.address, ProducerOptions(resend=True)) as producer:
        await producer.pub("t", b"x")
    assert [peer.lines("PUB") for peer in nsqd.peers] == [["PUB t"]] * 3


async def test_publishes_wait_while_nsqd_restarts(nsqd):
    """They are sent in order when nsqd is back."""
    async with Producer(nsqd.address) as producer:
        await nsqd.stop()
        await nsqd.until(lambda: nsqd.peers[0].closed)
        publishes = [producer.pub("t", b"%d" % number) for number in range(3)]
        await nsqd.restart()
        await asyncio.gather(*publishes)
    assert [each.body for each in nsqd.peers[-1].commands[1:]] == [b"0", b"1", b"2"]


async def test_a_publish_without_an_answer_times_out_and_does_not_shift_the_others(nsqd):
    """The late answer belongs to the publish that gave up waiting."""
    held = []
    nsqd.on["PUB"] = lambda peer, command: held.append(peer)
    async with Producer(nsqd.address) as producer:
        slow, other = producer.pub("t", b"slow", timeout=50 * MS), producer.pub("t", b"other")
        with pytest.raises(PublishTimedOut, match="may or may not be stored"):
            await slow
        held[0].frame(RESPONSE, b"OK")
        await held[0].processed()
        assert not other.done()
        held[0].frame(RESPONSE, b"OK")
        await other


async def test_a_publish_that_could_not_be_sent_in_time_says_so(unused_address):
    """The error says that it was not stored, and why."""
    producer = Producer(unused_address)
    with pytest.raises(PublishTimedOut, match=r"not stored: .*connection refused"):
        await producer.pub("t", b"x", timeout=300 * MS)
    await producer.close()


async def test_starting_and_publishing_at_once_make_one_connection(nsqd):
    """The first caller opens it."""
    producer = Producer(nsqd.address)
    publish = producer.pub("t", b"x")
    await asyncio.gather(producer.start(), producer.start(), publish)
    await producer.close()
    assert len(nsqd.peers) == 1
    await nsqd.until(lambda: nsqd.peers[0].closed)


async def test_waiting_publishes_are_bounded(unused_address):
    """A producer without a connection does not fill the memory."""
    producer = Producer(unused_address, ProducerOptions(max_waiting_bytes=1000))
    waiting = producer.pub("t", b"x" * 900)
    with pytest.raises(ProducerFull):
        await producer.pub("t", b"x" * 900)
    await producer.close(timedelta(0))
    with pytest.raises(ProducerClosed):
        await waiting


async def test_closing_waits_for_outstanding_publishes(nsqd):
    """Leaving the block without awaiting each publish loses none."""
    async with Producer(nsqd.address) as producer:
        publishes = [producer.pub("t", b"x") for _ in range(100)]
    assert all(each.done() and each.exception() is None for each in publishes)
    with pytest.raises(ProducerClosed):
        await producer.pub("t", b"late")


async def test_heartbeats_are_answered_and_no_publish_takes_them_for_its_answer(nsqd):
    """NOP for each."""
    async with Producer(nsqd.address) as producer:
        peer = await nsqd.peer()
        peer.frame(RESPONSE, b"_heartbeat_")
        await producer.pub("t", b"x")
        await nsqd.until(lambda: peer.lines("NOP"))


async def test_an_unreachable_nsqd_is_an_error_at_the_start(unused_address):
    """With its address and the reason."""
    with pytest.raises(ConnectFailed, match=f"{unused_address}: connection refused"):
        await Producer(unused_address).start()


async def test_a_server_other_than_nsqd_is_an_error_at_the_start(nsqd):
    """For example an HTTP server: nsqd's two ports are easily confused."""
    nsqd.on["IDENTIFY"] = lambda peer, command: peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectFailed, match="HTTP"):
        await Producer(nsqd.address).start()


async def test_a_silent_nsqd_is_disconnected(nsqd):
    """If nothing arrives for read_timeout, not even a heartbeat."""
    options = ProducerOptions(read_timeout=timedelta(seconds=1), heartbeat_interval=timedelta(seconds=1))
    nsqd.on["PUB"] = lambda peer, command: None
    async with Producer(nsqd.address, options) as producer:
        with pytest.raises(ConnectionLost, match="received nothing for 1s"):
            await producer.pub("t", b"x")


async def test_an_nsqd_that_reads_slowly_makes_publishes_wait_not_fail(nsqd):
    """Publishes larger than the socket buffers arrive completely."""
    resume = asyncio.Event()

    async def react(peer, command):
        await resume.wait()
        peer.frame(RESPONSE, b"OK")

    nsqd.on["PUB"] = react
    async with Producer(nsqd.address) as producer:
        publishes = [producer.pub("t", b"%04d" % number + b"x" * 500_000) for number in range(60)]
        await nsqd.until(lambda: nsqd.peers[0].lines("PUB"))
        resume.set()
        await asyncio.gather(*publishes)
    assert [each.body[:4] for each in nsqd.peers[0].commands[1:]] == [b"%04d" % number for number in range(60)]
