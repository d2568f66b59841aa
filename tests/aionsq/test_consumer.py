"""A consumer's commands on the wire, with scripted nsqds."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from aionsq import ConnectFailed, Consumer, ConsumerOptions, ConsumerStopped
from nsqwire.errors import BadChannel, BadTopic
from tests.harness.waiting import until

RESPONSE, ERROR = 0, 1
MS = timedelta(milliseconds=1)


def options(**changes) -> ConsumerOptions:
    return ConsumerOptions(**{"max_in_flight": 1, **changes})


def consumer_of(*nsqds, **changes) -> Consumer:
    return Consumer("t", "c", nsqd_tcp_addresses=[each.address for each in nsqds], options=options(**changes))


def is_waiting(peer) -> bool:
    """Whether the consumer would take a message."""
    return peer.lines("RDY")[-1:] not in ([], ["RDY 0"])


async def test_a_loop_finishes_each_message_when_it_asks_for_the_next(nsqd):
    """Bodies arrive in order, and FIN follows in order."""
    async with consumer_of(nsqd, max_in_flight=3) as consumer:
        peer = await nsqd.consumer()
        ids = [peer.message(body) for body in (b"a", b"b", b"c")]
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 3:
                break
    assert bodies == [b"a", b"b", b"c"]
    assert peer.lines("SUB", "RDY", "FIN", "CLS") == [
        "SUB t c",
        "RDY 3",
        *(f"FIN {id.decode()}" for id in ids[:2]),
        f"FIN {ids[2].decode()}",
        "CLS",
    ]


@pytest.mark.parametrize("uses", ["run", "async with"])
async def test_a_consumer_that_is_cancelled_while_it_starts_closes_its_connections(nsqd, silent, uses):
    """Also if it waits for an nsqlookupd: a message that arrived meanwhile is for other consumers."""
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], lookupd_http_addresses=[silent], options=options())

    async def start():
        async with consumer:
            pass

    starting = asyncio.create_task(start() if uses == "async with" else consumer.run(print))
    peer = await nsqd.consumer()
    peer.message(b"a")
    await peer.processed()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ConsumerStopped):
        await consumer.start()
    await until(lambda: peer.closed, "the connection is closed")


async def test_an_error_in_the_loop_requeues_the_message_it_was_about(nsqd):
    """Messages that arrived after it are requeued at once, for other consumers."""

    async def loop():
        async with consumer_of(nsqd, max_in_flight=2) as consumer:
            async for _ in consumer:
                raise RuntimeError("no disk")

    looping = asyncio.create_task(loop())
    peer = await nsqd.consumer()
    first, second = peer.message(b"a"), peer.message(b"b")
    with pytest.raises(RuntimeError, match="no disk"):
        await looping
    assert peer.lines("FIN") == []
    assert peer.lines("REQ") == [f"REQ {first.decode()} 90000", f"REQ {second.decode()} 0"]


async def test_a_message_that_its_handler_answered_is_answered_once(nsqd):
    """The first answer counts; a later touch does nothing."""
    async with consumer_of(nsqd, max_in_flight=3) as consumer:
        peer = await nsqd.consumer()
        a, b, c = (peer.message(body) for body in (b"a", b"b", b"c"))
        async for message in consumer:
            message.touch()
            if message.body == b"a":
                message.requeue(timedelta(seconds=2), backoff=False)
                message.finish()
                message.touch()
            elif message.body == b"b":
                message.disable_auto_response()
                kept = message
            else:
                break
        kept.finish()
    assert peer.lines("FIN", "REQ", "TOUCH") == [
        f"TOUCH {a.decode()}",
        f"REQ {a.decode()} 2000",
        f"TOUCH {b.decode()}",
        f"TOUCH {c.decode()}",
        f"FIN {b.decode()}",
        f"FIN {c.decode()}",
    ]


@pytest.mark.parametrize("style", ["coroutine", "plain"])
async def test_a_handler_that_returns_finishes_and_one_that_raises_requeues(nsqd, style):
    """With the delay growing with the attempts, up to a maximum."""

    def plain(message):
        if message.body != b"good":
            raise ValueError("bad")
        return False  # which pynsq takes as a failure

    async def coroutine(message):
        await asyncio.sleep(0)
        return plain(message)

    async with consumer_of(nsqd, max_in_flight=9, max_backoff_duration=0 * MS, max_attempts=0) as consumer:
        peer = await nsqd.consumer()
        ids = [peer.message(b"good"), *(peer.message(b"bad", attempts=attempts) for attempts in (1, 2, 50))]
        running = asyncio.create_task(consumer.run(plain if style == "plain" else coroutine))
        await nsqd.until(lambda: len(peer.lines("FIN", "REQ")) == 4)
        await consumer.stop()
        await running
    good, once, twice, often = (id.decode() for id in ids)
    assert peer.lines("FIN", "REQ") == [
        f"FIN {good}",
        f"REQ {once} 90000",
        f"REQ {twice} 180000",
        f"REQ {often} 900000",
    ]


async def test_handlers_run_side_by_side_up_to_the_concurrency(nsqd):
    """Three of five at a time."""
    running_now, most, release = 0, 0, asyncio.Event()

    async def handler(message):
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await release.wait()
        running_now -= 1

    async with consumer_of(nsqd, max_in_flight=5) as consumer:
        peer = await nsqd.consumer()
        for _ in range(5):
            peer.message(b"x")
        running = asyncio.create_task(consumer.run(handler, concurrency=3))
        await until(lambda: running_now == 3)
        release.set()
        await nsqd.until(lambda: len(peer.lines("FIN")) == 5)
        await consumer.stop()
        await running
    assert most == 3


async def test_the_sixth_attempt_is_given_up(nsqd):
    """It is finished without calling the handler; a callback receives it."""
    seen, given_up = [], []
    consumer = Consumer(
        "t",
        "c",
        nsqd_tcp_addresses=[nsqd.address],
        options=options(max_in_flight=2),
        give_up=lambda message: given_up.append(message.body),
    )
    async with consumer:
        peer = await nsqd.consumer()
        peer.message(b"fifth", attempts=5)
        peer.message(b"sixth", attempts=6)
        running = asyncio.create_task(consumer.run(lambda message: seen.append(message.body)))
        await nsqd.until(lambda: len(peer.lines("FIN")) == 2)
        await consumer.stop()
        await running
    assert (seen, given_up) == ([b"fifth"], [b"sixth"])


async def test_a_message_whose_give_up_callback_fails_is_not_lost(nsqd):
    """It is requeued instead of finished."""

    async def dead_letter_store_is_down(message):
        raise OSError("down")

    consumer = Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], give_up=dead_letter_store_is_down)
    async with consumer:
        peer = await nsqd.consumer()
        peer.message(b"x", attempts=6)
        running = asyncio.create_task(consumer.run(lambda message: None))
        await nsqd.until(lambda: peer.lines("REQ"))
        await consumer.stop()
        await running
    assert peer.lines("FIN") == []


async def test_heartbeats_are_answered_while_handlers_are_busy(nsqd):
    """The connection answers them independently of the handlers."""
    release = asyncio.Event()
    async with consumer_of(nsqd) as consumer:
        peer = await nsqd.consumer()
        peer.message(b"x")

        async def handler(message):
            await release.wait()

        running = asyncio.create_task(consumer.run(handler))
        peer.frame(RESPONSE, b"_heartbeat_")
        await nsqd.until(lambda: peer.lines("NOP"))
        release.set()
        await consumer.stop()
        await running


async def test_a_loop_that_never_waits_leaves_room_for_heartbeats(nsqd):
    """A loop body that never awaits, with messages always available, does not block the connection."""
    async with consumer_of(nsqd, max_in_flight=200) as consumer:
        peer = await nsqd.consumer()
        for _ in range(200):
            peer.message(b"x")
        peer.frame(RESPONSE, b"_heartbeat_")
        count = 0
        async for _ in consumer:
            count += 1
            stop_at = asyncio.get_running_loop().time() + 0.001
            while asyncio.get_running_loop().time() < stop_at:
                pass
            if count == 200:
                break
        assert "NOP" in peer.lines()[: peer.lines().index(peer.lines("FIN")[100])]


async def test_failures_block_all_messages_for_growing_times(nsqd, caplog):
    """RDY 0 before the first REQ, then one test message after 40, 80, 100 and 100 ms, the maximum, as the log says."""
    settings = {"backoff_multiplier": 20 * MS, "max_backoff_duration": 100 * MS, "max_attempts": 0}
    async with consumer_of(nsqd, max_in_flight=5, **settings) as consumer:
        peer = await nsqd.consumer()

        def handler(message):
            raise ValueError("down")

        running = asyncio.create_task(consumer.run(handler))
        for number in range(5):
            await nsqd.until(lambda: is_waiting(peer) and len(peer.lines("REQ")) == number)  # noqa: B023
            peer.message(b"x")
        await nsqd.until(lambda: len(peer.lines("REQ")) == 5)
        await consumer.stop()
        await running
    ready = [each for each in peer.commands if each.line.startswith(("RDY", "REQ"))]
    verbs = [each.line.partition(" ")[0] + " " + each.line.split(" ")[-1] for each in ready]
    assert verbs[:8] == ["RDY 5", "RDY 0", "REQ 90000", "RDY 1", "RDY 0", "REQ 90000", "RDY 1", "RDY 0"]
    blocks = [line.rpartition(" ")[2] for line in caplog.messages if "backing off for" in line]
    assert blocks == ["0.04s", "0.08s", "0.1s", "0.1s", "0.1s"]


async def test_successes_lead_out_of_backoff_level_by_level(nsqd):
    """Two failures, then success: blocks of 40, 80 and 40 ms, then the full RDY."""
    outcomes = iter([False, False, True, True])
    settings = {"backoff_multiplier": 20 * MS, "max_attempts": 0}
    async with consumer_of(nsqd, max_in_flight=5, **settings) as consumer:
        peer = await nsqd.consumer()

        def handler(message):
            if not next(outcomes):
                raise ValueError("down")

        running = asyncio.create_task(consumer.run(handler))
        for number in range(4):
            await nsqd.until(lambda: is_waiting(peer) and len(peer.lines("REQ", "FIN")) == number)  # noqa: B023
            peer.message(b"x")
        await nsqd.until(lambda: peer.lines("RDY")[-1] == "RDY 5" and len(peer.lines("RDY")) > 1)
        await consumer.stop()
        await running
    assert peer.lines("RDY") == ["RDY 5", "RDY 0", "RDY 1", "RDY 0", "RDY 1", "RDY 0", "RDY 1", "RDY 5"]


async def test_two_nsqds_share_max_in_flight(start_nsqd):
    """The first nsqd gives up the second's share; when one is lost, the other gets everything."""
    first, second = await start_nsqd(), await start_nsqd()
    async with consumer_of(first, second, max_in_flight=5) as consumer:
        one, two = await first.consumer(), await second.consumer()
        await first.until(lambda: one.lines("RDY") and two.lines("RDY"))
        counts = sorted([one.lines("RDY")[-1], two.lines("RDY")[-1]])
        assert counts == ["RDY 2", "RDY 3"]
        assert ["RDY 5", "RDY 3"] in (one.lines("RDY"), two.lines("RDY"))
        await second.stop()
        await first.until(lambda: one.lines("RDY")[-1] == "RDY 5")
        assert consumer.connections == [first.address]


async def test_scarce_rdy_rotates_among_idle_nsqds(start_nsqd):
    """max_in_flight 2 over three nsqds: each has RDY 1 in turn, and never more than two at a time."""
    nsqds = [await start_nsqd() for _ in range(3)]
    settings = {"low_rdy_idle_timeout": timedelta(seconds=1), "rdy_redistribute_interval": 100 * MS}
    async with consumer_of(*nsqds, max_in_flight=2, **settings):
        peers = [await each.consumer() for each in nsqds]
        for nsqd, peer in zip(nsqds, peers, strict=True):
            await nsqd.until(lambda: "RDY 1" in peer.lines("RDY"))  # noqa: B023
    commands = sorted((c.at, number, c.line) for number, peer in enumerate(peers) for c in peer.commands)
    ready = {0: 0, 1: 0, 2: 0}
    for _, number, line in commands:
        if line.startswith("RDY"):
            ready[number] = int(line.split()[1])
            # The three sockets are read in any order, so one RDY 0 may be seen late.
            assert sum(ready.values()) <= 3


async def test_max_in_flight_changes_at_run_time(nsqd):
    """0 pauses, more resumes; a negative one is refused."""
    async with consumer_of(nsqd, max_in_flight=5) as consumer:
        peer = await nsqd.consumer()
        consumer.change_max_in_flight(0)
        consumer.change_max_in_flight(0)
        consumer.change_max_in_flight(100)
        with pytest.raises(ValueError, match="-1"):
            consumer.change_max_in_flight(-1)
        await nsqd.until(lambda: len(peer.lines("RDY")) == 3)
    assert peer.lines("RDY") == ["RDY 5", "RDY 0", "RDY 100"]


async def test_stopping_waits_for_messages_in_flight(nsqd):
    """CLS, the outstanding answers, then the connection closes."""
    started, release = asyncio.Event(), asyncio.Event()

    async def handler(message):
        started.set()
        await release.wait()

    async with consumer_of(nsqd, max_in_flight=2) as consumer:
        peer = await nsqd.consumer()
        first, second = peer.message(b"a"), peer.message(b"b")
        running = asyncio.create_task(consumer.run(handler))
        await started.wait()
        stopping = asyncio.create_task(consumer.stop())
        await nsqd.until(lambda: peer.lines("CLS"))
        assert not peer.closed
        release.set()
        assert await stopping == []
        await running
        with pytest.raises(ConsumerStopped):
            await Consumer.start(consumer)
    await nsqd.until(lambda: peer.closed)
    assert peer.lines("CLS", "FIN") == ["CLS", f"FIN {first.decode()}", f"FIN {second.decode()}"]


async def test_a_stop_after_its_grace_period_requeues_unanswered_messages(nsqd):
    """Messages that no handler had taken are requeued."""

    async def handler(message):
        await asyncio.Event().wait()

    async with consumer_of(nsqd, max_in_flight=2) as consumer:
        peer = await nsqd.consumer()
        running = asyncio.create_task(consumer.run(handler))
        peer.message(b"stuck")
        second = peer.message(b"waiting")
        await peer.processed()
        unanswered = await consumer.stop(grace=100 * MS)
        await running
    assert [message.body for message in unanswered] == [b"stuck"]
    await nsqd.until(lambda: peer.closed)
    assert f"REQ {second.decode()} 0" in peer.lines("REQ")


async def test_a_lost_nsqd_is_connected_to_again(nsqd):
    """Messages that had arrived from it and were not taken are dropped: nsqd redelivers them."""
    async with consumer_of(nsqd, max_in_flight=2) as consumer:
        peer = await nsqd.consumer()
        peer.message(b"before")
        await peer.processed()
        peer.disconnect()
        again = await nsqd.consumer(1)
        await nsqd.until(lambda: again.lines("RDY") == ["RDY 2"])
        again.message(b"after", attempts=2)
        async for message in consumer:
            assert message.body == b"after"
            break


async def test_an_answer_to_a_message_of_a_lost_connection_is_dropped(nsqd):
    """It is not sent on the new connection, where nsqd would refuse it."""
    async with consumer_of(nsqd) as consumer:
        peer = await nsqd.consumer()
        peer.message(b"x")
        async for message in consumer:
            peer.disconnect()
            await until(lambda: not message.is_in_flight)  # noqa: B023
            break
        again = await nsqd.consumer(1)
    await nsqd.until(lambda: again.closed)
    assert again.lines("FIN", "REQ") == []


async def test_a_late_finish_is_no_reason_to_disconnect(nsqd):
    """E_FIN_FAILED is logged, and delivery continues."""
    async with consumer_of(nsqd) as consumer:
        peer = await nsqd.consumer()
        peer.frame(ERROR, b"E_FIN_FAILED FIN 0000000000000001 failed ID not in flight")
        peer.message(b"next")
        async for message in consumer:
            assert message.body == b"next"
            break
    assert len(nsqd.peers) == 1


async def test_every_nsqlookupd_is_queried_and_the_answers_merged(start_nsqd, start_lookup):
    """One that does not know the topic, or fails, does not affect the others' results."""
    nsqds = [await start_nsqd(), await start_nsqd()]
    lookups = [await start_lookup() for _ in range(4)]
    lookups[0].producers = [nsqds[0].address]
    lookups[1].producers = [nsqds[0].address, nsqds[1].address]
    lookups[3].status = 500
    addresses = [each.address for each in lookups]
    async with Consumer("t", "c", lookupd_http_addresses=addresses) as consumer:
        assert sorted(consumer.connections) == sorted(each.address for each in nsqds)
    assert [each.requests for each in lookups] == [["/lookup?topic=t"]] * 4
    assert len(nsqds[0].peers) == 1


async def test_a_topic_that_appears_later_is_found(nsqd, start_lookup):
    """Nobody knows the topic at first; the next poll finds it."""
    lookup = await start_lookup()
    consumer = Consumer(
        "t", "c", lookupd_http_addresses=[lookup.address], options=options(lookupd_poll_interval=20 * MS)
    )
    async with consumer:
        assert consumer.connections == []
        lookup.producers = [nsqd.address]
        await nsqd.consumer()


async def test_an_nsqlookupd_from_before_1_0_is_understood(nsqd, start_lookup):
    """It wraps its responses, including errors; the request has the accepted format and the secret."""
    lookup = await start_lookup()
    lookup.wrapped = True
    options = ConsumerOptions(lookupd_poll_interval=timedelta(milliseconds=50), auth_secret="s3cret")
    async with Consumer("t", "c", lookupd_http_addresses=[lookup.address], options=options) as consumer:
        lookup.producers = [nsqd.address]
        (await nsqd.consumer()).message(b"x")
        message = await consumer.next_message()
        message.finish()
    assert (consumer.messages_received, consumer.messages_finished) == (1, 1)
    head = lookup.heads[0].lower()
    assert head.startswith("get /lookup?topic=t ")
    assert "accept: application/vnd.nsq; version=1.0\r\n" in head
    assert "authorization: bearer s3cret\r\n" in head


async def test_successful_polls_are_not_logged(nsqd, start_lookup, caplog):
    """At level INFO, connections are logged, but not each poll."""
    caplog.set_level(logging.INFO)
    lookup = await start_lookup()
    lookup.producers = [nsqd.address]
    consumer = Consumer(
        "t", "c", lookupd_http_addresses=[lookup.address], options=options(lookupd_poll_interval=20 * MS)
    )
    async with consumer:
        await nsqd.consumer()
    assert "connected to nsqd" in caplog.text
    assert [record for record in caplog.records if record.name.partition(".")[0] in ("httpx", "httpcore")] == []


async def test_an_nsqd_gone_from_the_registry_is_left_when_idle(nsqd, start_lookup):
    """After a few polls that do not list it."""
    lookup = await start_lookup()
    lookup.producers = [nsqd.address]
    consumer = Consumer(
        "t", "c", lookupd_http_addresses=[lookup.address], options=options(lookupd_poll_interval=20 * MS)
    )
    async with consumer:
        peer = await nsqd.consumer()
        lookup.producers = []
        await nsqd.until(lambda: peer.closed)
        await until(lambda: consumer.connections == [])
    assert peer.lines("CLS") == ["CLS"]


async def test_a_consumer_without_any_reachable_nsqd_says_so_at_the_start(unused_address):
    """With the address and the reason."""
    with pytest.raises(ConnectFailed, match=f"{unused_address}: connection refused"):
        await Consumer("t", "c", nsqd_tcp_addresses=[unused_address]).start()


async def test_one_unreachable_nsqd_does_not_keep_the_others_from_working(nsqd, unused_address):
    """It is retried in the background."""
    async with Consumer("t", "c", nsqd_tcp_addresses=[unused_address, nsqd.address]) as consumer:
        assert consumer.connections == [nsqd.address]


async def test_a_refused_subscription_is_an_error_at_the_start(nsqd):
    """For example by the consumer limit of a channel, or for lack of permission."""
    nsqd.on["SUB"] = lambda peer, command: peer.frame(ERROR, b"E_SUB_FAILED SUB failed consumers exceed limit of 1")
    with pytest.raises(ConnectFailed, match="exceed limit of 1"):
        await Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address]).start()


@pytest.mark.parametrize(
    ("topic", "channel", "addresses", "error"),
    [
        ("bad topic", "c", ["127.0.0.1:1"], BadTopic),
        ("t", "", ["127.0.0.1:1"], BadChannel),
        ("t", "c", ["127.0.0.1"], ValueError),
        ("t", "c", ["127.0.0.1:0x"], ValueError),
        ("t", "c", [], ValueError),
    ],
)
def test_a_consumer_that_could_never_work_is_refused_when_made(topic, channel, addresses, error):
    """Names and addresses are checked before anything is opened."""
    with pytest.raises(error):
        Consumer(topic, channel, nsqd_tcp_addresses=addresses)
