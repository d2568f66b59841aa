"""Errors of files that name the file. The system's errors do not if the file was used by its descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileFailed(OSError):
    """A file or directory could not be used; ``done`` is a participle such as ``written``. The text names the file."""

    def __init__(self, error: OSError, path: Path, done: str) -> None:
        super().__init__(error.errno, error.strerror, os.fspath(error.filename or path))
        self._done, self._reason = done, str(error if error.errno is None else OSError(error.errno, error.strerror))

    def __str__(self) -> str:
        return f"{self.filename} cannot be {self._done}: {self._reason}"


@contextmanager
def named(path: Path, done: str) -> Iterator[None]:
    """Turn an OSError of the block into FileFailed, which names ``path``."""
    try:
        yield
    except FileFailed:
        raise
    except OSError as error:
        raise FileFailed(error, path, done) from error


def with_name(error: OSError, path: Path) -> OSError:
    """The error with the file's name, as the system reports it for a file that is used by its name."""
    return OSError(error.errno, error.strerror, os.fspath(error.filename or path))
