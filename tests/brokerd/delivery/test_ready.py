"""RDY: how many messages are in flight at a time, and which consumer receives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.wire import mpub, pub
from tests.harness.waiting import is_readable, wait_until

Board = Any
Subscribe = Callable[..., Any]


def test_nothing_is_sent_before_rdy(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """RDY starts at 0."""
    peer = subscribe()
    publisher.ok(pub(topic, b"x"))
    assert peer.is_silent()
    peer.send(b"RDY 1\n")
    assert peer.bodies(1) == [b"x"]


def test_rdy_limits_the_messages_in_flight(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """At most three are in flight; each FIN makes room for one more."""
    peer = subscribe(3)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(10)]))
    ids = [peer.message()[0] for _ in range(3)]
    assert peer.is_silent()
    assert (board.channel()["in_flight_count"], board.channel()["depth"]) == (3, 7)
    for _ in range(7):
        peer.send(b"FIN %b\n" % ids.pop(0))
        ids.append(peer.message()[0])
    assert peer.is_silent()


def test_rdy_may_be_lowered_below_the_number_in_flight(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Nothing is delivered until enough messages are finished."""
    peer = subscribe(5)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(10)]))
    ids = [peer.message()[0] for _ in range(5)]
    peer.send(b"RDY 2\n" + b"".join(b"FIN %b\n" % each for each in ids[:3]))
    assert peer.is_silent()
    peer.send(b"FIN %b\n" % ids[3])
    peer.message()
    assert peer.is_silent()


def test_rdy_0_pauses_a_consumer(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Nothing is delivered until it raises RDY again; another consumer is served meanwhile."""
    peer = subscribe(1)
    peer.send(b"RDY 0\n")
    peer.ok(pub(topic + "-barrier", b"x"))  # answered once RDY 0 has been read
    publisher.ok(pub(topic, b"x"))
    assert peer.is_silent()
    assert subscribe(1).bodies(1) == [b"x"]


def test_idle_consumers_are_served_in_turn(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Of sixty messages published one by one, three consumers with RDY 1 receive twenty each."""
    peers = [subscribe(1) for _ in range(3)]
    served: Counter[int] = Counter()
    for i in range(60):
        publisher.ok(pub(topic, b"%d" % i))
        [number] = wait_until(lambda: [n for n, peer in enumerate(peers) if is_readable(peer.socket, 0)])
        served[number] += 1
        peers[number].send(b"FIN %b\n" % peers[number].message()[0])
        peers[number].ok(pub(topic + "-barrier", b"x"))
    assert served == {0: 20, 1: 20, 2: 20}


def test_a_batch_is_shared_among_ready_consumers(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """None of three consumers with RDY 100 receives all of 90 messages."""
    for _ in range(3):
        subscribe(100)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(90)]))
    wait_until(lambda: board.channel()["in_flight_count"] == 90)
    shares = [client["in_flight_count"] for client in board.channel()["clients"]]
    assert sum(shares) == 90
    assert min(shares) >= 15, shares
