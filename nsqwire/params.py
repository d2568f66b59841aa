"""Reads the parameters of a command line as nsqd does."""

from __future__ import annotations

from nsqwire.errors import Invalid


def raw(param: bytes) -> str:
    """Decode a parameter for the text of an error. Encoding the text with ``surrogateescape`` restores its bytes."""
    return param.decode("utf-8", "surrogateescape")


def decimal(param: bytes, refusal: str) -> int:
    """Read ASCII digits modulo 2^64 as a signed number, as nsqd does; empty is 0. Raises Invalid with ``refusal``."""
    if not param:
        return 0
    if not (param.isdigit() and param.isascii()):
        raise Invalid(refusal)
    value = 0
    for at in range(0, len(param), 18):
        digits = param[at : at + 18]
        value = (value * 10 ** len(digits) + int(digits)) % 2**64
    return value - 2**64 if value >= 2**63 else value
