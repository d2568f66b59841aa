"""Maps system errors, such as a full disk or too many open files, to the error frame of each command."""

from __future__ import annotations

from collections.abc import Mapping

from nsqwire.commands import (
    Auth,
    Authorize,
    Cls,
    Command,
    DpubRun,
    Fin,
    IdentifyCommand,
    Mpub,
    MpubRun,
    Pub,
    PubRun,
    Rdy,
    Req,
    Sub,
    Touch,
)
from nsqwire.errors import (
    AuthFailed,
    DpubFailed,
    FinFailed,
    IdentifyFailed,
    Invalid,
    MpubFailed,
    NSQError,
    PubFailed,
    ReqFailed,
    SubFailed,
    TouchFailed,
)

_FAILURES: Mapping[type[Command], tuple[type[NSQError], str]] = {
    IdentifyCommand: (IdentifyFailed, "IDENTIFY"),
    Auth: (AuthFailed, "AUTH"),
    Authorize: (MpubFailed, "MPUB"),
    Sub: (SubFailed, "SUB"),
    Pub: (PubFailed, "PUB"),
    PubRun: (PubFailed, "PUB"),
    DpubRun: (DpubFailed, "DPUB"),
    Mpub: (MpubFailed, "MPUB"),
    MpubRun: (MpubFailed, "MPUB"),
    Rdy: (Invalid, "RDY"),
    Fin: (FinFailed, "FIN"),
    Req: (ReqFailed, "REQ"),
    Touch: (TouchFailed, "TOUCH"),
    Cls: (Invalid, "CLS"),
}


def failure(command: Command, error: OSError) -> NSQError:
    """The error with which ``command`` is answered."""
    kind, verb = _FAILURES[type(command)]
    if isinstance(command, Pub) and command.defer_ms is not None:
        kind, verb = DpubFailed, "DPUB"
    subject = f" {command.message_id.decode('latin-1')}" if isinstance(command, Req | Touch) else ""
    return kind(f"{verb}{subject} failed {error}")
