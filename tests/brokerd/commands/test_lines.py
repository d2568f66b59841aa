"""Command lines, names, and the magic before them: bytes in, frames out, then again one byte at a time.

Source of the texts and of the order of the checks: nsqd's protocol_v2.go, seen on the wire.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.brokerd.commands.cases import Case, answered, error, ok, refused, silently_closed, sized
from tests.harness.daemon import Broker

Connect = Callable[..., Any]

LINES = [
    answered("a command may end in CR LF", b"NOP\r\nPUB T\r\n" + sized(b"x"), ok()),
    answered("extra parameters are ignored", b"PUB T and more\n" + sized(b"x"), ok()),
    answered("a line may have 16384 bytes", b"NOP " + b"x" * (16384 - 5) + b"\nPUB T\n" + sized(b"x"), ok()),
    silently_closed("a line of 16385 bytes", b"NOP " + b"x" * (16385 - 5) + b"\n", then_eof=False),
    silently_closed("a client that leaves in the middle of a line", b"PUB T"),
    silently_closed("a client that leaves between commands", b""),
    refused("an unknown command", b"FOO bar\n", b"E_INVALID invalid command FOO"),
    refused("an unknown command in closing", b"FOO\n", b"E_INVALID invalid command FOO", state="closing"),
    refused("commands are case-sensitive", b"pub T\n", b"E_INVALID invalid command pub"),
    refused("an empty line", b"\n", b"E_INVALID invalid command "),
    refused("a command of raw bytes", b"\xff\xfe\x00 x\n", b"E_INVALID invalid command \xff\xfe\x00"),
    refused("a leading space is an empty command", b" NOP\n", b"E_INVALID invalid command "),
    refused("two spaces hold an empty parameter", b"PUB  T\n", b'E_BAD_TOPIC PUB topic name "" is not valid'),
]

NAMES = [
    refused("a star in a topic", b"PUB bad*\n", b'E_BAD_TOPIC PUB topic name "bad*" is not valid'),
    refused(
        "a 65-byte topic", b"PUB " + b"x" * 65 + b"\n", b'E_BAD_TOPIC PUB topic name "%b" is not valid' % (b"x" * 65)
    ),
    refused("ephemeral alone", b"PUB #ephemeral\n", b'E_BAD_TOPIC PUB topic name "#ephemeral" is not valid'),
    refused("a wrong suffix", b"PUB a#eph\n", b'E_BAD_TOPIC PUB topic name "a#eph" is not valid'),
    refused(
        "quotes and backslashes are escaped", b'PUB a"b\\c\n', rb'E_BAD_TOPIC PUB topic name "a\"b\\c" is not valid'
    ),
    refused(
        "control bytes are escaped", b"PUB a\x00\t\x7f\n", rb'E_BAD_TOPIC PUB topic name "a\x00\t\x7f" is not valid'
    ),
    refused("a CR inside is escaped", b"PUB a\rb\n", rb'E_BAD_TOPIC PUB topic name "a\rb" is not valid'),
    refused("bytes that are no UTF-8 are escaped", b"PUB a\xff\n", rb'E_BAD_TOPIC PUB topic name "a\xff" is not valid'),
    refused(
        "letters beyond ASCII are shown, and refused",
        "PUB grüße\n".encode(),
        'E_BAD_TOPIC PUB topic name "grüße" is not valid'.encode(),
    ),
    answered("64 bytes are a name", b"PUB " + b"x" * 64 + b"\n" + sized(b"x"), ok()),
    answered("dots, dashes and underscores are fine", b"PUB .a-_Z9\n" + sized(b"x"), ok()),
    answered("an ephemeral topic", b"PUB T#ephemeral\n" + sized(b"x"), ok()),
]


@pytest.mark.parametrize("case", [*LINES, *NAMES], ids=lambda case: case.name)
def test_a_command_is_answered_as_nsqd_answers_it(case: Case, converse: Callable[[Case], None]) -> None:
    """The frames, their order, and whether the connection stays open, however the bytes are split."""
    converse(case)


@pytest.mark.parametrize("magic", [b"  V1", b"  V3", b"GET ", b"\x00\x00\x00\x00"])
def test_a_client_of_another_protocol_is_answered_with_an_error(magic: bytes, shared: Broker, connect: Connect) -> None:
    """Anything but the V2 magic is answered with E_BAD_PROTOCOL and the connection closed."""
    peer = connect(shared.tcp, magic=magic)
    assert peer.frame() == error(b"E_BAD_PROTOCOL")
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.frame()


def test_a_client_that_leaves_before_the_magic_is_forgotten(shared: Broker, connect: Connect) -> None:
    """After fewer than four bytes and the end of the stream, the broker sends no frame and goes on."""
    peer = connect(shared.tcp, magic=b"  V")
    peer.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        peer.frame()
    connect(shared.tcp).ok(b"PUB after-no-magic\n" + sized(b"x"))


def test_the_magic_may_come_in_pieces(shared: Broker, connect: Connect) -> None:
    """The four bytes come one by one, followed by a command."""
    peer = connect(shared.tcp, magic=b" ")
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b" V2PUB pieces\n" + sized(b"x"):
        peer.send(bytes([byte]))
    assert peer.frame() == ok()


def test_commands_may_be_pipelined(shared: Broker, connect: Connect) -> None:
    """A thousand publishes in one write get a thousand answers."""
    peer = connect(shared.tcp)
    peer.send((b"PUB pipelined\n" + sized(b"x")) * 1000)
    assert [peer.frame() for _ in range(1000)] == [ok()] * 1000
