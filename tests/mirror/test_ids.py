"""Ids of messages after a takeover."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil

from tests.harness.v2 import MESSAGE, V2Client, mpub
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

MOST_TRIES = 5
"""On a busy machine the follower may be out of sync when the primary is killed."""
MORE_THAN_UNDER_WAY = 20
"""Number of messages of a megabyte: more than the primary sends, and the system buffers, before an answer comes."""


def test_an_id_that_a_consumer_has_seen_is_not_used_again(start_pair: StartPair) -> None:
    """Messages that the follower never got were delivered by the old primary. Other messages get other ids."""
    pair = start_pair(lease="6s")
    for number in range(MOST_TRIES):
        topic = f"t{number}"
        primary = pair.wait_for_primary()
        pair.wait_until_in_sync()
        for path in ("/topic/create", "/channel/create"):
            primary.post(path, topic=topic, channel="c")
        primary.post("/pub", b"first", topic=topic)  # its OK says that the follower has the channel, too
        follower = pair.other(primary)
        follower.signal(signal.SIGSTOP)
        paused = psutil.Process(follower.process.pid)
        wait_until(lambda: paused.status() == psutil.STATUS_STOPPED, "the follower is paused")  # noqa: B023
        delivered = published_and_delivered(primary.tcp, topic)
        primary.end(signal.SIGKILL)
        follower.signal(signal.SIGCONT)
        is_replaced = pair.wait_for_takeover(primary)
        primary.start()
        if is_replaced:
            break
    else:
        raise AssertionError("the follower was never in sync")
    new = pair.wait_for_primary()
    depth = new.topics()[topic]["channels"][0]["depth"]
    assert depth < len(delivered), "the follower has everything, which proves nothing"
    for number in range(MORE_THAN_UNDER_WAY):
        new.post("/pub", b"new %d" % number, topic=topic)
    found = received(new.tcp, topic, depth + MORE_THAN_UNDER_WAY)
    assert len({message_id for message_id, body in found if body.startswith(b"new")} - delivered) == MORE_THAN_UNDER_WAY
    assert new.stats(include_histograms="true")["lost_message_count"] == 0


def published_and_delivered(address: tuple[str, int], topic: str) -> set[bytes]:
    """Publish more than a follower that takes nothing can be sent, and return the ids that a consumer receives."""
    publisher = V2Client(address)
    for _ in range(MORE_THAN_UNDER_WAY):
        publisher.send(mpub(topic, [bytes(1_000_000)]))
    delivered = {message_id for message_id, _ in received(address, topic, MORE_THAN_UNDER_WAY)}
    publisher.socket.close()
    return delivered


def received(address: tuple[str, int], topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """The ids and bodies of the next ``count`` messages of the channel."""
    consumer, found = V2Client(address), list[tuple[bytes, bytes]]()
    consumer.send(b"SUB %s c\nRDY 1000\n" % topic.encode())
    while len(found) < count:
        kind, message = consumer.frame()
        if kind == MESSAGE:  # the response to SUB may come after them
            found.append((message[10:26], message[26:]))
    consumer.socket.close()
    return found
