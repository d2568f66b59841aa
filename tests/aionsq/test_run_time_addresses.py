"""Nsqds and nsqlookupds that are added to a running consumer, and taken from it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aionsq import ConnectFailed, Consumer, ConsumerOptions, ConsumerStopped
from tests.harness.waiting import DEADLINE_S, until

MS = timedelta(milliseconds=1)
OPTIONS = ConsumerOptions(max_in_flight=4, lookupd_poll_interval=20 * MS)


async def test_an_nsqd_is_added_and_takes_its_share(start_nsqd):
    """The first nsqd gives up half of its share; connecting again changes nothing."""
    first, second = await start_nsqd(), await start_nsqd()
    async with Consumer("t", "c", nsqd_tcp_addresses=[first.address], options=OPTIONS) as consumer:
        old = await first.consumer()
        await first.until(lambda: old.lines("RDY")[-1:] == ["RDY 4"])
        await consumer.connect_to_nsqd(second.address)
        new = await second.consumer()
        await first.until(lambda: old.lines("RDY")[-1:] == ["RDY 2"])
        await second.until(lambda: new.lines("RDY")[-1:] == ["RDY 2"])
        await consumer.connect_to_nsqd(second.address)
        assert sorted(consumer.connections) == sorted([first.address, second.address])
    assert len(second.peers) == 1


async def test_an_nsqd_that_is_left_has_its_messages_answered_first(start_nsqd):
    """CLS, the outstanding FIN, then the connection closes and is not reopened; the other nsqd has all RDY."""
    first, second = await start_nsqd(), await start_nsqd()
    addresses = [first.address, second.address]
    async with Consumer("t", "c", nsqd_tcp_addresses=addresses, options=OPTIONS) as consumer:
        leaving, staying = await first.consumer(), await second.consumer()
        id = leaving.message(b"x")
        message = await consumer.next_message()
        consumer.disconnect_from_nsqd(first.address)
        await first.until(lambda: leaving.lines("CLS"))
        assert not leaving.closed
        message.finish()
        await first.until(lambda: leaving.closed)
        await second.until(lambda: staying.lines("RDY")[-1:] == ["RDY 4"])
        assert leaving.lines("CLS", "FIN") == ["CLS", f"FIN {id.decode()}"]
        await until(lambda: consumer.connections == [second.address])
        with pytest.raises(ValueError, match="not connected to nsqd"):
            consumer.disconnect_from_nsqd(first.address)
        await consumer.connect_to_nsqd(first.address)
        await until(lambda: len(consumer.connections) == 2)
    assert len(first.peers) == 2


async def test_an_nsqd_that_cannot_be_reached_is_not_tried_again(nsqd, unused_address):
    """The caller gets the error at once."""
    async with Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], options=OPTIONS) as consumer:
        with pytest.raises(ConnectFailed):
            await consumer.connect_to_nsqd(unused_address)
        with pytest.raises(ValueError, match="is not host:port"):
            await consumer.connect_to_nsqd("nowhere")
        assert consumer.connections == [nsqd.address]


async def test_an_nsqlookupd_is_added_and_removed(start_nsqd, start_lookup):
    """Its nsqds are found at once; those of a removed one stay while busy; the last nsqlookupd cannot be removed."""
    direct, named = await start_nsqd(), await start_nsqd()
    first, second = await start_lookup(), await start_lookup()
    second.producers = [named.address]
    async with Consumer("t", "c", nsqd_tcp_addresses=[direct.address], options=OPTIONS) as consumer:
        with pytest.raises(ValueError, match="is not one of the consumer's"):
            consumer.disconnect_from_nsqlookupd(first.address)
        await consumer.connect_to_nsqlookupd(first.address)
        assert consumer.connections == [direct.address]
        with pytest.raises(ValueError, match="is the only one"):
            consumer.disconnect_from_nsqlookupd(first.address)
        await consumer.connect_to_nsqlookupd(second.address)
        await until(lambda: len(consumer.connections) == 2)
        consumer.disconnect_from_nsqlookupd(second.address)
        await until(lambda: consumer.connections == [direct.address])


@pytest.mark.parametrize("turns", range(6))
async def test_a_consumer_stops_right_after_an_nsqlookupd_was_added(start_nsqd, start_lookup, turns):
    """In any iteration of the event loop."""
    nsqd, first, second = await start_nsqd(), await start_lookup(), await start_lookup()
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], options=ConsumerOptions(max_in_flight=4))
    async with asyncio.timeout(DEADLINE_S), consumer:
        await consumer.connect_to_nsqlookupd(first.address)
        await until(lambda: first.requests)
        await consumer.connect_to_nsqlookupd(second.address)
        for _ in range(turns):
            await asyncio.sleep(0)


async def test_a_consumer_that_does_not_run_takes_no_addresses(nsqd, start_lookup):
    """Neither before its start nor after its stop."""
    lookup = await start_lookup()
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], options=OPTIONS)
    with pytest.raises(ConsumerStopped, match="was not started"):
        await consumer.connect_to_nsqd(nsqd.address)
    async with consumer:
        pass
    with pytest.raises(ConsumerStopped, match="was stopped"):
        await consumer.connect_to_nsqlookupd(lookup.address)
