"""DPUB: messages with a delay."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.wire import dpub, pub

EARLY_S = 0.02
"""How much sooner than due the clocks of two processes may make an event look."""

Board = Any
Subscribe = Callable[..., Any]


def test_a_deferred_publish_arrives_when_it_is_due(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """It does not arrive earlier, and messages published after it do not wait for it."""
    peer = subscribe(10)
    sent = time.monotonic()
    publisher.ok(dpub(topic, 2000, b"later"))
    publisher.ok(pub(topic, b"now"))
    assert peer.bodies(1) == [b"now"]
    assert board.channel()["deferred_count"] == 1
    assert board.channel()["depth"] == 0
    assert peer.message()[1:] == (1, b"later")
    assert time.monotonic() - sent >= 2 - EARLY_S
    assert board.channel()["deferred_count"] == 0


def test_deferred_messages_arrive_on_every_channel_in_order_of_time(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """On each channel, messages with later due times arrive later."""
    peers = [subscribe(10, channel=name) for name in ("a", "b")]
    delays = (400, 100, 250, 0)
    # Together, because each delay begins when its publish arrives.
    publisher.send(b"".join(dpub(topic, delay, b"%d" % delay) for delay in delays))
    assert [publisher.frame() for _ in delays] == [(0, b"OK")] * len(delays)
    for peer in peers:
        assert peer.bodies(4) == [b"0", b"100", b"250", b"400"]


def test_deferred_publishes_sent_together_arrive_when_each_is_due(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """They arrive so on every channel; after a pause of the topic, the delays begin when the pause ends."""
    peers = [subscribe(1000, channel=name) for name in ("a", "b")]
    delays = [200 + 7 * at % 300 for at in range(600)]
    burst = b"".join(dpub(topic, delay, b"%d %d" % (delay, at)) for at, delay in enumerate(delays))
    wanted = sorted(b"%d %d" % (delay, at) for at, delay in enumerate(delays))
    for paused in (False, True):
        if paused:
            board.post("/topic/pause")
        began = time.monotonic()
        publisher.send(burst)
        assert [publisher.frame() for _ in delays] == [(0, b"OK")] * len(delays)
        if paused:
            began = time.monotonic()
            board.post("/topic/unpause")
        for peer in peers:
            got = []
            for _ in delays:
                message_id, _, body = peer.message()
                assert time.monotonic() - began >= int(body.split()[0]) / 1000 - EARLY_S
                peer.send(b"FIN %b\n" % message_id)
                got.append(body)
            assert sorted(got) == wanted


def test_a_deferred_message_can_be_requeued_and_finished(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Once delivered, it behaves like any other message."""
    peer = subscribe(1)
    publisher.ok(dpub(topic, 50, b"x"))
    message_id, attempts, _ = peer.message()
    peer.send(b"REQ %b 0\n" % message_id)
    assert (attempts, peer.message()) == (1, (message_id, 2, b"x"))
    peer.send(b"FIN %b\n" % message_id)
    peer.ok(pub(topic + "-barrier", b"x"))
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (0, 0, 0)
