"""Pushes a daemon's metrics from its event loop, through a child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from nsqdaemon.http.messages import PendingResponse, Request, Response
from nsqdaemon.http.server import AnswerRequest
from nsqdaemon.otlp import SIZE
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

ANSWER_S: Final = 60.0
"""Longest time for a push, including retries. After this time, the child is replaced."""
END_S: Final = 2.0


def metrics_reader(answer: AnswerRequest) -> Callable[[], Awaitable[bytes]]:
    """Return a function that reads ``/metrics`` of the daemon's own router."""

    async def read() -> bytes:
        found = answer(Request("GET", b"/metrics", [], b""))
        assert not isinstance(found, PendingResponse), "only publishes have pending responses"
        response = found if isinstance(found, Response) else await found
        return response.body if response.parts is None else b"".join(response.parts)

    return read


class Pusher:
    """Reads the metrics once per interval and hands them to a child process, which it restarts if it ends."""

    def __init__(
        self, endpoint: str, interval_s: Seconds, read: Callable[[], Awaitable[bytes]], resource: Mapping[str, str]
    ) -> None:
        """``read`` returns the text of ``/metrics``; ``resource`` are attributes of the daemon, such as its name."""
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._read = read
        self._arguments = [f"{name}={value}" for name, value in resource.items()]
        self._child: Process | None = None
        self._failure = ""

    async def run(self) -> None:
        """Push until cancelled. The first of consecutive failures with the same reason is logged."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        log.info("OTLP: pushing metrics to %s", self._endpoint)
        try:
            while True:
                self._report(await self._push())
                due = max(due + self._interval_s, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            await self._end_child()

    async def _push(self) -> str:
        """Push once. Returns the reason of a failure, or an empty string."""
        text = await self._read()
        try:
            if self._child is None:
                self._child = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "nsqdaemon.otlp.child", self._endpoint, *self._arguments,
                    stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
                )  # fmt: skip
            stdin, stdout = self._child.stdin, self._child.stdout
            assert stdin is not None
            assert stdout is not None
            answer = b""
            if not stdin.is_closing():  # uvloop raises RuntimeError for a write to a pipe that the child has closed
                async with asyncio.timeout(ANSWER_S):
                    stdin.write(SIZE.pack(len(text)) + text)
                    await stdin.drain()
                    answer = await stdout.readline()
            if answer:
                return answer.decode(errors="replace").strip()
            reason = "the child process has ended"
        except TimeoutError:
            reason = f"no answer within {ANSWER_S:g}s"
        except (OSError, ValueError) as error:  # ValueError: a line that is longer than the stream's limit
            reason = str(error)
        await self._end_child(at_once=True)
        return reason

    def _report(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.error("OTLP: cannot push metrics to %s: %s", self._endpoint, failure)
        elif self._failure and not failure:
            log.info("OTLP: metrics are pushed to %s again", self._endpoint)
        self._failure = failure

    async def _end_child(self, *, at_once: bool = False) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            if at_once:
                child.kill()
            try:
                async with asyncio.timeout(END_S):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()
