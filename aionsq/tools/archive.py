"""The archive of one topic: its current file, and the rules for starting the next. The code blocks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from aionsq.tools.archive_file import ArchiveFile, GzipFile, InUse, PlainFile, repair, sync_folder
from aionsq.tools.file_names import FileNames

log = logging.getLogger(__name__)

FOLDER_MODE = 0o770


@dataclass(frozen=True, kw_only=True)
class ArchiveRules:
    """How files are written and rotated. Sizes are bytes before compression; 0 means never."""

    output_dir: str
    work_dir: str
    """Folder in which files are written before they are moved to ``output_dir``; may be the same folder."""
    gzip: bool = False
    gzip_level: int = 6
    rotate_size: int = 0
    rotate_interval: timedelta = timedelta(0)
    skip_empty_files: bool = False

    @property
    def moves(self) -> bool:
        """Whether finished files are moved to another folder."""
        return os.path.realpath(self.work_dir) != os.path.realpath(self.output_dir)

    @property
    def needs_revisions(self) -> bool:
        """Whether several files may be started for the same ``<DATETIME>``."""
        return self.gzip or self.moves or self.rotate_size > 0 or self.rotate_interval > timedelta(0)


class Archive:
    """Writes lines. They are on disk after :meth:`sync`, and after any method that has closed their file.

    Methods raise OSError, and InUse if another process writes the only possible file. The archive is unusable after
    either.
    """

    def __init__(self, names: FileNames, rules: ArchiveRules, name: str, now: Callable[[], datetime]) -> None:
        """``name`` is for the log; ``now`` returns the local time, with its zone."""
        self.is_new = False
        """Whether the file was opened since the last sync."""
        self._names = names
        self._rules = rules
        self._name = name
        self._now = now
        self._file: ArchiveFile | None = None
        self._relative = ""
        self._size = 0
        self._dated = ""
        self._revision = -1
        self._opened_at = now()

    def recover(self) -> None:
        """Repair the files that a killed process left behind, and move them to the output folder."""
        for relative in self._names.existing(self._rules.work_dir):
            path = os.path.join(self._rules.work_dir, relative)
            try:
                cut = repair(path)
                if cut:
                    log.warning("[%s] %s: removed an incomplete write of %d bytes at its end", self._name, path, cut)
                if self._rules.moves:
                    self._move(relative)
            except InUse:
                continue  # another process is writing it
            except OSError as error:
                log.warning("[%s] cannot repair or move %s: %s", self._name, path, error.strerror)

    def write(self, bodies: Sequence[bytes]) -> None:
        """Append a line for each body, rotating files as the rules require."""
        lines: list[bytes] = []
        if bodies and self._is_due():
            self._open_next()
        for body in bodies:
            if self._is_full():
                self._append(lines)
                self._open_next()
            lines.append(body)
            self._size += len(body) + 1
        self._append(lines)

    def tick(self) -> None:
        """Rotate the file if it is due, even if nothing is written."""
        if not self._is_due():
            return
        if self._rules.skip_empty_files:
            self.close()
        else:
            self._open_next()

    def sync(self) -> None:
        """Sync everything written."""
        self.is_new = False
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Finish the file and move it to the output folder. The next line opens another file, or the same one again."""
        if self._file is None:
            return
        file, self._file = self._file, None
        log.debug("[%s] closing %s", self._name, file.path)
        file.close()
        if self._rules.moves:
            self._move(self._relative)

    def _is_due(self) -> bool:
        if self._file is None or self._is_full():
            return True
        now = self._now()
        if timedelta(0) < self._rules.rotate_interval < now - self._opened_at:
            return True
        return self._names.dated(now) != self._dated

    def _is_full(self) -> bool:
        return 0 < self._rules.rotate_size < self._size

    def _append(self, lines: list[bytes]) -> None:
        if lines and self._file is not None:
            lines.append(b"")
            self._file.append(b"\n".join(lines))
            lines.clear()

    def _open_next(self) -> None:
        self.close()
        dated = self._names.dated(self._now())
        self._revision = self._revision + 1 if dated == self._dated else 0
        self._dated = dated
        while not self._open():
            self._revision += 1
        self._opened_at = self._now()
        self.is_new = True

    def _open(self) -> bool:
        """Open the file with the current name and revision; False if the next revision must be tried."""
        rules = self._rules
        self._relative = self._names.revised(self._dated, self._revision)
        path = os.path.join(rules.work_dir, self._relative)
        if rules.moves and os.path.exists(taken := os.path.join(rules.output_dir, self._relative)):
            log.warning("[%s] output file already exists: %s", self._name, taken)
            return False
        _make_folder(os.path.dirname(path))
        try:
            if rules.gzip:
                self._file, self._size = GzipFile(path, rules.gzip_level), 0
                log.info("[%s] opened %s", self._name, path)
                return True
            file = PlainFile(path, exclusive=rules.rotate_interval > timedelta(0))
        except FileExistsError:
            log.warning("[%s] working file already exists: %s", self._name, path)
            return False
        except InUse as error:
            if not rules.needs_revisions:
                raise
            log.warning("[%s] %s", self._name, error)
            return False
        if file.cut:
            log.warning("[%s] %s: removed an incomplete line of %d bytes at its end", self._name, path, file.cut)
        if 0 < rules.rotate_size < file.size:
            file.close()
            return False
        log.info("[%s] opened %s", self._name, path)
        self._file, self._size = file, file.size
        return True

    def _move(self, relative: str) -> None:
        """Move a finished file to the output folder, without overwriting another file."""
        source = os.path.join(self._rules.work_dir, relative)
        place = relative
        while True:
            target = os.path.join(self._rules.output_dir, place)
            _make_folder(os.path.dirname(target))
            try:
                os.link(source, target)
            except FileExistsError:
                if os.path.samefile(source, target):
                    break  # a process was killed between link and unlink
                log.warning("[%s] destination file already exists: %s", self._name, target)
                place = self._names.next_revision(place)
                continue
            if place != relative:
                log.warning("[%s] renamed finished file %s to %s to avoid overwrite", self._name, source, target)
            break
        sync_folder(os.path.dirname(target))
        os.unlink(source)
        sync_folder(os.path.dirname(source))
        log.info("[%s] moved %s to %s", self._name, source, target)


def _make_folder(folder: str) -> None:
    """Create a folder and its parents, and sync the parents' entries."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above or ".")
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    sync_folder(above)
