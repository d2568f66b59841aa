"""Clients that send invalid input or do not read affect no other client."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.processes import anonymous_bytes
from tests.harness.conversation import converse
from tests.harness.daemon import Broker
from tests.harness.waiting import DEADLINE_S, is_readable, wait_until

Connect = Callable[..., Any]
MIB = 1 << 20


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def mpub(topic: bytes, bodies: list[bytes]) -> bytes:
    return b"MPUB " + topic + b"\n" + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))


class Bystander:
    """A producer and a consumer on one connection that behave well."""

    def __init__(self, server: Broker) -> None:
        self.server = server
        self.socket = socket.create_connection(server.tcp, DEADLINE_S)
        self.rest = b""
        self.socket.sendall(b"  V2SUB bystander c\nRDY 1\n")
        assert self.frame() == (0, b"OK")

    def frame(self) -> tuple[int, bytes]:
        while len(self.rest) < 8 or len(self.rest) < 4 + struct.unpack_from(">i", self.rest)[0]:
            part = self.socket.recv(65536)
            assert part, "the bystander was disconnected"
            self.rest += part
        size, kind = struct.unpack_from(">ii", self.rest)
        data, self.rest = self.rest[8 : 4 + size], self.rest[4 + size :]
        if data != b"_heartbeat_":
            return kind, data
        self.socket.sendall(b"NOP\n")
        return self.frame()

    def is_undisturbed(self) -> bool:
        """A publish is acknowledged and delivered, and the broker has logged nothing."""
        body = random.randbytes(20)
        self.socket.sendall(b"PUB bystander\n" + sized(body))
        frames = [self.frame(), self.frame()]
        assert (0, b"OK") in frames
        [(_, message)] = [each for each in frames if each[0] == 2]
        assert message[26:] == body
        self.socket.sendall(b"FIN " + message[10:26] + b"\n")
        assert not [line for line in self.server.log if "Traceback" in line or "Error" in line]
        return True


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    server = Broker(tmp_path_factory.mktemp("malformed")).launch()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def bystander(shared: Broker) -> Iterator[Bystander]:
    peer = Bystander(shared)
    with peer.socket:
        yield peer


names = st.sampled_from([b"t", b"fuzz", b"fuzz#ephemeral", b"", b"bad*", b"x" * 65, b"\xff"])
numbers = st.one_of(
    st.integers(-2, 3000).map(lambda n: b"%d" % n),
    st.integers(0, 2**70).map(lambda n: b"%d" % n),
    st.sampled_from([b"", b"x", b"1.5", b"0x10"]),
)
bodies = st.one_of(
    st.binary(max_size=40).map(sized),
    st.builds(
        lambda size, data: struct.pack(">i", size) + data, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20)
    ),
    st.lists(st.binary(max_size=10), max_size=4).map(lambda each: mpub(b"", each).partition(b"\n")[2]),
    st.sampled_from([b"{}", b'{"feature_negotiation":true}', b'{"heartbeat_interval":-1}', b"[" * 5000]).map(sized),
)
ids = st.one_of(st.binary(max_size=17), st.text("0123456789abcdef", min_size=16, max_size=16).map(str.encode))
verbs = st.sampled_from(
    [
        b"IDENTIFY",
        b"AUTH",
        b"SUB",
        b"PUB",
        b"MPUB",
        b"DPUB",
        b"RDY",
        b"FIN",
        b"REQ",
        b"TOUCH",
        b"CLS",
        b"NOP",
        b"",
        b"GET",
    ]
)
commands = st.builds(
    lambda verb, params, end, body: b" ".join([verb, *params]) + end + body,
    verbs,
    st.lists(st.one_of(names, numbers, ids), max_size=3),
    st.sampled_from([b"\n", b"\r\n", b""]),
    st.one_of(st.just(b""), bodies),
)
good = st.sampled_from(
    [
        b"PUB fuzz\n" + sized(b"x"),
        b"SUB fuzz c\n",
        b"RDY 10\n",
        b"NOP\n",
        b"FIN 0123456789abcdef\n",
        mpub(b"fuzz", [b"a", b"b"]),
    ]
)
conversations = st.lists(st.one_of(good, commands, st.binary(max_size=60)), max_size=8).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(
    data=conversations,
    magic=st.sampled_from([b"  V2"] * 9 + [b"", b"GET "]),
    piece=st.integers(1, 200),
    abrupt=st.booleans(),
)
def test_no_bytes_disturb_another_client(
    shared: Broker, bystander: Bystander, data: bytes, magic: bytes, piece: int, abrupt: bool
) -> None:
    """Whatever a client sends and however it disconnects, the next one is served."""
    converse(shared.tcp, magic + data, piece, abrupt=abrupt)
    assert bystander.is_undisturbed()


@settings(max_examples=40, deadline=None)
@given(data=conversations)
def test_every_frame_sent_back_is_whole(shared: Broker, data: bytes) -> None:
    """Errors are frames too: sizes add up, types are known, nothing follows a fatal error."""
    with socket.create_connection(shared.tcp, DEADLINE_S) as peer:
        answer = b""
        with contextlib.suppress(OSError):
            peer.sendall(b"  V2" + data)
            peer.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while part := peer.recv(65536):
                answer += part
    fatal = False
    while answer:
        assert not fatal, answer
        size, kind = struct.unpack_from(">ii", answer)
        payload, answer = answer[8 : 4 + size], answer[4 + size :]
        assert len(payload) == size - 4
        assert kind in (0, 1, 2)
        fatal = kind == 1 and payload.split(b" ")[0] not in (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")


@pytest.mark.parametrize("codec", [None, "deflate"])
def test_a_client_that_still_sends_after_a_fatal_error_can_read_the_error(
    shared: Broker, connect: Connect, packed_socket: Callable[..., Any], codec: str | None
) -> None:
    """The connection is not reset while the client is sending. Its channel is free at once."""
    peer = connect(shared)
    if codec is not None:
        body = b'{"feature_negotiation":true,"deflate":true}'
        kind, _ = peer.command(b"IDENTIFY\n" + sized(body))
        assert kind == 0
        peer.socket = packed_socket(codec, peer.socket)
        assert peer.frame() == (0, b"OK")
    peer.sub("talkative", "c", 1)
    peer.send(b"NONSENSE\n")
    channels = lambda: shared.topics()["talkative"]["channels"]  # noqa: E731
    wait_until(lambda: channels()[0]["client_count"] == 0, "the client has left the channel")
    for _ in range(20):
        peer.send(b"x" * MIB)
    kind, data = peer.frame()
    assert (kind, data[:9]) == (1, b"E_INVALID")
    assert peer.is_closed()


def test_a_consumer_that_never_reads_costs_bounded_memory(
    shared: Broker, bystander: Bystander, connect: Connect
) -> None:
    """The 160 MB in flight stay in the log's mapped files: the process itself hardly grows."""
    publisher = connect(shared.tcp)
    publisher.ok(b"SUB unread c\n")
    body = bytes(65536)
    before = anonymous_bytes(shared.process.pid)
    assert before is not None
    deaf = connect(shared.tcp)
    deaf.ok(b"SUB unread c\n")
    deaf.send(b"RDY 2500\n")
    for _ in range(50):
        publisher.ok(mpub(b"unread", [body] * 50))
    assert bystander.is_undisturbed()
    after = anonymous_bytes(shared.process.pid)
    assert after is not None
    assert after - before < 64 * MIB


def test_a_client_that_never_reads_its_errors_is_not_read_any_further(
    shared: Broker, bystander: Bystander, connect: Connect
) -> None:
    """Each unknown FIN causes an error of three times its length: the broker stops reading before its memory fills."""
    deaf = connect(shared.tcp)
    deaf.ok(b"SUB deaf c\n")
    before = anonymous_bytes(shared.process.pid)
    assert before is not None
    deaf.socket.settimeout(2)
    flood = b"FIN 0123456789abcdef\n" * 50_000
    with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
        for _ in range(24):
            deaf.send(flood)
            assert bystander.is_undisturbed()
    after = anonymous_bytes(shared.process.pid)
    assert after is not None
    assert after - before < 24 * MIB


def test_many_silent_connections_take_little_memory(shared: Broker, bystander: Bystander, connect: Connect) -> None:
    """Two hundred connections, half of them in the middle of a command, cost little."""
    crowd = [connect(shared.tcp, magic=b"  V2PUB half\n\x00\x00" if i % 2 else b" ") for i in range(200)]
    assert bystander.is_undisturbed()
    for peer in crowd:
        peer.socket.close()
    assert bystander.is_undisturbed()
    assert not is_readable(bystander.socket, 0)
