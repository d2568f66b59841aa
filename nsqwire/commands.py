"""The commands that a broker receives, as values. A Session parses a client's bytes into them.

Views of memory (``body``, ``commands``, ``messages``, ``lines``) are valid until the next read, which overwrites them.
The sizes and counts in them are already checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nsqwire.identify import Identify

MAX_DPUB_LINE = 128
"""Upper bound on the length of a command line in a DpubRun."""


@dataclass(slots=True, eq=False, repr=False)
class IdentifyCommand:
    """IDENTIFY. The session's ``terms`` already include the requested settings."""

    asked: Identify


@dataclass(slots=True, eq=False, repr=False)
class Auth:
    """AUTH."""

    secret: bytes


@dataclass(slots=True, eq=False, repr=False)
class Sub:
    """SUB."""

    topic: str
    channel: str


@dataclass(slots=True, eq=False, repr=False)
class Pub:
    """PUB, or DPUB if ``defer_ms`` is not None."""

    topic: str
    body: memoryview
    defer_ms: int | None


@dataclass(slots=True, eq=False, repr=False)
class PubRun:
    """``count`` consecutive PUB commands to one topic, with the same command line of ``line_bytes`` bytes.

    ``commands`` has their bytes, ``line | size i32 | body`` for each.
    """

    topic: str
    commands: memoryview
    count: int
    line_bytes: int

    def bodies(self) -> Iterator[memoryview]:
        """Yield the body of each message."""
        at = 0
        for _ in range(self.count):
            start = at + self.line_bytes + 4
            at = start + int.from_bytes(self.commands[start - 4 : start])
            yield self.commands[start:at]


@dataclass(slots=True, eq=False, repr=False)
class DpubRun:
    """``count`` consecutive DPUB commands to one topic, each with its own delay, which is not 0.

    ``commands`` has their bytes, ``DPUB <topic> <ms>\\n | size i32 | body`` for each. ``body_bytes`` is the size of all
    bodies together.
    """

    topic: str
    commands: memoryview
    count: int
    body_bytes: int

    def each(self) -> Iterator[Pub]:
        """Yield the commands one by one."""
        at = 0
        for _ in range(self.count):
            line = bytes(self.commands[at : at + MAX_DPUB_LINE]).partition(b"\n")[0]
            start = at + len(line) + 5
            at = start + int.from_bytes(self.commands[start - 4 : start])
            yield Pub(self.topic, self.commands[start:at], int(line[line.rindex(b" ") :]))


@dataclass(slots=True, eq=False, repr=False)
class MpubRun:
    """``count`` consecutive MPUB commands to one topic, with the same command line of ``line_bytes`` bytes.

    ``commands`` has their bytes, ``line | body size i32 | count i32 | count × (size i32 | body)`` for each.
    ``messages`` is the number of messages in all of them.
    """

    topic: str
    commands: memoryview
    count: int
    messages: int
    line_bytes: int

    def each(self) -> Iterator[Mpub]:
        """Yield the commands one by one."""
        at = 0
        for _ in range(self.count):
            start = at = at + self.line_bytes + 8
            count = int.from_bytes(self.commands[start - 4 : start])
            for _ in range(count):
                at += 4 + int.from_bytes(self.commands[at : at + 4])
            yield Mpub(self.topic, self.commands[start:at], count)


@dataclass(slots=True, eq=False, repr=False)
class Authorize:
    """The command line of an MPUB or HMPUB, before its body is read. Only with an auth server, which has to permit it.

    ``verb`` is the command's name.
    """

    topic: str
    verb: str


@dataclass(slots=True, eq=False, repr=False)
class Mpub:
    """MPUB. ``messages`` has ``count`` × (``size i32 | body``)."""

    topic: str
    messages: memoryview
    count: int


@dataclass(slots=True, eq=False, repr=False)
class HeaderPub:
    """HPUB, or HDPUB if ``defer_ms`` is not None. ``headers`` are checked, and empty if the block has none."""

    topic: str
    headers: dict[str, str]
    body: memoryview
    defer_ms: int | None


@dataclass(slots=True, eq=False, repr=False)
class HeaderMpub:
    """HMPUB: the checked headers of each message, and its body."""

    topic: str
    messages: list[tuple[dict[str, str], memoryview]]


@dataclass(slots=True, eq=False, repr=False)
class Rdy:
    """RDY."""

    count: int


@dataclass(slots=True, eq=False, repr=False)
class Fin:
    """``count`` consecutive FIN commands. ``lines`` has their lines, of 21 bytes each."""

    lines: memoryview
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Req:
    """``count`` consecutive REQ commands with the same delay, which is not limited to the maximum yet.

    ``lines`` has lines of equal length, which begin with ``REQ <id>``.
    """

    lines: memoryview
    count: int
    delay_ms: int

    @property
    def message_id(self) -> bytes:
        """The first message's id."""
        return bytes(self.lines[4:20])


@dataclass(slots=True, eq=False, repr=False)
class Touch:
    """``count`` consecutive TOUCH commands. ``lines`` has their lines, of 23 bytes each."""

    lines: memoryview
    count: int

    @property
    def message_id(self) -> bytes:
        """The first message's id."""
        return bytes(self.lines[6:22])


@dataclass(slots=True, eq=False, repr=False)
class Cls:
    """CLS."""


Command = (
    IdentifyCommand
    | Auth
    | Sub
    | Pub
    | PubRun
    | DpubRun
    | Authorize
    | Mpub
    | MpubRun
    | HeaderPub
    | HeaderMpub
    | Rdy
    | Fin
    | Req
    | Touch
    | Cls
)
