"""The file of a member's stamps, ``mirror.stamps`` in its data path. It is not mirrored: each member writes its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from brokerd.mirror.errors import InvalidStream
from brokerd.mirror.stamps import Stamps
from brokerd.small_file import overwrite

STAMPS: Final = "mirror.stamps"


def read_stamps(data_path: Path) -> Stamps:
    """The stamps of a data path; empty ones if it has none, or none that can be read. Raises OSError."""
    with suppress(FileNotFoundError, InvalidStream):
        return Stamps.from_bytes((data_path / STAMPS).read_bytes())
    return Stamps()


def write_stamps(data_path: Path, stamps: Stamps) -> None:
    """Overwrite the stamps of a data path, and sync them. Raises FileFailed."""
    overwrite(data_path / STAMPS, stamps.to_bytes())
