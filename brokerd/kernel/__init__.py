"""The work per message, in two implementations with one interface: compiled (``_frames``, ``_deferred``, ``_aside``,
``_runs``) and in plain Python (the modules of the same names without the underscore).

The plain twin defines what the functions do; property tests require equal results. The compiled version is used if it
was built. ``BROKERD_KERNEL=python`` in the environment forces the twin.
"""

from __future__ import annotations

import os

from brokerd.kernel.frames import Buffer

COMPILED = False
if os.environ.get("BROKERD_KERNEL") != "python":
    try:
        from brokerd.kernel._aside import SetAside, find_batch
        from brokerd.kernel._deferred import append_deferred, dpub_run
        from brokerd.kernel._frames import (
            Window,
            append_batches,
            append_bodies,
            append_commands,
            append_messages,
            fin_run,
            mpub_run,
            nop_run,
            pack_lines,
            plain_head,
            pub_run,
            req_run,
            scan_messages,
            touch_run,
            write_record,
        )
        from brokerd.kernel._runs import Runs

        COMPILED = True
    except ImportError:
        pass
if not COMPILED:
    from brokerd.kernel.aside import SetAside, find_batch  # type: ignore[assignment]
    from brokerd.kernel.deferred import append_deferred, dpub_run
    from brokerd.kernel.frames import (  # type: ignore[assignment]
        Window,
        append_batches,
        append_bodies,
        append_commands,
        append_messages,
        fin_run,
        mpub_run,
        nop_run,
        pack_lines,
        plain_head,
        pub_run,
        req_run,
        scan_messages,
        touch_run,
        write_record,
    )
    from brokerd.kernel.runs import Runs  # type: ignore[assignment]

__all__ = [
    "COMPILED",
    "Buffer",
    "Runs",
    "SetAside",
    "Window",
    "append_batches",
    "append_bodies",
    "append_commands",
    "append_deferred",
    "append_messages",
    "dpub_run",
    "fin_run",
    "find_batch",
    "mpub_run",
    "nop_run",
    "pack_lines",
    "plain_head",
    "pub_run",
    "req_run",
    "scan_messages",
    "touch_run",
    "write_record",
]
