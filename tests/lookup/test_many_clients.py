"""Many clients, some of which stall, are slow or never read: others are not affected, and memory stays limited."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import psutil

GROWTH_BYTES = 64 << 20
DEAF_BYTES = 16 << 20
OK = b"\x00\x00\x00\x02OK"


def sent_until_it_blocks(sock: socket.socket, data: bytes) -> int:
    """Send until the socket blocks; returns the number of bytes sent."""
    sent = 0
    sock.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    sock.settimeout(60)
    return sent


def read(sock: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = sock.recv(count - len(received))
        assert part, f"it ended after {len(received)} of {count} bytes"
        received += part
    return bytes(received)


def test_stalled_clients_cost_little_and_disturb_no_other(
    start: Callable[..., Any],
    receive_reply: Callable[[socket.socket], bytes],
    identify_command: Callable[..., bytes],
) -> None:
    """A hundred clients stop within the magic, a command or an IDENTIFY; some send megabytes of PING and do not read.
    The registry keeps answering and does not buffer their input; once they read, they get every answer."""
    process = start()
    unfinished = (b"", b"  ", b"  V1PIN", b"  V1IDENTIFY\n\x00", b"  V1IDENTIFY\n" + struct.pack(">i", 1 << 20) + b"{")
    with contextlib.ExitStack() as stack:
        nsqd = stack.enter_context(process.connect())
        nsqd.sendall(b"  V1" + identify_command() + b"REGISTER t\n")
        assert [receive_reply(nsqd)[:1], receive_reply(nsqd)] == [b"{", b"OK"]
        before = psutil.Process(process.process.pid).memory_info().rss
        for number in range(100):
            stack.enter_context(process.connect()).sendall(unfinished[number % len(unfinished)])
        deaf = [stack.enter_context(process.connect()) for _ in range(4)]
        sent = [sent_until_it_blocks(each, b"  V1" + b"PING\n" * (DEAF_BYTES // 5)) for each in deaf]
        assert max(sent) < DEAF_BYTES, "a client that reads nothing is not read from without end"
        nsqd.sendall(b"PING\n")
        assert receive_reply(nsqd) == b"OK"
        assert len(json.loads(process.answer("/lookup?topic=t")[1])["producers"]) == 1
        assert psutil.Process(process.process.pid).memory_info().rss - before < GROWTH_BYTES
        pings = (sent[0] - len(b"  V1")) // len(b"PING\n")
        assert read(deaf[0], pings * len(OK)) == OK * pings
    assert process.terminate() == 0


def test_a_client_that_drops_its_bytes_one_by_one_is_served(
    start: Callable[..., Any],
    receive_reply: Callable[[socket.socket], bytes],
    identify_command: Callable[..., bytes],
) -> None:
    """A slow command is executed; another client is answered between any two bytes."""
    process = start()
    with process.connect() as slow, process.connect() as other:
        other.sendall(b"  V1")
        for byte in b"  V1" + identify_command() + b"REGISTER t c\n":
            slow.sendall(bytes([byte]))
            other.sendall(b"PING\n")
            assert receive_reply(other) == b"OK"
        assert [receive_reply(slow)[:1], receive_reply(slow)] == [b"{", b"OK"]
        assert json.loads(process.answer("/channels?topic=t")[1]) == {"channels": ["c"]}


def test_a_client_with_many_registrations_alternates_with_others(world: Any) -> None:
    """A broker sends a thousand REGISTERs at once: some are executed, then other clients are served."""
    nsqd = world.nsqd()
    topics = [f"t{number}" for number in range(1000)]
    nsqd.conversation.session.received("".join(f"REGISTER {topic}\n" for topic in topics).encode())
    for turns, _ in enumerate(nsqd.conversation.commands(world.clock), 1):
        assert len(world.registry.topics()) == turns
    assert nsqd.conversation.session.take_output() == OK * 1000
    assert world.get("/topics") == {"topics": sorted(topics)}


def test_everything_sent_before_the_end_is_carried_out(
    start: Callable[..., Any],
    receive_reply: Callable[[socket.socket], bytes],
    identify_command: Callable[..., bytes],
) -> None:
    """A client that sends many commands and shuts down its side gets an answer to each, then the end."""
    process = start()
    with process.connect() as nsqd:
        nsqd.sendall(b"  V1" + identify_command() + b"".join(b"REGISTER t%d\n" % number for number in range(5000)))
        nsqd.shutdown(socket.SHUT_WR)
        assert receive_reply(nsqd).startswith(b"{")
        assert read(nsqd, 5000 * len(OK)) == OK * 5000
        assert nsqd.recv(1) == b""
    assert len(json.loads(process.answer("/topics")[1])["topics"]) == 5000


def test_a_large_database_is_sent_completely(world: Any) -> None:
    """/nodes and /debug are built in slices, with the same contents as for a small database."""
    topics = [f"t{number:03}" for number in range(60)]
    for number in range(60):
        world.nsqd(*topics, broadcast_address=f"n{number:02}")
    world.post("/topic/tombstone?topic=t007&node=n05:4151")
    for _ in range(2):  # the second time from what was written before
        nodes = world.get("/nodes")["producers"]
        assert [each["broadcast_address"] for each in nodes] == [f"n{number:02}" for number in range(60)]
        assert all(each["topics"] == topics for each in nodes)
        hidden = [
            (each["broadcast_address"], topic)
            for each in nodes
            for topic, is_hidden in zip(topics, each["tombstones"], strict=True)
            if is_hidden
        ]
        assert hidden == [("n05", "t007")]
    world.clock.pass_by(45)
    assert not any(hidden for each in world.get("/nodes")["producers"] for hidden in each["tombstones"])
    debug = world.get("/debug")
    assert len(debug) == 61
    assert [each["tombstoned"] for each in debug["topic:t007:"]].count(True) == 1
    assert all(len(peers) == 60 for peers in debug.values())
