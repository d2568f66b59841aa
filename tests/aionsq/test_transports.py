"""The same exchange with a real broker over every transport; and several nsqds behind one producer."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from aionsq import ConnectFailed, Consumer, ConsumerOptions, Producer, ProducerOptions
from tests.harness.waiting import DEADLINE_S, until

LAYERS = {
    "plain": {},
    "deflate": {"deflate": True},
    "snappy": {"snappy": True},
    "TLS": {"tls_v1": True},
    "TLS and deflate": {"tls_v1": True, "deflate": True},
    "TLS and snappy": {"tls_v1": True, "snappy": True},
}
BODIES = [b"%d " % number + b"the same again and again " * (number % 50) for number in range(500)] + [bytes(900_000)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> dict[str, str]:
    """Paths of the broker's certificate with its key, and of the authority's."""
    directory: Path = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
    return {"server": str(directory / "server.pem"), "authority": str(directory / "authority.pem")}


async def exchange(address: str, **layer) -> list[bytes]:
    """Publish all bodies, consume them, and return what arrived."""
    seen: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S), Producer(address, ProducerOptions(**layer)) as producer:
        publishes = [producer.pub("t", body) for body in BODIES[:250]]
        await asyncio.gather(*publishes, producer.mpub("t", BODIES[250:]))
        options = ConsumerOptions(max_in_flight=100, **layer)
        async with Consumer("t", "c", nsqd_tcp_addresses=[address], options=options) as consumer:
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == len(BODIES):
                    break
    return seen


@pytest.mark.parametrize("layer", LAYERS)
async def test_messages_go_through_every_layer_whole_and_once(start_server, certificates, layer):
    """Small ones, large ones, compressible ones and others, in both directions."""
    options = dict(LAYERS[layer])
    flags = []
    if options.get("tls_v1"):
        options["tls_root_ca_file"] = certificates["authority"]
        flags = [f"--tls-cert={certificates['server']}", f"--tls-key={certificates['server']}", "--tls-required=true"]
    broker = await start_server("brokerd", *flags)
    assert sorted(await exchange(broker.tcp_address, **options)) == sorted(BODIES)


async def test_tls_that_nsqd_does_not_grant_is_an_error(broker):
    """The connection never silently continues without encryption."""
    with pytest.raises(ConnectFailed, match="does not grant tls_v1"):
        await Producer(broker.tcp_address, ProducerOptions(tls_v1=True)).start()


async def test_publishes_go_to_several_nsqds_in_turn(start_nsqd):
    """Each receives its part, and none a message twice."""
    nsqds = [await start_nsqd() for _ in range(3)]
    async with Producer([each.address for each in nsqds]) as producer:
        await asyncio.gather(*(producer.pub("t", b"%d" % number) for number in range(30)))
    assert [len(each.peers[0].lines("PUB")) for each in nsqds] == [10, 10, 10]


async def test_with_failover_the_first_nsqd_that_works_gets_all(start_nsqd):
    """The second is used only while the first is down."""
    first, second = await start_nsqd(), await start_nsqd()
    options = ProducerOptions(nsqd_choice="failover")
    async with Producer([first.address, second.address], options) as producer:
        await asyncio.gather(*(producer.pub("t", b"a") for _ in range(10)))
        assert second.peers[0].lines("PUB") == []
        await first.stop()
        await first.until(lambda: first.peers[0].closed)
        await asyncio.gather(*(producer.pub("t", b"b") for _ in range(10)))
    assert len(second.peers[0].lines("PUB")) == 10


async def test_an_nsqd_with_overdue_answers_is_avoided_while_another_works(start_nsqd):
    """For example a stopped process that is still connected."""
    silent, works = await start_nsqd(), await start_nsqd()
    silent.on["PUB"] = lambda peer, command: None
    options = ProducerOptions(stalled_after=timedelta(milliseconds=100))
    producer = Producer([silent.address, works.address], options)
    await producer.start()
    lost = [producer.pub("t", b"x") for _ in range(2)]
    await until(lambda: silent.peers[0].lines("PUB"), "one of the two publishes arrives")
    arrived_at = silent.peers[0].commands[-1].at
    await until(lambda: time.monotonic() > arrived_at + 0.1, "the answer is overdue")
    await asyncio.gather(*(producer.pub("t", b"y") for _ in range(20)))
    assert len(silent.peers[0].lines("PUB")) == 1
    await producer.close(timedelta(0))
    await asyncio.gather(*lost, return_exceptions=True)


async def test_with_resend_unanswered_publishes_of_a_lost_nsqd_go_to_another(start_nsqd):
    """At once, without waiting for its return."""
    first, second = await start_nsqd(), await start_nsqd()
    first.on["PUB"] = lambda peer, command: None
    async with Producer([first.address, second.address], ProducerOptions(resend=True)) as producer:
        publishes = [producer.pub("t", b"%d" % number) for number in range(6)]
        await first.until(lambda: len(first.peers[0].lines("PUB")) == 3)
        await first.stop()
        await asyncio.gather(*publishes)
    assert len(second.peers[0].lines("PUB")) == 6


async def test_a_slow_handler_keeps_its_message_with_auto_touch(broker):
    """The handler works for twice the timeout, and the message is delivered once."""
    attempts: list[int] = []
    handled = asyncio.Event()
    options = ConsumerOptions(msg_timeout=timedelta(seconds=4), auto_touch=True, max_in_flight=3)
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options)

    async def handle(message):
        attempts.append(message.attempts)
        await asyncio.sleep(8)  # the work
        handled.set()

    async with asyncio.timeout(DEADLINE_S), Producer(broker.tcp_address) as producer:
        running = asyncio.create_task(consumer.run(handle, concurrency=2))
        await producer.pub("t", b"slow")
        await handled.wait()
        assert await consumer.stop() == []
        await running
    assert attempts == [1]
