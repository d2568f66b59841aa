"""Mistakes in a program that uses the client: each is one sentence that names it, and one base class catches all."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import socket
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

import aionsq
from aionsq import (
    BlockingProducer,
    ConnectFailed,
    Consumer,
    ConsumerOptions,
    HTTPFailed,
    InvalidArgument,
    Lookup,
    Node,
    NSQError,
    Producer,
    ProducerOptions,
    PublishTimedOut,
    TLSRequired,
    WrongType,
)
from nsqwire import errors as protocol_errors
from tests.harness.waiting import until

SECOND = timedelta(seconds=1)
NOT_FOR_USERS = {"HandshakeFailed"}
"""Exceptions that one module of the client raises for another."""
FUNCTIONS = {"http_failed"}
"""Functions that return an exception of the client."""


def test_one_class_catches_every_exception_of_the_client():
    """``except aionsq.NSQError``."""
    public = [getattr(aionsq, name) for name in aionsq.__all__]
    raised = [each for each in public if inspect.isclass(each) and issubclass(each, BaseException)]
    assert len(raised) > 12
    assert all(issubclass(each, NSQError) for each in raised)


def test_no_module_of_the_client_raises_an_exception_of_another_class():
    """A walk over all ``raise`` statements but those of the command-line tools."""
    ours = {name for name, each in vars(aionsq).items() if inspect.isclass(each) and issubclass(each, NSQError)}
    ours |= {name for name, each in vars(protocol_errors).items() if inspect.isclass(each)}
    package = Path(aionsq.__file__).parent
    strange = []
    for path in sorted(package.glob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {
            node
            for handled in ast.walk(tree)
            if isinstance(handled, ast.Try) and handled.handlers
            for statement in handled.body
            for node in ast.walk(statement)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node not in inside:
                name = ast.unparse(node.exc.func)
                if name not in ours | NOT_FOR_USERS | FUNCTIONS:
                    strange.append(f"{path.name}:{node.lineno} {name}")
    assert strange == []


# --- arguments


async def test_a_body_that_is_text_is_named(broker):
    """Without a message about the buffer protocol."""
    async with Producer(broker.tcp_address) as producer:
        for publish in (
            lambda: producer.pub("orders", "text"),
            lambda: producer.mpub("orders", [b"bytes", "text"]),
            lambda: producer.dpub("orders", SECOND, "text"),
        ):
            with pytest.raises(
                WrongType, match=r"^the body of a message is bytes, not str: encode it, as in text\.encode\(\)$"
            ):
                await publish()
        with pytest.raises(WrongType, match=r"^the body of a message is bytes, not dict$"):
            await producer.pub("orders", {"id": 1})
        assert await producer.pub("orders", bytearray(b"fine")) == ()


@pytest.mark.parametrize(
    ("publish", "says"),
    [
        (lambda producer: producer.pub(b"body", "orders"), "the body of a message is bytes, not str"),
        (lambda producer: producer.pub(b"orders", b"body"), "the name of a topic is a str, not bytes"),
        (lambda producer: producer.mpub("orders", b"body"), "mpub publishes a list of bodies, not bytes"),
        (lambda producer: producer.mpub("orders", 3), "mpub publishes a list of bodies, not int"),
        (lambda producer: producer.dpub("orders", b"body", SECOND), "a delay is a timedelta, not bytes"),
        (lambda producer: producer.dpub("orders", 5, b"body"), "a delay is a timedelta, not int"),
        (lambda producer: producer.pub("orders", b"body", timeout=5), "a timeout is a timedelta, not int"),
        (lambda producer: producer.pub("orders", b"body", headers=[("a", "b")]), "headers of a message are a mapping"),
        (lambda producer: producer.mpub("orders", [b"a", b"b"], headers=[{}, 3]), "headers of a message are a mapping"),
        (lambda producer: producer.mpub("orders", [b"a"], headers="x"), "headers of a message are a mapping, not str"),
    ],
)
async def test_a_swapped_argument_is_named(broker, publish, says):
    """By both producers, before anything is sent."""
    async with Producer(broker.tcp_address) as producer:
        with pytest.raises(WrongType, match=says):
            await publish(producer)
    with BlockingProducer(broker.tcp_address) as blocking, pytest.raises(WrongType, match=says):
        publish(blocking)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Producer(ProducerOptions()), "nsqd_tcp_addresses is an address or a sequence of addresses"),
        (lambda: Producer("127.0.0.1:4150", ConsumerOptions()), "options is a ProducerOptions, not ConsumerOptions"),
        (lambda: BlockingProducer(4150), "nsqd_tcp_addresses is an address or a sequence of addresses, not 4150"),
        (lambda: BlockingProducer("127.0.0.1:4150", timeout=5), "a timeout is a timedelta, not int"),
        (lambda: Consumer(b"orders", "work", nsqd_tcp_addresses="127.0.0.1:4150"), "the name of a topic is a str"),
        (lambda: Consumer("orders", None, nsqd_tcp_addresses="127.0.0.1:4150"), "the name of a channel is a str"),
        (lambda: Consumer("orders", "work", nsqd_tcp_addresses=4150), "nsqd_tcp_addresses is an address"),
        (lambda: Consumer("orders", "work", nsqd_tcp_addresses="a:1", options=ProducerOptions()), "a ConsumerOptions"),
    ],
)
def test_an_argument_of_another_type_is_named(make, says):
    """By the constructors."""
    with pytest.raises(WrongType, match=says):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Producer([]),
        lambda: Producer("nowhere"),
        lambda: Consumer("orders", "work"),
        lambda: Consumer("orders", "work", lookupd_http_addresses="nowhere"),
        lambda: Lookup([]),
        lambda: Lookup("nowhere"),
        lambda: Node("nowhere"),
        lambda: ProducerOptions(publish_timeout=timedelta(0)),
        lambda: ConsumerOptions(max_in_flight=-1),
    ],
)
def test_an_address_or_option_that_cannot_be_is_an_invalid_argument(make):
    """The exception is a ValueError too."""
    with pytest.raises(InvalidArgument):
        make()
    assert issubclass(InvalidArgument, ValueError)


@pytest.mark.parametrize("url", ["http://127.0.0.1:4151", "tcp://127.0.0.1:4150", "nsq://127.0.0.1"])
@pytest.mark.parametrize(
    "make",
    [
        lambda url: Producer(url),
        lambda url: BlockingProducer([url]),
        lambda url: Consumer("orders", "work", nsqd_tcp_addresses=[url]),
    ],
)
def test_a_url_is_not_the_address_of_an_nsqd(make, url):
    """Although it has a slash, as the path of a Unix socket has."""
    with pytest.raises(InvalidArgument) as raised:
        make(url)
    assert (
        str(raised.value) == f"{url!r} is a URL: an nsqd's address is the host:port of its TCP port, without a scheme"
    )


async def test_a_missing_unix_socket_is_said_to_be_one(tmp_path):
    """The address may have been meant as another thing: ``127.0.0.1:4150/`` has a slash."""
    for address in ("127.0.0.1:4150/", str(tmp_path / "nsqd.sock")):
        for client in (Producer(address), Consumer("orders", "work", nsqd_tcp_addresses=address)):
            with pytest.raises(ConnectFailed) as raised:
                await client.start()
            says = "no such file or directory (an address with a slash is the path of a Unix socket)"
            assert str(raised.value) == f"cannot connect to nsqd {address}: {says}"


async def test_one_address_needs_no_list(broker):
    """A str is one address, also for a consumer, and not a sequence of letters."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("orders", b"hello")
    async with Consumer("orders", "work", nsqd_tcp_addresses=broker.tcp_address) as consumer:
        async for message in consumer:
            assert message.body == b"hello"
            break


async def pages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server, which answers unknown paths with a page."""
    await reader.readuntil(b"\r\n\r\n")
    page = b"<!DOCTYPE HTML>\n<title>Not found</title>"
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(page)
    writer.write(head + page)
    writer.close()


async def test_a_wrong_address_of_a_registry_is_said_to_be_one(broker, registry):
    """The HTTP port of an nsqd, a TCP port, a web server: in one line, which names the address."""
    web = await asyncio.start_server(pages, "127.0.0.1", 0)
    wrong = {
        broker.http_address: "404 NOT_FOUND: this is not an nsqlookupd's HTTP address",
        broker.tcp_address: "it answers in NSQ's TCP protocol: this is not an HTTP address",
        registry.tcp_address: "it answers in NSQ's TCP protocol: this is not an HTTP address",
        f"127.0.0.1:{web.sockets[0].getsockname()[1]}": "404 Not Found: this is not an nsqlookupd's HTTP address",
    }
    for address, says in wrong.items():
        async with Lookup([address, registry.http_address]) as lookup:
            answers = [
                await lookup.producers("orders"),
                await lookup.nodes(),
                await lookup.topics(),
                await lookup.channels("orders"),
            ]
        for answer, path in zip(answers, ("lookup", "nodes", "topics", "channels"), strict=True):
            (error,) = answer.errors
            assert str(error) == f"http://{address}/{path}: {says}"
    web.close()


async def test_a_wrong_address_of_a_node_is_said_to_be_one(broker, registry):
    """The HTTP port of a registry, and a TCP port."""
    for address, says in {
        registry.http_address: "404 NOT_FOUND: this is not an nsqd's HTTP address",
        broker.tcp_address: "it answers in NSQ's TCP protocol: this is not an HTTP address",
    }.items():
        async with Node(address) as node:
            with pytest.raises(HTTPFailed) as raised:
                await node.stats()
        assert str(raised.value) == f"http://{address}/stats: {says}"


async def test_a_consumer_says_that_an_address_is_no_registry(broker, caplog):
    """And tries again, because another server may come to listen there."""
    async with Consumer("orders", "work", lookupd_http_addresses=[broker.http_address]):
        pass
    assert "404 NOT_FOUND: this is not an nsqlookupd's HTTP address; retrying" in caplog.text


# --- the log


async def test_a_connection_that_the_client_closes_is_not_logged_as_lost(broker, caplog):
    """Neither a producer's nor a consumer's, also at run time."""
    caplog.set_level("INFO", "aionsq")
    address = broker.tcp_address
    async with Producer(address) as producer:
        await producer.pub("orders", b"hello")
    async with Consumer("orders", "work", nsqd_tcp_addresses=address) as consumer:
        message = await consumer.next_message()
        message.finish()
        consumer.disconnect_from_nsqd(address)
        await until(lambda: consumer.connections == [])
    async with Consumer("orders", "work", nsqd_tcp_addresses=address):
        pass
    logged = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("aionsq")]
    assert logged == [
        ("INFO", f"orders/work: connected to nsqd {address}"),
        ("INFO", f"orders/work: disconnected from nsqd {address}"),
        ("INFO", f"orders/work: connected to nsqd {address}"),
    ]


async def test_a_connection_that_nsqd_closes_is_logged_as_lost(nsqd, caplog):
    """By producers and consumers."""
    caplog.set_level("INFO", "aionsq")
    async with Producer(nsqd.address), Consumer("orders", "work", nsqd_tcp_addresses=nsqd.address):
        await nsqd.until(lambda: len(nsqd.peers) == 2)
        for peer in nsqd.peers[:2]:
            peer.disconnect()
        why = "(nsqd closed the connection|connection reset by peer)"
        for line in (
            f"INFO .* nsqd {nsqd.address}: connection lost: {why}",
            f"WARNING .* orders/work: nsqd {nsqd.address}: {why}",
        ):
            await until(lambda line=line: re.search(line, caplog.text))


# --- TLS


@pytest.mark.parametrize("option", ["tls_root_ca_file", "tls_cert"])
@pytest.mark.parametrize("content", [None, b"not PEM"])
def test_a_file_for_tls_that_cannot_be_used_is_named_with_its_option(option, content, tmp_path):
    """When the client is made, and not as a failed connection."""
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_bytes(content)
    for make in (
        lambda: Producer("127.0.0.1:4150", ProducerOptions(tls_v1=True, **{option: str(path)})),
        lambda: BlockingProducer("127.0.0.1:4150", ProducerOptions(tls_v1=True, **{option: str(path)})),
        lambda: Consumer(
            "orders",
            "work",
            nsqd_tcp_addresses="127.0.0.1:4150",
            options=ConsumerOptions(tls_v1=True, **{option: str(path)}),
        ),
    ):
        with pytest.raises(InvalidArgument) as raised:
            make()
        assert str(raised.value).startswith(f"invalid {option} ! {path} ")
        assert "\n" not in str(raised.value)


async def test_a_broker_that_requires_tls_says_which_option_is_missing(start_server, tmp_path):
    """To a producer at its first publish, to a consumer when it connects."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    root, cert, key = tmp_path / "root.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(root)
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    broker = await start_server("brokerd", f"--tls-cert={cert}", f"--tls-key={key}", "--tls-required=tcp-https")
    says = rf"nsqd {broker.tcp_address} requires TLS: set the option tls_v1"

    async with Producer(broker.tcp_address) as producer:
        with pytest.raises(TLSRequired, match=says):
            await producer.pub("orders", b"hello")
        many = [producer.pub("orders", b"hello") for _ in range(100)]
        for publish in many:
            with pytest.raises(TLSRequired):
                await publish
    with pytest.raises(ConnectFailed, match=r"requires TLS: set the option tls_v1"):
        await Consumer("orders", "work", nsqd_tcp_addresses=broker.tcp_address).start()

    options = ProducerOptions(tls_v1=True, tls_root_ca_file=str(root))
    async with Producer(broker.tcp_address, options) as producer:
        await producer.pub("orders", b"hello")


# --- a blocking producer


def test_a_view_does_not_wait_longer_than_its_own_deadline():
    """The default is 5 seconds, not the 30 of an asyncio producer; each call may have another."""
    assert inspect.signature(BlockingProducer).parameters["timeout"].default == timedelta(seconds=5)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = ProducerOptions(dial_timeout=timedelta(seconds=20))
        with BlockingProducer(address, options, timeout=timedelta(milliseconds=300)) as producer:
            with pytest.raises(PublishTimedOut, match="not sent to"):
                producer.pub("orders", b"hello")
            with pytest.raises(PublishTimedOut):
                producer.pub("orders", b"hello", timeout=timedelta(milliseconds=10))
        with (
            BlockingProducer(
                address, ProducerOptions(publish_timeout=timedelta(milliseconds=200)), timeout=timedelta(minutes=5)
            ) as producer,
            pytest.raises(PublishTimedOut),
        ):
            producer.pub("orders", b"hello")


def test_a_view_does_not_wait_for_a_thread_that_is_stuck():
    """The event loop of the producer does not run, as when another thread holds the interpreter."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        producer = BlockingProducer(f"127.0.0.1:{silent.getsockname()[1]}", timeout=timedelta(milliseconds=100))
        with pytest.raises(PublishTimedOut):
            producer.pub("orders", b"hello")
        release = threading.Event()
        assert producer._worker is not None
        producer._worker._loop.call_soon_threadsafe(release.wait, 60)
        with pytest.raises(PublishTimedOut, match=r"no answer within 0\.1s; the message may or may not be stored"):
            producer.pub("orders", b"hello")
        release.set()
        producer.close()
