"""Deflate and snappy: clients that use one of them, and clients that misuse it."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.codec import PIECE_BYTES, Codec, Deflate, Snappy, StreamBroken, StreamEnded

RESPONSE, ERROR = 0, 1
IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
Connect = Callable[..., Any]


CODECS = pytest.mark.parametrize("name", ["deflate", "snappy"])


def identify(**fields: object) -> bytes:
    body = json.dumps({"feature_negotiation": True, **fields}).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %b\n" % topic.encode() + struct.pack(">i", len(body)) + body


def mpub(topic: str, *bodies: bytes) -> bytes:
    inner = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    return b"MPUB %b\n" % topic.encode() + struct.pack(">ii", 4 + len(inner), len(bodies)) + inner


@pytest.fixture(scope="module")
def shared(start_shared_broker: Callable[..., Any]) -> Any:
    return start_shared_broker()


@pytest.fixture
def connect_packed(connect: Connect, packed_socket: Callable[..., Any]) -> Connect:
    """``connect_packed(broker, "deflate")``: a client whose upgrade was answered with OK."""

    def open_(broker: Any, name: str, **fields: object) -> Any:
        peer = connect(broker)
        kind, data = peer.command(identify(**{name: True}, **fields))
        assert (kind, json.loads(data)[name]) == (RESPONSE, True)
        peer.socket = packed_socket(name, peer.socket)
        assert peer.frame() == (RESPONSE, b"OK")
        return peer

    return open_


@pytest.fixture(scope="module")
def low(start_shared_broker: Callable[..., Any]) -> Any:
    """A broker with --max-deflate-level=4."""
    return start_shared_broker("--max-deflate-level=4")


@pytest.fixture
def levels(low: Any, connect: Connect, packed_socket: Callable[..., Any]) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """``levels(deflate_level=…)``: a client with deflate, and the reply to its IDENTIFY."""

    def open_(**fields: object) -> tuple[Any, dict[str, Any]]:
        peer = connect(low)
        reply = json.loads(peer.command(identify(deflate=True, **fields))[1])
        peer.socket = packed_socket("deflate", peer.socket)
        assert peer.frame() == (RESPONSE, b"OK")
        return peer, reply

    return open_


@CODECS
def test_messages_go_both_ways_through_the_compression(shared, connect_packed, name) -> None:
    """Small, large, compressible and random bodies arrive unchanged, and /stats shows the compression."""
    topic = f"both-ways-{name}"
    bodies = [b"x", b"abc" * 100_000, os.urandom(300_000), b"\n", *(b"%d" % number for number in range(500))]
    peer = connect_packed(shared, name)
    peer.ok(pub(topic, bodies[0]))
    peer.ok(mpub(topic, *bodies[1:]))
    peer.ok(b"SUB %b ch\n" % topic.encode())
    peer.send(b"RDY 2500\n")
    received = []
    for _ in bodies:
        message_id, _attempts, body = peer.message()
        received.append(body)
        peer.send(b"FIN " + message_id + b"\n")
    assert received == bodies
    (client,) = shared.stats(topic=topic)["topics"][0]["channels"][0]["clients"]
    assert {key: client[key] for key in ("deflate", "snappy", "tls")} == {
        "deflate": name == "deflate",
        "snappy": name == "snappy",
        "tls": False,
    }


@CODECS
def test_a_client_that_reads_slowly_gets_everything(shared, connect_packed, name) -> None:
    """More than all buffers can hold; until the client reads, the broker sends no more than that."""
    topic, body = f"slow-{name}", os.urandom(100_000)
    for _ in range(300):
        assert shared.request("POST", f"/pub?topic={topic}", body).text == "OK"
    peer = connect_packed(shared, name)
    peer.ok(b"SUB %b ch\n" % topic.encode())
    peer.send(b"RDY 2500\n")
    peer.message()
    (client,) = shared.stats(topic=topic)["topics"][0]["channels"][0]["clients"]
    assert client["in_flight_count"] < 300
    for _ in range(299):
        message_id, _attempts, received = peer.message()
        assert received == body
        peer.send(b"FIN " + message_id + b"\n")


@CODECS
def test_a_unix_socket_can_be_compressed_too(start_broker, connect_packed, tmp_path, name) -> None:
    """A Unix socket is a stream like any other."""
    start_broker(f"--tcp-address={tmp_path}/s", ready=False).wait_for_log("TCP: listening on ")
    connect_packed(f"{tmp_path}/s", name).ok(pub("unix", b"body"))


@CODECS
def test_a_client_may_send_its_bytes_one_by_one(shared, connect_packed, name) -> None:
    """However the stream is split, its commands are the same."""
    peer = connect_packed(shared, name)
    for byte in peer.socket.pack(pub(f"bytewise-{name}", b"the body") * 3):
        peer.socket.under.sendall(bytes([byte]))
    for _ in range(3):
        assert peer.frame() == (RESPONSE, b"OK")


@CODECS
def test_heartbeats_and_errors_come_compressed_too(shared, connect_packed, name) -> None:
    """After the upgrade, everything that the broker sends is compressed."""
    peer = connect_packed(shared, name, heartbeat_interval=1000)
    data = b""
    while len(data) < 19:
        data += peer.socket.recv(19 - len(data))
    assert data == struct.pack(">ii", 15, RESPONSE) + b"_heartbeat_"
    assert peer.command(b"BOGUS\n") == (ERROR, b"E_INVALID invalid command BOGUS")
    assert peer.is_closed()


def test_incompressible_data_is_sent_uncompressed(shared, connect_packed) -> None:
    """As uncompressed chunks of Snappy."""
    peer = connect_packed(shared, "snappy")
    peer.ok(pub("as-it-is", os.urandom(5000)))
    peer.ok(b"SUB as-it-is ch\n")
    peer.socket.chunks[1:] = []
    peer.send(b"RDY 1\n")
    peer.message()
    assert peer.socket.chunks == [0xFF, 0x01]


def test_deflate_and_snappy_together_are_refused(shared, connect) -> None:
    """The request is refused unless only one of them is granted."""
    peer = connect(shared)
    assert peer.command(identify(deflate=True, snappy=True)) == (
        ERROR,
        b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
    )
    assert peer.is_closed()


def test_without_negotiation_nothing_is_compressed(shared, connect) -> None:
    """The fields count only with feature_negotiation."""
    peer = connect(shared)
    peer.ok(identify(feature_negotiation=False, deflate=True, snappy=True))
    peer.ok(pub("plain", b"body"))


@CODECS
def test_an_enabled_compression_is_not_enabled_again(shared, connect_packed, name) -> None:
    """A second IDENTIFY may change names, but not the stream."""
    peer = connect_packed(shared, name)
    kind, data = peer.command(identify(client_id="another"))
    assert (kind, json.loads(data)[name]) == (RESPONSE, False)
    assert peer.command(identify(deflate=True)) == (
        ERROR,
        b"E_IDENTIFY_FAILED IDENTIFY failed TLS or this compression is already enabled",
    )


@pytest.mark.parametrize(("asked", "granted"), [(1, 1), (3, 3), (4, 4), (9, 4), (0, 4), (-5, 4)])
def test_a_level_is_granted_up_to_the_highest(levels, asked, granted) -> None:
    """At most --max-deflate-level; a missing or invalid level is 6, or the highest if that is lower."""
    peer, reply = levels(deflate_level=asked)
    assert (reply["deflate"], reply["deflate_level"], reply["max_deflate_level"]) == (True, granted, 4)
    peer.ok(pub("levels", b"body"))


def test_a_disabled_codec_is_not_granted(start_broker, connect, packed_socket) -> None:
    """With --snappy=false, a client that asks for both gets deflate."""
    peer = connect(start_broker("--snappy=false"))
    _kind, data = peer.command(identify(deflate=True, snappy=True))
    assert (json.loads(data)["deflate"], json.loads(data)["snappy"]) == (True, False)
    peer.socket = packed_socket("deflate", peer.socket)
    assert peer.frame() == (RESPONSE, b"OK")


def test_commands_sent_before_the_upgrade_was_answered_are_lost(shared, connect, packed_socket) -> None:
    """They came in the clear, together with IDENTIFY."""
    peer = connect(shared)
    _kind, data = peer.command(identify(deflate=True) + pub("too-early", b"lost"))
    assert json.loads(data)["deflate"]
    peer.socket = packed_socket("deflate", peer.socket)
    assert peer.frame() == (RESPONSE, b"OK")
    peer.ok(pub("in-time", b"kept"))
    names = [topic["topic_name"] for topic in shared.stats()["topics"]]
    assert "in-time" in names
    assert "too-early" not in names


def test_a_stream_that_inflates_without_end_costs_bounded_memory(broker, connect_packed) -> None:
    """A command line of half a gigabyte, deflated to half a megabyte: the connection is closed, and memory stays
    bounded."""

    def peak_kib() -> int:
        with open(f"/proc/{broker.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    peer = connect_packed(broker, "deflate")
    before = peak_kib()
    zeros = bytes(1 << 20)
    packed = [peer.socket.packer.compress(zeros) for _ in range(512)] + [peer.socket.packer.flush(zlib.Z_SYNC_FLUSH)]
    with suppress(ConnectionError):
        peer.socket.under.sendall(b"".join(packed))
    assert peer.is_closed()
    assert peak_kib() - before < 32 * 1024
    assert broker.request("GET", "/ping").text == "OK"


def test_others_are_served_while_a_small_read_unpacks_to_much(broker, connect_packed) -> None:
    """A few kilobytes that contain a million commands do not delay other clients until the last of them."""
    peer = connect_packed(broker, "deflate")
    peer.socket.under.sendall(peer.socket.pack(b"NOP x\n" * 1_000_000 + pub("last", b"of all")))
    assert broker.request("GET", "/ping").text == "OK"
    peer.socket.under.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.socket.under.recv(1)
    peer.socket.under.settimeout(60)
    assert peer.frame() == (RESPONSE, b"OK")


SNAPPED = bytes(cramjam.snappy.compress(b"NOP\n" * 10))


@pytest.mark.parametrize(
    ("name", "garbage"),
    [
        pytest.param("deflate", b"\xff" * 100, id="no deflate stream"),
        pytest.param("snappy", SNAPPED[10:], id="no stream identifier"),
        pytest.param("snappy", b"\xff\x06\x00\x00sNaPpy" + SNAPPED[10:], id="another identifier"),
        pytest.param("snappy", SNAPPED[:-1] + b"\x55", id="another last byte"),
        pytest.param("snappy", SNAPPED[:15] + bytes([SNAPPED[15] ^ 1]) + SNAPPED[16:], id="wrong checksum"),
        pytest.param("snappy", IDENTIFIER + b"\x00\xff\xff\xff" + bytes(100), id="a chunk of sixteen megabytes"),
        pytest.param("snappy", IDENTIFIER + b"\x02\x01\x00\x00x", id="a reserved chunk that must be understood"),
        pytest.param("snappy", bytes(range(256)), id="anything"),
    ],
)  # fmt: skip
def test_an_invalid_stream_ends_only_its_connection(broker, connect_packed, name, garbage) -> None:
    """The log has the reason; all others continue."""
    other = connect_packed(broker, name)
    peer = connect_packed(broker, name)
    peer.socket.under.sendall(garbage)
    assert peer.is_closed()
    broker.wait_for_log(rf"ERROR: PROTOCOL\(V2\): \[127.0.0.1:\d+\] {name}: ")
    other.ok(pub("goes-on", b"body"))


def test_chunks_that_may_be_skipped_are_skipped(shared, connect_packed) -> None:
    """Padding and the reserved types, whatever their length, and a repeated identifier."""
    peer = connect_packed(shared, "snappy")
    for kind in (0x80, 0xFD, 0xFE):
        peer.socket.under.sendall(bytes([kind]) + (100_000).to_bytes(3, "little") + os.urandom(100_000))
        peer.socket.under.sendall(IDENTIFIER)
        peer.ok(pub("skipped", b"body"))


def test_a_stream_that_ends_inside_a_body_is_answered(shared, connect_packed) -> None:
    """Like an uncompressed connection that ends there."""
    peer = connect_packed(shared, "deflate")
    peer.socket.under.sendall(
        peer.socket.packer.compress(b"PUB cut\n" + struct.pack(">i", 10) + b"half") + peer.socket.packer.flush()
    )
    assert peer.frame() == (ERROR, b"E_BAD_MESSAGE PUB failed to read message body")
    assert peer.is_closed()
    assert not [line for line in shared.log if "ERROR" in line]


@given(
    writes=st.lists(st.binary(max_size=300) | st.integers(0, 3 * PIECE_BYTES).map(bytes), max_size=6),
    cuts=st.lists(st.integers(0, 1000), max_size=8),
    codec=st.sampled_from([lambda: Deflate(6), lambda: Deflate(1), Snappy]),
)
def test_an_encoded_stream_decodes_to_itself_however_it_is_split(
    writes: list[bytes], cuts: list[int], codec: Callable[[], Codec]
) -> None:
    """It is decoded in pieces of at most 64 KiB."""
    sender, receiver = codec(), codec()
    stream = b"".join(sender.encode(write) for write in writes)
    at, pieces = 0, []
    for cut in [*cuts, len(stream)]:
        pieces += list(receiver.decode(stream[at : at + cut]))
        at += cut
    assert b"".join(pieces) == b"".join(writes)
    assert all(len(piece) <= PIECE_BYTES for piece in pieces)


@given(data=st.binary(max_size=200), codec=st.sampled_from([lambda: Deflate(6), Snappy]))
def test_any_bytes_are_decoded_or_break_the_stream(data: bytes, codec: Callable[[], Codec]) -> None:
    """Decoding any bytes gives pieces, the end or StreamBroken."""
    with suppress(StreamBroken, StreamEnded):
        for piece in codec().decode(IDENTIFIER + data if codec is Snappy else data):
            assert len(piece) <= PIECE_BYTES
