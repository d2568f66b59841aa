"""A follower's data path: the primary's file actions, applied to files.

The files are those of a broker, so that a takeover is an ordinary recovery. ``mirror.json`` beside them says which pair
they are of and which term was seen last; it is not mirrored.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from brokerd.file_failure import FileFailed, named, with_name
from brokerd.file_header import HEADER_BYTES
from brokerd.journal.recovery import scan
from brokerd.log.commits import CommitRecords
from brokerd.log.files import remove_log
from brokerd.mirror.actions import (
    Action,
    Create,
    Delete,
    MakeDirectory,
    Rename,
    Resize,
    Write,
    is_mirrored,
    is_replaced,
)
from brokerd.mirror.leader import FRAME_BYTES
from brokerd.mirror.manifest import BLOCK_BYTES, DIGEST_BYTES, File, block_sums
from brokerd.small_file import overwrite
from nsqwire.foreign_json import UNREADABLE_JSON

if TYPE_CHECKING:
    from brokerd.mirror.hello import Welcome

STATE: Final = "mirror.json"
MAX_OPEN_FILES: Final = 64
DONE: Final[dict[type[Action], str]] = {
    Write: "written",
    Create: "created",
    Resize: "resized",
    Rename: "renamed",
    Delete: "deleted",
    MakeDirectory: "created",
}
"""What each action does with its file, in the text of an error."""
_LOG: Final = ".log"
_INDEX: Final = ".idx"
_JOURNAL: Final = "journal."

logger = logging.getLogger("brokerd")


@dataclass(frozen=True, kw_only=True)
class MirrorState:
    """The contents of ``mirror.json``. ``epoch`` is 0 if the member has only tried to found the pair.

    ``boot`` is the boot id of the last process of the member, with which the record may have it in sync. ``node_id`` is
    that of the pair, None if the file is of a version that did not write it. ``has_stood_back`` is true from when the
    member lets the other one lead because its own data path lacks changes, until it joins the other one or leads
    nevertheless.
    """

    member: str
    pair: str = ""
    epoch: int = 0
    boot: str = ""
    node_id: int | None = None
    has_stood_back: bool = False

    @classmethod
    def read(cls, data_path: Path) -> MirrorState:
        """The state of a data path; a new member's if there is none. Raises OSError, and ValueError for a bad file."""
        try:
            fields = json.loads((data_path / STATE).read_bytes())
            return cls(
                member=str(fields["member"]),
                pair=str(fields["pair"]),
                epoch=int(fields["epoch"]),
                boot=str(fields["boot"]),
                node_id=None if (node_id := fields.get("node_id")) is None else int(node_id),
                has_stood_back=bool(fields.get("has_stood_back", False)),
            )
        except FileNotFoundError:
            return cls(member=_new_member())
        except UNREADABLE_JSON as error:
            raise ValueError(f"{data_path / STATE} cannot be read: {error!r}") from None

    def write(self, data_path: Path) -> None:
        """Replace the file. Raises FileFailed."""
        overwrite(data_path / STATE, json.dumps(asdict(self)).encode())


def leave_pair(data_path: Path) -> None:
    """Forget the pair of a data path, because it is used without a mirror from now on. Raises OSError.

    Otherwise the messages that it gets from now on would be overwritten if it joined the pair again.
    """
    path = data_path / STATE
    if path.exists():
        logger.warning("%s is removed: without --mirror-address this broker is in no pair any more", path)
        path.unlink()


def replace_member_id(data_path: Path) -> bool:
    """Give the member of a data path a new id, which the arbiter's record does not have in sync: it can lead only after
    it has joined, or after a promotion.

    Returns False if it is in no pair. Raises OSError, and ValueError for a bad file.
    """
    if not (data_path / STATE).exists():
        return False
    replace(MirrorState.read(data_path), member=_new_member()).write(data_path)
    return True


def _new_member() -> str:
    return os.urandom(4).hex()


class Replica:
    """The files of a follower during one connection to a primary."""

    def __init__(self, data_path: Path, state: MirrorState) -> None:
        self.state = state
        self._unsynced: dict[str, None] = {}
        self._uncommitted: dict[str, int] = {}
        """The logs whose last write came after that of their indexes, each with the end of that write."""
        self._journal, self._journal_whole, self._journal_end = "", 0, 0
        """The path of the journal that was written last, the offset up to which its records are known to be whole, and
        its end."""
        self._root = data_path
        self._open: OrderedDict[str, int] = OrderedDict()

    # -- the stream -----------------------------------------------------------------------------------------------

    def begin(self, epoch: int, welcome: Welcome) -> None:
        """Record the term and the pair, before any file is changed. Raises OSError."""
        self.state = replace(self.state, pair=welcome.pair, epoch=epoch, node_id=welcome.node_id, has_stood_back=False)
        self.state.write(self._root)

    def apply(self, action: Action) -> None:
        """Apply a file action. Raises FileFailed."""
        try:
            self._apply(action)
        except OSError as error:
            raise FileFailed(error, self._root / action.path, DONE[type(action)]) from error

    def _apply(self, action: Action) -> None:
        if isinstance(action, Write):
            if os.pwrite(self._fd(action.path), action.data, action.offset) != len(action.data):
                raise OSError("only a part of the data was")
            self._unsynced[action.path] = None
            if action.path.endswith(_LOG):
                self._uncommitted[action.path] = action.offset + len(action.data)
            elif self._uncommitted and action.path.endswith(_INDEX):
                self._uncommitted.pop(action.path.removesuffix(_INDEX) + _LOG, None)
            elif action.path.startswith(_JOURNAL):
                self._wrote_journal(action.path, action.offset, action.offset + len(action.data))
        elif isinstance(action, Create):
            self._create(action)
        elif isinstance(action, Resize):
            os.ftruncate(self._fd(action.path), action.size)
        elif isinstance(action, Rename):
            self._rename(action)
        elif isinstance(action, Delete):
            self._delete(action.path)
        else:
            assert isinstance(action, MakeDirectory)
            (self._root / action.path).mkdir(exist_ok=True)
            self._unsynced |= _directories_of(action.path)

    def read(self, path: str, start: int, end: int) -> bytes:
        """The bytes ``[start, end)`` of a file, or fewer if the file is shorter. Raises FileFailed."""
        with named(self._root / path, "read"):
            return os.pread(self._fd(path), end - start, start)

    def _wrote_journal(self, path: str, start: int, end: int) -> None:
        """Note up to where a journal has whole records. A write ends within a record only if it is a part of an append
        that is too large for a frame: such a part has exactly ``FRAME_BYTES``."""
        if end - start != FRAME_BYTES or (path, start) != (self._journal, self._journal_end):
            self._journal_whole = end
        self._journal, self._journal_end = path, end

    def cut_incomplete(self) -> None:
        """Overwrite with zeros the messages without commit records at the ends of logs, and a part of a record at the
        end of the journal. Raises OSError.

        The primary sends large batches in parts, and their commit records last. If it is lost in between, the last
        message may be incomplete, and a recovery would nevertheless make commit records for the messages. A part of a
        record would count as damage. None of this was acknowledged.
        """
        self._cut_journal()
        for path, end in self._uncommitted.items():
            try:
                commits = CommitRecords(memoryview((self._root / path).with_suffix(_INDEX).read_bytes()))
                fd = os.open(self._root / path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # deleted since
                continue
            try:
                start = max((commit.end for _, commit in commits.valid()), default=HEADER_BYTES)
                if start < end:
                    with named(self._root / path, "written"):
                        os.pwrite(fd, bytes(end - start), start)
            finally:
                os.close(fd)
        self._uncommitted.clear()

    def _cut_journal(self) -> None:
        if self._journal_whole == self._journal_end:
            return
        path = self._root / self._journal
        with suppress(FileNotFoundError), open(path, "r+b") as journal, named(path, "written"):
            journal.seek(self._journal_whole)
            appended = journal.read(self._journal_end - self._journal_whole)
            kept, is_cut = 0, False
            for after, record in scan(appended):
                kept, is_cut = (kept, True) if record is None else (after, False)
            if is_cut:
                journal.seek(self._journal_whole + kept)
                journal.write(bytes(len(appended) - kept))
        self._journal_whole = self._journal_end

    def _create(self, action: Create) -> None:
        self._close(action.path)
        fd = os.open(self._root / action.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._keep(action.path, fd)
        if action.size:
            os.posix_fallocate(fd, 0, action.size)
        self._unsynced[action.path] = None
        self._unsynced |= _directories_of(action.path)

    def _rename(self, action: Rename) -> None:
        # A topic's directory is renamed before it is deleted: its files are closed, because their paths change.
        below = [path for path in self._open if path.startswith(action.path + "/")]
        for path in (action.path, action.to, *below):
            self._close(path)
        with suppress(FileNotFoundError):  # the primary's first checkpoint replaces none
            (self._root / action.path).rename(self._root / action.to)
        if action.path in self._unsynced:
            del self._unsynced[action.path]
            self._unsynced[action.to] = None
        self._unsynced |= _directories_of(action.to)

    def _delete(self, path: str) -> None:
        self._close(path)
        found = self._root / path
        if found.is_dir():
            remove_log(found)
        else:
            found.unlink(missing_ok=True)

    def take_unsynced(self) -> list[Path]:
        """The files and directories that were changed since the last call."""
        paths, self._unsynced = self._unsynced, {}
        return [self._root / path for path in paths]

    # -- descriptors ----------------------------------------------------------------------------------------------

    def _fd(self, path: str) -> int:
        fd = self._open.get(path, -1)
        if fd < 0:
            fd = os.open(self._root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._keep(path, fd)
        else:
            self._open.move_to_end(path)
        return fd

    def _keep(self, path: str, fd: int) -> None:
        self._open[path] = fd
        if len(self._open) > MAX_OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])

    def _close(self, path: str) -> None:
        fd = self._open.pop(path, -1)
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close all files."""
        for path in list(self._open):
            self._close(path)

    # -- joining --------------------------------------------------------------------------------------------------

    def prepare(self, manifest: list[File]) -> dict[str, bytes]:
        """Remove everything that the primary does not have, and return the checksums of the rest. Takes seconds for
        gigabytes.

        Checkpoints stay as they are until they are replaced: if the primary is lost, the member recovers from them.
        May run in a thread, beside ``take_unsynced``. Raises OSError.
        """
        wanted, changed = {file.path: file for file in manifest}, dict[str, None]()
        for mirrored in sorted(self._mirrored_paths(), reverse=True):
            if mirrored not in wanted:
                self._delete(mirrored)
        sums = dict[str, bytes]()
        for file in manifest:
            with named(self._root / file.path, "prepared"):
                if file.is_directory:
                    (self._root / file.path).mkdir(parents=True, exist_ok=True)
                if file.is_directory or is_replaced(file.path):
                    continue
                sums[file.path] = self._prepare(file)
            changed[file.path] = None
            changed |= _directories_of(file.path)
        self._unsynced.update(changed)  # in one step: the event loop may take the dictionary at any time
        return sums

    def _prepare(self, file: File) -> bytes:
        """Cut and allocate a file. Returns the checksums of what is kept of it."""
        fd = os.open(self._root / file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            kept = min(os.fstat(fd).st_size, file.end)
            os.ftruncate(fd, kept)
            sums = _sums(fd, kept)
            if file.size:
                os.posix_fallocate(fd, 0, file.size)
            return sums
        finally:
            os.close(fd)

    def _mirrored_paths(self) -> Iterator[str]:
        for directory, names, files in os.walk(self._root):
            for name in [*names, *files]:
                relative = str((Path(directory) / name).relative_to(self._root))
                if is_mirrored(relative):
                    yield relative


def sums_of(data_path: Path, files: list[File], theirs: Mapping[str, bytes]) -> dict[str, bytes]:
    """The checksums of a primary's files at a cut, by path, of as many blocks as ``theirs``, the follower's, have.

    Files that were deleted since are left out.
    """
    found = dict[str, bytes]()
    for file in files:
        end = min(file.end, len(theirs.get(file.path, b"")) // DIGEST_BYTES * BLOCK_BYTES)
        if file.is_directory or not end:
            continue
        with suppress(FileNotFoundError), open(data_path / file.path, "rb") as opened:
            try:
                found[file.path] = _sums(opened.fileno(), end)
            except OSError as error:
                raise with_name(error, data_path / file.path) from error
    return found


def _sums(fd: int, end: int) -> bytes:
    return block_sums(os.pread(fd, min(BLOCK_BYTES, end - start), start) for start in range(0, end, BLOCK_BYTES))


def _directories_of(path: str) -> dict[str, None]:
    return dict.fromkeys(map(str, PurePath(path).parents))


def has_data(data_path: Path) -> bool:
    """Return whether a data path has files of a broker. Raises OSError."""
    return any(is_mirrored(entry.name) for entry in os.scandir(data_path))
