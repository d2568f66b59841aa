"""nsq tail, pub and stat, as a shell runs them."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aionsq import Node, Producer
from aionsq.tools.stat import Sample, row

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
DEADLINE_S = 20


@dataclass
class Ended:
    status: int
    out: bytes
    err: str


class Tool:
    """A running ``manage.py nsq …``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def end(self, stdin: bytes | None = None) -> Ended:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate(stdin)
        return Ended(self.process.returncode, out, err.decode())

    async def line(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.stdout.readline()


@pytest.fixture
async def start_tool():
    """Start a tool with its arguments; killed at the end if it still runs."""
    started = []

    async def start(*argv: str) -> Tool:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, MANAGE, "nsq", *argv, stdin=pipe, stdout=pipe, stderr=pipe
        )
        started.append(process)
        return Tool(process)

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def channel_of(broker, topic: str, channel: str) -> dict:
    async with Node(broker.http_address) as node:
        topics = (await node.stats(topic, channel))["topics"] or []
        return topics[0]["channels"][0] if topics else {}


async def test_pub_stores_every_record_of_standard_input(broker, start_tool):
    """Empty ones are left out, and the last one counts without a newline; how many were stored is told."""
    async with Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
    tool = await start_tool("pub", "--topic", "t", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"one\n\ntwo\n" + b"".join(b"%d\n" % number for number in range(1000)) + b"last")
    assert (ended.status, ended.err) == (0, "nsq pub: 1003 messages stored in t\n")
    tail = await start_tool("tail", "--topic=t", "--channel=c", "-n=1003", "--nsqd-tcp-address", broker.tcp_address)
    printed = (await tail.end()).out.splitlines()
    assert sorted(printed) == sorted([b"one", b"two", b"last", *(b"%d" % number for number in range(1000))])


async def test_pub_reads_a_file_and_takes_messages_from_the_command_line(broker, start_tool, tmp_path):
    """--message, several times, publishes without reading standard input; so does a file as standard input."""
    address = broker.tcp_address
    tool = await start_tool("pub", "--topic=t", "--message=a b", "--message", "c", "--nsqd-tcp-address", address)
    assert (await tool.end()).err == "nsq pub: 2 messages stored in t\n"
    records = tmp_path / "records"
    records.write_bytes(b"x;y;z")
    with records.open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, MANAGE, "nsq", "pub", "--topic=t", "--delimiter=;", "--nsqd-tcp-address", address),
            stdin=file,
            stderr=asyncio.subprocess.PIPE,
        )
        assert (await Tool(process).end()).err == "nsq pub: 3 messages stored in t\n"


async def test_pub_publishes_what_was_typed_without_waiting_for_more(broker, start_tool):
    """A line at a time arrives a line at a time; Ctrl-C tells what was stored, without a traceback."""
    tool = await start_tool("pub", "--topic", "t", "--nsqd-tcp-address", broker.tcp_address)
    tool.process.stdin.write(b"first\n")
    async with Node(broker.http_address) as node:
        async with asyncio.timeout(DEADLINE_S):
            while not [t for t in (await node.stats("t"))["topics"] or () if t["message_count"]]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    tool.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        assert await tool.process.wait() == 130
        assert await tool.process.stderr.read() == b"nsq pub: interrupted; 1 message stored in t\n"


async def test_pub_that_fails_says_why_and_how_much_was_stored(broker, start_tool):
    """A record that is too big ends it with status 1."""
    tool = await start_tool("pub", "--topic=t", "--batch-size=1", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"fine\n" + b"x" * 1_048_577 + b"\n")
    assert ended.status == 1
    assert ended.err == "nsq pub: message of 1048577 bytes is larger than 1048576 (1 message stored in t)\n"


async def test_tail_counts_over_all_topics_and_answers_what_it_printed(broker, registry, start_tool):
    """Four of six messages; the two others are back in their channels, none is left in flight."""
    async with Node(broker.http_address) as node, Producer(broker.tcp_address) as producer:
        for topic in ("a", "b"):
            await node.topic("create", topic)
            await node.channel("create", topic, "c")
            await producer.mpub(topic, [f"{topic}{number}".encode() for number in range(3)])
        tool = await start_tool(
            *("tail", "--topic=a", "--topic=b", "--channel=c", "--n=4", "--print-topic"),
            f"--lookupd-http-address={registry.http_address}",
        )
        ended = await tool.end()
        assert (ended.status, ended.err) == (0, "")
        assert len(ended.out.splitlines()) == 4
        assert all(re.fullmatch(rb"(a|b) \| \1\d", line) for line in ended.out.splitlines())
        channels = [await channel_of(broker, topic, "c") for topic in ("a", "b")]
        assert sum(each["depth"] + each["deferred_count"] for each in channels) == 2
        assert [each["in_flight_count"] for each in channels] == [0, 0]


async def test_tail_shows_a_topic_that_appears_later_and_ends_quietly_on_ctrl_c(broker, registry, start_tool):
    """It may be started first; status 0."""
    tool = await start_tool("tail", "--topic", "later", "--lookupd-http-address", registry.http_address)
    await asyncio.sleep(0.5)
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("later", b"here")
    assert await tool.line() == b"here\n"
    tool.process.send_signal(signal.SIGINT)
    ended = await tool.end()
    assert (ended.status, ended.err) == (0, "")


async def test_tail_into_a_reader_that_leaves_ends_without_a_word(broker):
    """As with ``| head -2``; what was not printed is back in the channel."""
    async with Producer(broker.tcp_address) as producer, Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
        for _ in range(10):
            await producer.mpub("t", [b"x" * 100] * 1000)
    tail = f"{sys.executable} {MANAGE} nsq tail --topic=t --channel=c --nsqd-tcp-address={broker.tcp_address}"
    shell = await asyncio.create_subprocess_shell(
        f"{tail} | head -2", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert await Tool(shell).end() == Ended(0, (b"x" * 100 + b"\n") * 2, "")
    channel = await channel_of(broker, "t", "c")
    assert channel["in_flight_count"] == 0
    assert channel["depth"] + channel["deferred_count"] > 0


async def test_tail_to_a_full_disk_says_so(broker):
    """With status 1."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, MANAGE, "nsq", "tail", "--topic=t", "--nsqd-tcp-address", broker.tcp_address),
            stdout=full,
            stderr=asyncio.subprocess.PIPE,
        )
        ended = await Tool(process).end()
    assert (ended.status, ended.err) == (1, "nsq tail: no space left on device\n")


async def test_pub_with_standard_input_closed_publishes_nothing(broker):
    """As a supervisor may start it."""
    pub = f"{sys.executable} {MANAGE} nsq pub --topic=t --nsqd-tcp-address={broker.tcp_address}"
    shell = await asyncio.create_subprocess_shell(f"{pub} <&-", stderr=asyncio.subprocess.PIPE)
    ended = await Tool(shell).end()
    assert (ended.status, ended.err) == (0, "nsq pub: 0 messages stored in t\n")


async def test_stat_prints_the_columns_and_names_the_node_that_does_not_answer(broker, start_tool, unused_address):
    """One dead node does not end it."""
    async with Node(broker.http_address) as node, Producer(broker.tcp_address) as producer:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
        await producer.mpub("t", [b"x"] * 30)
    tool = await start_tool(
        *("stat", "--topic=t", "--channel=c", "--interval=200ms", "--count=2"),
        *(f"--nsqd-http-address={address}" for address in (broker.http_address, unused_address)),
    )
    ended = await tool.end()
    header, names, *lines = ended.out.decode().splitlines()
    assert header.startswith("------rate------+")
    assert names.split() == [
        *("ingress", "egress", "|", "total", "mem", "disk", "inflt", "def", "|", "req", "t-o", "msgs", "clients")
    ]
    assert [line.split()[3] for line in lines] == ["30", "30"]
    assert [line.split()[-2:] for line in lines] == [["30", "0"]] * 2
    assert (ended.status, ended.err) == (0, f"nsq stat: http://{unused_address}/stats: connection refused\n")


def test_stat_divides_by_the_time_that_passed_and_survives_a_restart():
    """Rates are per second of the nodes seen twice; a counter that starts anew is counted from 0."""
    before = {"a": Sample(10.0, 5, 0, 0, 0, 0, 0, 1000, 1), "b": Sample(10.0, 0, 0, 0, 0, 0, 0, 500, 0)}
    now = {
        "a": Sample(14.0, 25, 10, 3, 2, 7, 6, 1400, 1),  # 400 in 4 s, 20 more waiting
        "b": Sample(14.0, 0, 0, 0, 0, 0, 0, 40, 0),  # restarted: 40 in 4 s
        "new": Sample(14.0, 0, 0, 0, 0, 0, 0, 9000, 0),
    }
    assert row(before, now) == (
        "    110     105 |      25      15      10     3     2 |       7       6        10440       1"
    )


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["tail"], 1, "nsq tail: --topic required"),
        (["tail", "--topic=t", "--nsqd-tcp-address=a:1", "--lookupd-http-address=b:1"], 1, "not both"),
        (["tail", "--topic=bad topic", "--nsqd-tcp-address=127.0.0.1:1"], 1, "'bad topic' is not valid"),
        (["tail", "--topic=t", "--nsqd-tcp-address=nowhere"], 1, "'nowhere' is not host:port"),
        (["tail", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1"], 1, "127.0.0.1:1: connection refused"),
        (["tail", "--topic=t", "--lookupd-http-address=127.0.0.1:1"], 1, "no nsqlookupd answers"),
        (["tail", "--topic=t", "--consumer-opt=nope"], 2, "--consumer-opt nope: invalid option nope"),
        (["pub"], 1, "nsq pub: --topic required"),
        (["pub", "--topic=t", "--delimiter=ab"], 1, "--delimiter must be a single byte"),
        (["pub", "--topic=t", "--message=x", "--nsqd-tcp-address=127.0.0.1:1"], 1, "connection refused"),
        (["stat", "--topic=t"], 1, "--topic and --channel are required"),
        (["stat", "--topic=t", "--channel=c", "--interval=0s"], 1, "--interval should be positive"),
        (["stat", "--topic=t", "--channel=c", "--nsqd-http-address=http://x:1"], 1, "should not contain scheme"),
        (["stat", "--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"], 1, "nobody answers"),
    ],
)
async def test_what_cannot_work_is_told_on_standard_error(start_tool, argv, status, says):
    """In words, without a traceback, and with an exit status."""
    ended = await (await start_tool(*argv)).end(b"x\n")
    assert ended.status == status
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 2
    assert ended.out == b""


@pytest.mark.parametrize("tool", ["tail", "pub", "stat"])
async def test_every_tool_explains_its_flags(start_tool, tool):
    """--help to standard error with status 0, as NSQ's tools do; an unknown flag shows the usage with status 2."""
    ended = await (await start_tool(tool, "--help")).end()
    assert ended.status == 0
    assert "--topic" in ended.err
    ended = await (await start_tool(tool, "--bogus")).end()
    assert ended.status == 2
    assert "flag provided but not defined: -bogus" in ended.err
