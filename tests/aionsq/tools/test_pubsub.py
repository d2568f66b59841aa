"""nsq_pubsub, with real HTTP clients."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import time

import httpx
import pytest

from aionsq import ConsumerOptions, Producer
from aionsq.tools.flags import Sources
from aionsq.tools.pubsub import PubSub
from nsqdaemon.http import HTTPServer
from tests.harness.waiting import DEADLINE_S, until


@pytest.fixture
async def served(broker, start_tool):
    """A running nsq_pubsub on a free port: the tool and its host:port."""
    tool = await start_tool(
        *("nsq_pubsub", "--http-address=127.0.0.1:0", f"--nsqd-tcp-address={broker.tcp_address}", "--log-level=info")
    )
    line = await tool.logged("listening for HTTP clients on ")
    return tool, line.split()[-1]


async def subscribe(address, target, method="GET"):
    """Send a request as a socket does; returns reader, writer and the head of the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE_S):
        head = await reader.readuntil(b"\r\n\r\n")
    return reader, writer, head.decode()


async def line_of(reader):
    async with asyncio.timeout(DEADLINE_S):
        return await reader.readline()


@pytest.fixture
def channel_is(broker, channel_of):
    """Wait until the row of channel c meets a condition; returns it."""

    async def wait(condition):
        async def row():
            row = await channel_of(broker, "t", "c")
            return row if row and condition(row) else None

        return await until(row)

    return wait


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_a_client_gets_each_message_as_a_line(served, broker, channel_is, method):
    """After a head without a length and without chunks, whatever the method; each is finished once it is sent."""
    _, address = served
    reader, writer, head = await subscribe(address, "/sub?topic=t&channel=c", method)
    lines = head.splitlines()
    assert lines[0] == "HTTP/1.1 200 OK"
    assert {"Connection: close", "Content-Type: text/plain; charset=utf-8"} <= set(lines)
    assert not re.search("content-length|transfer-encoding", head, re.IGNORECASE)
    async with Producer(broker.tcp_address) as producer:
        await producer.mpub("t", [b"one", b"two"])
        assert [await line_of(reader), await line_of(reader)] == [b"one\n", b"two\n"]
        await channel_is(lambda row: not row["in_flight_count"])
    writer.close()


async def test_clients_of_one_channel_share_it_and_of_two_get_all(served, broker, channel_is, channel_of):
    """As consumers do."""
    _, address = served
    first, second, other = [
        await subscribe(address, f"/sub?topic=t&channel={channel}") for channel in ("c", "c", "other")
    ]
    async with Producer(broker.tcp_address) as producer:
        await channel_is(lambda row: row["client_count"] == 2)

        async def other_is_subscribed():
            return (await channel_of(broker, "t", "other")).get("client_count")

        await until(other_is_subscribed, "the other channel gets what is published from now on")
        bodies = [b"%d\n" % number for number in range(200)]
        await producer.mpub("t", [body.rstrip() for body in bodies])
    assert sorted([await line_of(other[0]) for _ in bodies]) == sorted(bodies)
    shared = []

    async def read(reader):
        while len(shared) < len(bodies):
            shared.append(await reader.readline())

    readers = [asyncio.create_task(read(each[0])) for each in (first, second)]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
    for each in readers:
        each.cancel()
    assert sorted(shared) == sorted(bodies)
    for _, writer, _ in (first, second, other):
        writer.close()


@pytest.mark.parametrize("goodbye", [b"x", None])
async def test_a_client_that_leaves_gives_its_messages_back(served, broker, channel_is, goodbye):
    """By sending any byte, or by closing; its messages are requeued at once, and its connection is closed."""
    _, address = served
    reader, writer, _ = await subscribe(address, "/sub?topic=t&channel=c")
    async with Producer(broker.tcp_address) as producer:
        for _ in range(20):
            await producer.mpub("t", [b"x" * 1_000_000] * 5)
    await line_of_long(reader)
    await channel_is(lambda row: row["in_flight_count"])
    if goodbye:
        writer.write(goodbye)
    else:
        writer.transport.abort()
    row = await channel_is(lambda row: not row["client_count"])
    assert (row["in_flight_count"], row["depth"] + row["deferred_count"] > 50) == (0, True)
    writer.transport.abort()


async def line_of_long(reader):
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.readexactly(1_000_001) == b"x" * 1_000_000 + b"\n"


async def test_stats_name_the_clients_and_continue_when_one_has_left(served, broker, channel_of):
    """The number of messages delivered since the start, and each connected client."""
    _, address = served
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=DEADLINE_S) as client:
        assert (await client.get("/stats")).text == "Total Messages: 0\n\n"
        first = await subscribe(address, "/sub?topic=t&channel=c")
        second = await subscribe(address, "/sub?topic=t&channel=d")
        for channel in ("c", "d"):  # the answer's head comes before the subscription

            async def subscribed(channel=channel):
                return (await channel_of(broker, "t", channel)).get("client_count")

            await until(subscribed)
        async with Producer(broker.tcp_address) as producer:
            await producer.pub("t", b"x")
        await line_of(first[0])
        await line_of(second[0])

        async def stats_of(clients):
            text = (await client.get("/stats")).text
            return text if text.count("connected") == clients and "Messages: 2" in text else ""

        await until(lambda: stats_of(2), "both messages are finished: a client that leaves before gives its one back")
        first[1].close()
        text = await until(lambda: stats_of(1), "one client has left")
        port = second[1].get_extra_info("sockname")[1]
        assert re.fullmatch(rf"Total Messages: 2\n\n\[127.0.0.1:{port}\] \[t : d\] connected: \d+s\n", text)
        second[1].close()


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/sub", 500, "MISSING_ARG_TOPIC\n"),
        ("/sub?topic=bad%20topic&channel=c", 500, "INVALID_ARG_TOPIC\n"),
        ("/sub?topic=t", 500, "MISSING_ARG_CHANNEL\n"),
        ("/sub?topic=t&channel=", 500, "INVALID_ARG_CHANNEL\n"),
        ("/", 404, "404 page not found\n"),
    ],
)
async def test_an_invalid_request_is_refused_with_a_reason(served, target, status, text):
    """With the reference's text and status, and the server continues."""
    _, address = served
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=DEADLINE_S) as client:
        answer = await client.get(target)
        assert (answer.status_code, answer.text) == (status, text)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert (await client.get("/stats")).status_code == 200


async def test_an_interrupt_closes_every_client_and_ends_with_status_0(served, broker):
    """Nothing stays in flight; the port is free again."""
    tool, address = served
    reader, writer, _ = await subscribe(address, "/sub?topic=t&channel=c")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    assert await line_of(reader) == b"x\n"
    tool.process.send_signal(signal.SIGINT)
    ended = await tool.end()
    assert ended.status == 0
    assert "Traceback" not in ended.err
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError):
        await subscribe(address, "/stats")


async def test_an_nsqd_that_comes_back_is_found_again(served, broker):
    """A client that connected while nsqd was down receives messages too."""
    tool, address = served
    await broker.close()
    reader, writer, _ = await subscribe(address, "/sub?topic=t&channel=c")
    await tool.logged("connection refused; retrying")
    await broker.start()
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    assert await line_of(reader) == b"x\n"
    writer.close()


async def test_an_address_in_use_is_reported(served, start_tool):
    """In one line, with status 1."""
    _, address = served
    flags = (f"--http-address={address}", "--nsqd-tcp-address=127.0.0.1:1")
    ended = await (await start_tool("nsq_pubsub", *flags)).end()
    assert (ended.status, ended.err) == (1, f"nsq_pubsub: listen ({address}) failed - Address already in use\n")


async def test_an_idle_client_receives_a_heartbeat_line(broker, monkeypatch):
    """A line of JSON with the time; here more often than every 30 s."""
    monkeypatch.setattr("aionsq.tools.pubsub.HEARTBEAT_SECONDS", 0.05)
    answers = PubSub(Sources([broker.tcp_address], [], ssl.create_default_context()), ConsumerOptions())
    server = HTTPServer(answers.answer)
    async with await asyncio.get_running_loop().create_server(server.protocol, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer, _ = await subscribe(f"127.0.0.1:{port}", "/sub?topic=t&channel=c")
        beat = json.loads(await line_of(reader))
        assert beat.keys() == {"_heartbeat_"}
        assert abs(beat["_heartbeat_"] - time.time()) < DEADLINE_S
        await answers.close()
        assert (await reader.read()).count(b"\n") < 1000
        writer.close()
        await server.close()
