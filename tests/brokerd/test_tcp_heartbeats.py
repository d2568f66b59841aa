"""Heartbeats, deadlines and buffering: what the broker does on its own as time passes."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.daemon import Broker
from tests.harness.waiting import DEADLINE_S, wait_until

HEARTBEAT = struct.pack(">ii", 15, 0) + b"_heartbeat_"
Connect = Callable[..., Any]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def identify(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    server = Broker(tmp_path_factory.mktemp("heartbeats")).launch()
    yield server
    server.stop()


def test_a_silent_client_hears_a_heartbeat_and_is_closed_after_two(shared: Broker, connect: Connect) -> None:
    """One after each interval, and after two without a command the connection ends without an error frame."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    since = time.monotonic()
    assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
    assert time.monotonic() - since >= 0.9
    rest = b""
    while part := peer.socket.recv(4096):
        rest += part
    assert rest in (b"", HEARTBEAT)
    assert time.monotonic() - since >= 1.9


def test_a_client_that_answers_is_kept(shared: Broker, connect: Connect) -> None:
    """NOP is enough, for a producer as for a consumer."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    for _ in range(4):
        assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
        peer.send(b"NOP\n")
    peer.ok(b"PUB heartbeats\n" + sized(b"x"))


def test_heartbeats_come_whatever_the_traffic(shared: Broker, connect: Connect) -> None:
    """A consumer kept busy hears them all the same."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    peer.ok(b"SUB heartbeats-busy c\n")
    peer.send(b"RDY 1\n")
    peer.ok(b"PUB heartbeats-busy\n" + sized(b"x"))
    deadline = time.monotonic() + DEADLINE_S
    while True:
        size, kind = struct.unpack(">ii", peer._exactly(8))
        data = peer._exactly(size - 4)
        if data == b"_heartbeat_":
            return
        assert kind == 2
        assert time.monotonic() < deadline
        peer.send(b"REQ %b 0\n" % data[10:26])


def test_with_heartbeats_off_there_is_no_deadline(shared: Broker, connect: Connect) -> None:
    """A producer may be silent longer than two of the shortest intervals, and hears nothing."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    quiet = connect(shared.tcp)
    quiet.ok(identify(heartbeat_interval=-1))
    while peer.socket.recv(4096):  # two intervals of the other client go by
        pass
    quiet.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        quiet.socket.recv(1)
    quiet.socket.settimeout(DEADLINE_S)
    quiet.ok(b"PUB heartbeats\n" + sized(b"x"))


def test_a_client_without_magic_is_waited_for_but_never_holds_up_the_end(
    start_broker: Callable[..., Any], connect: Connect
) -> None:
    """nsqd hangs on SIGTERM while such a connection is open; this broker ends with status 0."""
    broker = start_broker()
    silent = connect(broker, magic=b"")
    connect(broker).ok(b"PUB t\n" + sized(b"x"))
    silent.send(b"  V2")
    silent.ok(b"PUB t\n" + sized(b"x"))
    mute = connect(broker, magic=b"")
    assert broker.terminate() == 0
    assert mute.is_closed()


def test_with_rdy_1_every_message_is_sent_at_once(shared: Broker, connect: Connect) -> None:
    """However long the flush interval is: a consumer that is not ready any more gets what is buffered."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=30000, output_buffer_size=65536))
    peer.ok(b"SUB flush-rdy1 c\n")
    peer.send(b"RDY 1\n")
    connect(shared.tcp).ok(b"MPUB flush-rdy1\n" + sized(struct.pack(">i", 2) + sized(b"a") + sized(b"b")))
    message_id, _, body = peer.message()
    peer.send(b"FIN %b\n" % message_id)
    assert (body, peer.message()[2]) == (b"a", b"b")


def test_a_response_takes_buffered_messages_with_it(shared: Broker, connect: Connect) -> None:
    """Messages buffered for thirty seconds leave before the answer to the next command."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=30000, output_buffer_size=65536))
    peer.ok(b"SUB flush-response c\n")
    peer.send(b"RDY 100\n")
    connect(shared.tcp).ok(b"PUB flush-response\n" + sized(b"x"))
    peer.send(b"PUB flush-other\n" + sized(b"y"))
    kinds = {peer.frame()[0], peer.frame()[0]}
    assert kinds == {0, 2}


def test_buffered_messages_leave_within_the_flush_interval(shared: Broker, connect: Connect) -> None:
    """With 100 ms asked for, a lone message to a consumer with room for more does not wait for a second one."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=100))
    peer.ok(b"SUB flush-timer c\n")
    peer.send(b"RDY 100\n")
    connect(shared.tcp).ok(b"PUB flush-timer\n" + sized(b"x"))
    assert peer.message()[2] == b"x"


def test_a_client_that_takes_nothing_is_given_up_though_it_speaks(shared: Broker, connect: Connect) -> None:
    """What cannot be written for a heartbeat interval ends the connection; its messages go to somebody who reads."""
    deaf, publisher = connect(shared.tcp), connect(shared.tcp)
    deaf.ok(identify(heartbeat_interval=1000))
    deaf.ok(b"SUB unread c\n")
    deaf.send(b"RDY 2500\n")
    body = bytes(1_000_000)
    for _ in range(30):
        publisher.ok(b"PUB unread\n" + sized(body))

    def is_given_up() -> bool:
        try:
            deaf.send(b"NOP\n")
        except OSError:
            return True
        return False

    wait_until(is_given_up)
    reader = connect(shared.tcp)
    reader.ok(b"SUB unread c\n")
    reader.send(b"RDY 1\n")
    for _ in range(30):
        message_id, _, got = reader.message()
        assert got == body
        reader.send(b"FIN %b\n" % message_id)


def test_a_second_identify_leaves_the_heartbeats_as_they_are(shared: Broker, connect: Connect) -> None:
    """They come at the interval that was agreed on first, as in nsqd."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    peer.ok(identify(heartbeat_interval=-1))  # none at all, if it counted
    assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
