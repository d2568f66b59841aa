"""PUB, DPUB and MPUB: bytes in, frames out, then again one byte at a time.

Source of the texts and of the order of the checks: nsqd's protocol_v2.go, seen on the wire.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.brokerd.commands.cases import Case, answered, i32, ok, refused, sized


def publishing(command: bytes, parameters: bytes) -> list[Case]:
    """PUB and DPUB read their message in the same way."""
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


@pytest.mark.parametrize("case", [*PUB, *DPUB, *MPUB], ids=lambda case: case.name)
def test_a_command_is_answered_as_nsqd_answers_it(case: Case, converse: Callable[[Case], None]) -> None:
    """The frames, their order, and whether the connection stays open, however the bytes are split."""
    converse(case)
