"""Pausing, emptying and deleting, as consumers see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.wire import ERROR, dpub, mpub, pub
from tests.harness.waiting import wait_until

Board = Any
Subscribe = Callable[..., Any]


def test_a_paused_channel_sends_nothing(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Publishing goes on, another channel is served, and unpausing delivers the backlog."""
    peer, other = subscribe(10), subscribe(10, channel="other")
    board.post("/channel/pause", "c")
    publisher.ok(pub(topic, b"x"))
    assert other.bodies(1) == [b"x"]
    assert peer.is_silent()
    assert board.channel()["paused"] is True
    assert board.channel()["depth"] == 1
    board.post("/channel/unpause", "c")
    assert peer.bodies(1) == [b"x"]


def test_a_paused_channel_still_takes_answers_and_times_out(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Messages in flight are finished, requeued and timed out as before."""
    peer = subscribe(2, msg_timeout=1000)
    publisher.ok(mpub(topic, [b"a", b"b"]))
    message_id = peer.message()[0]
    peer.message()
    board.post("/channel/pause", "c")
    peer.send(b"FIN %b\n" % message_id)
    wait_until(lambda: board.channel()["timeout_count"] == 1)
    assert (board.channel()["in_flight_count"], board.channel()["depth"]) == (0, 1)
    assert peer.is_silent()


def test_a_paused_topic_routes_nothing_to_its_channels(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """New messages wait in the topic; messages that the channel already has are delivered."""
    peer = subscribe()
    publisher.ok(pub(topic, b"before"))
    board.post("/topic/pause")
    publisher.ok(mpub(topic, [b"after", b"that"]))
    stats = board.topic_stats()
    assert (stats["paused"], stats["depth"], stats["channels"][0]["depth"]) == (True, 2, 1)
    peer.send(b"RDY 10\n")
    assert peer.bodies(1) == [b"before"]
    assert peer.is_silent()
    board.post("/topic/unpause")
    assert peer.bodies(2) == [b"after", b"that"]
    assert board.topic_stats()["depth"] == 0


def test_an_emptied_channel_drops_messages_in_flight(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Ready, in-flight and deferred messages are dropped; a FIN of one in flight is refused, and new ones are
    delivered."""
    peer = subscribe(1)
    publisher.ok(mpub(topic, [b"a", b"b", b"c"]))
    publisher.ok(dpub(topic, 1500, b"d"))
    message_id = peer.message()[0]
    board.post("/channel/empty", "c")
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (0, 0, 0)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)
    publisher.ok(pub(topic, b"new"))
    assert peer.bodies(1) == [b"new"]


def test_an_emptied_topic_keeps_its_channels_messages(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Only messages that no channel has received yet are dropped."""
    peer = subscribe()
    publisher.ok(pub(topic, b"kept"))
    board.post("/topic/pause")
    publisher.ok(pub(topic, b"dropped"))
    board.post("/topic/empty")
    board.post("/topic/unpause")
    publisher.ok(pub(topic, b"new"))
    peer.send(b"RDY 10\n")
    assert peer.bodies(2) == [b"kept", b"new"]


@pytest.mark.parametrize("path", ["/channel/delete", "/topic/delete"])
def test_deleting_closes_the_consumers(
    path: str, topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """There is no error frame; the messages are gone, and the name can be used again."""
    peer = subscribe()
    publisher.ok(pub(topic, b"old"))
    board.post(path, "c" if "channel" in path else None)
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.frame()
    again = subscribe(10)
    publisher.ok(pub(topic, b"new"))
    assert again.bodies(1) == [b"new"]
