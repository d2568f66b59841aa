"""Runs services in stages: each stage starts when the previous one is ready, and stops before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nsqplatform.console.nsq.child import Child, Listener, Service


class Supervisor:
    """Children in stages. The last stage depends on the others, so it is stopped first."""

    def __init__(self, stages: Sequence[Sequence[Service]], listener: Listener) -> None:
        self._stages = [[Child(service, listener) for service in stage] for stage in stages]

    @property
    def services(self) -> list[Service]:
        return [child.service for stage in self._stages for child in stage]

    async def start(self, stage: int) -> None:
        """Start a stage and return when all its services are ready, without a time limit."""
        children = self._stages[stage]
        for child in children:
            child.start()
        await asyncio.gather(*(child.running.wait() for child in children))

    async def stop(self) -> None:
        """Stop all started services, the last stage first, the children of a stage together."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))

    def kill(self) -> None:
        """Kill all processes with their descendants now, so that ``stop`` need not wait."""
        for stage in self._stages:
            for child in stage:
                child.kill()
