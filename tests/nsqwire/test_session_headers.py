"""Publishes with headers in a session: bytes in, commands or an error out."""

from __future__ import annotations

import struct

import pytest

from brokerd import kernel
from brokerd.net.tcp import session_limits
from brokerd.settings import BrokerSettings
from nsqwire import encoding
from nsqwire.commands import HeaderMpub, HeaderPub, IdentifyCommand
from nsqwire.headers import MAX_MESSAGES
from nsqwire.session import Session
from tests.harness import header_commands

LIMITS = session_limits(BrokerSettings(max_msg_size=30, max_body_size=200))
AGREED = encoding.MAGIC_V2 + encoding.identify({"feature_negotiation": True, "headers": True})


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def found(data: bytes, piece: int) -> tuple[list[object], bytes]:
    """The publishes with headers in ``data``, fed in pieces of that many bytes, and the output."""
    session = Session(LIMITS, scratch=bytearray(64 * 1024), scanner=kernel)
    commands: list[object] = []
    for at in range(0, len(data), piece):
        session.feed(data[at : at + piece])
        while (command := session.next_command()) is not None:
            if isinstance(command, HeaderPub):
                commands.append((command.topic, command.headers, bytes(command.body), command.defer_ms))
            elif isinstance(command, HeaderMpub):
                commands.append((command.topic, [(names, bytes(body)) for names, body in command.messages]))
            else:
                assert isinstance(command, IdentifyCommand)
    session.eof()
    return commands, session.take_output()


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_publishes_with_headers_are_read(piece: int) -> None:
    block = b'{"A":"1","b":"2"}'
    data = (
        header_commands.hpub("t", block, b"one")
        + header_commands.hdpub("t", 5, b"{}", b"two")
        + header_commands.hmpub("u", [(block, b"three"), (b"{}", b"four")])
    )
    both = {"a": "1", "b": "2"}
    assert found(AGREED + data, piece) == (
        [("t", both, b"one", None), ("t", {}, b"two", 5), ("u", [(both, b"three"), ({}, b"four")])],
        b"",
    )


@pytest.mark.parametrize("command", [b"HPUB t\n", b"HDPUB t 5\n", b"HMPUB t\n"])
@pytest.mark.parametrize(
    "start",
    [
        encoding.MAGIC_V2,
        encoding.MAGIC_V2 + encoding.identify({"feature_negotiation": True}),
        encoding.MAGIC_V2 + encoding.identify({"headers": True}),
    ],
)
def test_without_the_agreement_the_commands_are_unknown(start: bytes, command: bytes) -> None:
    commands, output = found(start + command, 10_000)
    verb = command.split()[0]
    assert (commands, output[8:]) == ([], b"E_INVALID invalid command " + verb)


MESSAGE = sized(b'{"a":"b"}') + b"body"


@pytest.mark.parametrize("piece", [1, 10_000])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HPUB\n", "E_INVALID HPUB insufficient number of parameters"),
        (b"HPUB t*\n", 'E_BAD_TOPIC HPUB topic name "t*" is not valid'),
        (b"HPUB t\n" + sized(b""), "E_BAD_MESSAGE HPUB invalid message size 0"),
        (b"HPUB t\n" + sized(b"{}{}"), "E_BAD_MESSAGE HPUB invalid message size 4"),
        (b"HPUB t\n\xff\xff\xff\xff", "E_BAD_MESSAGE HPUB invalid message size -1"),
        (b"HPUB t\n" + struct.pack(">i", 16_419), "E_BAD_MESSAGE HPUB message too big 16419 > 16418"),
        (b"HPUB t\n" + sized(sized(b"{}")), "E_BAD_MESSAGE HPUB invalid message body size 0"),
        (b"HPUB t\n" + sized(sized(b"{}") + bytes(31)), "E_BAD_MESSAGE HPUB message too big 31 > 30"),
        (b"HPUB t\n" + sized(sized(b"") + b"x"), "E_BAD_MESSAGE HPUB invalid header block size 0"),
        (b"HPUB t\n" + sized(b"\0\0\0\3{}"), "E_BAD_MESSAGE HPUB invalid header block size 3"),
        (b"HPUB t\n" + sized(b"\xff\xff\xff\xff{}"), "E_BAD_MESSAGE HPUB invalid header block size -1"),
        (b"HPUB t\n" + sized(sized(b"[]") + b"x"), "E_BAD_MESSAGE HPUB header block is not a JSON object"),
        (b"HPUB t\n" + sized(sized(b'{"a":1}') + b"x"), "E_BAD_MESSAGE HPUB value of header a is not a string"),
        (b"HPUB t\n" + sized(MESSAGE)[:-1], "E_BAD_MESSAGE HPUB failed to read message"),
        (b"HPUB t\n\0", "E_BAD_MESSAGE HPUB failed to read message size"),
        (b"HDPUB t\n", "E_INVALID HDPUB insufficient number of parameters"),
        (b"HDPUB t x\n", "E_INVALID HDPUB could not parse timeout x"),
        (b"HDPUB t 3600001\n", "E_INVALID HDPUB timeout 3600001 out of range 0-3600000"),
        (b"HMPUB t\n" + sized(b"\0\0\0"), "E_BAD_BODY HMPUB invalid body size 3"),
        (b"HMPUB t\n" + struct.pack(">i", 201), "E_BAD_BODY HMPUB body too big 201 > 200"),
        (b"HMPUB t\n" + sized(bytes(4)), "E_BAD_BODY HMPUB invalid message count 0"),
        (b"HMPUB t\n" + sized(b"\0\0\0\2" + sized(MESSAGE)), "E_BAD_BODY HMPUB invalid message count 2"),
        (b"HMPUB t\n" + sized(b"\0\0\0\1" + sized(MESSAGE) * 2), "E_BAD_BODY HMPUB invalid message count 1"),
        (
            b"HMPUB t\n" + sized(b"\0\0\0\2" + sized(MESSAGE) + b"\0\0\1\0" + MESSAGE),
            "E_BAD_MESSAGE HMPUB invalid message(1) size 256",
        ),
        (
            b"HMPUB t\n" + sized(b"\0\0\0\1" + sized(sized(b"{") + b"x")),
            "E_BAD_MESSAGE HMPUB header block is not JSON in UTF-8",
        ),
        (b"HMPUB t\n" + sized(b"\0\0\0\1" + sized(MESSAGE))[:-1], "E_BAD_BODY HMPUB failed to read body"),
    ],
)
def test_a_bad_publish_gets_an_error_that_names_what_was_wrong(data: bytes, error: str, piece: int) -> None:
    commands, output = found(AGREED + data, piece)
    assert (commands, output[8:].decode()) == ([], error)


def test_a_batch_has_a_largest_number_of_messages() -> None:
    """A larger one would delay all other clients. The count is checked before any message."""
    most = header_commands.hmpub("t", [(b"{}", b"x")] * MAX_MESSAGES)
    limits = session_limits(BrokerSettings(max_body_size=len(most) + 100))
    for more in (0, 1):
        session = Session(limits, scratch=bytearray(64 * 1024), scanner=kernel)
        session.feed(AGREED + header_commands.hmpub("t", [(b"{}", b"x")] * (MAX_MESSAGES + more)))
        assert isinstance(session.next_command(), IdentifyCommand)
        command = session.next_command()
        if more:
            assert command is None
            assert b"E_BAD_BODY HMPUB of 10001 messages, more than 10000" in session.take_output()
        else:
            assert isinstance(command, HeaderMpub)
            assert len(command.messages) == MAX_MESSAGES


def test_a_batch_with_more_messages_than_it_says_is_refused() -> None:
    """Nothing of it is published."""
    one = struct.pack(">i", 2) + b"{}x"
    body = struct.pack(">i", 1) + sized(one) * 2
    commands, output = found(AGREED + b"HMPUB t\n" + sized(body), 10_000)
    assert commands == []
    assert b"E_BAD_BODY HMPUB invalid message count 1" in output
