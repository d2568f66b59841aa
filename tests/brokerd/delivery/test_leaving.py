"""CLS, and consumers that disconnect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.wire import ERROR, RESPONSE, mpub, pub
from tests.harness.daemon import Broker

Board = Any
Connect = Callable[..., Any]
Subscribe = Callable[..., Any]


def test_cls_stops_delivery_but_lets_answers_in(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """After CLOSE_WAIT nothing more is delivered; FIN and REQ of messages in flight still count."""
    peer = subscribe(3)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(5)]))
    ids = [peer.message()[0] for _ in range(3)]
    assert peer.command(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")
    peer.send(b"FIN %b\nREQ %b 0\nTOUCH %b\nRDY 10\n" % (ids[0], ids[1], ids[2]))
    peer.ok(pub(topic + "-barrier", b"x"))
    assert peer.is_silent()
    channel = board.channel()
    assert (channel["in_flight_count"], channel["depth"], channel["requeue_count"]) == (1, 3, 1)


def test_a_leaving_consumers_messages_go_to_the_next_at_once(
    topic: str, subscribe: Subscribe, publisher: Any, connect: Connect, shared: Broker
) -> None:
    """They are redelivered at once with one more attempt, not after their timeout of a minute."""
    leaving = subscribe(10)
    publisher.ok(mpub(topic, [b"a", b"b", b"c"]))
    message_id = leaving.message()[0]
    leaving.bodies(2)
    leaving.send(b"FIN %b\n" % message_id)
    leaving.socket.close()
    staying = subscribe(10)
    assert sorted(staying.message()[1:] for _ in range(2)) == [(2, b"b"), (2, b"c")]


def test_a_consumer_refused_for_an_error_gives_its_messages_back(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """A fatal error also requeues the messages in flight."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    assert peer.command(b"RDY 9999\n")[0] == ERROR
    assert subscribe(1).message() == (message_id, 2, b"x")
