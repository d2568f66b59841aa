"""The resident memory of the process also includes mapped segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MEGABYTE = 1_048_576
PUBLISHED_MB = 32


def resident_bytes(broker: Any) -> int:
    """Resident memory in bytes, as ``ps`` and ``top`` show it."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def heap_bytes(broker: Any) -> int:
    return int(broker.stats()["memory"]["heap_in_use_bytes"])


def test_a_backlog_is_in_the_resident_memory_and_not_in_the_heap(broker: Any) -> None:
    """Recent messages are in mapped pages of the page cache, which the kernel takes back as it needs them."""
    resident, heap = resident_bytes(broker), heap_bytes(broker)
    for _ in range(PUBLISHED_MB):
        assert broker.request("POST", "/pub?topic=t", b"x" * MEGABYTE).status == 200
    assert resident_bytes(broker) - resident > PUBLISHED_MB * MEGABYTE // 2
    assert heap_bytes(broker) - heap < PUBLISHED_MB * MEGABYTE // 2
