"""Due times that outlive the process, and do not move when the wall clock is stepped.

A due time is kept as Unix nanoseconds by a clock that runs on from where it was set: the monotonic clock and an offset,
which is the wall clock's once and stays as it is. As long as the machine runs, a later process reads such a time by the
same two, exactly. After a reboot the monotonic clock is another one: then the wall clock counts, as it last stood
against the one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STEP_NS = 100_000_000
"""A wall clock that has moved by this much against the monotonic one was stepped."""


class KeptClock(NamedTuple):
    """What is kept of a clock: the boot it runs in, its ``offset`` from monotonic to kept nanoseconds, and that to the
    wall clock's as last seen."""

    boot: str
    offset_ns: int
    wall_offset_ns: int


class NodeClock:
    """Turns monotonic seconds into kept nanoseconds and back. ``stepped(offset)`` hears when the wall clock moved."""

    def __init__(
        self, now: Callable[[], float], kept: KeptClock | None, boot: str, stepped: Callable[[int], None]
    ) -> None:
        self._now = now
        self._boot = boot
        self._stepped = stepped
        self._wall_offset_ns = self._wall_offset()
        self._shift_ns = 0
        if kept is not None and kept.boot and kept.boot == boot:
            self._offset_ns = kept.offset_ns
        else:
            self._offset_ns = self._wall_offset_ns
            if kept is not None:
                self._shift_ns = kept.wall_offset_ns - kept.offset_ns

    @property
    def kept(self) -> KeptClock:
        """What a later process needs to read the kept times."""
        return KeptClock(self._boot, self._offset_ns, self._wall_offset_ns)

    @property
    def offset_ns(self) -> int:
        """Added to monotonic nanoseconds to get kept ones."""
        return self._offset_ns

    def keep(self, when: float) -> int:
        """A monotonic time as kept nanoseconds."""
        wall_offset_ns = self._wall_offset()
        if abs(wall_offset_ns - self._wall_offset_ns) > STEP_NS:
            self._wall_offset_ns = wall_offset_ns
            self._stepped(wall_offset_ns)
        return int(when * 1e9) + self._offset_ns

    def recover(self, kept_ns: int) -> float:
        """The monotonic time of what the process before this one kept; now if it has passed."""
        return max(self._now(), (kept_ns + self._shift_ns - self._offset_ns) / 1e9)

    def wall_ns(self, when: float) -> int:
        """A monotonic time as Unix nanoseconds, by the wall clock as it stands now."""
        return int(when * 1e9) + self._wall_offset()

    def _wall_offset(self) -> int:
        return time.time_ns() - int(self._now() * 1e9)


def boot_id() -> str:
    """What tells this run of the machine from others; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
