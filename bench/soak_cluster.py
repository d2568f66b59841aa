"""The cluster of the soak: brokers and registries that are killed, restarted, paused and moved while it runs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aionsq import Node
from bench.ports import free_port
from bench.server import Server, start_brokerd

PAUSE_SECONDS = (0.2, 6.0)
DOWN_SECONDS = (0.0, 2.0)


class Broker:
    """A brokerd with one data path and two TCP addresses, of which it uses one at a time."""

    def __init__(self, data_path: Path, registries: Sequence[str]) -> None:
        data_path.mkdir()
        self.tcp_addresses = [free_address(), free_address()]
        self.http_address = free_address()
        self.is_busy = False
        """True while a fault is being applied."""
        self._at = 0
        self._data_path = data_path
        self._registries = registries
        self.server: Server | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self.server = start_brokerd(
            self._data_path,
            f"--tcp-address={self.tcp_addresses[self._at]}",
            f"--http-address={self.http_address}",
            *(f"--lookupd-tcp-address={address}" for address in self._registries),
        )

    async def kill(self) -> None:
        """``kill -9``."""
        if self.server is not None:
            await asyncio.to_thread(self.server.kill)

    async def stop(self) -> None:
        """Send SIGTERM and wait for the exit."""
        if self.server is not None:
            await asyncio.to_thread(self.server.stop)

    def move(self) -> None:
        """Use the other address from the next start on."""
        self._at = 1 - self._at

    async def pause(self, seconds: float) -> None:
        assert self.server is not None
        os.kill(self.server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self.server.pid, signal.SIGCONT)


class Registry:
    """A lookup with fixed addresses."""

    def __init__(self) -> None:
        self.tcp_address, self.http_address = free_address(), free_address()
        self.is_busy = False
        self.server: Server | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        addresses = [f"--tcp-address={self.tcp_address}", f"--http-address={self.http_address}"]
        self.server = Server(["-m", "nsqlookup", *addresses], ["TCP", "HTTP"], own_session=True)

    async def kill(self) -> None:
        """``kill -9``; the registry loses all registrations."""
        if self.server is not None:
            await asyncio.to_thread(self.server.kill)


class Cluster:
    """Brokers that register with every registry."""

    def __init__(self, below: Path, brokers: int, registries: int) -> None:
        self.registries = [Registry() for _ in range(registries)]
        tcp_addresses = [each.tcp_address for each in self.registries]
        self.brokers = [Broker(below / f"broker{number}", tcp_addresses) for number in range(brokers)]
        self.faults: Counter[str] = Counter()
        """Number of faults by kind."""

    async def start(self, channels: Sequence[tuple[str, str]]) -> None:
        """Start all processes, and create the channels on every broker."""
        await asyncio.gather(*(each.start() for each in self.registries))
        await asyncio.gather(*(each.start() for each in self.brokers))
        for broker in self.brokers:
            async with Node(broker.http_address) as node:
                for topic, channel in channels:
                    await node.topic("create", topic)
                    await node.channel("create", topic, channel)

    async def close(self) -> None:
        """End every process. Starts run in threads and continue after a cancellation, so this waits for them."""
        await asyncio.get_running_loop().shutdown_default_executor()
        processes: list[Broker | Registry] = [*self.brokers, *self.registries]
        for server in [each.server for each in processes if each.server is not None]:
            server.kill()

    async def inject_faults(self, seconds: float, chance: random.Random) -> None:
        """Apply faults for ``seconds``, several at a time; at the end all processes run."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while loop.time() < until:
                group.create_task(self._inject_fault(chance))
                await asyncio.sleep(chance.uniform(0.3, 2.0))

    async def _inject_fault(self, chance: random.Random) -> None:
        if chance.random() < 0.1:
            await self._kill_registry(chance)
            return
        idle = [broker for broker in self.brokers if not broker.is_busy]
        if len(idle) < 2:  # one broker always stays available for publishing
            return
        broker = chance.choice(idle)
        broker.is_busy = True
        fault = chance.choice(["killed", "restarted", "paused", "moved"])
        self.faults[fault] += 1
        try:
            if fault == "paused":
                await broker.pause(chance.uniform(*PAUSE_SECONDS))
                return
            if fault == "killed" or (fault == "moved" and chance.random() < 0.5):
                await broker.kill()
            else:
                await broker.stop()
            if fault == "moved":
                broker.move()
            await asyncio.sleep(chance.uniform(*DOWN_SECONDS))
            await broker.start()
        finally:
            broker.is_busy = False

    async def _kill_registry(self, chance: random.Random) -> None:
        idle = [registry for registry in self.registries if not registry.is_busy]
        if not idle:
            return
        registry = chance.choice(idle)
        registry.is_busy = True
        self.faults["registry killed"] += 1
        try:
            await registry.kill()
            await asyncio.sleep(chance.uniform(*DOWN_SECONDS))
            await registry.start()
        finally:
            registry.is_busy = False


def free_address() -> str:
    """Return a loopback address that no other process takes, even while its server is down."""
    return f"127.0.0.1:{free_port()}"
