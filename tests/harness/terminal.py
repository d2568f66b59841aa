"""Programs that show their progress on a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tests.harness.waiting import DEADLINE_S

TERMINAL = {"TERM": "xterm", "COLUMNS": "100"}


async def shown_on_terminal(command: list[str], is_enough: Callable[[bytes], object]) -> bytes:
    """Run ``command`` with a terminal as its standard error, and return what it writes there.

    Once ``is_enough`` of that returns a true value, the program gets SIGTERM. Raises AssertionError unless it then
    exits with 0, and TimeoutError after DEADLINE_S.
    """
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=theirs, env=os.environ | TERMINAL
        )
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    shown = b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not is_enough(shown):
                try:
                    shown += os.read(ours, 65536)
                except BlockingIOError:
                    await asyncio.sleep(0.02)
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    return shown
