"""nsq_stat."""

from __future__ import annotations

import signal

import pytest

from aionsq import Node, Producer
from aionsq.tools.stat import Sample, row


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
    """Rates are per second, of nodes in both samples; a restarted counter counts from 0."""
    before = {"a": Sample(10.0, 5, 0, 0, 0, 0, 0, 1000, 1), "b": Sample(10.0, 0, 0, 0, 0, 0, 0, 500, 0)}
    now = {
        "a": Sample(14.0, 25, 10, 3, 2, 7, 6, 1400, 1),  # 400 in 4 s, 20 more waiting
        "b": Sample(14.0, 0, 0, 0, 0, 0, 0, 40, 0),  # restarted: 40 in 4 s
        "new": Sample(14.0, 0, 0, 0, 0, 0, 0, 9000, 0),
    }
    assert row(before, now) == (
        "    110     105 |      25      15      10     3     2 |       7       6        10440       1"
    )


@pytest.fixture
async def channel(broker):
    """A topic t with a channel c."""
    async with Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")


async def test_stat_finds_the_nodes_by_the_registry_and_repeats_its_header(broker, registry, channel, start_tool):
    """The header is repeated after 25 lines; --count is the number of lines."""
    tool = await start_tool(
        *("nsq_stat", "--topic=t", "--channel=c", "--interval=10ms", "--count=26"),
        f"--lookupd-http-address={registry.http_address}",
    )
    ended = await tool.end()
    lines = ended.out.decode().splitlines()
    headers = [number for number, line in enumerate(lines) if line.startswith("------rate")]
    assert (ended.status, ended.err, headers, len(lines)) == (0, "", [0, 27], 30)
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
async def test_stat_ends_quietly_on_a_signal(broker, channel, start_tool, number):
    """With status 0."""
    where = f"--nsqd-http-address={broker.http_address}"
    tool = await start_tool("nsq_stat", "--topic=t", "--channel=c", "--interval=50ms", where)
    await tool.line()
    tool.process.send_signal(number)
    ended = await tool.end()
    assert (ended.status, ended.err) == (0, "")


async def test_stat_of_an_unknown_channel_says_so(broker, channel, start_tool):
    """With NSQ's text."""
    where = f"--nsqd-http-address={broker.http_address}"
    ended = await (await start_tool("nsq_stat", "--topic=t", "--channel=x", where)).end()
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err == "nsq_stat: failed to find channel(x) in stats metadata for topic(t)\n"


async def test_stat_whose_only_node_leaves_ends_where_lines_are_counted(broker, channel, start_tool):
    """With --count the tool exits; without it, it keeps trying."""
    where = f"--nsqd-http-address={broker.http_address}"
    tool = await start_tool("nsq_stat", "--topic=t", "--channel=c", "--interval=100ms", "--count=1000", where)
    await tool.line()
    await broker.terminate()
    ended = await tool.end()
    assert ended.status == 1
    assert ended.err.endswith("connection refused\nnsq_stat: nobody answers\n")
