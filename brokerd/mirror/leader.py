"""The primary's part of a pair: it streams its file actions, and records which of them each follower has applied.

Changes arrive in *groups*, one for each turn of the event loop that changed a file. A group is *acknowledged* once
every *required* member has applied it; only then may an ``OK`` that depends on it leave. A follower gets into sync in
two steps: once it has caught up, it is required; once it has also applied all that was acknowledged without it, the
arbiter records that it is in sync. It is required until the arbiter has recorded that it is not in sync any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import chain
from typing import Final, NamedTuple

from brokerd.mirror.actions import (
    NEW_CHECKPOINT,
    Action,
    Create,
    Rename,
    Write,
    append_order,
    encode_actions,
    is_replaced,
    write_head,
)
from brokerd.mirror.errors import InvalidStream
from brokerd.mirror.frames import MAX_HELLO_BYTES, MAX_PAYLOAD_BYTES, Frame, FrameReader, Kind, encode_frame
from brokerd.mirror.hello import Hello, Welcome
from brokerd.mirror.manifest import Copy, File, decode_sums, encode_files
from brokerd.mirror.pair import PairRecord
from brokerd.mirror.stamps import Stamps
from nsqwire.units import Seconds

FRAME_BYTES: Final = 256 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
"""A follower is sent more as long as it has fewer bytes than this to apply."""
COPY_WINDOW_BYTES: Final = FRAME_BYTES
"""As ``WINDOW_BYTES``, during the copy. It is small because publishers wait while these bytes are sent."""
PINGS_IN_PATIENCE: Final = 4
INTERVALS_TO_STORE_STAMPS: Final = 2
"""A follower may take this many stamp intervals to store stamps. A busy disk takes seconds."""
MAX_STRANGERS: Final = 8
"""Largest number of connections without a greeting. Members greet at once; strangers could take all descriptors."""

Read = Callable[[str, int, int], "bytes | memoryview | None"]
"""Returns the bytes ``[start, end)`` of a file; None if the file was deleted."""


class Appended(NamedTuple):
    """The bytes ``[start, end)`` of a file were written. They are read when they are sent."""

    path: str
    start: int
    end: int


Entry = Appended | Action


class Send(NamedTuple):
    """Send bytes over a link, in parts: those of a segment are slices of its map."""

    link: int
    parts: list[bytes | memoryview]


class Close(NamedTuple):
    """Close a link, for this reason."""

    link: int
    reason: str


class TakeCut(NamedTuple):
    """List the files as they are between two groups, and call ``cut_taken``."""

    link: int


class CompareFiles(NamedTuple):
    """Find out what a follower with these checksums lacks of ``files``, and call ``compared``."""

    link: int
    files: list[File]
    sums: dict[str, bytes]


class WriteRecord(NamedTuple):
    """Write the pair's record, and call ``record_written`` or ``record_not_written``."""

    record: PairRecord


class StoreStamp(NamedTuple):
    """Store a new stamp beside the record's, so that it survives a restart, and call ``stamps_stored``, or
    ``stamps_not_stored``."""

    last: str
    """The record's stamp."""


class StepDown(NamedTuple):
    """Another member leads a later term."""

    reason: str


Effect = Send | Close | TakeCut | CompareFiles | WriteRecord | StoreStamp | StepDown


class LinkState(IntEnum):
    """The step of a join that a connection has reached."""

    CONNECTED = 0
    """It has not greeted, or waits for a cut."""
    EVICTED = 1
    """A member in sync joins anew. None of its files changes before the arbiter has recorded that it is not in sync."""
    CUT = 2
    """The files are compared. From here on, actions are collected."""
    TAILING = 3
    """It is sent the copy, then the actions collected meanwhile, then actions as they happen."""


# Before Python 3.12, looking up a member of an enumeration takes as long as a system call.
_TAILING: Final = LinkState.TAILING
_ACK: Final = Kind.ACK
_ACTIONS: Final = Kind.ACTIONS


class _Cut(NamedTuple):
    """The end of the copy."""


class _Mark(NamedTuple):
    """The end of a group."""

    group: int


class _Link:
    """A follower's connection."""

    def __init__(self, number: int, now: Seconds) -> None:
        self.number = number
        self.reader = FrameReader(max_payload_bytes=MAX_HELLO_BYTES)
        self.state = LinkState.CONNECTED
        self.hello: Hello | None = None
        self.member = ""
        self.files: list[File] = []
        self.replaced: list[Action] = []
        """The actions that replace the follower's checkpoints by those of the cut."""
        self.cut_group = 0
        """The last group before the cut, which the copy contains."""
        self.sums: dict[str, bytes] = {}
        self.outbox: deque[Appended | Action | _Cut | _Mark] = deque()
        self.collected: dict[str, Appended] = {}
        """By path, the appends since the last entry of the outbox. They are sent after the entries of the outbox."""
        self.collected_mark: _Mark | None = None
        """The end of the last group that was collected; None if none was."""
        self.sent = self.applied = 0
        """The numbers of the last frame of actions that was sent and of the last that was applied."""
        self.under_way: deque[tuple[int, int]] = deque()
        """The number and size of each frame of actions that was sent and not applied yet."""
        self.bytes_under_way = 0
        self.marks: deque[tuple[int, int]] = deque()
        """``(frame, group)``: the group is applied once the frame is."""
        self.cut_frame = 0
        self.group = -1
        """The last group that it has applied."""
        self.is_awaited = False
        """True since it has caught up: from then on it is required."""
        self.stamps: Stamps | None = None
        """The stamps that it has stored."""
        self.stamped_at = now
        """The last time at which it had stored all stamps that it was sent."""
        self.heard_at = self.progress_at = self.pinged_at = now

    @property
    def is_copied(self) -> bool:
        """True once it has applied the copy."""
        return 0 < self.cut_frame <= self.applied

    @property
    def is_caught_up(self) -> bool:
        """True if it has applied the copy, and was sent all actions since."""
        return self.is_copied and not self.has_waiting

    @property
    def has_waiting(self) -> bool:
        """True if it has not been sent all actions yet."""
        return bool(self.outbox) or self.collected_mark is not None

    def collect(self, entries: Iterable[Entry], mark: _Mark) -> None:
        """Keep a group to send it later. Appends to one file become one append, unless another kind of action came
        between them.

        Messages still come before their commit records, and both before the journal's records about them.
        """
        for entry in entries:
            if not isinstance(entry, Appended):
                self._end_collected()
                self.outbox.append(entry)
                continue
            before = self.collected.get(entry.path)
            if before is not None and before.start <= entry.start <= before.end:
                entry = Appended(entry.path, before.start, max(before.end, entry.end))
            elif before is not None:
                self._end_collected()
            self.collected[entry.path] = entry
        self.collected_mark = mark

    def _end_collected(self) -> None:
        self.outbox += [self.collected[path] for path in sorted(self.collected, key=append_order)]
        self.collected.clear()

    def take_collected(self) -> None:
        """Move the collected appends and their mark to the outbox."""
        if self.collected_mark is not None:
            self._end_collected()
            self.outbox.append(self.collected_mark)
            self.collected_mark = None


class Leader:
    """The primary of one term.

    ``patience`` is how long a follower may be silent, or apply nothing although it has actions to apply. ``ports`` are
    those of TCP and HTTP clients. ``lease_s`` is ``--mirror-lease``, which the follower compares with its own; 0 if it
    should not. ``stamp_interval`` is the time between two stamps; None: the record keeps its stamp.
    """

    def __init__(
        self,
        member: str,
        record: PairRecord,
        read: Read,
        *,
        patience: Seconds,
        min_in_sync: int = 1,
        ports: tuple[int, int] = (0, 0),
        lease_s: int = 0,
        stamp_interval: Seconds | None = None,
    ) -> None:
        self.member = member
        self.record = record
        """The last record that the arbiter has confirmed."""
        self.group = 0
        """The number of the last group."""
        self.acknowledged = 0
        """The last group that every required member has applied."""
        self.effects: list[Effect] = []
        """What the caller has to do, in this order. It takes them after each call."""
        self._read = read
        self._patience = patience
        self._min_in_sync = min_in_sync
        self.accepts_publishes = len(record.in_sync) >= min_in_sync
        """False while fewer members are in sync than ``--min-in-sync``."""
        self._ports, self._lease_s = ports, lease_s
        self._links: dict[int, _Link] = {}
        self._believed = set(record.in_sync)
        """The members that the arbiter may believe to be in sync."""
        self._writing: PairRecord | None = None
        self._stamp_interval = stamp_interval
        self._stamp_at: Seconds = 0.0
        """When the next stamp is due."""
        self._stamps: Stamps | None = None
        """The stamps that this member has stored last in its term."""
        self._is_storing_stamps = False

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def in_sync(self) -> list[str]:
        """This member, and each member that is in sync by the record and follows."""
        following = {link.member for link in self._links.values() if link.state is LinkState.TAILING}
        return sorted(self.record.in_sync.keys() & (following | {self.member}))

    @property
    def is_under_replicated(self) -> bool:
        """True if no other member is in sync."""
        return len(self.in_sync) < 2

    @property
    def lag_bytes(self) -> int:
        """Bytes that the follower has not applied yet, whether they were sent or not."""
        return max((self._lag_of(link) for link in self._links.values()), default=0)

    def lag_seconds(self, now: Seconds) -> Seconds:
        """Time since the follower last applied something, while it has something to apply; 0 otherwise."""
        return max((now - link.progress_at for link in self._links.values() if link.under_way), default=0.0)

    def _lag_of(self, link: _Link) -> int:
        waiting = sum(
            entry.end - entry.start if isinstance(entry, Appended) else len(entry.data)
            for entry in chain(link.outbox, link.collected.values())
            if isinstance(entry, Appended | Write)
        )
        return link.bytes_under_way + waiting

    # -- inputs ---------------------------------------------------------------------------------------------------

    def connected(self, link: int, now: Seconds) -> None:
        """A connection was accepted. If too many have not greeted, the oldest of these is closed."""
        strangers = [each for each in self._links.values() if each.hello is None]
        if len(strangers) >= MAX_STRANGERS:
            self._close(strangers[0], "it has sent no greeting, and others have connected")
        self._links[link] = _Link(link, now)

    def disconnected(self, link: int) -> None:
        """A link is closed."""
        if self._links.pop(link, None) is not None:
            self._review()

    def received(self, link: int, data: bytes, now: Seconds) -> None:
        """Handle bytes of a link."""
        found = self._links.get(link)
        if found is None:
            return
        found.heard_at = now
        try:
            for frame in found.reader.feed(data):
                if found.number in self._links:
                    self._handle(found, frame, now)
        except InvalidStream as error:
            self._close(found, str(error))

    def group_changed(self, entries: Iterable[Entry]) -> int:
        """Send the file actions of a group to the followers, now or later. Returns the number of the group."""
        self.group += 1
        mark = _Mark(self.group)
        for link in tuple(self._links.values()):  # one may be closed meanwhile
            if link.state is _TAILING and (link.is_awaited or not link.has_waiting):
                link.outbox.extend(entries)
                link.outbox.append(mark)
                self._pump(link)
            elif link.state >= LinkState.CUT:
                link.collect(entries, mark)
        self._settle()
        return self.group

    def cut_taken(self, link: int, files: list[File]) -> None:
        """The files were listed: they have the changes of all groups so far and no others."""
        found = self._links.get(link)
        if found is None:
            return
        try:
            replaced = [self._replacement_of(file) for file in files if is_replaced(file.path)]
        except OSError as error:
            self.not_readable(link, error)
            return
        found.replaced = [action for actions in replaced for action in actions]
        found.state, found.files, found.cut_group = LinkState.CUT, files, self.group
        welcome = Welcome(
            pair=self.record.pair,
            node_id=self.record.node_id,
            tcp_port=self._ports[0],
            http_port=self._ports[1],
            lease_s=self._lease_s,
        )
        self._send(found, Kind.WELCOME, welcome.to_bytes())
        for part in encode_files(files):
            self._send(found, Kind.MANIFEST, part)
        self._send(found, Kind.MANIFEST_END)

    def compared(self, link: int, copies: list[Copy]) -> None:
        """The files at the cut were compared: ``copies`` are what the follower lacks of them."""
        found = self._links.get(link)
        if found is None:
            return
        found.files, found.sums = [], {}
        missing = [Appended(*copy) for copy in copies if not is_replaced(copy.path)]
        found.outbox.extendleft(reversed([*missing, *found.replaced, _Cut(), _Mark(found.cut_group)]))
        found.replaced = []
        found.state = LinkState.TAILING
        self._send_stamps(found)
        self._pump(found)

    def not_readable(self, link: int, error: OSError) -> None:
        """A file for a follower cannot be listed, compared or read."""
        if (found := self._links.get(link)) is not None:
            self._close(found, f"a file cannot be read: {error}")

    def record_written(self, record: PairRecord) -> None:
        """The arbiter has the record."""
        self.record, self._writing = record, None
        self.accepts_publishes = len(record.in_sync) >= self._min_in_sync
        self._believed = set(record.in_sync)
        for link in self._links.values():
            if link.state is LinkState.EVICTED and link.member not in record.in_sync:
                self.effects.append(TakeCut(link.number))
                link.state = LinkState.CONNECTED
        self._review()

    def record_not_written(self) -> None:
        """The arbiter did not take the record, or did not answer. The next tick writes it again."""
        self._writing = None

    def tick(self, now: Seconds) -> None:
        """Close links that are silent or stuck, ping the others, and review who is in sync."""
        for link in list(self._links.values()):
            if not self._owes_stamps(link):
                link.stamped_at = now
            if not link.under_way:
                link.progress_at = now
            if now - link.heard_at > self._patience:
                self._close(link, f"nothing was received for {self._patience:g} s")
            elif now - link.progress_at > self._patience:
                self._close(link, f"nothing was applied for {self._patience:g} s")
            elif now - link.stamped_at > INTERVALS_TO_STORE_STAMPS * (self._stamp_interval or 0.0):
                self._close(link, f"it has stored no stamps for {now - link.stamped_at:g} s")
            elif link.hello is not None and now - link.pinged_at > self._patience / PINGS_IN_PATIENCE:
                link.pinged_at = now
                self._send(link, Kind.PING)
        self._stamp(now)
        self._review()

    # -- the stream -----------------------------------------------------------------------------------------------

    def _handle(self, link: _Link, frame: Frame, now: Seconds) -> None:
        if frame.kind is _ACK and link.hello is not None:  # first: nearly all are
            self._applied(link, frame, now)
        elif frame.kind is Kind.HELLO and link.hello is None:
            self._greeted(link, Hello.from_bytes(bytes(frame.payload)), frame.epoch)
        elif link.hello is None:
            raise InvalidStream("the first frame is no greeting")
        elif frame.kind is Kind.SUMS and link.state is LinkState.CUT:
            path, sums = decode_sums(bytes(frame.payload))
            link.sums[path] = sums
        elif frame.kind is Kind.SUMS_END and link.state is LinkState.CUT:
            self.effects.append(CompareFiles(link.number, link.files, link.sums))
        elif frame.kind is Kind.STAMPED and link.state is LinkState.TAILING:
            link.stamps = Stamps.from_bytes(bytes(frame.payload))
            self._review()
        else:
            raise InvalidStream(f"a frame {frame.kind.name} does not belong here")

    def _greeted(self, link: _Link, hello: Hello, epoch: int) -> None:
        if hello.pair and hello.pair != self.record.pair:  # first: what it has seen of terms is of the other pair
            self._refuse(link, "its data path or its arbiter is that of another pair")
        elif not hello.pair and hello.has_data:
            self._refuse(link, "its data path has messages and was never a mirror; empty it")
        elif not hello.pair and epoch > self.record.epoch:
            self._refuse(link, f"it has seen term {epoch}, and this is term {self.record.epoch}")
        elif epoch > self.record.epoch:
            self.effects.append(StepDown(f"{hello.member} has seen term {epoch}, and this is term {self.record.epoch}"))
        elif hello.member == self.member:
            self._refuse(link, f"both members of the pair are called {self.member}")
        else:
            for other in list(self._links.values()):
                if other is not link and other.member == hello.member:
                    self._close(other, "the member has connected again")
            link.hello, link.member = hello, hello.member
            link.reader.max_payload_bytes = MAX_PAYLOAD_BYTES
            if hello.member in self._believed:
                link.state = LinkState.EVICTED
                self._review()
            else:
                self.effects.append(TakeCut(link.number))

    def _refuse(self, link: _Link, reason: str) -> None:
        self._send(link, Kind.REFUSED, reason.encode())
        self._close(link, f"refused: {reason}")

    def _applied(self, link: _Link, frame: Frame, now: Seconds) -> None:
        # A follower does not know the term before it is welcomed. It then answers pings with number 0.
        if frame.number > link.sent or (frame.number and frame.epoch != self.record.epoch):
            raise InvalidStream("an acknowledgement of a frame that was not sent")
        if frame.number > link.applied:
            link.applied, link.progress_at = frame.number, now
        while link.under_way and link.under_way[0][0] <= frame.number:
            link.bytes_under_way -= link.under_way.popleft()[1]
        while link.marks and link.marks[0][0] <= frame.number:
            link.group = link.marks.popleft()[1]
        if link.state is _TAILING and link.has_waiting:
            self._pump(link)
        if link.member not in self.record.in_sync:
            self._review()
        self._settle()

    def _pump(self, link: _Link) -> None:
        """Send waiting actions as long as the window has room.

        If a file cannot be read, the link is closed, because the actions that were taken from the outbox are lost.
        """
        try:
            self._send_waiting(link)
        except OSError as error:
            self.not_readable(link.number, error)

    def _send_waiting(self, link: _Link) -> None:
        window = WINDOW_BYTES if link.is_copied else COPY_WINDOW_BYTES
        while link.has_waiting and link.bytes_under_way < window:
            if not link.outbox:
                link.take_collected()
            if isinstance(link.outbox[0], _Cut):
                link.outbox.popleft()
                link.cut_frame = self._send_numbered(link, Kind.CUT, ())
                continue
            actions = self._next_actions(link.outbox)
            number = self._send_numbered(link, _ACTIONS, actions) if actions else link.sent
            while link.outbox and isinstance(mark := link.outbox[0], _Mark):
                link.outbox.popleft()
                if number <= link.applied:
                    link.group = mark.group
                else:
                    link.marks.append((number, mark.group))

    def _replacement_of(self, file: File) -> list[Action]:
        """The actions that replace a checkpoint. Its contents are read now, at the cut. Raises OSError."""
        parts = ((start, min(start + FRAME_BYTES, file.end)) for start in range(0, file.end, FRAME_BYTES))
        contents = [(start, self._read(file.path, start, end)) for start, end in parts]
        writes = [Write(NEW_CHECKPOINT, start, bytes(data)) for start, data in contents if data is not None]
        return [Create(NEW_CHECKPOINT, 0), *writes, Rename(NEW_CHECKPOINT, file.path)]

    def _next_actions(self, outbox: deque[Appended | Action | _Cut | _Mark]) -> list[bytes | memoryview]:
        """The next frame's actions, encoded: those up to the next mark, if they are not too large."""
        parts, nbytes = list[bytes | memoryview](), 0
        while outbox and nbytes < FRAME_BYTES and not isinstance(entry := outbox[0], _Cut | _Mark):
            outbox.popleft()
            if isinstance(entry, Appended):
                path, start, end = entry
                if end - start > FRAME_BYTES:
                    end = start + FRAME_BYTES
                    outbox.appendleft(Appended(path, end, entry.end))
                data = self._read(path, start, end)
                if data is None:
                    continue
                parts += (write_head(path, start, len(data)), data)
                nbytes += len(data)
            else:
                encoded = encode_actions((entry,))
                parts += encoded
                nbytes += sum(map(len, encoded))
        return parts

    def _send_numbered(self, link: _Link, kind: Kind, payload: Sequence[bytes | memoryview]) -> int:
        number = link.sent = link.sent + 1
        parts = encode_frame(kind, self.record.epoch, number, payload)
        nbytes = sum(map(len, parts))
        link.under_way.append((number, nbytes))
        link.bytes_under_way += nbytes
        self.effects.append(Send(link.number, parts))
        return number

    def _send(self, link: _Link, kind: Kind, payload: bytes = b"") -> None:
        self.effects.append(Send(link.number, encode_frame(kind, self.record.epoch, 0, (payload,))))

    def _close(self, link: _Link, reason: str) -> None:
        if self._links.pop(link.number, None) is not None:
            self.effects.append(Close(link.number, reason))
            self._review()

    # -- stamps ---------------------------------------------------------------------------------------------------

    def stamps_stored(self, stamps: Stamps) -> None:
        """This member has stored stamps."""
        self._stamps, self._is_storing_stamps = stamps, False
        for link in self._links.values():
            if link.state is LinkState.TAILING:
                self._send_stamps(link)
        self._review()

    def stamps_not_stored(self) -> None:
        """The stamps could not be stored. New ones are stored when the next are due."""
        self._is_storing_stamps = False

    def _stamp(self, now: Seconds) -> None:
        """Have the next stamp stored, if it is due and the arbiter has confirmed the one before it."""
        is_recorded = self._stamps is None or self.record.stamp == self._stamps.next
        if self._stamp_interval is not None and now >= self._stamp_at and is_recorded and not self._is_storing_stamps:
            self._stamp_at, self._is_storing_stamps = now + self._stamp_interval, True
            self.effects.append(StoreStamp(self.record.stamp))

    def _send_stamps(self, link: _Link) -> None:
        if self._stamps is not None and link.hello is not None and link.hello.stores_stamps:
            self._send(link, Kind.STAMPS, self._stamps.to_bytes())

    def _has_stamps(self, link: _Link) -> bool:
        """Return whether a follower has the record's stamp and the next one, or needs none."""
        if self._stamp_interval is None or link.hello is None or not link.hello.stores_stamps:
            return True
        return self._stamps is not None and link.stamps == self._stamps

    def _owes_stamps(self, link: _Link) -> bool:
        """Return whether a follower has to store stamps. If it does not, an older copy would not be recognised."""
        return self._stamp_interval is not None and link.state is _TAILING and not self._has_stamps(link)

    def _stamp_of(self, followers: Iterable[_Link]) -> str:
        """The stamp for a record in which these followers are in sync."""
        if self._stamps is None:
            return self.record.stamp
        if not all(link.hello is None or link.hello.stores_stamps for link in followers):
            return ""
        return self._stamps.next if all(link.stamps == self._stamps for link in followers) else self.record.stamp

    # -- the members in sync --------------------------------------------------------------------------------------

    def _review(self) -> None:
        """Have the arbiter's record written if it should have other members in sync, or another stamp."""
        tailing = [link for link in self._links.values() if link.state is LinkState.TAILING]
        for link in tailing:
            link.is_awaited = link.is_awaited or link.is_caught_up
        if self._writing is None:
            in_sync, followers = {self.member: self.record.in_sync[self.member]}, list[_Link]()
            for link in tailing:
                has_all = link.is_awaited and link.group >= self.acknowledged and self._has_stamps(link)
                if link.hello is not None and (has_all or link.member in self.record.in_sync):
                    in_sync[link.member] = link.hello.boot
                    followers.append(link)
            record = self.record.with_in_sync(in_sync).with_stamp(self._stamp_of(followers))
            if record != self.record or self._believed != set(in_sync):
                self._writing = record
                self._believed |= set(in_sync)
                self.effects.append(WriteRecord(self._writing))
        self._settle()

    def _settle(self) -> None:
        """Acknowledge the groups that every required member has applied."""
        if not self.accepts_publishes:
            return
        acknowledged, believed, missing = self.group, self._believed, len(self._believed) - 1  # without this member
        for link in self._links.values():
            if link.state is _TAILING and (link.is_awaited or link.member in believed):
                acknowledged = min(acknowledged, link.group)
                missing -= link.member in believed
        if not missing:
            self.acknowledged = max(self.acknowledged, acknowledged)
