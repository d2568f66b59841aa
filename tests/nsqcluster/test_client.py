"""Failures of the HTTP client, by name."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from bench.ports import free_port
from nsqcluster import Client, Interrupted, Malformed, NodeStats, NotReached, Refused, TimedOut, reads
from nsqcluster.addresses import base_url
from nsqcluster.producers import TopicNames

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    """Serve every path with a handler; returns the address."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return f"127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


def answering(status: int, body: bytes) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body)

    return answer


async def failing(address: str, type: Any = NodeStats, **options: Any) -> Any:
    """The error of a read."""
    async with Client(**options) as client:
        with pytest.raises(Exception) as caught:
            await client.get(address, "/stats", type, {"topic": "orders#ephemeral"})
        return caught.value


async def test_a_refused_connection_is_never_sent() -> None:
    """In the words of the operating system."""
    error = await failing(f"127.0.0.1:{free_port()}")
    assert (type(error), error.reason) == (NotReached, "connection refused")
    assert error.url.endswith("/stats?topic=orders%23ephemeral")


async def test_a_host_that_cannot_be_resolved_is_not_reached() -> None:
    error = await failing("no-such-host.invalid:4151")
    assert isinstance(error, NotReached)


@pytest.mark.parametrize("address", ["", "nowhere", "a b:1", "127.0.0.1:x", "ftp://host:1"])
async def test_an_invalid_address_is_reported_as_not_reached(address: str) -> None:
    """A registry may list anything."""
    assert isinstance(await failing(address), NotReached)
    with pytest.raises(ValueError, match="is not host:port"):
        base_url(address)


async def test_a_silent_server_times_out(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """The deadline is of the whole request."""

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    error = await failing(await serve(trickle), timeout_s=0.2)
    assert (type(error), error.reason) == (TimedOut, "no answer within 0.2 s")


async def test_a_refusal_has_status_and_message(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """The message of nsqd's JSON, or the text; of a page, the status line's phrase."""
    known = await failing(await serve(answering(404, b'{"message":"TOPIC_NOT_FOUND"}')))
    assert (known.status, known.message, known.is_unknown_name) == (404, "TOPIC_NOT_FOUND", True)
    other = await failing(await serve(answering(502, b"down")))
    assert (type(other), other.reason, other.phrase) == (Refused, "answers 502 down", "Bad Gateway")
    page = await failing(await serve(answering(502, b"<html>")))
    assert (page.reason, page.text) == ("answers 502 Bad Gateway", "<html>")


async def test_a_longer_response_than_the_limit_is_malformed(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """It is not read to its end."""
    error = await failing(await serve(answering(200, b" " * (3 << 20))), largest_answer=1 << 20)
    assert (type(error), error.reason) == (Malformed, "cannot read its /stats: longer than 1 MiB")


async def test_a_cut_response_is_interrupted(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """The server closes the connection before the end that it announced."""

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    assert isinstance(await failing(await serve(cut)), Interrupted)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"not json", "cannot read its /stats: Invalid JSON"),
        (b'{"topics":[],"health":"caf\xe9"}', "cannot read its /stats: Invalid JSON: 'utf-8' codec"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `topics`"),
        (b'{"topics":[{"topic_name":"t","depth":"many"}]}', "topics.0.depth: Expected `int`, got `str`"),
        (b'{"topics":[{"depth":1}]}', "topics.0: Object missing required field `topic_name`"),
    ],
)
async def test_a_malformed_response_names_the_key(
    serve: Callable[[Handler], Awaitable[str]], body: bytes, complaint: str
) -> None:
    error = await failing(await serve(answering(200, body)))
    assert isinstance(error, Malformed)
    assert complaint in error.reason


async def test_responses_of_old_servers_are_unwrapped(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """nsqd and nsqlookupd before 1.0 wrap the document, and errors too."""
    sound = await serve(answering(200, b'{"status_code":200,"status_txt":"OK","data":{"topics":["a"]}}'))
    async with Client() as client:
        assert (await client.get(sound, "/topics", TopicNames)).names == ["a"]
    wrong = await serve(answering(200, b'{"status_code":404,"status_txt":"TOPIC_NOT_FOUND","data":null}'))
    error = await failing(wrong, TopicNames)
    assert (error.status, error.message) == (404, "TOPIC_NOT_FOUND")


async def test_null_lists_are_empty(serve: Callable[[Handler], Awaitable[str]]) -> None:
    """Go writes null for an empty list, and omits keys."""
    body = b'{"version":"1.3.0","topics":[{"topic_name":"t","channels":null,"e2e_processing_latency":null}]}'
    async with Client() as client:
        stats = await client.get(await serve(answering(200, body)), "/stats", NodeStats)
    [topic] = stats.topics
    assert (topic.channels, topic.depth, topic.e2e_processing_latency, stats.producers) == ([], 0, None, [])


@pytest.mark.parametrize("previous", [b'{"version":"1","topics":[],"boot_id":"a"}', b"null"])
async def test_the_previous_process_is_kept_undecoded(
    serve: Callable[[Handler], Awaitable[str]], previous: bytes
) -> None:
    """An object, or null if the process was killed."""
    body = b'{"version":"1","topics":[],"previous_boot":' + previous + b"}"
    async with Client() as client:
        stats = await client.get(await serve(answering(200, body)), "/stats", NodeStats)
    assert bytes(stats.previous_boot) == previous


async def test_a_read_that_is_cancelled_at_once_leaves_nothing_behind() -> None:
    """Its requests have not started; none is reported as never awaited."""
    gc.collect()  # of earlier tests
    async with Client() as client:
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            read = asyncio.create_task(reads.lookups(client, ["127.0.0.1:1"], "orders"))
            await asyncio.sleep(0)
            read.cancel()
            await asyncio.wait([read])
            assert read.cancelled()
            del read
            gc.collect()
    assert [str(each.message) for each in reported if "never awaited" in str(each.message)] == []
