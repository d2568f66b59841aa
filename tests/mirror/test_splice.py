"""What a follower keeps of the connections that it passes on to the primary: nothing once they are over."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from brokerd.net.splice import Splicer
from tests.harness.pair import LONG_LEASE
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

CONNECTIONS = 40
DESCRIPTORS = 256
TOPICS = 60
"""Each has several files that the follower opens."""
MORE_FILES = CONNECTIONS // 2
"""Descriptors that the follower may need by itself in the meantime."""


def test_connections_that_are_over_leave_no_descriptors(start_pair: StartPair) -> None:
    """Those of requests, and of a load balancer that connects and sends nothing."""
    pair = start_pair(lease=LONG_LEASE)
    follower = pair.other(pair.wait_for_primary())
    assert follower.request("GET", "/ping").text == "OK"
    before = follower.descriptor_count
    for _ in range(CONNECTIONS):
        assert follower.request("GET", "/ping").text == "OK"
        for address in (follower.tcp, follower.http):
            socket.create_connection(address).close()
    wait_until(lambda: follower.descriptor_count < before + MORE_FILES, "the follower has closed the connections")


def test_a_follower_that_is_full_of_clients_follows(start_pair: StartPair) -> None:
    """Far more clients than descriptors, of TCP and HTTP: the last ones are closed, and the follower stays in sync."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    resource.prlimit(follower.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with ExitStack() as ends:
        for number in range(DESCRIPTORS):
            client = ends.enter_context(socket.create_connection(follower.tcp if number % 2 else follower.http))
            with suppress(ConnectionError):  # it was closed already
                client.sendall(b"  V2" if number % 2 else b"GET")
        follower.wait_for_log("connections refused")
        for number in range(TOPICS):
            primary.post("/pub", b"x", topic=f"t{number}")
        assert len(pair.wait_until_in_sync()["in_sync"]) == 2
        assert [line for line in follower.log if "cannot follow" in line] == []
    wait_until(lambda: follower.is_answering(), "the follower has room again")


async def test_a_client_that_sends_nothing_more_is_answered() -> None:
    """The end of its request reaches the primary; both connections are closed once the answer was passed on."""

    async def primary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"answer to " + await reader.read())
        writer.close()

    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(primary, "127.0.0.1") as served:
        splicer = Splicer(lambda: served.sockets[0].getsockname())
        async with await loop.create_server(splicer.protocol, "127.0.0.1") as follower:
            reader, writer = await asyncio.open_connection(*follower.sockets[0].getsockname())
            writer.write(b"a request")
            writer.write_eof()
            assert await reader.read() == b"answer to a request"
            writer.close()
