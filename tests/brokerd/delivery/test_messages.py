"""The fields of a message, and the channels that receive it."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.wire import MESSAGE, mpub, pub
from tests.harness.daemon import Broker

Connect = Callable[..., Any]
Subscribe = Callable[..., Any]


def test_a_message_carries_its_time_its_first_attempt_and_an_id(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """The publish time in nanoseconds, attempts 1, sixteen hex digits, and the unchanged body."""
    peer = subscribe(1)
    before = time.time_ns()
    publisher.ok(pub(topic, bytes(range(256))))
    after = time.time_ns()
    kind, data = peer.frame()
    timestamp, attempts = struct.unpack_from(">qH", data)
    assert (kind, attempts, data[26:]) == (MESSAGE, 1, bytes(range(256)))
    assert before <= timestamp <= after
    assert len(data[10:26]) == 16
    assert set(data[10:26]) <= set(b"0123456789abcdef")


def test_a_batch_arrives_whole_and_in_order_with_ids_of_its_own(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """The bodies have sizes from one byte to a tenth of a megabyte."""
    sent = [b"%d" % size + b"." * size for size in (0, 1, 100, 4096, 65536, 100_000)]
    peer = subscribe(100)
    publisher.ok(mpub(topic, sent))
    got = [peer.message() for _ in sent]
    assert [body for _, _, body in got] == sent
    assert len({message_id for message_id, _, _ in got}) == len(sent)
    assert {attempts for _, attempts, _ in got} == {1}


def test_every_channel_gets_every_message(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """With the same id, timestamp and body."""
    first, second = subscribe(10, channel="a"), subscribe(10, channel="b")
    publisher.ok(mpub(topic, [b"x", b"y"]))
    assert [first.frame(), first.frame()] == [second.frame(), second.frame()]


def test_the_first_channel_receives_the_topics_backlog(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """The first channel receives messages that were published before it; a later channel starts empty."""
    publisher.ok(mpub(topic, [b"early", b"too"]))
    assert subscribe(10, channel="first").bodies(2) == [b"early", b"too"]
    second = subscribe(10, channel="second")
    publisher.ok(pub(topic, b"late"))
    assert second.bodies(1) == [b"late"]


def test_two_publishers_share_a_topic(
    topic: str, subscribe: Subscribe, publisher: Any, connect: Connect, shared: Broker
) -> None:
    """No message of either is lost or mixed up."""
    peer, other = subscribe(2500), connect(shared.tcp)
    for i in range(50):
        publisher.send(pub(topic, b"one %d" % i))
        other.send(mpub(topic, [b"two %d" % i, b"three %d" % i]))
    got = Counter(peer.bodies(150))
    assert got == Counter(b"%b %d" % (name, i) for i in range(50) for name in (b"one", b"two", b"three"))


def test_a_lone_message_is_sent_at_once_despite_buffering(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """nsqd may delay it by thirty seconds, or with -1 until something else is sent; this broker does not."""
    for i, timeout_ms in enumerate((-1, 30_000)):
        peer = subscribe(100, channel=f"c{i}", output_buffer_timeout=timeout_ms)
        publisher.ok(pub(topic, b"%d" % i))
        assert peer.message()[2] == b"%d" % i


def test_ids_are_not_repeated_in_another_topic(topic: str, subscribe: Subscribe, publisher: Any, connect: Any) -> None:
    """nsqd repeats ids across topics; here the topic is part of the id."""
    ids = []
    for name in (topic, topic + "-2"):
        peer = connect(publisher.socket.getpeername())
        peer.ok(f"SUB {name} c\n".encode())
        peer.send(b"RDY 100\n")
        publisher.ok(mpub(name, [b"x"] * 100))
        ids += [peer.message()[0] for _ in range(100)]
    assert len(set(ids)) == 200
