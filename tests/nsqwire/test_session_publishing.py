"""Consecutive PUB, DPUB and MPUB commands are processed together, which clients cannot observe."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import kernel
from brokerd.net.tcp import session_limits
from brokerd.settings import BrokerSettings
from nsqwire import scan
from nsqwire.commands import Command, DpubRun, Mpub, MpubRun, Pub, PubRun
from nsqwire.scan import Scanner
from nsqwire.session import OK, Session

LIMITS = session_limits(BrokerSettings(max_msg_size=30))


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


names = st.sampled_from([b"t", b"u", b"t#ephemeral"])
sound = st.builds(lambda name, body: b"PUB %b\n" % name + sized(body), names, st.binary(min_size=1, max_size=30))
batches = st.builds(
    lambda name, bodies: b"MPUB %b\n" % name + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies))),
    names,
    st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=4),
)
deferred = st.builds(
    lambda name, delay, body: b"DPUB %b %b\n" % (name, delay) + sized(body),
    names,
    st.sampled_from([b"1", b"5", b"007", b"3600000", b"0"]),
    st.binary(min_size=1, max_size=30),
)
odd = st.sampled_from(
    [
        b"PUB t\r\n" + sized(b"x"),
        b"PUB t more\n" + sized(b"x"),
        b"NOP\n",
        b"DPUB t 5\r\n" + sized(b"x"),
        b"DPUB t 5 more\n" + sized(b"x"),
        b"DPUB t \n" + sized(b"x"),
        b"DPUB t\n" + sized(b"x"),
        b"DPUB t 3600001\n" + sized(b"x"),
        b"DPUB t -1\n" + sized(b"x"),
        b"DPUB t 9999999999999999999\n" + sized(b"x"),
        b"DPUB t 18446744073709551621\n" + sized(b"x"),
        b"DPUB t 00000000000000000005\n" + sized(b"x"),
        b"DPUB t* 5\n" + sized(b"x"),
        b"DPUB  5\n" + sized(b"x"),
        b"DPUB t 5\n" + sized(b""),
        b"DPUB t 5\n" + sized(bytes(31)),
        b"DPUB t 5\n\xff\xff\xff\xff",
        b"DPUB " + b"n" * 65 + b" 5\n" + sized(b"x"),
        b"MPUB t\r\n" + sized(struct.pack(">i", 2) + sized(b"x") * 2),
        b"MPUB t more\n" + sized(struct.pack(">i", 2) + sized(b"x") * 2),
        b"MPUB t\n" + sized(struct.pack(">i", 2) + sized(b"x")),
        b"MPUB t\n" + sized(struct.pack(">i", 0)),
        b"MPUB t\n" + sized(struct.pack(">i", 2) + sized(b"x") + sized(bytes(31))),
        b"MPUB t\n" + sized(b""),
        b"MPUB t\n\x7f\xff\xff\xff",
        b"MPUB\n",
        b"PUB\n",
        b"PUB t*\n" + sized(b"x"),
        b"PUB t\n" + sized(b""),
        b"PUB t\n" + sized(bytes(31)),
        b"PUB t\n\xff\xff\xff\xff",
        b"PUB " + b"n" * 65 + b"\n" + sized(b"x"),
        b"PUBLISH t\n",
    ]
)
conversations = st.lists(sound | sound | deferred | deferred | batches | batches | odd, max_size=12)


def published(command: Command) -> list[tuple[str, bytes, int | None]]:
    if isinstance(command, PubRun):
        return [(command.topic, bytes(body), None) for body in command.bodies()]
    if isinstance(command, DpubRun):
        assert sum(len(one.body) for one in command.each()) == command.body_bytes
        return [(one.topic, bytes(one.body), one.defer_ms) for one in command.each()]
    if isinstance(command, MpubRun):
        each = [(one.topic, bytes(one.messages), one.count) for one in command.each()]
        assert sum(count for _, _, count in each) == command.messages
        return each
    if isinstance(command, Mpub):
        return [(command.topic, bytes(command.messages), command.count)]
    assert isinstance(command, Pub)
    return [(command.topic, bytes(command.body), command.defer_ms)]


def converse(parts: Sequence[bytes], scanner: Scanner) -> tuple[list[tuple[str, bytes, int | None]], bytes, bool]:
    """Returns the publishes, the responses, and whether the session is closed, after all input of a client."""
    session = Session(LIMITS, scratch=bytearray(64), scanner=scanner)
    messages, frames = [], b""
    for part in parts:
        session.feed(part)
        while (command := session.next_command()) is not None:
            taken = published(command)
            messages += taken
            session.respond(OK * (len(taken)))
        frames += session.take_output()
    over = session.closed
    session.eof()
    return messages, frames + session.take_output(), over


@pytest.mark.parametrize("scanner", [scan, kernel])
@given(conversations, st.lists(st.integers(1, 60), max_size=8), st.integers(0, 20))
def test_publishes_are_answered_alike_however_they_arrive(
    scanner: Scanner, commands: list[bytes], sizes: list[int], cut: int
) -> None:
    """Byte by byte, without consecutive commands in one read, or in pieces: the same messages, answers and errors."""
    sent = b"  V2" + b"".join(commands)
    sent = sent[: max(4, len(sent) - cut)]
    pieces, at = [], 0
    for size in [*sizes, len(sent)]:
        pieces.append(sent[at : at + size])
        at += size
    single = [sent[at : at + 1] for at in range(len(sent))]
    assert converse(pieces, scanner) == converse(single, scan)


@pytest.mark.parametrize("scanner", [scan, kernel])
def test_publishes_to_one_topic_are_taken_together(scanner: Scanner) -> None:
    """Pipelined commands take one pass per read, not one per command."""
    session = Session(LIMITS, scratch=bytearray(4096), scanner=scanner)
    session.feed(b"  V2" + (b"PUB t\n" + sized(b"x")) * 50 + b"PUB u\n" + sized(b"y"))
    commands = [session.next_command() for _ in range(3)]
    assert [getattr(command, "count", 1) for command in commands] == [1, 49, 1]


@pytest.mark.parametrize("scanner", [scan, kernel])
def test_batches_to_one_topic_are_taken_together(scanner: Scanner) -> None:
    """Pipelined MPUBs take one pass too, even if a read ends within one."""
    batch = b"MPUB t\n" + sized(struct.pack(">i", 2) + sized(b"x") + sized(b"yz"))
    sent = b"  V2" + batch * 50
    session = Session(LIMITS, scratch=bytearray(4096), scanner=scanner)
    taken = []
    for part in (sent[:200], sent[200:1000], sent[1000:]):
        session.feed(part)
        while (command := session.next_command()) is not None:
            taken.append(published(command))
    assert taken == [[("t", batch[15:], 2)] * count for count in (7, 31, 12)]


@pytest.mark.parametrize("scanner", [scan, kernel])
def test_deferred_publishes_to_one_topic_are_taken_together(scanner: Scanner) -> None:
    """With any delays; a long sequence is split, because each message is an entry in every channel."""
    sent = [b"DPUB t %d\n" % (ms % 1000 + 1) + sized(b"x") for ms in range(1000)]
    session = Session(LIMITS, scratch=bytearray(65536), scanner=scanner)
    session.feed(b"  V2" + b"".join(sent) + b"DPUB u 5\n" + sized(b"y"))
    commands = [session.next_command() for _ in range(4)]
    assert [getattr(command, "count", 1) for command in commands] == [1, 512, 487, 1]
