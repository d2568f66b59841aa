"""The follower's part of a pair: it joins a primary, applies its file actions, and acknowledges them.

It refuses a primary of an earlier term than it has seen: such a primary was replaced and does not know it yet, and
joining it would undo what was acknowledged since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from brokerd.mirror.actions import Action, Rename, Write, decode_actions
from brokerd.mirror.damage import check_checkpoint, check_commits
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused
from brokerd.mirror.frames import Frame, FrameReader, Kind, encode_frame
from brokerd.mirror.hello import Hello, Welcome
from brokerd.mirror.manifest import File, decode_files, encode_sums
from brokerd.mirror.stamps import Stamps

BUFFER_BYTES: Final = 1024 * 1024
"""Size of the buffer for what the primary sends: several frames of actions."""

_ACK: Final = Kind.ACK  # before Python 3.12, looking up a member of an enumeration takes as long as a system call
_ACTIONS: Final = Kind.ACTIONS


class MirrorFiles(Protocol):
    """The files of a follower."""

    def begin(self, epoch: int, welcome: Welcome) -> None:
        """The follower joins the primary of this term. Term and pair are recorded before any file is changed."""
        ...

    def apply(self, action: Action) -> None:
        """Apply a file action. Raises OSError."""
        ...

    def read(self, path: str, start: int, end: int) -> bytes:
        """The bytes ``[start, end)`` of a file, or fewer if the file is shorter. Raises OSError."""
        ...


class Follower:
    """One connection of a follower to a primary. ``epoch`` is the number of the last term that it has seen."""

    def __init__(self, hello: Hello, epoch: int, files: MirrorFiles) -> None:
        self.epoch = epoch
        self.welcome: Welcome | None = None
        """The primary's greeting."""
        self.manifest: list[File] = []
        """The primary's files at the cut."""
        self.awaits_sums = False
        """True once the manifest is complete, until ``compared`` is called."""
        self.is_copied = False
        """True once the copy is applied."""
        self.stamps: Stamps | None = None
        """Stamps to store. The caller takes them, and calls ``stamps_stored``."""
        self.applied = 0
        """The number of the last frame of actions that was applied."""
        self.is_welcomed = False
        """True once the primary has welcomed this member."""
        self._files = files
        self._reader = FrameReader(BUFFER_BYTES)
        self._output = bytearray(Frame(Kind.HELLO, epoch, 0, hello.to_bytes()).to_bytes())

    def take_output(self) -> bytes:
        """What is to be sent."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def get_buffer(self) -> memoryview:
        """The buffer for the primary's next bytes, which ``read`` handles."""
        return self._reader.get_buffer()

    def read(self, nbytes: int) -> None:
        """Handle ``nbytes`` bytes in the buffer. Raises as ``received`` does."""
        self._handle_all(self._reader.read(nbytes))

    def received(self, data: bytes) -> None:
        """Handle bytes of the primary.

        Raises InvalidStream, Fenced, JoinRefused, MirrorDamaged and OSError. The connection has to be closed then.
        """
        self._handle_all(self._reader.feed(data))

    def _handle_all(self, frames: Iterable[Frame]) -> None:
        is_ack_due = False
        for frame in frames:
            if frame.epoch < self.epoch and frame.kind is not Kind.REFUSED:  # the reason says more than the term
                raise Fenced(f"the primary is of term {frame.epoch}, and term {self.epoch} has begun")
            is_ack_due = self._handle(frame) or is_ack_due
        if is_ack_due:
            self._send(_ACK, number=self.applied)

    def compared(self, sums: Mapping[str, bytes]) -> None:
        """The files were prepared: ``sums`` has the checksums of each file of the manifest, by path."""
        self.awaits_sums = False
        for path, each in sums.items():
            self._send(Kind.SUMS, encode_sums(path, each))
        self._send(Kind.SUMS_END)

    def stamps_stored(self, stamps: Stamps) -> None:
        """These stamps survive a restart of the process. If files are synced before they are acknowledged, they survive
        a restart of the machine too."""
        self._send(Kind.STAMPED, stamps.to_bytes())

    def _handle(self, frame: Frame) -> bool:
        """Handle a frame. Returns True if an acknowledgement is due."""
        kind = frame.kind
        if kind is _ACTIONS and self.is_welcomed and frame.epoch == self.epoch:  # first: nearly all frames are
            self._apply(frame)
            return True
        if kind is Kind.REFUSED:
            raise JoinRefused(bytes(frame.payload).decode("utf-8", "replace"))
        if not self.is_welcomed and kind is not Kind.PING:
            if kind is not Kind.WELCOME:
                raise InvalidStream("the first frame is no greeting")
            self.welcome = Welcome.from_bytes(bytes(frame.payload))
            self._files.begin(frame.epoch, self.welcome)
            self.epoch, self.is_welcomed = frame.epoch, True
            return False
        if self.is_welcomed and frame.epoch != self.epoch:
            raise InvalidStream("the primary's term changed")
        if kind is Kind.MANIFEST:
            self.manifest += decode_files(bytes(frame.payload))
        elif kind is Kind.MANIFEST_END:
            self.awaits_sums = True
        elif kind is Kind.CUT:
            self._apply(frame)
            self.is_copied = True
            return True
        elif kind is Kind.PING:
            return True
        elif kind is Kind.STAMPS:
            self.stamps = Stamps.from_bytes(bytes(frame.payload))
        else:
            raise InvalidStream(f"a frame {kind.name} does not belong here")
        return False

    def _apply(self, frame: Frame) -> None:
        if frame.number != self.applied + 1:
            raise InvalidStream(f"frame {frame.number} follows frame {self.applied}")
        for action in decode_actions(frame.payload):
            if self.is_copied and isinstance(action, Rename):  # before: the copy may have the primary's damage
                check_checkpoint(action, self._files.read)
            self._files.apply(action)
            if self.is_copied and isinstance(action, Write):
                check_commits(action, self._files.read)
        self.applied = frame.number

    def _send(self, kind: Kind, payload: bytes = b"", number: int = 0) -> None:
        for part in encode_frame(kind, self.epoch, number, (payload,)):
            self._output += part
