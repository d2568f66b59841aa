"""Fixtures: scripted and real nsqds and nsqlookupds on loopback sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.aionsq.fleets import Fleet
from tests.harness import web
from tests.harness.daemon import BROKER, Daemon
from tests.harness.waiting import DEADLINE_S, until
from tests.platform.go_nsq import GoCluster

RESPONSE, ERROR, MESSAGE = 0, 1, 2
PUBLISHES = ("PUB", "MPUB", "DPUB", "HPUB", "HMPUB", "HDPUB")


@dataclass
class Command:
    """A received command; ``at`` is monotonic seconds."""

    line: str
    body: bytes = b""
    at: float = field(default_factory=time.monotonic)


class Peer:
    """One client's connection to the scripted nsqd."""

    def __init__(self, nsqd: ScriptedNsqd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.commands: list[Command] = []
        self.closed = False
        self._nsqd = nsqd
        self._reader = reader
        self._writer = writer

    def frame(self, frame_type: int, data: bytes) -> None:
        self._writer.write(struct.pack(">ii", 4 + len(data), frame_type) + data)

    def message(self, body: bytes, *, attempts: int = 1, id: bytes | None = None) -> bytes:
        """Send a message; returns its id."""
        id = id or b"%016x" % next(self._nsqd.ids)
        self.frame(MESSAGE, struct.pack(">qH16s", time.time_ns(), attempts, id) + body)
        return id

    async def processed(self) -> None:
        """Wait until the client has read everything sent so far: it answers a heartbeat that comes after it."""
        answered = len(self.lines("NOP"))
        self.frame(RESPONSE, b"_heartbeat_")
        await self._nsqd.until(lambda: len(self.lines("NOP")) > answered)

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def disconnect(self) -> None:
        self._writer.transport.abort()

    def lines(self, *verbs: str) -> list[str]:
        """The command lines so far, only those of ``verbs`` if any are named."""
        return [each.line for each in self.commands if not verbs or each.line.split()[0] in verbs]

    async def serve(self) -> None:
        try:
            assert await self._reader.readexactly(4) == b"  V2"
            while line := await self._reader.readline():
                command = Command(line.decode().removesuffix("\n"))
                verb = command.line.split(" ")[0]
                if verb in ("IDENTIFY", "AUTH", *PUBLISHES):
                    (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                    command.body = await self._reader.readexactly(size)
                self.commands.append(command)
                self._nsqd.changed()
                await self._nsqd.react(self, verb, command)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed = True
            self._nsqd.changed()
            self._writer.close()


class ScriptedNsqd:
    """Answers like nsqd, unless ``on[verb]`` overrides it; delivers only messages sent by the test."""

    def __init__(self) -> None:
        self.on: dict[str, Callable[[Peer, Command], Awaitable[None] | None]] = {}
        self.identify_answer: dict[str, Any] = {"max_rdy_count": 2500, "version": "1.3.0", "msg_timeout": 60000}
        self.peers: list[Peer] = []
        self.ids = itertools.count(1)
        self.address = ""
        self._server: asyncio.Server | None = None
        self._condition = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening and break all connections, as a killed nsqd would."""
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            peer.disconnect()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def restart(self) -> None:
        await self.stop()
        await self.start(int(self.address.rpartition(":")[2]))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, reader, writer)
        self.peers.append(peer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.changed()
        try:
            await peer.serve()
        except asyncio.CancelledError:
            pass  # the test has ended

    async def react(self, peer: Peer, verb: str, command: Command) -> None:
        if verb in self.on:
            result = self.on[verb](peer, command)
            if result is not None:
                await result
        elif verb == "IDENTIFY":
            peer.frame(RESPONSE, json.dumps(self.identify_answer).encode())
        elif verb == "CLS":
            peer.frame(RESPONSE, b"CLOSE_WAIT")
        elif verb in ("SUB", *PUBLISHES):
            peer.frame(RESPONSE, b"OK")

    def changed(self) -> None:
        async def notify() -> None:
            async with self._condition:
                self._condition.notify_all()

        task = asyncio.ensure_future(notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until ``condition()`` is true, checked after each command and disconnection; returns its result."""
        async with asyncio.timeout(DEADLINE_S):
            async with self._condition:
                while not (result := condition()):
                    await self._condition.wait()
                return result

    async def peer(self, number: int = 0) -> Peer:
        """The nth connection, once it has identified itself."""
        await self.until(lambda: len(self.peers) > number and self.peers[number].lines("IDENTIFY"))
        return self.peers[number]

    async def consumer(self, number: int = 0) -> Peer:
        """The nth connection, once it has subscribed."""
        peer = await self.peer(number)
        await self.until(lambda: peer.lines("SUB"))
        return peer


class ScriptedLookup:
    """An nsqlookupd whose ``/lookup`` answer is set by the test: ``producers`` None means the topic is unknown,
    ``wrapped`` that it answers as those before 1.0 did."""

    def __init__(self) -> None:
        self.producers: list[str] | None = None
        self.status: int | None = None
        self.requests: list[str] = []
        self.heads: list[str] = []
        self.wrapped = False
        self.address = ""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):  # a client that ended; unhandled, a later test logs it
            writer.close()
            return
        self.heads.append(head)
        self.requests.append(head.split(" ")[1])
        if self.status is not None:
            status, document = self.status, {"message": "INTERNAL_ERROR"}
        elif self.producers is None:
            status, document = 404, {"message": "TOPIC_NOT_FOUND"}
        else:
            status, document = 200, {"channels": [], "producers": [_producer(each) for each in self.producers]}
        if self.wrapped:
            status, document = (
                200,
                {"status_code": status, "status_txt": document.get("message", "OK"), "data": document},
            )
        body = json.dumps(document).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()


def _producer(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"broadcast_address": host, "tcp_port": int(port), "http_port": 1, "hostname": "h", "version": "1.3.0"}


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never answers."""
    over = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    over.set()
    server.close()


@pytest.fixture
async def start_nsqd() -> AsyncIterator[Callable[[], Awaitable[ScriptedNsqd]]]:
    """``await start_nsqd()`` starts another scripted nsqd."""
    async with AsyncExitStack() as stack:

        async def start() -> ScriptedNsqd:
            nsqd = ScriptedNsqd()
            await nsqd.start()
            stack.push_async_callback(nsqd.stop)
            return nsqd

        yield start


@pytest.fixture
async def nsqd(start_nsqd: Callable[[], Awaitable[ScriptedNsqd]]) -> ScriptedNsqd:
    """One scripted nsqd."""
    return await start_nsqd()


@pytest.fixture
async def start_lookup() -> AsyncIterator[Callable[[], Awaitable[ScriptedLookup]]]:
    """``await start_lookup()`` starts another scripted nsqlookupd."""
    async with AsyncExitStack() as stack:

        async def start() -> ScriptedLookup:
            lookup = ScriptedLookup()
            await lookup.start()
            stack.push_async_callback(lookup.stop)
            return lookup

        yield start


@pytest.fixture
def unused_address() -> str:
    """A loopback address where nothing listens."""
    return f"127.0.0.1:{free_port()}"


class Server:
    """A broker or a registry for a test in an event loop. It keeps its ports over a restart."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    @property
    def tcp_address(self) -> str:
        return self._daemon.tcp_address

    @property
    def http_address(self) -> str:
        return self._daemon.http_address

    async def start(self) -> None:
        await asyncio.to_thread(self._daemon.launch)

    async def terminate(self) -> None:
        """Send SIGTERM, and wait for the exit."""
        await asyncio.to_thread(self._daemon.stop)

    async def restart(self) -> None:
        """Stop cleanly and start again on the same addresses and data."""
        await self.terminate()
        await self.start()

    async def close(self) -> None:
        await asyncio.to_thread(self._daemon.close)


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """``await start_server("brokerd", *flags)``, or ``"nsqlookup"``: brokerd gets a data path of its own."""
    async with AsyncExitStack() as stack:

        async def start(module: str, *flags: str) -> Server:
            if module == BROKER:
                data_path = tmp_path / f"brokerd{next(numbers)}"
                data_path.mkdir()
                flags = (f"--data-path={data_path}", "--broadcast-address=127.0.0.1", *flags)
            server = Server(Daemon(module, *flags, keep_ports=True))
            stack.push_async_callback(server.close)
            await server.start()
            return server

        numbers = itertools.count()
        yield start


@pytest.fixture
async def registry(start_server: Callable[..., Awaitable[Server]]) -> Server:
    """A running lookup."""
    return await start_server("nsqlookup")


@pytest.fixture
async def broker(start_server: Callable[..., Awaitable[Server]], registry: Server) -> Server:
    """A running brokerd, registered with the registry."""
    return await start_server("brokerd", f"--lookupd-tcp-address={registry.tcp_address}")


@pytest.fixture
async def fleet(start_server: Callable[..., Awaitable[Any]]) -> Fleet:
    registry = await start_server("nsqlookup")
    brokers = [await start_server("brokerd", f"--lookupd-tcp-address={registry.tcp_address}") for _ in range(2)]
    fleet = Fleet(registry, brokers)
    await fleet.post("/topic/create?topic=orders")
    for channel in ("archive", "billing"):
        await fleet.post(f"/channel/create?topic=orders&channel={channel}")
    await fleet.post("/mpub?topic=orders", b"a\nb\nc")
    async with web.async_client() as client:

        async def are_registered() -> bool:
            answer = await client.get(f"http://{registry.http_address}/lookup?topic=orders")
            known = answer.json() if answer.status_code == 200 else {"producers": [], "channels": []}
            return (len(known["producers"]), len(known["channels"])) == (2, 2)

        # Their registration takes longer than the requests above.
        await until(are_registered, "both brokers have registered")
    return fleet


@pytest.fixture
def go_fleet() -> Iterator[GoCluster]:
    """Go's nsqlookupd and nsqds, as version 1.3.0 answers."""
    cluster = GoCluster()
    yield cluster
    for each in cluster.everything:
        each.stop()
