"""The clock of stored due times, which survive a restart and do not change when the wall clock is stepped.

Due times are stored in "kept" nanoseconds: the monotonic clock plus an offset. The offset is computed from the wall
clock once per boot of the machine, so a later process of the same boot recovers due times exactly. A reboot resets the
monotonic clock; due times are then converted with the last known offset of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nsqwire.units import Seconds

STEP_NS = 100_000_000
"""A change of the wall clock by this much relative to the monotonic clock is a step."""


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)  # of Linux only


def boot_time() -> Seconds:
    """Seconds of a clock that goes on while the machine sleeps."""
    return time.monotonic() if _SINCE_BOOT is None else time.clock_gettime(_SINCE_BOOT)


class KeptClock(NamedTuple):
    """The stored state of a clock: the boot's id, the offset from monotonic to kept nanoseconds, and the last known
    offset from monotonic to Unix nanoseconds."""

    boot: str
    offset_ns: int
    wall_offset_ns: int


class NodeClock:
    """Converts monotonic seconds to kept nanoseconds and back.

    ``stepped(wall_offset_ns)`` is called after a step of the wall clock.
    """

    def __init__(
        self, now: Callable[[], Seconds], kept: KeptClock | None, boot: str, stepped: Callable[[int], None]
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
        """The state that a later process needs to convert kept times."""
        return KeptClock(self._boot, self._offset_ns, self._wall_offset_ns)

    @property
    def offset_ns(self) -> int:
        """Kept minus monotonic nanoseconds."""
        return self._offset_ns

    def keep(self, when: Seconds) -> int:
        """Convert a monotonic time in seconds to kept nanoseconds."""
        self.check()
        return int(when * 1e9) + self._offset_ns

    def check(self) -> None:
        """Call ``stepped`` if the wall clock was stepped since the last call."""
        wall_offset_ns = self._wall_offset()
        if abs(wall_offset_ns - self._wall_offset_ns) > STEP_NS:
            self._wall_offset_ns = wall_offset_ns
            self._stepped(wall_offset_ns)

    def recover(self, kept_ns: int) -> float:
        """Convert a time kept by an earlier process to monotonic seconds; now if it has passed."""
        return max(self._now(), (kept_ns + self._shift_ns - self._offset_ns) / 1e9)

    def wall_ns(self, when: Seconds) -> int:
        """Convert a monotonic time in seconds to Unix nanoseconds, by the present wall clock."""
        return int(when * 1e9) + self._wall_offset()

    def _wall_offset(self) -> int:
        return time.time_ns() - int(self._now() * 1e9)


def boot_id() -> str:
    """The id of this boot of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
