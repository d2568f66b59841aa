"""The per-message work, twice behind one interface: compiled (``_frames``) and in plain Python (``frames``).

The plain twin defines what the functions do; property tests hold the two equal. The compiled one is taken when it was
built; ``BROKERD_KERNEL=python`` in the environment forces the twin.
"""

from __future__ import annotations

import os

from brokerd.kernel.frames import Buffer

COMPILED = False
if os.environ.get("BROKERD_KERNEL") != "python":
    try:
        from brokerd.kernel._frames import (
            Window,
            append_batches,
            append_bodies,
            append_commands,
            append_messages,
            fin_run,
            mpub_run,
            nop_run,
            pub_run,
            scan_messages,
        )

        COMPILED = True
    except ImportError:
        pass
if not COMPILED:
    from brokerd.kernel.frames import (  # type: ignore[assignment]
        Window,
        append_batches,
        append_bodies,
        append_commands,
        append_messages,
        fin_run,
        mpub_run,
        nop_run,
        pub_run,
        scan_messages,
    )

__all__ = [
    "COMPILED",
    "Buffer",
    "Window",
    "append_batches",
    "append_bodies",
    "append_commands",
    "append_messages",
    "fin_run",
    "mpub_run",
    "nop_run",
    "pub_run",
    "scan_messages",
]
