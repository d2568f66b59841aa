"""Consuming from a cluster that is reached over HTTPS only: an nsqlookupd behind a proxy with TLS, and a node that
requires TLS and a client certificate."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aionsq import Consumer, ConsumerOptions, HTTPFailed, Lookup, Node
from tests.harness.process import ROOT
from tests.harness.terminal import shown_on_terminal
from tests.harness.waiting import DEADLINE_S, until
from tests.nsqcluster.conftest import Certificates, StrictCluster


@asynccontextmanager
async def https_proxy(upstream: str, certificates: Certificates) -> AsyncIterator[str]:
    """A proxy that adds TLS to the server at ``upstream``; the URL to use in its place."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert, certificates.key)
    host, _, port = upstream.rpartition(":")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        of_upstream, to_upstream = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, to_upstream), copy(of_upstream, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def options(certificates: Certificates) -> dict[str, str]:
    """The client's options for TLS over TCP."""
    return {
        "tls_root_ca_file": certificates.authority,
        "tls_cert": certificates.client_cert,
        "tls_key": certificates.client_key,
    }


async def listed(strict: StrictCluster, topic: str, *bodies: bytes) -> None:
    """Publish, and wait until nsqlookupd lists the topic."""
    await asyncio.to_thread(strict.publish, topic, *bodies)
    async with Lookup([strict.lookupd]) as lookup:

        async def is_listed() -> bool:
            return bool((await lookup.producers(topic)).producers)

        await until(is_listed, f"nsqlookupd lists {topic}")


async def test_lookup_and_node_take_certificates(strict: StrictCluster) -> None:
    """``tls`` is used over HTTPS; without it the server is not trusted."""
    await listed(strict, "certificates", b"first")
    context = strict.certificates.context()
    async with (
        https_proxy(strict.lookupd, strict.certificates) as url,
        Lookup([url], tls=context) as lookup,
        Lookup([url]) as untrusting,
    ):
        assert "certificates" in (await lookup.topics()).names
        [error] = (await untrusting.topics()).errors
        assert "certificate" in error.reason
    async with Node(strict.nsqd, tls=context) as node, Node(f"https://{strict.https}", tls=context) as by_https:
        assert await node.ping() == await by_https.ping() == "OK"
        await node.pub("certificates", b"second")
        [stats] = (await node.stats("certificates")).topics
        assert stats.message_count == 2
    async with Node(strict.nsqd) as node:
        with pytest.raises(HTTPFailed, match="certificate"):
            await node.stats()


async def test_a_consumer_finds_nsqds_over_https(strict: StrictCluster) -> None:
    """``lookupd_tls`` is for nsqlookupd, the options for nsqd."""
    await listed(strict, "found", b"first")
    given = ConsumerOptions(tls_v1=True, **options(strict.certificates))
    async with (
        https_proxy(strict.lookupd, strict.certificates) as url,
        Consumer(
            *("found", "archive"),
            lookupd_http_addresses=[url],
            lookupd_tls=strict.certificates.context(),
            options=given,
        ) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        async for message in consumer:
            assert message.body == b"first"
            break


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("shown", ["tail", "--topic=shown", "--channel=tail"]),
        ("archived", ["to-file", "--topic=archived", "--output-dir=DIR"]),
        ("matched", ["to-file", "--topic-pattern=^matched$", "--output-dir=DIR"]),
    ],
)
async def test_a_tool_shows_the_waiting_messages(
    strict: StrictCluster, tmp_path: Path, topic: str, words: list[str]
) -> None:
    """The progress line has their number, read over HTTPS with the certificates of ``--http-client-tls-*``."""
    words = [word.replace("DIR", str(tmp_path)) for word in words]
    await listed(strict, topic, b"first")
    async with https_proxy(strict.lookupd, strict.certificates) as url:
        certificates = strict.certificates
        command = [
            *(sys.executable, str(ROOT / "manage.py"), "nsq", *words),
            *(f"--lookupd-http-address={url}", f"--http-client-tls-root-ca-file={certificates.authority}"),
            *(f"--http-client-tls-cert={certificates.client_cert}", f"--http-client-tls-key={certificates.client_key}"),
            "--consumer-opt=tls_v1",
            *(f"--consumer-opt={key},{path}" for key, path in options(certificates).items()),
        ]
        await shown_on_terminal(command, re.compile(rb"1 message, \d+/s, \d+ waiting").search)
