"""Options of a connection, observed by the server: sockets, sizes, timeouts, secrets."""

from __future__ import annotations

import asyncio
import socket
import struct
from datetime import timedelta

import pytest

from aionsq import ConnectFailed, ConnectionLost, Consumer, ConsumerOptions, Producer, ProducerOptions
from nsqwire import frame
from tests.harness.waiting import DEADLINE_S

MS = timedelta(milliseconds=1)
RESPONSE, ERROR, MESSAGE = 0, 1, 2


async def test_an_nsqd_that_reads_nothing_for_write_timeout_is_disconnected(caplog):
    """nsqd stops reading after IDENTIFY: the pending output is dropped, not kept for ever."""
    accepted = []

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"IDENTIFY\n")
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
        writer.write(frame.encode_frame(RESPONSE, b"OK"))
        writer.transport.pause_reading()

    server = await asyncio.start_server(stall, "127.0.0.1", 0, limit=1024)
    server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    producer = Producer(address, ProducerOptions(write_timeout=100 * MS, max_msg_size=0))
    await producer.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConnectionLost, match=r"nsqd read nothing for 0\.1s"):
                await producer.pub("t", bytes(16 * 1024 * 1024))
    finally:
        server.close()
        await producer.close(timedelta(0))
        for writer in accepted:
            writer.transport.abort()


async def test_local_addr_is_where_the_connection_comes_from():
    """nsqd sees the address that was chosen."""
    seen = asyncio.get_running_loop().create_future()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peername")[0])
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(ConnectFailed):
        await Producer(address, ProducerOptions(local_addr="127.0.0.7")).start()
    assert await seen == "127.0.0.7"
    server.close()


async def test_a_frame_beyond_max_msg_size_closes_the_connection(nsqd, caplog):
    """It is not read into memory; the consumer reconnects, and receives smaller messages."""
    options = ConsumerOptions(max_msg_size=100, max_in_flight=1)
    async with Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address], options=options) as consumer:
        peer = await nsqd.consumer()
        peer.message(b"x" * 200)
        await nsqd.until(lambda: peer.closed)
        await nsqd.until(lambda: len(nsqd.peers) == 2 and nsqd.peers[1].lines("RDY"))
        nsqd.peers[1].message(b"small")
        message = await consumer.next_message()
        assert message.body == b"small"
        message.finish()
    assert "is not within 4..100" in caplog.text


async def test_a_message_shorter_than_its_head_closes_the_connection(nsqd):
    """The rest of the stream is unreliable; the consumer reconnects."""
    async with Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address]) as consumer:
        peer = await nsqd.consumer()
        peer.frame(MESSAGE, b"x" * 25)
        await nsqd.until(lambda: peer.closed)
        await nsqd.until(lambda: len(nsqd.peers) == 2 and nsqd.peers[1].lines("RDY"))
        nsqd.peers[1].message(b"whole")
        message = await consumer.next_message()
        assert message.body == b"whole"
        message.finish()


async def test_a_frame_of_an_unknown_type_is_skipped(nsqd):
    """Later frames on the same connection are processed."""
    async with Consumer("t", "c", nsqd_tcp_addresses=[nsqd.address]) as consumer:
        peer = await nsqd.consumer()
        peer.frame(7, b"new")
        peer.message(b"known")
        message = await consumer.next_message()
        assert (message.body, message.attempts, message.nsqd_address) == (b"known", 1, nsqd.address)
        message.finish()
    assert len(nsqd.peers) == 1


async def test_messages_go_over_a_unix_socket(start_server, tmp_path):
    """The address of an nsqd may be the path of its socket, for producers and consumers alike."""
    path = str(tmp_path / "nsqd.sock")
    await start_server("brokerd", f"--tcp-address={path}")
    async with Producer(path) as producer:
        await producer.pub("t", b"hello")
        async with Consumer("t", "c", nsqd_tcp_addresses=[path]) as consumer:
            message = await consumer.next_message()
            assert (message.body, message.nsqd_address) == (b"hello", path)
            message.finish()


async def auth_server(permissions: bytes):
    """An auth server that knows one secret."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if b"secret=good" in request.split(b"\r\n")[0]:
            body = (
                b'{"ttl": 60, "identity": "me", "identity_url": "", "authorizations": [{"topic": "allowed",'
                b' "channels": [".*"], "permissions": [' + permissions + b"]}]}"
            )
            status = b"200 OK"
        else:
            body, status = b"{}", b"403 Forbidden"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def test_a_secret_permits_its_topics_only(start_server):
    """Messages are accepted with the secret; without it, with a wrong one, or for another topic, there is an error."""
    async with await auth_server(b'"publish", "subscribe"') as server:
        port = server.sockets[0].getsockname()[1]
        broker = await start_server("brokerd", f"--auth-http-address=127.0.0.1:{port}")
        with pytest.raises(ConnectFailed, match="auth_secret"):
            await Producer(broker.tcp_address).start()
        with pytest.raises(ConnectFailed, match=r"E_AUTH_FAILED|E_UNAUTHORIZED"):
            await Producer(broker.tcp_address, ProducerOptions(auth_secret="bad")).start()
        async with Producer(broker.tcp_address, ProducerOptions(auth_secret="good")) as producer:
            await producer.pub("allowed", b"hello")
            ends = await asyncio.gather(*(producer.pub("other", b"x") for _ in range(20)), return_exceptions=True)
            assert {getattr(end, "code", None) for end in ends} == {"E_UNAUTHORIZED"}
            await producer.pub("allowed", b"after")
        options = ConsumerOptions(auth_secret="good")
        async with Consumer("allowed", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options) as consumer:
            for body in (b"hello", b"after"):
                message = await consumer.next_message()
                assert message.body == body
                message.finish()
