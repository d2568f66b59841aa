"""Common behaviour of all tools: help, versions, invalid flags, and servers that do not answer."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from aionsq import Producer
from tests.aionsq.conftest import RESPONSE
from tests.harness.process import send_two_signals
from tests.harness.waiting import DEADLINE_S

CONSUMERS = ("nsq_tail", "tail")
NOT_UTF_8 = "\udcff"
"""Python's form of the byte FF in an argument; it is in no UTF-8 text."""
EVERY = (*CONSUMERS, "nsq_stat", "stat", "pub", "nsq_to_file", "nsq_to_http", "nsq_to_nsq")


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["tail"], 2, "nsq tail: --topic required"),
        (["nsq_tail"], 1, "nsq_tail: --topic required"),
        (["nsq_tail", "--topic=t"], 1, "nsq_tail: --nsqd-tcp-address or --lookupd-http-address required"),
        (["tail", "--topic=t", "--nsqd-tcp-address=a:1", "--lookupd-http-address=b:1"], 2, "not both"),
        (["tail", "--topic=bad topic", "--nsqd-tcp-address=127.0.0.1:1"], 2, "'bad topic' is not valid"),
        (["tail", "--topic=t", "--nsqd-tcp-address=nowhere"], 2, "'nowhere' is not host:port"),
        (["tail", "--topic=t", "--lookupd-http-address=nowhere:x"], 2, "'nowhere:x' is not host:port"),
        (["tail", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1"], 1, "127.0.0.1:1: connection refused"),
        (["tail", "--topic=t", "--consumer-opt=nope"], 2, "--consumer-opt nope: invalid option nope"),
        (["tail", "-topic", "t", "stray", "-n", "1"], 2, "nsq tail: unknown arguments: [stray -n 1]"),
        (["pub"], 2, "nsq pub: a topic is required"),
        (["pub", "--topic=t", "--delimiter=ab"], 2, "--delimiter must be a single byte"),
        (["pub", "--topic=t", "--message=x", "--nsqd-tcp-address=127.0.0.1:1"], 1, "connection refused"),
        (["stat", "--topic=t"], 2, "--topic and --channel are required"),
        (["nsq_stat", "--topic=t", "--channel=c"], 1, "--nsqd-http-address or --lookupd-http-address required"),
        (["stat", "--topic=t", "--channel=c", "--interval=0s"], 2, "--interval should be positive"),
        (["stat", "--topic=t", "--channel=c", "--count=0"], 2, "--count should be positive"),
        (
            ["stat", "--topic=t", "--channel=c", "--http-client-connect-timeout=0s"],
            2,
            "--http-client-connect-timeout should be positive",
        ),
        (["stat", "--topic=t", "--channel=c", "--nsqd-http-address=http://x:1"], 2, "should not contain scheme"),
        (["stat", "--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"], 1, "nobody answers"),
        (["tail", f"--topic={NOT_UTF_8}", "--peek"], 2, r"topic name '\udcff' is not valid"),
        (["tail", "--topic=t", f"--channel={NOT_UTF_8}", "--peek"], 2, r"channel name '\udcff' is not valid"),
        (["nsq_stat", f"--topic={NOT_UTF_8}", "--channel=c"], 1, r"topic name '\udcff' is not valid"),
        (["nsq_stat", "--topic=t", f"--channel={NOT_UTF_8}"], 1, r"channel name '\udcff' is not valid"),
        (["pub", f"--topic={NOT_UTF_8}"], 2, r"topic name '\udcff' is not valid"),
        (["nsq_to_nsq", f"--topic={NOT_UTF_8}", "--channel=c"], 1, "--topic is invalid"),
        (["nsq_to_file", f"--topic={NOT_UTF_8}"], 1, r"topic name '\udcff' is not valid"),
        (
            ["to-file", f"--topic-pattern={NOT_UTF_8}", "--output-dir=/tmp"],
            2,
            r"--topic-pattern '\udcff': is not UTF-8",
        ),
        (
            ["to-http", "--topic=t", "--channel=c", "--post=http://127.0.0.1:1/", f"--content-type={NOT_UTF_8}"],
            2,
            r"--content-type '\udcff': not the value of a header",
        ),
        (["topics", "list", NOT_UTF_8], 2, r"'\udcff' is not a valid topic name"),
        (["channels", "list", NOT_UTF_8], 2, r"'\udcff' is not a valid topic name"),
        (["nodes", "list", f"--nsqd-http-address={NOT_UTF_8}:1"], 2, r"'\udcff:1' is not host:port"),
    ],
)
async def test_invalid_options_are_reported_on_standard_error(start_tool, argv, status, says):
    """As one readable line without a traceback: status 2 of a subcommand of nsq, 1 as in NSQ under NSQ's names."""
    tool = await start_tool(*argv, env={"NSQLOOKUPD_HTTP_ADDRESSES": ""})
    ended = await tool.end(b"x\n")
    assert (ended.status, ended.out) == (status, b"")
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 2


@pytest.mark.parametrize("name", EVERY)
async def test_every_tool_explains_its_flags(start_tool, name):
    """--help prints the purpose and the flags, under NSQ's names on standard error, as NSQ's tools do; an unknown flag
    has status 2 and, under NSQ's names, the usage."""
    ended = await (await start_tool(name, "-help")).end()
    is_nsqs = name.startswith("nsq_")
    called = name if is_nsqs else f"nsq {name}"
    said, silent = (ended.err, ended.out.decode()) if is_nsqs else (ended.out.decode(), ended.err)
    assert (ended.status, silent) == (0, "")
    assert said.startswith(f"usage: {called} [{'--topic ' if is_nsqs else ''}")
    _, summary, flags, *_ = said.split("\n\n")
    assert summary.endswith(".")
    assert flags.startswith("options:\n  --")
    ended = await (await start_tool(name, "--bogus")).end()
    assert (ended.status, ended.out) == (2, b"")
    said = f"{called}: flag provided but not defined: -bogus\n"
    assert ended.err.startswith(f"{said}\nusage: ") if is_nsqs else ended.err == said


@pytest.mark.parametrize("name", EVERY)
async def test_every_tool_prints_its_version(start_tool, name):
    """NSQ's version, under NSQ's name of the tool, without any other flag."""
    ended = await (await start_tool(name, "--version")).end()
    named = {"tail": "nsq_tail", "stat": "nsq_stat", "pub": "to_nsq"}.get(name, name)
    assert ended.out.decode() == f"{named} v1.3.0\n"
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("name", CONSUMERS)
async def test_a_registry_that_does_not_answer_is_logged_and_retried(start_tool, start_server, unused_address, name):
    """It may be started later than the tool."""
    flags = ("--topic=t", f"--lookupd-http-address={unused_address}", "--consumer-opt=lookupd_poll_interval,100ms")
    tool = await start_tool(name, *flags)
    assert "; retrying" in await tool.logged("connection refused")
    registry = await start_server("nsqlookup", f"--http-address={unused_address}")
    broker = await start_server("brokerd", f"--lookupd-tcp-address={registry.tcp_address}")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"here")
    assert await tool.line() == b"here\n"
    tool.process.send_signal(signal.SIGTERM)
    assert (await tool.end()).status == 0


@pytest.mark.parametrize("name", CONSUMERS)
async def test_the_address_of_another_server_is_said_to_be_no_registry(start_tool, broker, name):
    """In one line, for the HTTP and the TCP port of an nsqd."""
    for address, says in (
        (broker.http_address, "404 NOT_FOUND: this is not an nsqlookupd's HTTP address; retrying"),
        (broker.tcp_address, "it answers in NSQ's TCP protocol: this is not an HTTP address; retrying"),
    ):
        tool = await start_tool(name, "--topic=t", f"--lookupd-http-address={address}")
        assert address in await tool.logged(says)
        tool.process.send_signal(signal.SIGTERM)
        assert (await tool.end()).status == 0


@pytest.mark.parametrize("name", CONSUMERS)
async def test_the_environment_may_name_the_registry(start_tool, registry, name):
    """NSQLOOKUPD_HTTP_ADDRESSES, as for the platform; an interrupt during the start ends the tool normally."""
    env = {"NSQLOOKUPD_HTTP_ADDRESSES": registry.http_address}
    tool = await start_tool(name, "--topic=t", "--log-level=info", env=env)
    await tool.logged("Adding consumer for topic: t")
    tool.process.send_signal(signal.SIGINT)
    ended = await tool.end()
    assert (ended.status, ended.err) == (0, "")


async def ended_by_a_second(tool, number):
    """Send the signal until the tool says that it does not wait: the signals of the first second are one."""
    said = asyncio.create_task(tool.process.stderr.readline())
    async with asyncio.timeout(DEADLINE_S):
        while not said.done():
            tool.process.send_signal(number)
            await asyncio.wait([said], timeout=0.1)
    ended = await tool.end()
    return replace(ended, err=said.result().decode() + ended.err)


async def test_a_second_interrupt_does_not_wait(start_tool, nsqd):
    """After the first, the tool waits for an nsqd that does not answer CLS; the second ends it, with status 130."""
    nsqd.on["CLS"] = lambda peer, command: None
    tool = await start_tool("nsq_tail", "--topic=t", f"--nsqd-tcp-address={nsqd.address}")
    peer = await nsqd.consumer()
    peer.message(b"here")
    assert await tool.line() == b"here\n"
    tool.process.send_signal(signal.SIGINT)
    await nsqd.until(lambda: peer.lines("CLS"))
    ended = await ended_by_a_second(tool, signal.SIGINT)
    assert (ended.status, ended.out) == (130, b"")
    assert ended.err == "nsq_tail: interrupted again: exiting without waiting for outstanding work\n"


@pytest.mark.parametrize(
    ("name", "flag"), [("nsq_tail", "--print-topic"), ("nsq_to_http", "--post=http://127.0.0.1:1/")]
)
async def test_a_tool_that_does_not_wait_leaves_its_connections_without_a_word(
    start_tool, nsqd, start_lookup, name, flag
):
    """Also those to the registry, where it has found the nsqd."""
    nsqd.on["CLS"] = lambda peer, command: None
    lookup = await start_lookup()
    lookup.producers = [nsqd.address]
    tool = await start_tool(name, "--topic=t", flag, f"--lookupd-http-address={lookup.address}")
    peer = await nsqd.consumer()
    tool.process.send_signal(signal.SIGTERM)
    await nsqd.until(lambda: peer.lines("CLS"))
    ended = await ended_by_a_second(tool, signal.SIGTERM)
    assert ended.status == 130
    assert ended.err == f"{name}: interrupted again: exiting without waiting for outstanding work\n"


async def test_a_signal_that_arrives_twice_is_one(start_tool, nsqd):
    """``timeout`` sends it to the process and to its group: outstanding work is waited for."""
    nsqd.on["CLS"] = lambda peer, command: None
    tool = await start_tool("nsq_tail", "--topic=t", f"--nsqd-tcp-address={nsqd.address}")
    peer = await nsqd.consumer()
    send_two_signals(tool.process.pid)
    await nsqd.until(lambda: peer.lines("CLS"))
    peer.frame(RESPONSE, b"CLOSE_WAIT")
    ended = await tool.end()
    assert (ended.status, ended.err) == (0, "")


async def test_a_command_that_is_interrupted_twice_at_once_says_one_line(start_tool):
    """While it waits for an answer."""
    asked, over = asyncio.Event(), asyncio.Event()

    async def ignore(reader, writer):
        asked.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    tool = await start_tool("topics", "list", f"--lookupd-http-address={host}:{port}")
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    send_two_signals(tool.process.pid)
    ended = await tool.end()
    over.set()
    server.close()
    assert (ended.status, ended.err) == (130, "nsq topics: interrupted; requests already sent may still be executed\n")


async def test_an_nsqd_that_goes_and_comes_back_is_connected_to_again(start_tool, broker):
    """With a line in the log for each."""
    tool = await start_tool("nsq_tail", "--topic=t", f"--nsqd-tcp-address={broker.tcp_address}", "--log-level=info")
    await tool.logged("connected to nsqd")
    await broker.restart()
    assert "WARN" in await tool.logged("connected to nsqd")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"here")
    assert await tool.line() == b"here\n"


HINT = "; is nsq up running? With --port-base N, set NSQ_PORT_BASE=N"
NO_PLATFORM = {"NSQ_PORT_BASE": "1", "NSQLOOKUPD_HTTP_ADDRESSES": "", "NSQD_HTTP_ADDRESSES": ""}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["topics"], "nsq topics: nsqlookupd 127.0.0.1:12: connection refused{}"),
        (["nodes"], "nsq nodes: nsqlookupd 127.0.0.1:12: connection refused{}"),
        (["topics", "create", "t"], "nsq topics: create topic t: nsqlookupd 127.0.0.1:12: connection refused{}"),
        (["pub", "t", "x"], "nsq pub: cannot connect to nsqd 127.0.0.1:1: connection refused{}"),
        (
            ["stat", "--topic=t", "--channel=c"],
            "nsq stat: http://127.0.0.1:12/lookup: connection refused{}\nnsq stat: nobody answers",
        ),
        (
            ["tail", "--topic=t", "--peek", "--channel=c"],
            "nsq tail: no node with topic t answers over HTTP: nsqlookupd 127.0.0.1:12: connection refused{}",
        ),
    ],
)
async def test_a_default_address_where_nobody_listens_leads_to_the_platforms_ports(start_tool, argv, says):
    """In the same line. An address of the environment is none of the platform's."""
    ended = await (await start_tool(*argv, env=NO_PLATFORM)).end()
    assert (ended.status, ended.err) == (1, f"{says.format(HINT)}\n")
    if argv[0] != "pub":
        given = NO_PLATFORM | {"NSQLOOKUPD_HTTP_ADDRESSES": "127.0.0.1:12"}
        assert (await (await start_tool(*argv, env=given)).end()).err == f"{says.format('')}\n"


async def test_a_tool_that_waits_for_the_platform_says_so(start_tool):
    """In its log."""
    tool = await start_tool("tail", "--topic=t", env=NO_PLATFORM)
    assert f"http://127.0.0.1:12/lookup: connection refused; retrying{HINT}\n" in await tool.logged("refused")
