"""A leader and a follower without sockets and files: what tests of their rules send to them and take from them."""

from __future__ import annotations

from collections import defaultdict

from brokerd.mirror.actions import Action, Write, encode_actions
from brokerd.mirror.frames import Frame, FrameReader, Kind
from brokerd.mirror.hello import Hello, Welcome
from brokerd.mirror.leader import Leader, Send
from brokerd.mirror.manifest import Copy, File
from brokerd.mirror.pair import PairRecord

RECORD = PairRecord(pair="p", node_id=7, epoch=3, leader="a", in_sync={"a": "boot-a"})
BOTH = RECORD.with_in_sync({"a": "boot-a", "b": "boot-b"})
LOG, INDEX, HEADERS = (f"topics/t.0/00000000000000000000.{suffix}" for suffix in ("log", "idx", "hdr"))
PATIENCE = 1.0


class Files:
    """A follower's files in memory."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.applied: list[Action] = []
        self.contents: dict[str, bytearray] = defaultdict(lambda: bytearray(1024))

    def begin(self, epoch: int, welcome: Welcome) -> None:
        self.begun.append(epoch)

    def apply(self, action: Action) -> None:
        self.applied.append(action)
        if isinstance(action, Write):
            self.contents[action.path][action.offset : action.offset + len(action.data)] = action.data

    def read(self, path: str, start: int, end: int) -> bytes:
        return bytes(self.contents[path][start:end])


def encoded(actions: list[Action]) -> bytes:
    return b"".join(encode_actions(actions))


def hello(member: str = "b", **fields: object) -> Hello:
    known: dict[str, object] = {"pair": "p", "boot": "boot-b", "has_data": True, **fields}
    return Hello(member=member, **known)  # type: ignore[arg-type]


def leader(record: PairRecord = RECORD, **more: float) -> Leader:
    return Leader("a", record, lambda path, start, end: bytes(end - start), patience=PATIENCE, **more)  # type: ignore[arg-type]


def frames(subject: Leader, link: int = 1) -> list[Frame]:
    """What was sent over a link, of the effects so far; the other effects stay."""
    reader, found, rest = FrameReader(), list[Frame](), []
    for effect in subject.effects:
        if isinstance(effect, Send) and effect.link == link:
            found += reader.feed(b"".join(effect.parts))
        else:
            rest.append(effect)
    subject.effects = rest
    return found


def taken(subject: Leader) -> list[object]:
    """The effects so far that send nothing."""
    effects = [effect for effect in subject.effects if not isinstance(effect, Send)]
    subject.effects = []
    return effects


def greet(subject: Leader, link: int = 1, epoch: int = 0, now: float = 0.0, **fields: object) -> None:
    subject.connected(link, now)
    subject.received(link, Frame(Kind.HELLO, epoch, 0, hello(**fields).to_bytes()).to_bytes(), now)  # type: ignore[arg-type]


def join(subject: Leader, link: int = 1, copies: list[Copy] | None = None, **fields: object) -> None:
    """Join a follower up to the end of its copy, which is sent and not applied."""
    greet(subject, link, **fields)  # type: ignore[arg-type]
    subject.cut_taken(link, [File(LOG, 1024, 100)])
    subject.received(link, Frame(Kind.SUMS_END, 3, 0).to_bytes(), 0.0)
    subject.compared(link, copies or [])


def acknowledge(subject: Leader, number: int, link: int = 1, now: float = 0.0) -> None:
    subject.received(link, Frame(Kind.ACK, 3, number).to_bytes(), now)
