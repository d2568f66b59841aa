"""RDY, FIN, REQ, TOUCH and CLS: bytes in, frames out, then again one byte at a time.

Source of the texts and of the order of the checks: nsqd's protocol_v2.go, seen on the wire.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.brokerd.commands.cases import ID, Case, answered, error, ok, refused, sized

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
    refused("FIN of words", b"FIN 01234567 9abcdef\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("FIN of 15 bytes, CR LF", b"FIN " + ID[1:] + b"\r\n", b"E_INVALID invalid message ID", state="subscribed"),
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
    refused("REQ of words", b"REQ 01234567 9abcdef 0\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("TOUCH of words", b"TOUCH 01234567 9abcdef\n", b"E_INVALID invalid message ID", state="subscribed"),
    refused("TOUCH of 15 bytes", b"TOUCH " + ID[1:] + b"\r\n", b"E_INVALID invalid message ID", state="subscribed"),
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


@pytest.mark.parametrize("case", [*RDY, *ANSWERS], ids=lambda case: case.name)
def test_a_command_is_answered_as_nsqd_answers_it(case: Case, converse: Callable[[Case], None]) -> None:
    """The frames, their order, and whether the connection stays open, however the bytes are split."""
    converse(case)
