"""Every command of the V2 protocol and every refusal: bytes in, frames out, then again one byte at a time.

Source of the texts and of the order of the checks: nsqd's protocol_v2.go, seen on the wire.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from bench.server import Server, start_brokerd

RESPONSE, ERROR, MESSAGE = 0, 1, 2
ID = b"0123456789abcdef"
NEXT_TOPIC = count()

Connect = Callable[..., Any]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def i32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def ok(data: bytes = b"OK") -> tuple[int, bytes]:
    return RESPONSE, data


def error(text: bytes) -> tuple[int, bytes]:
    return ERROR, text


@dataclass(frozen=True)
class Case:
    """``T`` alone in ``sent`` and ``frames`` stands for the name of a topic of the test's own."""

    name: str
    sent: bytes
    frames: tuple[tuple[int, bytes], ...]
    closes: bool = False
    """The broker closes after the frames."""
    then_eof: bool = False
    """The client shuts its side down after ``sent``."""
    state: str = "init"


def refused(name: str, sent: bytes, text: bytes, *, state: str = "init", then_eof: bool = False) -> Case:
    return Case(name, sent, (error(text),), closes=True, then_eof=then_eof, state=state)


def answered(name: str, sent: bytes, *frames: tuple[int, bytes], state: str = "init") -> Case:
    return Case(name, sent, frames, state=state)


def silently_closed(name: str, sent: bytes, *, then_eof: bool = True) -> Case:
    return Case(name, sent, (), closes=True, then_eof=then_eof)


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


def identify_refused(name: str, json: bytes, what: bytes) -> Case:
    return refused(name, b"IDENTIFY\n" + sized(json), b"E_BAD_BODY IDENTIFY " + what)


NOT_JSON = b"failed to decode JSON body"
IDENTIFY = [
    answered("IDENTIFY with nothing", b"IDENTIFY\n" + sized(b"{}"), ok()),
    answered("IDENTIFY null", b"IDENTIFY\n" + sized(b"null"), ok()),
    answered("IDENTIFY twice", (b"IDENTIFY\n" + sized(b"{}")) * 2, ok(), ok()),
    answered("unknown keys are ignored", b"IDENTIFY\n" + sized(b'{"short_id":"x","n":[1,{}]}'), ok()),
    answered("null is absent", b"IDENTIFY\n" + sized(b'{"heartbeat_interval":null,"client_id":null}'), ok()),
    answered(
        "the lowest values",
        b"IDENTIFY\n"
        + sized(
            b'{"heartbeat_interval":1000,"output_buffer_timeout":25,"output_buffer_size":64,'
            b'"sample_rate":0,"msg_timeout":1000}'
        ),
        ok(),
    ),
    answered(
        "the highest values",
        b"IDENTIFY\n"
        + sized(
            b'{"heartbeat_interval":60000,"output_buffer_timeout":30000,"output_buffer_size":65536,'
            b'"sample_rate":99,"msg_timeout":900000}'
        ),
        ok(),
    ),
    answered(
        "everything switched off", b"IDENTIFY\n" + sized(b'{"heartbeat_interval":-1,"output_buffer_size":-1}'), ok()
    ),
    refused("IDENTIFY after SUB", b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY in current state", state="subscribed"),
    refused("IDENTIFY in closing", b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY in current state", state="closing"),
    refused(
        "IDENTIFY without a length",
        b"IDENTIFY\n\x00\x00",
        b"E_BAD_BODY IDENTIFY failed to read body size",
        then_eof=True,
    ),
    refused("IDENTIFY too long", b"IDENTIFY\n" + i32(5242881), b"E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"),
    refused("IDENTIFY of length 0", b"IDENTIFY\n" + i32(0), b"E_BAD_BODY IDENTIFY invalid body size 0"),
    refused("IDENTIFY of length -1", b"IDENTIFY\n" + i32(-1), b"E_BAD_BODY IDENTIFY invalid body size -1"),
    refused(
        "IDENTIFY cut off", b"IDENTIFY\n" + i32(9) + b"{", b"E_BAD_BODY IDENTIFY failed to read body", then_eof=True
    ),
    identify_refused("half an object", b"{", NOT_JSON),
    identify_refused("an array", b"[]", NOT_JSON),
    identify_refused("a string", b'"x"', NOT_JSON),
    identify_refused("data behind the object", b"{} {}", NOT_JSON),
    identify_refused("a number for a name", b'{"client_id":1}', NOT_JSON),
    identify_refused("a string for a number", b'{"heartbeat_interval":"1000"}', NOT_JSON),
    identify_refused("a fraction", b'{"heartbeat_interval":1000.5}', NOT_JSON),
    identify_refused("an exponent", b'{"heartbeat_interval":1e4}', NOT_JSON),
    identify_refused("a number for a flag", b'{"feature_negotiation":1}', NOT_JSON),
    identify_refused("a sample rate beyond 32 bits", b'{"sample_rate":4294967296}', NOT_JSON),
    identify_refused("bytes that are no JSON", b"\xff\x00\xfe", NOT_JSON),
    identify_refused("heartbeat 999", b'{"heartbeat_interval":999}', b"heartbeat interval (999) is invalid"),
    identify_refused("heartbeat 60001", b'{"heartbeat_interval":60001}', b"heartbeat interval (60001) is invalid"),
    identify_refused("heartbeat -2", b'{"heartbeat_interval":-2}', b"heartbeat interval (-2) is invalid"),
    identify_refused("keys in any case", b'{"Heartbeat_Interval":5}', b"heartbeat interval (5) is invalid"),
    identify_refused("flush after 24 ms", b'{"output_buffer_timeout":24}', b"output buffer timeout (24) is invalid"),
    identify_refused(
        "flush after 30001", b'{"output_buffer_timeout":30001}', b"output buffer timeout (30001) is invalid"
    ),
    identify_refused("flush after -2", b'{"output_buffer_timeout":-2}', b"output buffer timeout (-2) is invalid"),
    identify_refused("a buffer of 63", b'{"output_buffer_size":63}', b"output buffer size (63) is invalid"),
    identify_refused("a buffer of 65537", b'{"output_buffer_size":65537}', b"output buffer size (65537) is invalid"),
    identify_refused("a buffer of -2", b'{"output_buffer_size":-2}', b"output buffer size (-2) is invalid"),
    identify_refused("sampling 100", b'{"sample_rate":100}', b"sample rate (100) is invalid"),
    identify_refused("sampling -1", b'{"sample_rate":-1}', b"sample rate (-1) is invalid"),
    identify_refused("msg_timeout 999", b'{"msg_timeout":999}', b"msg timeout (999) is invalid"),
    identify_refused("msg_timeout 900001", b'{"msg_timeout":900001}', b"msg timeout (900001) is invalid"),
    identify_refused("msg_timeout -1", b'{"msg_timeout":-1}', b"msg timeout (-1) is invalid"),
    identify_refused(
        "all wrong: the heartbeat is named first",
        b'{"msg_timeout":1,"sample_rate":100,"output_buffer_size":1,"output_buffer_timeout":1,"heartbeat_interval":1}',
        b"heartbeat interval (1) is invalid",
    ),
    identify_refused(
        "then the flush time",
        b'{"msg_timeout":1,"sample_rate":100,"output_buffer_size":1,"output_buffer_timeout":1}',
        b"output buffer timeout (1) is invalid",
    ),
    identify_refused(
        "then the buffer",
        b'{"msg_timeout":1,"sample_rate":100,"output_buffer_size":1}',
        b"output buffer size (1) is invalid",
    ),
    identify_refused("then the sampling", b'{"msg_timeout":1,"sample_rate":100}', b"sample rate (100) is invalid"),
]

AUTH = [
    refused("AUTH after SUB", b"AUTH\n", b"E_INVALID cannot AUTH in current state", state="subscribed"),
    refused("AUTH takes no parameter", b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
    refused("AUTH without a length", b"AUTH\n\x00", b"E_BAD_BODY AUTH failed to read body size", then_eof=True),
    refused("AUTH too long", b"AUTH\n" + i32(5242881), b"E_BAD_BODY AUTH body too big 5242881 > 5242880"),
    refused("AUTH of length 0", b"AUTH\n" + i32(0), b"E_BAD_BODY AUTH invalid body size 0"),
    refused("AUTH cut off", b"AUTH\n" + i32(9) + b"x", b"E_BAD_BODY AUTH failed to read body", then_eof=True),
    refused("AUTH without an auth server", b"AUTH\n" + sized(b"secret"), b"E_AUTH_DISABLED AUTH disabled"),
]

SUB = [
    answered("SUB", b"SUB T c\n", ok()),
    answered("SUB to an ephemeral channel", b"SUB T c#ephemeral\n", ok()),
    refused("SUB twice", b"SUB T d\n", b"E_INVALID cannot SUB in current state", state="subscribed"),
    refused("SUB after CLS", b"SUB T d\n", b"E_INVALID cannot SUB in current state", state="closing"),
    Case(
        "SUB without heartbeats",
        b"IDENTIFY\n" + sized(b'{"heartbeat_interval":-1}') + b"SUB\n",
        (ok(), error(b"E_INVALID cannot SUB with heartbeats disabled")),
        closes=True,
    ),
    refused("SUB without a channel", b"SUB T\n", b"E_INVALID SUB insufficient number of parameters"),
    refused("SUB without anything", b"SUB\n", b"E_INVALID SUB insufficient number of parameters"),
    refused(
        "a bad topic is named before a bad channel", b"SUB t* c*\n", b'E_BAD_TOPIC SUB topic name "t*" is not valid'
    ),
    refused("a bad channel", b"SUB T c*\n", b'E_BAD_CHANNEL SUB channel name "c*" is not valid'),
    refused("an empty channel", b"SUB T \n", b'E_BAD_CHANNEL SUB channel name "" is not valid'),
]

RDY = [
    answered("RDY", b"RDY 1\nRDY 2500\nRDY 0\nRDY\nRDY \nPUB T\n" + sized(b"x"), ok(), state="subscribed"),
    answered("RDY wraps at 2^64", b"RDY 18446744073709551616\nPUB T\n" + sized(b"x"), ok(), state="subscribed"),
    answered("RDY is ignored in closing", b"RDY 1\nRDY x\nPUB T\n" + sized(b"x"), ok(), state="closing"),
    refused("RDY before SUB", b"RDY 1\n", b"E_INVALID cannot RDY in current state"),
    refused("RDY x", b"RDY x\n", b"E_INVALID RDY could not parse count x", state="subscribed"),
    refused("RDY -1", b"RDY -1\n", b"E_INVALID RDY could not parse count -1", state="subscribed"),
    refused("RDY +1", b"RDY +1\n", b"E_INVALID RDY could not parse count +1", state="subscribed"),
    refused("RDY 2501", b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500", state="subscribed"),
    refused(
        "RDY 2^64 - 1 is -1",
        b"RDY 18446744073709551615\n",
        b"E_INVALID RDY count -1 out of range 0-2500",
        state="subscribed",
    ),
]

ANSWERS = [
    refused("FIN before SUB", b"FIN\n", b"E_INVALID cannot FIN in current state"),
    refused("FIN without an id", b"FIN\n", b"E_INVALID FIN insufficient number of params", state="subscribed"),
    refused("FIN of 15 bytes", b"FIN " + ID[1:] + b"\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("FIN of 17 bytes", b"FIN " + ID + b"0\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("FIN of nothing", b"FIN \n", b"E_INVALID invalid message ID", state="closing"),
    refused("REQ before SUB", b"REQ\n", b"E_INVALID cannot REQ in current state"),
    refused(
        "REQ without a delay", b"REQ " + ID + b"\n", b"E_INVALID REQ insufficient number of params", state="subscribed"
    ),
    refused("REQ of a short id", b"REQ abc x\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("REQ with delay x", b"REQ " + ID + b" x\n", b"E_INVALID REQ could not parse timeout x", state="subscribed"),
    refused(
        "REQ with delay -1", b"REQ " + ID + b" -1\n", b"E_INVALID REQ could not parse timeout -1", state="subscribed"
    ),
    refused("TOUCH before SUB", b"TOUCH\n", b"E_INVALID cannot TOUCH in current state"),
    refused("TOUCH without an id", b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params", state="subscribed"),
    refused("TOUCH of a short id", b"TOUCH abc\n", b"E_INVALID invalid message ID", state="subscribed"),
    *(
        answered(
            f"unknown messages, {state}",
            b"FIN %b\nREQ %b 0\nTOUCH %b\nFIN zzzzzzzzzzzzzzzz\n" % (ID, ID, ID),
            error(b"E_FIN_FAILED FIN %b failed ID not in flight" % ID),
            error(b"E_REQ_FAILED REQ %b failed ID not in flight" % ID),
            error(b"E_TOUCH_FAILED TOUCH %b failed ID not in flight" % ID),
            error(b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz failed ID not in flight"),
            state=state,
        )
        for state in ("subscribed", "closing")
    ),
    answered("CLS", b"CLS\n", ok(b"CLOSE_WAIT"), state="subscribed"),
    refused("CLS before SUB", b"CLS\n", b"E_INVALID cannot CLS in current state"),
    refused("CLS twice", b"CLS\n", b"E_INVALID cannot CLS in current state", state="closing"),
]


def publishing(command: bytes, parameters: bytes) -> list[Case]:
    """PUB and DPUB read their message alike."""
    line = b"%b T%b\n" % (command, parameters)
    bad = b"E_BAD_MESSAGE %b " % command
    name = command.decode()
    return [
        answered(name, line + sized(b"x") + line + sized(bytes(range(256))), ok(), ok()),
        answered(f"{name} while subscribed", line + sized(b"x"), ok(), state="subscribed"),
        answered(f"{name} in closing", line + sized(b"x"), ok(), state="closing"),
        answered(f"{name} of the largest message", line + sized(bytes(1048576)), ok()),
        refused(
            f"{name} without a length", line + b"\x00\x00\x00", bad + b"failed to read message body size", then_eof=True
        ),
        refused(f"{name} of length 0", line + i32(0), bad + b"invalid message body size 0"),
        refused(f"{name} of length -1", line + i32(-1), bad + b"invalid message body size -1"),
        refused(f"{name} too long", line + i32(1048577), bad + b"message too big 1048577 > 1048576"),
        refused(f"{name} cut off", line + i32(5) + b"four", bad + b"failed to read message body", then_eof=True),
    ]


PUB = [
    *publishing(b"PUB", b""),
    refused("PUB without a topic", b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
]

DPUB = [
    *publishing(b"DPUB", b" 1000"),
    answered("DPUB with an empty delay means none", b"DPUB T \n" + sized(b"x"), ok()),
    answered("DPUB up to an hour", b"DPUB T 3600000\n" + sized(b"x"), ok()),
    refused("DPUB without a topic", b"DPUB\n", b"E_INVALID DPUB insufficient number of parameters"),
    refused("DPUB without a delay", b"DPUB T\n", b"E_INVALID DPUB insufficient number of parameters"),
    refused("DPUB names a bad topic first", b"DPUB t* x\n", b'E_BAD_TOPIC DPUB topic name "t*" is not valid'),
    refused("DPUB with delay x", b"DPUB T x\n", b"E_INVALID DPUB could not parse timeout x"),
    refused("DPUB with delay -1", b"DPUB T -1\n", b"E_INVALID DPUB could not parse timeout -1"),
    refused("DPUB beyond an hour", b"DPUB T 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    refused(
        "DPUB shows its delay unsigned",
        b"DPUB T 18446744073709551615\n",
        b"E_INVALID DPUB timeout 18446744073709551615 out of range 0-3600000",
    ),
]


def mpub(data: bytes, length: int | None = None) -> bytes:
    return b"MPUB T\n" + i32(len(data) if length is None else length) + data


MPUB = [
    answered("MPUB", mpub(i32(2) + sized(b"x") + sized(b"yy")), ok()),
    answered("MPUB while subscribed", mpub(i32(1) + sized(b"x")), ok(), state="subscribed"),
    answered("MPUB of the largest message", mpub(i32(1) + sized(bytes(1048576))), ok()),
    answered("the outer length is not what ends an MPUB", mpub(i32(1) + sized(b"xyz"), length=1), ok()),
    answered("what follows the last message is a command", mpub(i32(1) + sized(b"x") + b"NOP\n"), ok()),
    refused("MPUB without a topic", b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
    refused("MPUB names the code twice", b"MPUB t*\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t*" is not valid'),
    refused("MPUB without a length", b"MPUB T\n\x00", b"E_BAD_BODY MPUB failed to read body size", then_eof=True),
    refused("MPUB of length 0", mpub(b""), b"E_BAD_BODY MPUB invalid body size 0"),
    refused("MPUB of length -1", mpub(b"", -1), b"E_BAD_BODY MPUB invalid body size -1"),
    refused("MPUB too long", mpub(b"", 5242881), b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    refused("MPUB without a count", mpub(b"\x00", 99), b"E_BAD_BODY MPUB failed to read message count", then_eof=True),
    refused("MPUB of 0 messages", mpub(i32(0)), b"E_BAD_BODY MPUB invalid message count 0"),
    refused("MPUB of -1 messages", mpub(i32(-1)), b"E_BAD_BODY MPUB invalid message count -1"),
    refused("MPUB of too many", mpub(i32(1048576), 99), b"E_BAD_BODY MPUB invalid message count 1048576"),
    refused(
        "MPUB without the first size",
        mpub(i32(1), 99),
        b"E_BAD_MESSAGE MPUB failed to read message(0) body size",
        then_eof=True,
    ),
    refused(
        "MPUB without the second size",
        mpub(i32(2) + sized(b"x") + b"\x00", 99),
        b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        then_eof=True,
    ),
    refused("MPUB of size 0", mpub(i32(1, 0)), b"E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
    refused(
        "MPUB of size -1 behind a good one",
        mpub(i32(2) + sized(b"x") + i32(-1)),
        b"E_BAD_MESSAGE MPUB invalid message(1) body size -1",
    ),
    refused("MPUB of a long message", mpub(i32(1, 1048577)), b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
    refused(
        "MPUB cut off", mpub(i32(1, 5) + b"four", 99), b"E_BAD_MESSAGE MPUB failed to read message body", then_eof=True
    ),
]

CASES = [*LINES, *NAMES, *IDENTIFY, *AUTH, *SUB, *RDY, *ANSWERS, *PUB, *DPUB, *MPUB]
STATES = {
    "init": (b"", []),
    "subscribed": (b"SUB T-sub c\n", [ok()]),
    "closing": (b"SUB T-sub c\nCLS\n", [ok(), ok(b"CLOSE_WAIT")]),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One broker for the whole list: what one case does must not disturb the next."""
    server = start_brokerd(tmp_path_factory.mktemp("commands"))
    yield server
    server.stop()


def whole(peer: Any, data: bytes) -> None:
    peer.send(data)


def one_byte_at_a_time(peer: Any, data: bytes) -> None:
    for at in range(len(data)):
        peer.socket.send(data[at : at + 1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("send", [whole, one_byte_at_a_time])
def test_a_command_is_answered_as_nsqd_answers_it(
    case: Case, send: Callable[[Any, bytes], None], shared: Server, connect: Connect
) -> None:
    """The frames, their order, and whether the connection stays; however the bytes are cut up on the way."""
    if len(case.sent) > 100_000 and send is one_byte_at_a_time:
        cut = len(case.sent) - 1000  # a megabyte byte by byte shows nothing that its ends do not
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
    # A refused client may find the connection gone before its last byte is out.
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


@pytest.mark.parametrize("magic", [b"  V1", b"  V3", b"GET ", b"\x00\x00\x00\x00"])
def test_a_client_of_another_protocol_is_told(magic: bytes, shared: Server, connect: Connect) -> None:
    """Anything but the V2 magic is answered with E_BAD_PROTOCOL and the connection closed."""
    peer = connect(shared.tcp, magic=magic)
    assert peer.frame() == error(b"E_BAD_PROTOCOL")
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.frame()


def test_a_client_that_leaves_before_the_magic_is_let_go(shared: Server, connect: Connect) -> None:
    """Fewer than four bytes and an end: no frame, and the broker goes on."""
    peer = connect(shared.tcp, magic=b"  V")
    peer.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        peer.frame()
    connect(shared.tcp).ok(b"PUB after-no-magic\n" + sized(b"x"))


def test_the_magic_may_come_in_pieces(shared: Server, connect: Connect) -> None:
    """The four bytes, one by one, and a command behind them."""
    peer = connect(shared.tcp, magic=b" ")
    one_byte_at_a_time(peer, b" V2PUB pieces\n" + sized(b"x"))
    assert peer.frame() == ok()


def test_commands_may_be_pipelined(shared: Server, connect: Connect) -> None:
    """A thousand publishes in one write get a thousand answers."""
    peer = connect(shared.tcp)
    peer.send((b"PUB pipelined\n" + sized(b"x")) * 1000)
    assert [peer.frame() for _ in range(1000)] == [ok()] * 1000


def test_a_channel_takes_no_more_consumers_than_allowed(start_broker: Callable[..., Any], connect: Connect) -> None:
    """--max-channel-consumers=1: the second is refused until the first has left."""
    broker = start_broker("--max-channel-consumers=1")
    first = connect(broker)
    first.ok(b"SUB t c\n")
    second = connect(broker)
    assert second.command(b"SUB t c\n") == error(b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1")
    assert second.is_closed()
    connect(broker).ok(b"SUB t other\n")
