"""Runs services in stages: each stage starts when the previous one is ready, and stops before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from nsqplatform.console.nsq.child import SLOW_START_SECONDS, Child, Listener, Service


class Supervisor:
    """Children in stages. The last stage depends on the others, so it is stopped first."""

    def __init__(self, stages: Sequence[Sequence[Service]], listener: Listener) -> None:
        self._stages = [[Child(service, listener) for service in stage] for stage in stages]

    @property
    def services(self) -> list[Service]:
        return [child.service for stage in self._stages for child in stage]

    async def start(self, stage: int) -> None:
        """Start a stage and return when each of its services is ready, or has failed for good or twice.

        There is no time limit, unless a service of an earlier stage is not ready: those that wait for it for ever are
        waited for SLOW_START_SECONDS.
        """
        children = self._stages[stage]
        limit = SLOW_START_SECONDS if self.not_running(stage) else None
        for child in children:
            child.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await asyncio.gather(*(child.settled.wait() for child in children))

    def not_running(self, stages: int | None = None) -> list[str]:
        """The names of the services of the first ``stages`` (default: all) that are not ready."""
        return [child.service.name for each in self._stages[:stages] for child in each if not child.running.is_set()]

    async def stop(self) -> None:
        """Stop all started services, the last stage first, the children of a stage together."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))

    def kill(self) -> None:
        """Kill all processes with their descendants now, so that ``stop`` need not wait."""
        for stage in self._stages:
            for child in stage:
                child.kill()
