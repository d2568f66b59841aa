"""Fixtures that run the tools as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec import to_builtins

from aionsq import Node, Producer
from nsqcluster import NodeStats
from tests.harness.async_process import AsyncForkedProcess, start_process
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S, until

SCRIPTS = {
    name: entry
    for part in ROOT.glob("distributions/*/pyproject.toml")
    for name, entry in tomllib.loads(part.read_text())["project"].get("scripts", {}).items()
}
PIPE = asyncio.subprocess.PIPE
IMPORTS = (
    "nsqcommand.command",
    *(f"aionsq.tools.{each.stem}" for each in (ROOT / "aionsq" / "tools").glob("[a-z]*.py")),
)
"""What the tools import."""
Process = asyncio.subprocess.Process | AsyncForkedProcess

QUICK = "--consumer-opt=default_requeue_delay,0", "--consumer-opt=backoff_multiplier,10ms"

Started = Callable[..., Awaitable["Tool"]]
StartOnBacklog = Callable[..., Awaitable["Tool"]]


@dataclass
class Ended:
    status: int
    out: bytes
    err: str


class Tool:
    """A running tool."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def end(self, stdin: bytes | None = None) -> Ended:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate(stdin)
        return Ended(self.process.returncode, out, (err or b"").decode())

    async def line(self) -> bytes:
        """The next line of standard output."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.stdout.readline()

    async def logged(self, text: str, within: float = DEADLINE_S) -> str:
        """Read standard error up to a line that contains ``text``; returns the lines read."""
        seen = ""
        try:
            async with asyncio.timeout(within):
                while line := (await self.process.stderr.readline()).decode():
                    seen += line
                    if text in line:
                        return seen
        except TimeoutError:
            pass
        raise AssertionError(f"no line with {text!r} in:\n{seen}")


def words_of(name: str) -> list[str]:
    """How to start the console script ``nsq_…`` of pyproject.toml, or else a subcommand of ``nsq``."""
    if name not in SCRIPTS:
        return [sys.executable, str(ROOT / "manage.py"), "nsq", name]
    module, _, function = SCRIPTS[name].partition(":")
    program = f"import sys; from {module} import {function}; sys.exit({function}())"
    return [sys.executable, "-c", program]


async def _emptied(process: Process) -> None:
    """Wait for the end of a process. asyncio waits for the end of its output too, which a full pipe would hold up."""
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(pipe.read() for pipe in (process.stdout, process.stderr) if pipe), process.wait())


@pytest.fixture
async def start_tool() -> AsyncIterator[Started]:
    """``await start_tool(name, *flags)`` starts a tool by its name in NSQ or its subcommand's; killed at the end if it
    still runs. ``stdin stdout stderr env`` as for a process; pipes where none is given."""
    started = []

    async def start(name: str, *flags: str, env: dict[str, str] | None = None, **files: Any) -> Tool:
        files = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **files}
        command = [*words_of(name), *flags]
        process = await start_process(command, imports=IMPORTS, env={**os.environ, **(env or {})}, cwd=ROOT, **files)
        started.append(process)
        return Tool(process)

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await _emptied(process)


@pytest.fixture
def start_on_backlog(broker: Any, start_tool: Started) -> StartOnBacklog:
    """``await start_on_backlog(tool, bodies, *flags, name=tool)``: publish to topic t, and start a tool by ``name``.

    It reads channel ``tool``, and retries failed messages at once.
    """

    async def start(tool: str, bodies: list[bytes], *flags: str, name: str = "") -> Tool:
        async with Node(broker.http_address) as node, Producer(broker.tcp_address) as producer:
            await node.topic("create", "t")
            await node.channel("create", "t", tool)
            if bodies:
                await producer.mpub("t", bodies)
        return await start_tool(name or tool, "--topic=t", f"--nsqd-tcp-address={broker.tcp_address}", *QUICK, *flags)

    return start


@pytest.fixture
def in_shell() -> Callable[[str], Awaitable[Ended]]:
    """Run a line of shell to its end, with ``nsq …`` in it replaced by how it is started here."""

    async def run(line: str) -> Ended:
        nsq = f"{sys.executable} {ROOT / 'manage.py'} nsq "
        shell = await asyncio.create_subprocess_shell(line.replace("nsq ", nsq, 1), cwd=ROOT, stdout=PIPE, stderr=PIPE)
        return await Tool(shell).end()

    return run


@pytest.fixture
def channel_of() -> Callable[[Any, str, str], Awaitable[dict[str, Any]]]:
    """A channel's row of a broker's /stats, once the topic has no message left that its channels do not have.

    A new topic waits for the registry's answer before it gives messages to its channels.
    """

    async def ask(broker: Any, topic: str, channel: str) -> dict[str, Any]:
        async with Node(broker.http_address) as node:

            async def routed() -> NodeStats | None:
                stats = await node.stats(topic, channel)
                return None if any(each.depth for each in stats.topics) else stats

            found = (await until(routed, "the topic's messages are in its channels")).channel(topic, channel)
            return cast(dict[str, Any], to_builtins(found)) if found is not None else {}

    return ask


@pytest.fixture
def settled(broker: Any, channel_of: Any) -> Callable[[str, str], Awaitable[dict[str, Any]]]:
    """Wait until every message of the broker's channel is finished; returns its row."""

    async def wait(topic: str, channel: str) -> dict[str, Any]:
        async def row() -> dict[str, Any]:
            row = await channel_of(broker, topic, channel)
            return {} if row["depth"] + row["in_flight_count"] + row["deferred_count"] else row

        return await until(row)

    return wait


@pytest.fixture
def interrupted() -> Callable[[Tool], Awaitable[str]]:
    """Send SIGINT, and check that the tool exits with status 0; returns its standard error."""

    async def press(tool: Tool) -> str:
        tool.process.send_signal(signal.SIGINT)
        ended = await tool.end()
        assert (ended.status, ended.out) == (0, b"")
        assert "Traceback" not in ended.err
        return ended.err

    return press
