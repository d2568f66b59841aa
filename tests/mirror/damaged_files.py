"""Damage to the files of a member: made while it is stopped, and found in checkpoints."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

from brokerd.journal.checkpoint import CHECKPOINT, PREVIOUS, Damaged, read_checkpoint
from brokerd.mirror.actions import is_mirrored

MOST_BYTES = 100_000


def mirrored(data_path: Path) -> list[str]:
    """The mirrored files and directories of a data path, by their relative paths."""
    return sorted(name for each in data_path.rglob("*") if is_mirrored(name := str(each.relative_to(data_path))))


def damage_files(data_path: Path, chance: random.Random) -> int:
    """Remove, cut, extend or overwrite about half of the files. Returns their number."""
    damaged = 0
    for path in (data_path / name for name in mirrored(data_path)):
        if path.is_dir() or chance.random() < 0.5:
            continue
        damaged += 1
        size = path.stat().st_size
        how = chance.randrange(4)
        if how == 0:
            path.unlink()
        elif how == 1:
            os.truncate(path, chance.randrange(size + 1))
        elif how == 2:
            os.truncate(path, size + chance.randrange(1, MOST_BYTES))
        else:
            path.write_bytes(chance.randbytes(min(size, MOST_BYTES)))
    return damaged


def damaged_checkpoints(data_paths: Iterable[Path]) -> list[str]:
    """Why checkpoints cannot be read. One that is missing is being replaced, or was never written."""
    found = []
    for path in (data_path / name for data_path in data_paths for name in (CHECKPOINT, PREVIOUS)):
        try:
            read_checkpoint(path)
        except FileNotFoundError:
            pass
        except Damaged as error:
            found.append(str(error))
    return found
