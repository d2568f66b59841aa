"""The layout of a waiting range, for the plain kernel and the journal.

``_frames.pyx`` and ``_aside.pyx`` have it for the compiled kernel.

A waiting range describes consecutive messages of a channel that have the same number of deliveries and due time.
"""

from __future__ import annotations

import struct
from typing import Final

WAITING_RANGE: Final = struct.Struct(">QIHQ")
"""``first_seq u64 | count u32 | attempts u16 | due_ns u64``, big-endian. ``due_ns`` is 0 for a requeued message."""
