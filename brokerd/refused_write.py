"""A write that the disk refused, and the test whether the disk accepts such a write again."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from brokerd.log.files import NotAllocated
from brokerd.log.log import FIRST_SEGMENT_BYTES


@dataclass(frozen=True, eq=False)
class RefusedWrite:
    """The last write that the disk refused, with ``error``."""

    error: OSError
    nbytes: int
    """The space that the write needed; of several refused writes, the largest."""
    directory: Path
    """The directory of topics, which may not exist."""
    new_directory: Path | None = None
    """The directory of a topic that could not be created; None if all could be."""

    @classmethod
    def of(
        cls, error: OSError, directory: Path, *, new_directory: Path | None, previous: RefusedWrite | None
    ) -> RefusedWrite:
        """Describe the write that failed with ``error``. ``previous`` is an earlier one, if none succeeded since."""
        nbytes = error.nbytes if isinstance(error, NotAllocated) else FIRST_SEGMENT_BYTES
        if previous is not None:
            nbytes, new_directory = max(nbytes, previous.nbytes), new_directory or previous.new_directory
        return cls(error, nbytes, directory, new_directory)

    def retry(self) -> None:
        """Write as many bytes as were refused, and remove them. Raises OSError if it fails. Any thread may call it."""
        self.directory.mkdir(exist_ok=True)
        if self.new_directory is not None:
            with contextlib.suppress(FileExistsError):  # created by a client in the meantime
                self.new_directory.mkdir()
                self.new_directory.rmdir()
        self._allocate()

    def _allocate(self) -> None:
        import tempfile  # rarely needed, and startup is faster without

        space = os.statvfs(self.directory)
        if space.f_blocks and space.f_bfree * space.f_frsize < self.nbytes:
            # An attempt would use all the free space, and other writes would fail meanwhile.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(dir=self.directory, buffering=0) as file:  # without a name, where that is possible
            os.posix_fallocate(file.fileno(), 0, self.nbytes)
            file.write(bytes(mmap.PAGESIZE))
            os.fdatasync(file.fileno())
