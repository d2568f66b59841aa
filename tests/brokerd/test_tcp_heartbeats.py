"""Heartbeats, deadlines and buffering: frames and disconnections that time causes."""

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


def test_a_silent_client_gets_a_heartbeat_and_is_closed_after_two(shared: Broker, connect: Connect) -> None:
    """One heartbeat after each interval; after two without a command the connection is closed without an error
    frame."""
    peer = connect(shared.tcp)
    since = time.monotonic()
    peer.ok(identify(heartbeat_interval=1000))
    assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
    assert time.monotonic() - since >= 0.9
    rest = b""
    while part := peer.socket.recv(4096):
        rest += part
    assert rest in (b"", HEARTBEAT)
    assert time.monotonic() - since >= 1.9


def test_a_client_that_answers_is_kept(shared: Broker, connect: Connect) -> None:
    """NOP is enough, for producers and consumers."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    for _ in range(4):
        assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
        peer.send(b"NOP\n")
    peer.ok(b"PUB heartbeats\n" + sized(b"x"))


def test_heartbeats_do_not_depend_on_the_traffic(shared: Broker, connect: Connect) -> None:
    """A busy consumer gets them too."""
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
    """A producer may be silent longer than two of the shortest intervals, and gets nothing."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    quiet = connect(shared.tcp)
    quiet.ok(identify(heartbeat_interval=-1))
    while peer.socket.recv(4096):  # two intervals of the other client pass
        pass
    quiet.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        quiet.socket.recv(1)
    quiet.socket.settimeout(DEADLINE_S)
    quiet.ok(b"PUB heartbeats\n" + sized(b"x"))


def test_a_client_without_magic_does_not_delay_the_end(start_broker: Callable[..., Any], connect: Connect) -> None:
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
    """Whatever the flush interval, a consumer that has no RDY left gets the buffered messages."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=30000, output_buffer_size=65536))
    peer.ok(b"SUB flush-rdy1 c\n")
    peer.send(b"RDY 1\n")
    connect(shared.tcp).ok(b"MPUB flush-rdy1\n" + sized(struct.pack(">i", 2) + sized(b"a") + sized(b"b")))
    message_id, _, body = peer.message()
    peer.send(b"FIN %b\n" % message_id)
    assert (body, peer.message()[2]) == (b"a", b"b")


def test_a_response_takes_buffered_messages_with_it(shared: Broker, connect: Connect) -> None:
    """Messages that may be buffered for thirty seconds are sent before the response to the next command."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=30000, output_buffer_size=65536))
    peer.ok(b"SUB flush-response c\n")
    peer.send(b"RDY 100\n")
    connect(shared.tcp).ok(b"PUB flush-response\n" + sized(b"x"))
    peer.send(b"PUB flush-other\n" + sized(b"y"))
    kinds = {peer.frame()[0], peer.frame()[0]}
    assert kinds == {0, 2}


def test_buffered_messages_leave_within_the_flush_interval(shared: Broker, connect: Connect) -> None:
    """With 100 ms requested, a lone message to a consumer that accepts more is not delayed until a second one."""
    peer = connect(shared.tcp)
    peer.ok(identify(output_buffer_timeout=100))
    peer.ok(b"SUB flush-timer c\n")
    peer.send(b"RDY 100\n")
    connect(shared.tcp).ok(b"PUB flush-timer\n" + sized(b"x"))
    assert peer.message()[2] == b"x"


def test_a_client_that_reads_nothing_is_disconnected_although_it_sends(shared: Broker, connect: Connect) -> None:
    """If nothing can be written for a heartbeat interval, the connection ends; its messages go to other consumers."""
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
    """They keep the interval that was negotiated first, as in nsqd."""
    peer = connect(shared.tcp)
    peer.ok(identify(heartbeat_interval=1000))
    peer.ok(identify(heartbeat_interval=-1))  # none at all, if it counted
    assert peer._exactly(len(HEARTBEAT)) == HEARTBEAT
