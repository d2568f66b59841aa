"""Runs conversations with a broker that all of these tests share."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.brokerd.commands.cases import STATES, Case, sized
from tests.harness.daemon import Broker

NEXT_TOPIC = count()

Connect = Callable[..., Any]
Send = Callable[[Any, bytes], None]


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all cases: no case may disturb the next."""
    server = Broker(tmp_path_factory.mktemp("commands")).launch()
    yield server
    server.stop()


def whole(peer: Any, data: bytes) -> None:
    peer.send(data)


def one_byte_at_a_time(peer: Any, data: bytes) -> None:
    for at in range(len(data)):
        peer.socket.send(data[at : at + 1])


@pytest.fixture(params=[whole, one_byte_at_a_time])
def converse(request: pytest.FixtureRequest, shared: Broker, connect: Connect) -> Callable[[Case], None]:
    """Run the conversation, then run it again one byte at a time; fails the test unless both go as the case says."""
    send: Send = request.param

    def hold(case: Case) -> None:
        if len(case.sent) > 100_000 and send is one_byte_at_a_time:
            cut = len(case.sent) - 1000  # a megabyte sent byte by byte shows nothing more than its ends do
        else:
            cut = 0 if send is one_byte_at_a_time else len(case.sent)
        topic = f"t{next(NEXT_TOPIC)}".encode()

        def own(data: bytes) -> bytes:
            return b" ".join(
                topic + word[1:] if word[:1] == b"T" and word[1:2] in b"-#\n\r" else word for word in data.split(b" ")
            )

        peer = connect(shared.tcp)
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opening, greeting = STATES[case.state]
        if opening:
            peer.send(own(opening))
        assert [peer.frame() for _ in greeting] == greeting
        sent = own(case.sent)
        # A refused client may find the connection closed before its last byte is sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            peer.send(sent[:cut])
            send(peer, sent[cut:])
        if case.then_eof:
            peer.socket.shutdown(socket.SHUT_WR)
        for expected in case.frames:
            assert peer.frame() == expected
        if case.closes:
            with pytest.raises((EOFError, ConnectionResetError)):
                peer.frame()
        else:
            peer.ok(b"PUB " + topic + b"-after\n" + sized(b"still here"))

    return hold
