"""FIN, REQ, TOUCH and the message timeout."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from bench.wire import ERROR, identify, mpub, pub
from tests.harness.daemon import Broker
from tests.harness.waiting import DEADLINE_S, wait_until

EARLY_S = 0.02
"""How much sooner than due the clocks of two processes may make an event look."""
UNWATCHED_S = 0.15
"""How long after its delivery a message's clock may be started here."""

Board = Any
Connect = Callable[..., Any]
Subscribe = Callable[..., Any]


def test_a_finished_message_is_gone(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """A second FIN of the message is refused, without closing the connection."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    peer.send(b"FIN %b\n" % message_id)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (0, 0, 1)
    assert channel["clients"][0]["finish_count"] == 1


def test_finishing_out_of_order(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Every second message is finished, then the rest backwards; nothing is left and nothing is redelivered."""
    peer = subscribe(2500)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(500)]))
    ids = [peer.message()[0] for _ in range(500)]
    for message_id in [*ids[1::2], *reversed(ids[0::2])]:
        peer.send(b"FIN %b\n" % message_id)
    peer.ok(pub(topic + "-barrier", b"x"))
    assert (board.channel()["depth"], board.channel()["in_flight_count"]) == (0, 0)
    assert peer.is_silent()


@pytest.mark.parametrize(("command", "rest"), [(b"FIN", b""), (b"REQ", b" 0"), (b"TOUCH", b"")])
def test_only_the_owner_may_answer_for_a_message(
    command: bytes, rest: bytes, topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """Another consumer of the channel is refused, and the owner can still finish the message."""
    owner, other = subscribe(1), subscribe()
    publisher.ok(pub(topic, b"x"))
    message_id = owner.message()[0]
    expected = b"E_%b_FAILED %b %b failed client does not own message" % (command, command, message_id)
    assert other.command(b"%b %b%b\n" % (command, message_id, rest)) == (ERROR, expected)
    owner.send(b"FIN %b\n" % message_id)
    owner.ok(pub(topic + "-barrier", b"x"))


def test_the_same_id_may_be_in_flight_on_two_channels(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """A FIN on one channel does not affect the other."""
    first, second = subscribe(1, channel="a"), subscribe(1, channel="b")
    publisher.ok(pub(topic, b"x"))
    message_id = first.message()[0]
    first.send(b"FIN %b\n" % message_id)
    first.ok(pub(topic + "-barrier", b"x"))
    assert second.message()[0] == message_id
    second.send(b"REQ %b 0\n" % message_id)
    assert second.message()[:2] == (message_id, 2)


def test_a_requeued_message_comes_back_with_one_more_attempt(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """After REQ 0 it is redelivered at once, with the same id, timestamp and body."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"body"))
    _, first = peer.frame()
    for attempts in range(2, 6):
        peer.send(b"REQ %b 0\n" % first[10:26])
        _, again = peer.frame()
        assert again == first[:8] + struct.pack(">H", attempts) + first[10:]
    assert board.channel()["requeue_count"] == 4
    assert board.channel()["timeout_count"] == 0


def test_a_delayed_requeue_comes_back_when_it_is_due(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """It is not redelivered before 2 s, counts as deferred until then, and makes room for others within the RDY
    count."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"late"))
    message_id, _, _ = peer.message()
    sent = time.monotonic()
    peer.send(b"REQ %b 2000\n" % message_id)
    peer.ok(pub(topic + "-barrier", b"x"))
    channel = board.channel()
    if time.monotonic() - sent < 2 - EARLY_S:  # a machine that took longer has had it redelivered
        assert (channel["deferred_count"], channel["in_flight_count"], channel["depth"]) == (1, 0, 0)
    publisher.ok(pub(topic, b"meanwhile"))
    other, _, body = peer.message()
    assert body == b"meanwhile"
    peer.send(b"FIN %b\n" % other)
    assert peer.message() == (message_id, 2, b"late")
    assert time.monotonic() - sent >= 2 - EARLY_S


def test_a_requeue_beyond_the_longest_delay_is_clamped(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """There is no error: --max-req-timeout is 2 s here. A delay that overflows to below zero counts as 0."""
    peer = subscribe(2)
    publisher.ok(mpub(topic, [b"long", b"overflow"]))
    (long, _, _), (overflow, _, _) = peer.message(), peer.message()
    sent = time.monotonic()
    peer.send(b"REQ %b 3600000\nREQ %b 9223372036854775807\n" % (long, overflow))
    assert peer.message()[:2] == (overflow, 2)
    assert peer.message()[:2] == (long, 2)
    assert time.monotonic() - sent >= 2 - EARLY_S


def test_requeues_come_back_in_the_order_of_their_times(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """The order of the requests does not matter."""
    peer = subscribe(10)
    publisher.ok(mpub(topic, [b"300", b"100", b"200"]))
    received = [peer.message() for _ in range(3)]
    # Together, because the broker's clock counts from each request's arrival.
    peer.send(b"".join(b"REQ %b %b\n" % (message_id, body) for message_id, _, body in received))
    assert peer.bodies(3) == [b"100", b"200", b"300"]


def test_a_timed_out_message_returns_with_one_more_attempt(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """A consumer that stops answering loses its message to the next one; its later FIN is refused."""
    slow = subscribe(1, msg_timeout=1000)
    sent = time.monotonic()
    publisher.ok(pub(topic, b"x"))
    message_id, attempts, _ = slow.message()
    slow.send(b"RDY 0\n")
    assert attempts == 1
    assert subscribe(1).message() == (message_id, 2, b"x")
    assert time.monotonic() - sent >= 1 - EARLY_S - UNWATCHED_S
    assert board.channel()["timeout_count"] == 1
    assert board.channel()["requeue_count"] == 0
    expected = b"E_FIN_FAILED FIN %b failed client does not own message" % message_id
    assert slow.command(b"FIN %b\n" % message_id) == (ERROR, expected)


def test_a_timed_out_message_without_a_consumer_is_not_in_flight(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """It is ready again, and a FIN of it is refused."""
    peer = subscribe(1, msg_timeout=1000)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    peer.send(b"RDY 0\n")
    wait_until(lambda: board.channel()["timeout_count"] == 1)
    assert (board.channel()["depth"], board.channel()["in_flight_count"]) == (1, 0)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)


def test_touch_gives_a_message_more_time_up_to_a_limit(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """TOUCH extends the message timeout of 2 s, up to --max-msg-timeout, which is 3 s here."""
    peer = subscribe(1, msg_timeout=2000)
    sent = time.monotonic()
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    while peer.is_silent(0.3):
        assert time.monotonic() - sent < DEADLINE_S
        peer.send(b"TOUCH %b\n" % message_id)
    assert time.monotonic() - sent >= 3 - EARLY_S - UNWATCHED_S
    assert peer.message() == (message_id, 2, b"x")


def test_the_first_identify_says_how_long_a_message_may_stay_out(
    topic: str, subscribe: Subscribe, publisher: Any, shared: Broker, connect: Connect
) -> None:
    """A later one changes what /stats and the reply report, as in nsqd, but not the timeout of deliveries.

    The message of a consumer with the longer timeout was delivered first, and is redelivered last.
    """
    longer, peer = connect(shared.tcp), connect(shared.tcp)
    longer.ok(identify(msg_timeout=3000))
    peer.ok(identify(msg_timeout=1000))
    peer.ok(identify(msg_timeout=3000))
    for consumer, body in ((longer, b"first"), (peer, b"second")):
        consumer.ok(f"SUB {topic} c\n".encode())
        consumer.send(b"RDY 1\n")
        publisher.ok(pub(topic, body))
        assert consumer.message()[2] == body
        consumer.send(b"RDY 0\n")
    assert subscribe(2).bodies(2) == [b"second", b"first"]


def test_attempts_are_counted_without_a_limit(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """However often a message is requeued, the broker never gives it up."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    for attempts in range(2, 300):
        peer.send(b"REQ %b 0\n" % message_id)
        assert peer.message() == (message_id, attempts, b"x")
    assert board.channel()["requeue_count"] == 298


@pytest.mark.parametrize(("command", "rest"), [(b"REQ", b" 0"), (b"REQ", b" 5"), (b"TOUCH", b""), (b"FIN", b"")])
def test_a_run_of_answers_is_answered_one_by_one(
    command: bytes, rest: bytes, topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Of many answers in one write, each that fails has its own error, in order, and the others succeed."""
    other, peer = subscribe(1), subscribe()
    publisher.ok(pub(topic, b"other"))
    others = other.message()[0]
    publisher.ok(mpub(topic, [b"%d" % i for i in range(5)]))
    peer.send(b"RDY 5\n")
    ids = [peer.message()[0] for _ in range(5)]
    peer.send(b"RDY 0\n")
    unknown = ids[0][:6] + b"00000fffff"
    again = ids[0] if command != b"TOUCH" else unknown  # only a TOUCH may come twice
    sent = [ids[0], unknown, ids[1], others, ids[2], again, b"f" * 16, ids[3]]
    peer.send(b"".join(b"%b %b%b\n" % (command, each, rest) for each in sent))
    owned = {others: b"client does not own message"}
    for each in (unknown, others, again, b"f" * 16):
        reason = owned.get(each, b"ID not in flight")
        assert peer.frame() == (ERROR, b"E_%b_FAILED %b %b failed %b" % (command, command, each, reason))
    peer.ok(pub(topic + "-barrier", b"x"))
    clients = {each["ready_count"]: each["in_flight_count"] for each in board.channel()["clients"]}
    assert clients == {1: 1, 0: 5 if command == b"TOUCH" else 1}
    assert board.channel()["requeue_count"] == (4 if command == b"REQ" else 0)


def test_requeued_and_touched_messages_are_finished_in_runs(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Thousands of requeued messages are redelivered in order, with one more attempt, and are gone once finished."""
    peer = subscribe(2500)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(2500)]))
    for attempt in range(1, 4):
        messages = [peer.message() for _ in range(2500)]
        assert [body for _, _, body in messages] == [b"%d" % i for i in range(2500)]
        assert {attempts for _, attempts, _ in messages} == {attempt}
        if attempt < 3:
            peer.send(b"".join(b"REQ %b 0\n" % message_id for message_id, _, _ in messages))
    peer.send(b"".join(b"TOUCH %b\n" % message_id for message_id, _, _ in messages))
    peer.send(b"".join(b"FIN %b\n" % message_id for message_id, _, _ in messages))
    peer.ok(pub(topic + "-barrier", b"x"))
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["requeue_count"]) == (0, 0, 5000)
    assert channel["clients"][0]["finish_count"] == 2500
