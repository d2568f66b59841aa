"""A supervised process whose readiness check takes no notice of a cancellation, as clients with timeouts may."""

from __future__ import annotations

import asyncio
import sys

from nsqplatform.console.nsq.child import Child, Service
from tests.harness.waiting import DEADLINE_S


class Lines:
    """Notes the states."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def log(self, name: str, line: str) -> None: ...

    def state(self, name: str, state: str, detail: str) -> None:
        self.states.append(f"{state} {detail}" if state == "restarting" else state)


async def deaf() -> bool:
    """Not ready, and a cancellation ends the wait only."""
    try:
        await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        pass
    return False


async def test_a_process_is_started_again_although_the_check_was_not_cancelled():
    """It ended while it was checked; after the second end nothing waits for it any more."""
    seen = Lines()
    child = Child(Service(name="x", command=[sys.executable, "-c", "raise SystemExit(3)"], detail="", ready=deaf), seen)
    child.start()
    async with asyncio.timeout(DEADLINE_S):
        await child.settled.wait()
    assert not child.running.is_set()
    assert seen.states[:4] == [
        "starting",
        "restarting exit 3; starts again in 0.5 s",
        "starting",
        "restarting exit 3; starts again in 1 s",
    ]
    await child.stop()


async def test_a_permanent_error_ends_the_restarts():
    seen = Lines()
    command = [sys.executable, "-c", "raise SystemExit(78)"]
    child = Child(Service(name="x", command=command, detail="", ready=deaf), seen)
    child.start()
    async with asyncio.timeout(DEADLINE_S):
        await child.settled.wait()
    await child.stop()
    assert seen.states == ["starting", "failed"]
