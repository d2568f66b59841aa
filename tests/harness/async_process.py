"""Child processes of an event loop, with streams as those of asyncio's processes."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.streams import FlowControlMixin
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.harness.fork_server import ForkedProcess, can_fork

Stream = int | IO[bytes] | None


class AsyncForkedProcess:
    """What the tests use of ``asyncio.subprocess.Process``, for a forked process."""

    def __init__(self, child: ForkedProcess) -> None:
        self._child = child
        self.pid = child.pid
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    async def connect(self) -> None:
        """Hand the pipes to the event loop. Call it once."""
        loop = asyncio.get_running_loop()
        if self._child.stdin is not None:
            transport, protocol = await loop.connect_write_pipe(FlowControlMixin, self._child.stdin)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        self.stdout = await reader_of(self._child.stdout)
        self.stderr = await reader_of(self._child.stderr)

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    async def wait(self) -> int:
        status = await asyncio.to_thread(self._child.wait)
        if self.stdin is not None:
            self.stdin.close()
        return status

    async def communicate(self, text: bytes | None = None) -> tuple[bytes | None, bytes | None]:
        """Read both outputs to their end, and wait for the exit. ``text`` is written to standard input before, which is
        then closed; without it, standard input stays open until the exit: its end may not overtake a signal."""
        _, out, err = await asyncio.gather(self._feed(text), rest_of(self.stdout), rest_of(self.stderr))
        await self.wait()
        return out, err

    async def _feed(self, text: bytes | None) -> None:
        if self.stdin is None or text is None:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process reads no more
            self.stdin.write(text)
            await self.stdin.drain()
        self.stdin.close()

    def send_signal(self, number: int) -> None:
        self._child.send_signal(number)

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        self._child.kill()


async def start_process(
    command: Sequence[str],
    *,
    imports: tuple[str, ...],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Process | AsyncForkedProcess:
    """Start a process, forked from one that has imported ``imports`` if that makes no difference (fork_server.py)."""
    if not can_fork(command, env, {"stderr": stderr}):
        return await asyncio.create_subprocess_exec(
            *command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr
        )
    child = ForkedProcess(command, modules=imports, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
    forked = AsyncForkedProcess(child)
    await forked.connect()
    return forked


async def reader_of(pipe: IO[bytes] | None) -> asyncio.StreamReader | None:
    """Return a reader of the pipe, in the event loop."""
    if pipe is None:
        return None
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def rest_of(stream: asyncio.StreamReader | None) -> bytes | None:
    """Read a stream to its end; None if there is none."""
    return None if stream is None else await stream.read()
