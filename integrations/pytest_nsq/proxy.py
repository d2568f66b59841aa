"""A TCP proxy in front of the broker, which simulates network faults and keeps its port when the broker restarts."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

HOST: Final = "127.0.0.1"
CHUNK: Final = 65536
_RESET: Final = struct.pack("ii", 1, 0)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nsq-proxy", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Cancel all tasks and end the thread."""
        self.call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Proxy:
    """Forwards the connections to one port. All methods but ``port`` run in the event loop."""

    def __init__(self, target_port: Callable[[], int]) -> None:
        """``target_port`` is called for each connection, because a restarted broker has another port."""
        self._target_port = target_port
        # A bound socket that does not listen reserves the port while connections are refused.
        self._placeholder = _bound(0)
        self.port: int = self._placeholder.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._closes = False
        self._delay_s = 0.0
        self._is_prompt = asyncio.Event()

    async def listen(self) -> None:
        """Accept connections, and forward them without a fault."""
        self._refuses = self._closes = False
        self._is_prompt.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=_bound(self.port), limit=CHUNK)

    async def refuse(self) -> None:
        """Refuse new connections, and reset the open ones."""
        self._refuses = True
        if self._server is not None:
            self._server.close()
            self._server = None
        self._reset_all()

    async def close_connections(self) -> None:
        """Reset the open connections, and each new one when its client sends something."""
        self._closes = True
        self._reset_all()

    async def delay(self, seconds: float) -> None:
        """Delay everything that the broker sends by ``seconds``. :meth:`listen` ends this."""
        self._delay_s = seconds
        self._is_prompt.clear()

    async def close(self) -> None:
        """Refuse connections, and release the port."""
        await self.refuse()
        self._placeholder.close()

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:  # it was accepted before, and begins to be served now
            _reset(writer)
            return
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection(HOST, self._target_port(), limit=CHUNK)
            backward = asyncio.create_task(self._forward_answers(answers, writer))
            try:
                while chunk := await reader.read(CHUNK):
                    if self._closes:
                        _reset(writer)
                        return
                    upstream.write(chunk)
                    await upstream.drain()
                upstream.write_eof()
                await backward
            finally:
                backward.cancel()
        except OSError:
            _reset(writer)
        finally:
            self._writers.discard(writer)
            for each in (writer, upstream):
                if each is not None:
                    each.close()

    async def _hold(self) -> None:
        """Wait until the delay has passed or was ended by :meth:`listen`."""
        if not self._is_prompt.is_set():
            try:
                async with asyncio.timeout(self._delay_s):
                    await self._is_prompt.wait()
            except TimeoutError:
                pass

    async def _forward_answers(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward to the client until the broker closes the connection, which closes the client's."""
        try:
            while chunk := await answers.read(CHUNK):
                await self._hold()
                writer.write(chunk)
                await writer.drain()
            writer.close()
        except OSError:
            _reset(writer)


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    bound.setblocking(False)
    return bound


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, so that the client does not wait for more."""
    if (connection := writer.get_extra_info("socket")) is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
