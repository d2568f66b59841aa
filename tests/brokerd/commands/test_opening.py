"""IDENTIFY, AUTH and SUB: bytes in, frames out, then again one byte at a time.

Source of the texts and of the order of the checks: nsqd's protocol_v2.go, seen on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.brokerd.commands.cases import Case, answered, error, i32, ok, refused, sized

Connect = Callable[..., Any]


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


@pytest.mark.parametrize("case", [*IDENTIFY, *AUTH, *SUB], ids=lambda case: case.name)
def test_a_command_is_answered_as_nsqd_answers_it(case: Case, converse: Callable[[Case], None]) -> None:
    """The frames, their order, and whether the connection stays open, however the bytes are split."""
    converse(case)


def test_a_channel_accepts_no_more_consumers_than_allowed(start_broker: Callable[..., Any], connect: Connect) -> None:
    """With --max-channel-consumers=1, the second consumer is refused until the first has left."""
    broker = start_broker("--max-channel-consumers=1")
    first = connect(broker)
    first.ok(b"SUB t c\n")
    second = connect(broker)
    assert second.command(b"SUB t c\n") == error(b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1")
    assert second.is_closed()
    connect(broker).ok(b"SUB t other\n")
