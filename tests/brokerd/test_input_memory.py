"""Limits of the memory that unfinished commands take."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's /proc")

MEGABYTE = 1_048_576
CONNECTIONS = 150

HEADERS = {
    "PUB": b"  V2PUB t\n" + struct.pack(">i", MEGABYTE),
    "MPUB": b"  V2MPUB t\n" + struct.pack(">iii", 5 * MEGABYTE, 2, MEGABYTE),
    "IDENTIFY": b"  V2IDENTIFY\n" + struct.pack(">i", 5 * MEGABYTE),
    "HTTP, chunks": b"POST /mpub?topic=t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"2\r\nab\r\n" * 15_000,
    "HTTP": b"POST /mpub?topic=t HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n",
}


def anonymous_memory(broker) -> int:
    """Private memory of the broker's process, in bytes."""
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not report RssAnon")


def connected(stack: ExitStack, address: tuple[str, int], data: bytes) -> socket.socket:
    opened = stack.enter_context(socket.create_connection(address, DEADLINE_S))
    opened.sendall(data)
    return opened


@pytest.mark.parametrize("command", HEADERS)
def test_a_size_that_is_announced_takes_no_memory(broker, command):
    """Each of 150 connections that announce 1 to 5 MB and send ten bytes of it costs kilobytes, not megabytes."""
    before = anonymous_memory(broker)
    address = broker.http if command.startswith("HTTP") else broker.tcp
    with ExitStack() as stack:
        opened = [connected(stack, address, HEADERS[command]) for _ in range(CONNECTIONS)]
        for each in opened:
            each.sendall(b"x" * 10)
        wait_until(lambda: unread_bytes(address) == 0)
        assert broker.request("GET", "/ping").status == 200
        assert anonymous_memory(broker) - before < 30 * MEGABYTE


def test_memory_is_returned_to_the_system_when_the_connections_close(broker):
    """The memory of unfinished commands is freed at once, not kept for the next ones."""
    before = anonymous_memory(broker)
    with ExitStack() as stack:
        for _ in range(60):
            connected(stack, broker.tcp, HEADERS["PUB"] + b"x" * (MEGABYTE - 1))
        wait_until(lambda: anonymous_memory(broker) - before > 50 * MEGABYTE)
    wait_until(lambda: anonymous_memory(broker) - before < 10 * MEGABYTE)


def test_long_commands_alternate_when_together_they_exceed_the_bound(start_broker, connect):
    """In the end all of them are carried out, over TCP and HTTP, and short commands do not wait meanwhile."""
    broker = start_broker(f"--max-unfinished-size={MEGABYTE}")
    body = bytes(MEGABYTE)
    clients = [connect(broker) for _ in range(12)]
    with ExitStack() as stack:
        head = b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MEGABYTE
        requests = [connected(stack, broker.http, head + body[: MEGABYTE // 2]) for _ in range(6)]
        for client in clients:
            client.send(b"PUB t\n" + struct.pack(">i", MEGABYTE) + body[: MEGABYTE // 2])
        connect(broker).ok(b"PUB t\n" + struct.pack(">i", 5) + b"short")
        for client in reversed(clients):
            threading.Thread(target=client.send, args=[body[MEGABYTE // 2 :]], daemon=True).start()
        for request in reversed(requests):
            threading.Thread(target=request.sendall, args=[body[MEGABYTE // 2 :]], daemon=True).start()
        assert [client.frame() for client in clients] == [(0, b"OK")] * 12
        assert all(request.recv(4096).startswith(b"HTTP/1.1 200") for request in requests)


def test_an_unfinished_command_is_not_kept_for_ever_without_heartbeats(start_broker, connect):
    """A client without heartbeats may be silent between commands, but not within one."""
    broker = start_broker("--max-heartbeat-interval=1s")
    quiet, stuck = connect(broker), connect(broker)
    for client in (quiet, stuck):
        client.ok(b"IDENTIFY\n" + struct.pack(">i", 26) + b'{"heartbeat_interval": -1}')
    stuck.send(b"PUB t\n" + struct.pack(">i", 1000) + b"x" * 10)
    broker.wait_for_log("silent for .* within a command")
    assert stuck.is_closed()
    quiet.ok(b"PUB t\n" + struct.pack(">i", 5) + b"later")


def unread_bytes(address: tuple[str, int]) -> int:
    """Bytes in the system's buffers of a listener and its connections: unread, or (for the listener) not accepted."""
    port = f":{address[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].endswith(port))
