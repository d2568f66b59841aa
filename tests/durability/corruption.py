"""Random damage to a data folder, and a record of the messages that its broker had to deliver."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from brokerd.client import Client
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node

PAGE = 4096
TOPICS = ("orders", "mail", "backlog")
CHANNELS = {"orders": ("a", "b"), "mail": ("a",), "backlog": ()}
AFTER = "after"
"""The channel that takes what waits in a topic without channels."""


@dataclass
class Account:
    """The messages published to one topic, and those that its channels have not finished. Messages differ in their
    bodies."""

    published: set[bytes] = field(default_factory=set)
    unfinished: dict[str, set[bytes]] = field(default_factory=dict)
    ids: set[bytes] = field(default_factory=set)
    """Ids that any client was given."""
    blocks: dict[bytes, bytes] = field(default_factory=dict)
    """The header blocks of the messages that have headers, by body."""
    shown: set[bytes] = field(default_factory=set)
    """Bodies that any client was given, and those known at the last start."""


class Ledger:
    """A node, and the messages published to and received from it."""

    def __init__(self, data_path: Path, chance: Random) -> None:
        self.node = Node(data_path)
        self.data_path = data_path
        self.chance = chance
        self.accounts = {name: Account() for name in TOPICS}
        self._count = 0

    def write(self) -> None:
        """Publish and consume with all commands, with a checkpoint somewhere, and end by SIGKILL."""
        for name, channels in CHANNELS.items():
            for channel in channels:
                self.node.broker.topic(name).channel(channel)
                self.accounts[name].unfinished[channel] = set()
        for _ in range(self.chance.randint(2, 4)):
            for name in TOPICS:
                self._publish(name)
            for name, channels in CHANNELS.items():
                for channel in channels:
                    self._consume(name, channel)
            if self.chance.random() < 0.3:
                self.node.kill()
                self.node.open()
                for account in self.accounts.values():
                    account.shown |= account.published
            self._keep_older_copy()
        self.node.kill()

    def _keep_older_copy(self) -> None:
        """Copy the files as they are now: later, one of them may take the place of a newer one."""
        shutil.rmtree(older_copy(self.data_path), ignore_errors=True)
        shutil.copytree(self.data_path, older_copy(self.data_path))

    def _publish(self, name: str) -> None:
        topic, account = self.node.broker.topic(name), self.accounts[name]
        for _ in range(self.chance.randint(3, 12)):
            bodies = [self._body() for _ in range(self.chance.choice([1, 1, 1, 2, 7]))]
            blocks = [self._block(body) for body in bodies]
            account.blocks.update({body: block for body, block in zip(bodies, blocks, strict=True) if block})
            topic.publish_with_headers(bodies, blocks, defer_ms=self.chance.choice([0, 0, 0, 0, 0, 20_000]))
            account.published.update(bodies)
            for unfinished in account.unfinished.values():
                unfinished.update(bodies)

    def _body(self) -> bytes:
        self._count += 1
        return b"%06d " % self._count + self.chance.randbytes(self.chance.choice([1, 20, 300, 900]))

    def _block(self, body: bytes) -> bytes:
        size = self.chance.choice([None, None, 0, 20, 2000])
        return b"" if size is None else encode_headers({"of": body[:6].decode(), "x": "h" * size})

    def _consume(self, name: str, channel: str) -> None:
        got: list[Delivery] = []
        client = self.node.subscribe(name, channel, self.chance.randint(0, 25), got.append, takes_headers=True)
        self.node.pass_until(self.node.now)
        account, target = self.accounts[name], self.node.broker.topic(name).channel(channel)
        for each in list(got):
            assert each.header_block == account.blocks.get(each.body, b"")
            account.ids.add(each.message_id)
            account.shown.add(each.body)
            outcome = self.chance.random()
            if outcome < 0.5:
                self.finish(name, channel, client, [each])
                account.unfinished[channel].discard(each.body)
            elif outcome < 0.7:
                delay = self.chance.choice([0, 30.0])
                target.requeue(client, memoryview(b"REQ %b 9\n" % each.message_id), 1, delay, self.node.now)
        if self.chance.random() < 0.5:
            target.unsubscribe(client)
        client.ready_count = 0

    def finish(self, name: str, channel: str, client: Client, got: list[Delivery]) -> None:
        lines = memoryview(b"".join(b"FIN %b\n" % each.message_id for each in got))
        errors = self.node.broker.topic(name).channel(channel).finish(client, lines, len(got), self.node.wall_ns())
        assert errors == [], f"{name}/{channel}: {errors[0]}"

    def drain(self, name: str, channel: str) -> list[Delivery]:
        """Consume and finish all messages, deferred ones included."""
        got: list[Delivery] = []
        client = self.node.subscribe(name, channel, 100_000, got.append, takes_headers=True)
        done = 0
        for wait_s in (0, 25, 20, 1):  # shorter than the message timeout
            self.node.pass_until(self.node.now + wait_s)
            if fresh := got[done:]:
                self.finish(name, channel, client, fresh)
                done += len(fresh)
        target = self.node.broker.topic(name).channel(channel)
        left = (target.depth, target.in_flight_count, target.deferred_count)
        assert left == (0, 0, 0), f"{name}/{channel} holds on to {left}"
        target.unsubscribe(client)
        return got


def older_copy(data_path: Path) -> Path:
    """The folder with the files of a data path as they were in the middle of the story."""
    return data_path.with_name(f"{data_path.name}.older")


@dataclass
class Damage:
    """``state`` means damage to the journal's files. With ``hides``, no file is left that shows the loss of some
    messages."""

    what: str
    state: bool = False
    hides: bool = False
    twice: bool = False
    """Whether only frames are left of a segment's messages, and these are damaged."""
    headers: bool = False
    """Whether only files with headers were damaged."""


def damage(data_path: Path, chance: Random, *, state_files: bool) -> Damage:
    """Damage a data folder once, as a crash, a disk or a person might."""
    logs, indexes = sorted(data_path.glob("topics/*/*.log")), sorted(data_path.glob("topics/*/*.idx"))
    journals = [path for path in sorted(data_path.glob("journal.*")) if path.read_bytes().strip(b"\0")]
    kinds = [journals, journals, sorted(data_path.glob("checkpoint*"))] if state_files else [logs, indexes]
    path = chance.choice(chance.choice([kind for kind in kinds if kind]))
    way: Callable[[Path, Random], Damage]
    if state_files:
        way = chance.choice([_flip, _zero, _cut, _older, _change_places])
    else:
        ways = [_flip, _flip, _zero, _zero, _cut, _cut, _remove, _remove, _swap, _stray, _directory, _older, _older]
        way = chance.choice(ways)
    done = way(path, chance)
    done.state = state_files
    return done


def damage_headers(data_path: Path, chance: Random) -> Damage:
    """Damage a file with headers once. No message may be lost or altered."""
    path = chance.choice(sorted(data_path.glob("topics/*/*.hdr")))
    way = chance.choice([_flip, _flip, _zero, _cut, _unlink, _swap_headers, _append, _older])
    done = way(path, chance)
    done.headers = True
    return done


def _unlink(path: Path, chance: Random) -> Damage:
    path.unlink()
    return Damage(f"{path} removed")


def _append(path: Path, chance: Random) -> Damage:
    """Bytes at the end, also a copy of other entries, as a copying tool may leave them."""
    data = path.read_bytes()
    path.write_bytes(data + chance.choice([bytes(100), chance.randbytes(100), data[-200:]]))
    return Damage(f"bytes added to {path}")


def _swap_headers(path: Path, chance: Random) -> Damage:
    other = chance.choice(sorted(path.parent.parent.glob("*/*.hdr")))
    if other != path:
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
    return Damage(f"{path} and {other} swapped")


def damage_twice(data_path: Path, chance: Random) -> Damage:
    """Remove or damage the index of a segment, and damage its log."""
    log = chance.choice(sorted(data_path.glob("topics/*/*.log")))
    index, both = log.with_suffix(".idx"), Damage("", twice=True)
    if chance.random() < 0.6:
        index.unlink()
        both.what = f"{index} removed, "
    else:
        both.what = f"{chance.choice([_flip, _zero])(index, chance).what}, "
    both.what += chance.choice([_flip_head, _flip_head, _zero])(log, chance).what
    return both


def _flip_head(path: Path, chance: Random) -> Damage:
    """Flip a bit of a frame's size, type, attempts or number: without the index, one in a body would not be noticed."""
    data, starts, at = bytearray(path.read_bytes()), list[int](), 0
    while at + 34 <= len(data) and data[at + 4 : at + 8] == b"\0\0\0\2":
        starts.append(at)
        at += 4 + int.from_bytes(data[at : at + 4])
    if not starts:
        return Damage(f"{path} is empty")
    at = chance.choice(starts) + chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 16, 17, *range(24, 34)])
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return Damage(f"bit in byte {at} of {path}")


def _used(path: Path) -> int:
    return max(1, len(path.read_bytes().rstrip(b"\0")))


def _flip(path: Path, chance: Random) -> Damage:
    data, at = bytearray(path.read_bytes()), chance.randrange(_used(path))
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return Damage(f"bit in byte {at} of {path}")


def _zero(path: Path, chance: Random) -> Damage:
    at = chance.randrange(_used(path)) // PAGE * PAGE
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(PAGE))
    return Damage(f"page at {at} of {path} zeroed")


def _cut(path: Path, chance: Random) -> Damage:
    at = chance.randrange(_used(path) + 1)
    with path.open("r+b") as file:
        file.truncate(at)
    return Damage(f"{path} cut at {at}")


def _remove(path: Path, chance: Random) -> Damage:
    path.unlink()
    if both := chance.random() < 0.4:
        path.with_suffix(".idx" if path.suffix == ".log" else ".log").unlink(missing_ok=True)
    return Damage(f"{path} removed{' and its other half' if both else ''}", hides=both)


def _swap(path: Path, chance: Random) -> Damage:
    others = [each for each in path.parent.parent.glob(f"*/*{path.suffix}") if each != path]
    if not others:
        return _flip(path, chance)
    other = chance.choice(sorted(others))
    pairs = [path.suffix] if chance.random() < 0.5 else [".log", ".idx", ".hdr"]
    for suffix in pairs:
        one, two, aside = path.with_suffix(suffix), other.with_suffix(suffix), path.with_suffix(".x")
        for source, target in ((one, aside), (two, one), (aside, two)):
            if source.exists() or suffix != ".hdr":
                source.rename(target)
    return Damage(f"{path} and {other} swapped: {pairs}", hides=len(pairs) > 1)


def _change_places(path: Path, chance: Random) -> Damage:
    """Swap a journal with another one, or a checkpoint with the one before it."""
    others = [each for each in path.parent.glob(f"{path.name.partition('.')[0]}*") if each != path]
    if not others:
        return _flip(path, chance)
    other, aside = chance.choice(sorted(others)), path.with_name("aside")
    for source, target in ((path, aside), (other, path), (aside, other)):
        source.rename(target)
    return Damage(f"{path} and {other} changed places")


def _older(path: Path, chance: Random) -> Damage:
    """Replace the file by an older copy of it, as a backup that was restored in part does."""
    data_path = next(parent for parent in path.parents if older_copy(parent).exists())
    older = older_copy(data_path) / path.relative_to(data_path)
    if not older.exists() or older.read_bytes() == path.read_bytes():
        return _flip(path, chance)
    shutil.copy(older, path)
    return Damage(f"{path} replaced by an older copy", hides=path.suffix == ".idx")


def _stray(path: Path, chance: Random) -> Damage:
    number = chance.randrange(200)
    name = chance.choice([f"{number}.log", f"{number:020d}.log", "README", "x.idx"])
    target = path.with_name(name)
    if target.exists():
        return _flip(path, chance)
    shutil.copy(path.with_suffix(".log"), target)
    if chance.random() < 0.5 and target.suffix == ".log":
        shutil.copy(path.with_suffix(".idx"), target.with_suffix(".idx"))
        if path.with_suffix(".hdr").exists():
            shutil.copy(path.with_suffix(".hdr"), target.with_suffix(".hdr"))
    return Damage(f"{path} copied as {name}")


def _directory(path: Path, chance: Random) -> Damage:
    directory = path.parent if chance.random() < 0.8 else path.parent.parent
    shutil.rmtree(directory)
    return Damage(f"{directory} removed", hides=True)
