"""nsq_to_http, against real HTTP servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from tests.aionsq.tools.conftest import StartOnBacklog, Tool
from tests.harness.process import Process
from tests.harness.waiting import until


class Web:
    """An HTTP server that records requests, and answers with ``answer``."""

    def __init__(self) -> None:
        self.requests: list[web.BaseRequest] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[web.BaseRequest], web.StreamResponse] = lambda request: web.Response()
        self.delay_s = 0.0
        self.url = ""
        self._runner: web.ServerRunner | None = None

    async def start(self, port: int = 0) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(request)
        self.bodies.append(body)
        await asyncio.sleep(self.delay_s)
        return self.answer(request)


@pytest.fixture
async def start_web() -> AsyncIterator[Callable[[], Awaitable[Web]]]:
    """``await start_web()`` starts another HTTP server."""
    async with AsyncExitStack() as stack:

        async def start() -> Web:
            server = Web()
            await server.start()
            stack.push_async_callback(server.stop)
            return server

        yield start


@pytest.fixture
async def server(start_web: Callable[[], Awaitable[Web]]) -> Web:
    """One HTTP server."""
    return await start_web()


@pytest.fixture
def deliver(start_on_backlog: StartOnBacklog) -> Callable[..., Awaitable[Tool]]:
    """``await deliver(bodies, *flags)``: publish to topic t, and start nsq_to_http on it."""
    return partial(start_on_backlog, "nsq_to_http")


async def test_each_message_is_posted_as_a_body(server, deliver, settled, interrupted):
    """With the reference's headers; a given header replaces the default of the same name."""
    tool = await deliver(
        [b"one", b"\x00\xff"],
        *("--post", f"{server.url}/in?x=%20y", "--header", "X-Key: a: b", "--header=user-agent:mine"),
        "--content-type=text/x",
    )
    await settled("t", "nsq_to_http")
    assert sorted(server.bodies) == [b"\x00\xff", b"one"]
    for request in server.requests:
        assert (request.method, request.raw_path) == ("POST", "/in?x=%20y")
        assert (request.headers["X-Key"], request.headers["User-Agent"]) == ("a: b", "mine")
        assert request.headers["Content-Type"] == "text/x"
    assert await interrupted(tool) == ""


async def test_the_defaults_of_the_headers_are_the_reference_s(server, deliver, settled):
    """User-Agent and Content-Type."""
    await deliver([b"x"], f"--post={server.url}")
    await settled("t", "nsq_to_http")
    headers = server.requests[0].headers
    assert (headers["User-Agent"], headers["Content-Type"]) == ("nsq_to_http v1.3.0", "application/octet-stream")


async def test_a_get_has_the_message_in_place_of_its_placeholder(server, deliver, settled):
    """Escaped; other percent signs of the URL stay, doubled ones become one, as in printf; any 2xx is a success."""
    server.answer = lambda request: web.Response(status=201)
    await deliver([b"m 1&x=%"], f"--get={server.url}/a%20b?q=%s&r=%%41", name="to-http")
    await settled("t", "nsq_to_http")
    assert [request.method for request in server.requests] == ["GET"]
    assert server.requests[0].raw_path == "/a%20b?q=m+1%26x%3D%25&r=%41"


@pytest.mark.parametrize("status", [302, 307])
async def test_redirects_are_followed(server, deliver, settled, status):
    """307 with the body, 302 as a GET, as Go's client does."""
    server.answer = lambda request: (
        web.Response(status=status, headers={"Location": "/there"}) if request.path == "/here" else web.Response()
    )
    await deliver([b"x"], f"--post={server.url}/here")
    await settled("t", "nsq_to_http")
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/here"),
        ("GET" if status == 302 else "POST", "/there"),
    ]
    assert server.bodies[1] == (b"" if status == 302 else b"x")


async def test_a_message_that_was_refused_comes_back_until_it_is_taken(server, deliver, settled, interrupted):
    """Also after more attempts than go-nsq's five; the log says why."""
    answers = iter([500, 503, 404, 302, 500, 500, 500, 200])
    server.answer = lambda request: web.Response(status=next(answers))
    tool = await deliver([b"x"], f"--post={server.url}")
    row = await settled("t", "nsq_to_http")
    assert (server.bodies, row["requeue_count"]) == ([b"x"] * 8, 7)
    err = await interrupted(tool)
    assert f"WARNING: {server.url}: 503 Service Unavailable; requeued message " in err
    assert ", attempt 7" in err


async def test_messages_in_flight_are_finished_at_an_interrupt(server, deliver, channel_of, broker, interrupted):
    """Outstanding requests are completed; messages not yet sent are requeued at once."""
    server.delay_s = 1.0
    tool = await deliver([b"%d" % number for number in range(10)], f"--post={server.url}", "--n=4")
    await until(lambda: len(server.bodies) == 4)
    assert await interrupted(tool) == ""
    row = await channel_of(broker, "t", "nsq_to_http")
    assert len(server.bodies) == 4
    assert (row["in_flight_count"], row["depth"] + row["deferred_count"]) == (0, 6)


async def test_a_dead_address_is_skipped(server, deliver, settled, unused_address, interrupted):
    """Its messages are sent to another address at once, without a requeue. The address is logged once."""
    tool = await deliver(
        [b"%d" % number for number in range(50)],
        *(f"--post=http://{unused_address}/", f"--post={server.url}", "--mode=round-robin"),
    )
    row = await settled("t", "nsq_to_http")
    assert (len(server.bodies), row["requeue_count"]) == (50, 0)
    err = await interrupted(tool)
    assert err.count("connection refused; trying another address") == len(err.splitlines()) == 1


async def test_a_dead_address_is_logged_once_and_when_it_is_back(start_web, deliver, settled, interrupted):
    """With a single address, messages are requeued until it answers; the log has one line."""
    server = await start_web()
    port = int(server.url.rpartition(":")[2])
    await server.stop()
    flags = (f"--post={server.url}", "--consumer-opt=max_backoff_duration,20ms", "--log-level=debug")
    tool = await deliver([b"%d" % number for number in range(20)], *flags)
    seen = await tool.logged(", attempt 3")
    await server.start(port)
    await settled("t", "nsq_to_http")
    seen += await interrupted(tool)
    assert seen.count(f"WARNING: {server.url}: connection refused; requeueing messages until it answers") == 1
    assert seen.count(f"WARNING: {server.url}") == 1
    assert seen.count(f"INFO: {server.url}: answers again") == 1


async def test_a_request_longer_than_nsqds_timeout_is_made_once(server, deliver, settled):
    """The message is touched while the server is slow."""
    server.delay_s = 2.5
    await deliver([b"x"], f"--post={server.url}", "--consumer-opt=msg_timeout,1s")
    row = await settled("t", "nsq_to_http")
    assert (server.bodies, row["timeout_count"], row["requeue_count"]) == ([b"x"], 0, 0)


async def test_a_slow_address_is_given_up_after_its_time(start_web, deliver, settled, interrupted):
    """--http-client-request-timeout; the message is requeued and sent to another address."""
    slow, quick = await start_web(), await start_web()
    slow.delay_s = 60
    tool = await deliver([b"x"], "--http-client-request-timeout=5s", f"--post={slow.url}", f"--post={quick.url}")
    await settled("t", "nsq_to_http")
    assert (slow.bodies, quick.bodies) == ([b"x"], [b"x"])
    assert f"{slow.url}: timed out; requeued message " in await interrupted(tool)


@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "epsilon-greedy"])
async def test_addresses_share_the_messages(start_web, deliver, settled, mode):
    """Each message goes to one of them."""
    servers = [await start_web() for _ in range(3)]
    bodies = [b"%d" % number for number in range(300)]
    await deliver(bodies, f"--mode={mode}", *(f"--post={each.url}" for each in servers))
    await settled("t", "nsq_to_http")
    assert sorted(body for each in servers for body in each.bodies) == sorted(bodies)
    if mode != "epsilon-greedy":
        assert [len(each.bodies) for each in servers] == [100] * 3
    else:
        assert all(each.bodies for each in servers)


async def test_all_addresses_may_get_every_message(start_web, deliver, settled):
    """--mode=all; finished only when all have accepted it."""
    first, second = await start_web(), await start_web()
    answers = iter([500, 200])
    second.answer = lambda request: web.Response(status=next(answers))
    await deliver([b"x"], "--mode=all", f"--post={first.url}", f"--post={second.url}")
    await settled("t", "nsq_to_http")
    assert (first.bodies, second.bodies) == ([b"x"] * 2, [b"x"] * 2)


async def test_a_sample_is_sent_and_the_rest_is_finished(server, deliver, settled):
    """--sample: about that share."""
    await deliver([b"%d" % number for number in range(2000)], "--sample=0.25", f"--post={server.url}")
    await settled("t", "nsq_to_http")
    assert 350 < len(server.bodies) < 650


async def test_status_lines_contain_the_time_taken(start_web, deliver, settled, interrupted):
    """Per address and in total, with a warning if --status-every is small."""
    servers = [await start_web() for _ in range(2)]
    tool = await deliver(
        [b"x"] * 40, "--status-every=20", "--mode=round-robin", *(f"--post={each.url}/" for each in servers)
    )
    await settled("t", "nsq_to_http")
    lines = (await interrupted(tool)).splitlines()
    assert lines[0] == "nsq_to_http: Warning: use of status-every < 100 provides low quality percentile data"
    prefixes = [line.split(" finished 20 - 99th: ")[0].removeprefix("nsq_to_http: ") for line in lines[1:]]
    assert sorted(prefixes) == sorted(
        [f"[{servers[0].url}/]:", f"[{servers[1].url}/]:", "[aggregate]:", "[aggregate]:"]
    )


async def test_an_answer_that_is_not_http_is_a_failure(deliver, server, settled, interrupted):
    """A response that is not HTTP is a failure; the message is requeued and sent to another address."""

    async def nonsense(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"nonsense\r\n\r\n")
        writer.close()

    broken = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with broken:
        address = f"http://127.0.0.1:{broken.sockets[0].getsockname()[1]}"
        tool = await deliver([b"x"], f"--post={address}", f"--post={server.url}")
        await settled("t", "nsq_to_http")
        assert server.bodies == [b"x"]
        assert f"{address}: " in await interrupted(tool)


async def test_nothing_is_lost_when_either_side_is_killed(deliver, settled, tmp_path):
    """kill -9 of nsq_to_http and of the HTTP server, repeatedly: each message arrives at least once."""
    file = tmp_path / "taken"
    bodies = [b"%05d" % number for number in range(3000)]

    async def start_server(port: int) -> tuple[Process, int]:
        command = [sys.executable, Path(__file__).with_name("destination.py"), str(port), file]
        process = Process(command, merged=True).start()
        return process, int((await asyncio.to_thread(process.wait_for_log, r"^\d+$"))[0])

    async def stored(count: int) -> None:
        async def enough() -> bool:
            return file.exists() and len(file.read_bytes().splitlines()) >= count

        await until(enough)

    server, port = await start_server(0)
    try:
        flags = (f"--post=http://127.0.0.1:{port}/", "--consumer-opt=max_backoff_duration,50ms", "--log-level=fatal")
        tool = await deliver(bodies, *flags)
        for share in (200, 800, 1600):
            await stored(share)
            tool.process.kill()
            await tool.process.wait()
            tool = await deliver([], *flags)
            await stored(share + 300)
            server.close()
            server, _ = await start_server(port)
        await settled("t", "nsq_to_http")
    finally:
        server.close()
    taken = [bytes.fromhex(line) for line in file.read_text().splitlines()]
    assert set(taken) == set(bodies)
