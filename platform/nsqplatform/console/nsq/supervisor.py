"""Runs a list of services in stages: each stage starts when the one before answers, and stops before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nsqplatform.console.nsq.child import Child, Listener, Service


class Supervisor:
    """Children in stages. What is started last depends on the rest, so it is stopped first."""

    def __init__(self, stages: Sequence[Sequence[Service]], listener: Listener) -> None:
        self._stages = [[Child(service, listener) for service in stage] for stage in stages]

    @property
    def services(self) -> list[Service]:
        return [child.service for stage in self._stages for child in stage]

    async def start(self, stage: int) -> None:
        """Start one stage and return when all of it answers, however long that takes."""
        children = self._stages[stage]
        for child in children:
            child.start()
        await asyncio.gather(*(child.running.wait() for child in children))

    async def stop(self) -> None:
        """Stop everything that was started, the last stage first, each stage's children together."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))

    def kill(self) -> None:
        """End every process now, descendants included; what ``stop`` waits for then happens at once."""
        for stage in self._stages:
            for child in stage:
                child.kill()
