"""Memory and garbage collector statistics of this process, under the names of nsqd's ``/stats``.

nsqd reports Go's allocator. Monitoring reads these names, so they have the nearest equivalents of this process.
"""

import gc
import os
import resource
import sys
import time
from collections import deque
from typing import TypedDict

_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryStats(TypedDict):
    """Bytes, counts and microseconds, all of them unsigned.

    ``heap_in_use_bytes`` is anonymous resident memory: mapped segments belong to the page cache and are not counted.
    ``heap_idle_bytes`` and ``heap_released_bytes`` are allocated address space that is not resident.
    ``next_gc_bytes`` is 0: Python's collector is triggered by counts of objects.
    """

    heap_objects: int
    heap_idle_bytes: int
    heap_in_use_bytes: int
    heap_released_bytes: int
    gc_pause_usec_100: int
    gc_pause_usec_99: int
    gc_pause_usec_95: int
    next_gc_bytes: int
    gc_total_runs: int


def release_memory() -> None:
    """Return freed memory to the system; the C library keeps most of it otherwise."""
    import ctypes  # imported here because loading it takes milliseconds

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


class CollectorPauses:
    """The last 256 pauses of the garbage collector, measured by a callback."""

    def __init__(self) -> None:
        self._pauses_ns: deque[int] = deque(maxlen=256)
        self._started_ns = 0

    def install(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._note)

    def remove(self) -> None:
        """End the measurement."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.perf_counter_ns()
        else:
            self._pauses_ns.append(time.perf_counter_ns() - self._started_ns)

    def percentiles_usec(self, *percents: int) -> list[int]:
        """These percentiles of the pauses in whole microseconds; zeros if there was no pause."""
        pauses = sorted(self._pauses_ns)
        if not pauses:
            return [0] * len(percents)
        # The index that nsqd computes; for the 100th percentile it would be beyond the end.
        return [pauses[min(len(pauses) * percent // 100, len(pauses) - 1)] // 1000 for percent in percents]


def memory_stats(pauses: CollectorPauses) -> MemoryStats:
    """The process's present memory. Cheap enough to read every second."""
    in_use, idle = _resident_and_idle()
    p100, p99, p95 = pauses.percentiles_usec(100, 99, 95)
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": idle,
        "heap_in_use_bytes": in_use,
        "heap_released_bytes": idle,
        "gc_pause_usec_100": p100,
        "gc_pause_usec_99": p99,
        "gc_pause_usec_95": p95,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def _resident_and_idle() -> tuple[int, int]:
    """Bytes of resident anonymous memory, and of the data segment that is not resident."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            _size, resident, shared, _text, _lib, data, _dirty = map(int, statm.read().split())
    except OSError:  # not Linux: the system reports only the peak
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (peak if sys.platform == "darwin" else peak * 1024), 0
    in_use = (resident - shared) * _PAGE
    return in_use, max(0, data * _PAGE - in_use)
