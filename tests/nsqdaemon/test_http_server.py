"""The HTTP server on real sockets."""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from nsqdaemon.http import HTTPServer, Limits, Request, Response, Router, text_response
from nsqdaemon.http.server import Slices
from tests.harness.waiting import DEADLINE_S, until

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"
BIG = b"x" * 4_000_000

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Bench:
    """A server whose ``/wait`` answers when the test lets it."""

    def __init__(self, *, idle_timeout_s: float = 60.0, slices: Slices | None = None) -> None:
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()
        self.answered = 0
        router = Router()
        router.add("GET", "/ping", lambda request: text_response(b"OK", nsq=False))
        router.add("GET", "/quiet", lambda request: text_response(b"OK"), quiet=True)
        router.add("GET", "/big", self._big)
        router.add("GET", "/parts", lambda request: Response(200, [b"part%d," % number for number in range(3)]))
        router.add("GET", "/who", lambda request: text_response(request.remote_address))
        router.add("GET", "/wait", self._wait)
        router.add("GET", "/fail", self._fail)
        router.add("POST", "/pub", lambda request: text_response(str(len(request.body))), too_big="MSG_TOO_BIG")
        limits = Limits(max_body_size=1_000_000, max_pipelined=8)
        self.server = HTTPServer(router.answer, limits=limits, idle_timeout_s=idle_timeout_s, slices=slices)

    def _big(self, request: Request) -> Response:
        self.answered += 1
        return Response(200, BIG)

    async def _wait(self, request: Request) -> Response:
        self.waiting.set()
        await self.gate.wait()
        self.answered += 1
        return text_response(b"waited")

    async def _fail(self, request: Request) -> Response:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Connect]:
        listener = await asyncio.get_running_loop().create_server(self.server.protocol, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            yield lambda: asyncio.open_connection("127.0.0.1", port, limit=2**23)
        finally:
            listener.close()
            await self.server.close(grace_s=0.1)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(DEADLINE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        return int(head.split()[1]), await reader.readexactly(int(length[1]))


async def test_pipelined_answers_come_in_order_with_slow_ones_between() -> None:
    """A slow answer delays those behind it, not the server."""
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/ping" + GET % b"/wait" + GET % b"/who" + GET % b"/fail" + GET % b"/ping")
        assert await read_answer(reader) == (200, b"OK")
        await bench.waiting.wait()
        other, other_writer = await connect()
        other_writer.write(GET % b"/ping")
        assert await read_answer(other) == (200, b"OK")
        bench.gate.set()
        assert await read_answer(reader) == (200, b"waited")
        assert (await read_answer(reader))[0] == 200
        assert await read_answer(reader) == (500, b'{"message":"INTERNAL_ERROR"}')
        assert await read_answer(reader) == (200, b"OK")
        writer.close()
        other_writer.close()


async def test_an_answer_in_parts_is_as_good_as_one() -> None:
    """Between others on one connection, and to a client of HTTP/1.0."""
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/ping" + GET % b"/parts" + GET % b"/ping" + GET % b"/parts")
        answers = [await read_answer(reader) for _ in range(4)]
        assert answers == [(200, b"OK"), (200, b"part0,part1,part2,")] * 2
        writer.write(b"GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert await read_answer(reader) == (200, b"part0,part1,part2,")
        writer.close()


async def test_a_client_that_does_not_read_does_not_fill_the_memory() -> None:
    """Answers are computed as the client reads them, and all of them arrive in the end."""
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/big" * 40)
        await writer.drain()
        other, other_writer = await connect()
        for _ in range(50):  # by the end of these the server could have continued
            other_writer.write(GET % b"/ping")
            assert await read_answer(other) == (200, b"OK")
        assert bench.answered < 20
        for _ in range(40):
            status, body = await read_answer(reader)
            assert (status, len(body)) == (200, len(BIG))
        writer.close()
        other_writer.close()


async def test_a_client_that_shuts_its_side_down_still_gets_its_answer() -> None:
    """``printf ... | nc`` works, also while the answer is being computed."""
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/ping" + GET % b"/wait")
        writer.write_eof()
        await bench.waiting.wait()
        bench.gate.set()
        assert await read_answer(reader) == (200, b"OK")
        assert await read_answer(reader) == (200, b"waited")
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_request_is_completed_although_its_client_disconnects() -> None:
    """The work is completed although the client has disconnected."""
    bench = Bench()
    async with bench.listening() as connect:
        _, writer = await connect()
        writer.write(GET % b"/wait")
        await bench.waiting.wait()
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await until(lambda: not bench.server.connections)
        bench.gate.set()
        await until(lambda: bench.answered == 1)


async def test_a_huge_body_is_refused_in_a_way_the_client_can_read() -> None:
    """A client that reads only after it has sent everything still gets the 413, not a reset connection."""
    bench = Bench()

    def publish(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=DEADLINE_S) as client:
            client.sendall(b"POST /pub HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20_000_000)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(partial(client.recv, 65536), b""))

    async with bench.listening() as connect:
        _, writer = await connect()
        answer = await asyncio.to_thread(publish, writer.get_extra_info("peername"))
        writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b'{"message":"MSG_TOO_BIG"}')


@pytest.mark.parametrize("said", [b"", b"GET /ping HT", GET % b"/ping"])
async def test_an_idle_client_is_disconnected(said: bytes) -> None:
    """Before, within and after a request: the connection is closed after the idle time."""
    bench = Bench(idle_timeout_s=1)
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(said)
        async with asyncio.timeout(DEADLINE_S):
            rest = await reader.read()
        assert rest.endswith(b"OK") == said.endswith(b"\r\n\r\n")
        writer.close()


async def test_a_client_that_waits_for_an_answer_is_not_disconnected() -> None:
    """The idle time does not include the time until the server answers."""
    bench = Bench(idle_timeout_s=1)
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/wait")
        await bench.waiting.wait()
        idle, idle_writer = await connect()
        async with asyncio.timeout(DEADLINE_S):
            assert await idle.read() == b""  # the sweep has skipped both
        bench.gate.set()
        assert await read_answer(reader) == (200, b"waited")
        writer.close()
        idle_writer.close()


async def test_closing_waits_for_answers_but_not_for_idle_clients() -> None:
    """Idle connections are closed at once, outstanding answers are sent, and then closing returns."""
    bench = Bench()
    async with bench.listening() as connect:
        idle, idle_writer = await connect()
        idle_writer.write(GET % b"/ping")
        assert await read_answer(idle) == (200, b"OK")
        reader, writer = await connect()
        writer.write(GET % b"/wait")
        await bench.waiting.wait()
        closing = asyncio.create_task(bench.server.close(grace_s=DEADLINE_S))
        async with asyncio.timeout(DEADLINE_S):
            assert await idle.read() == b""
        assert not closing.done()
        bench.gate.set()
        assert await read_answer(reader) == (200, b"waited")
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await closing
        idle_writer.close()


async def test_closing_does_not_wait_for_ever() -> None:
    """A client whose answer never comes is disconnected after the grace period."""
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        writer.write(GET % b"/wait")
        await bench.waiting.wait()
        async with asyncio.timeout(DEADLINE_S):
            await bench.server.close(grace_s=0.05)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
        bench.gate.set()
        writer.close()


async def test_peers_of_a_unix_socket_have_no_address(tmp_path: Path) -> None:
    """The address is shown as ``@``."""
    bench = Bench()
    path = str(tmp_path / "http.sock")
    listener = await asyncio.get_running_loop().create_unix_server(bench.server.protocol, path)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(GET % b"/who")
    assert await read_answer(reader) == (200, b"@")
    writer.close()
    listener.close()
    await bench.server.close(grace_s=0.1)


async def test_each_request_is_a_log_line_unless_its_route_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Status, method, target, client and duration, as nsqd writes it; publishing logs nothing."""
    caplog.set_level(logging.INFO, logger="nsqdaemon")
    bench = Bench()
    async with bench.listening() as connect:
        reader, writer = await connect()
        bench.gate.set()
        writer.write(GET % b"/ping?x=1" + GET % b"/quiet" + GET % b"/wait" + GET % b"/nowhere")
        for _ in range(4):
            await read_answer(reader)
        writer.close()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("nsqdaemon.http")]
    client = r" \(127\.0\.0\.1:\d+\) [\d.]+(ns|µs|ms|s)"
    expected = [r"200 GET /ping\?x=1", r"200 GET /wait", r"404 GET /nowhere"]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern + client, line)


class ShortSlices:
    """Slices that are over at the second check of the clock."""

    def __init__(self) -> None:
        self._now = 0.0

    def later(self, job: Callable[[float], None]) -> None:
        asyncio.get_running_loop().call_soon(lambda: job(self.deadline()))

    def deadline(self) -> float:
        return self._now + 2.0

    def clock(self) -> float:
        self._now += 1.0
        return self._now

    def is_spent(self) -> bool:
        return False


async def test_pipelined_requests_alternate_with_those_of_others() -> None:
    """A dozen requests that came in one read are not all answered before another client's first."""
    bench = Bench(slices=ShortSlices())
    bench.server.on_answered = lambda request, response, elapsed_ns: order.append(request.target)
    order: list[bytes] = []
    body = b"POST /pub HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n" + bytes(20_000)
    async with bench.listening() as connect:
        pipelining, writer = await connect()
        other, other_writer = await connect()
        writer.write(body * 12)
        other_writer.write(GET % b"/ping")
        for _ in range(12):
            assert await read_answer(pipelining) == (200, b"20000")
        assert await read_answer(other) == (200, b"OK")
        assert order.index(b"/ping") < 5
        writer.close()
        other_writer.close()
