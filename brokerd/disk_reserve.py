"""The reserve of the disk: below it, publishes are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
MARGIN: Final = 0.1
MAX_MARGIN_BYTES: Final = 10**9
"""Publishes are accepted again once MARGIN of the reserve, at most MAX_MARGIN_BYTES, is free above it."""
_RESERVE: Final = re.compile(r"(\d+(?:\.\d+)?) ?(%|[KMGT]?B|)", re.ASCII)


class ReserveReached(OSError):
    """Less of the disk is free than the reserve; the text has both figures."""


class DiskReserve(NamedTuple):
    """A part of the disk, 0 to 1, or a number of bytes; the other is 0."""

    part: float
    nbytes: int

    @classmethod
    def of(cls, text: str) -> DiskReserve | None:
        """Read ``5%`` or ``2GB``; None for an empty text. Raises ValueError with a message for the user."""
        if not text:
            return None
        match = _RESERVE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a part of the disk such as 5%, or a size such as 2GB")
        number = float(match[1])
        if match[2] != "%":
            return cls(0.0, round(number * UNITS[match[2]]))
        if number >= 100:
            raise ValueError(f"{text!r} is not below 100%")
        return cls(number / 100, 0)

    def check(self, path: Path, *, is_reached: bool) -> None:
        """Raise ReserveReached if the disk of ``path`` has less free than the reserve.

        If the reserve ``is_reached`` already, more has to be free: the margin. Raises another OSError if the disk
        cannot be examined.
        """
        disk = os.statvfs(path)
        free, reserve = disk.f_bavail * disk.f_frsize, self.nbytes or round(self.part * disk.f_blocks * disk.f_frsize)
        margin = min(round(reserve * MARGIN), MAX_MARGIN_BYTES) if is_reached else 0
        if free < reserve + margin:
            raise ReserveReached(f"the disk has {_shown(free)} free, and its reserve is {_shown(reserve)}")


def _shown(nbytes: int) -> str:
    unit = max((unit for unit, size in UNITS.items() if size <= max(nbytes, 1)), key=lambda unit: UNITS[unit])
    return f"{nbytes / UNITS[unit]:.1f} {unit}" if UNITS[unit] > 1 else f"{nbytes} B"
