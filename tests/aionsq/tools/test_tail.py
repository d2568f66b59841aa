"""nsq_tail."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from aionsq import Node, Producer, ProducerOptions
from tests.platform.go_nsq import GoCluster


async def test_tail_counts_over_all_topics_and_finishes_printed_messages(broker, registry, start_tool, channel_of):
    """Four of six messages; the other two are requeued, and none stays in flight."""
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


async def test_tail_has_a_channel_of_its_own_and_asks_for_no_more_than_it_prints(nsqd, start_tool):
    """The channel is deleted at the end; the user agent is the tool's, whatever --consumer-opt says."""
    tool = await start_tool(
        *("nsq_tail", "--topic=t", "--n=3", "--consumer-opt=user_agent,me", "--consumer-opt=max_in_flight,9"),
        f"--nsqd-tcp-address={nsqd.address}",
    )
    peer = await nsqd.consumer()
    await nsqd.until(lambda: peer.lines("RDY"))
    assert re.fullmatch(r"SUB t tail\d{6}#ephemeral", peer.lines("SUB")[0])
    assert peer.lines("RDY") == ["RDY 3"]
    assert json.loads(peer.commands[0].body)["user_agent"].startswith("nsq_tail/1.3.0 aionsq/")
    for number in range(3):
        peer.message(b"%d" % number)
    ended = await tool.end()
    assert (ended.status, ended.out) == (0, b"0\n1\n2\n")


async def test_tail_shows_a_topic_that_appears_later_and_ends_quietly_on_ctrl_c(broker, registry, start_tool):
    """It may be started first; status 0."""
    tool = await start_tool(
        "tail", "--topic", "later", "--log-level=info", "--lookupd-http-address", registry.http_address
    )
    await tool.logged("Adding consumer")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("later", b"here")
    assert await tool.line() == b"here\n"
    tool.process.send_signal(signal.SIGINT)
    ended = await tool.end()
    assert ended.status == 0
    assert "WARN" not in ended.err


async def test_tail_into_a_reader_that_leaves_ends_without_an_error(broker, in_shell, channel_of):
    """For example ``| head -2``; messages that were not printed are requeued."""
    async with Producer(broker.tcp_address) as producer, Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
        for _ in range(10):
            await producer.mpub("t", [b"x" * 100] * 1000)
    ended = await in_shell(f"nsq tail --topic=t --channel=c --nsqd-tcp-address={broker.tcp_address} | head -2")
    assert (ended.status, ended.out, ended.err) == (0, (b"x" * 100 + b"\n") * 2, "")
    channel = await channel_of(broker, "t", "c")
    assert channel["in_flight_count"] == 0
    assert channel["depth"] + channel["deferred_count"] > 0


async def test_tail_to_a_full_disk_says_so(broker, start_tool):
    """With status 1."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230
        tool = await start_tool("tail", "--topic=t", "--nsqd-tcp-address", broker.tcp_address, stdout=full)
        ended = await tool.end()
    assert (ended.status, ended.err) == (1, "nsq tail: no space left on device\n")


async def test_peek_prints_the_backlog_and_consumes_nothing(broker, registry, start_tool, channel_of):
    """All messages that wait, in order; afterwards the channel is as before, and no channel was created."""
    where = f"--lookupd-http-address={registry.http_address}"
    async with Node(broker.http_address) as node, Producer(broker.tcp_address) as producer:
        for topic in ("a", "b"):
            await node.topic("create", topic)
            await node.channel("create", topic, "c")
            await producer.mpub(topic, [b"%s%d" % (topic.encode(), number) for number in range(130)])
            assert (await channel_of(broker, topic, "c"))["depth"] == 130
        tool = await start_tool("tail", "--peek", "--topic=a", "--topic=b", "--channel=c", "--print-topic", where)
        ended = await tool.end()
        expected = [b"%s | %s%d" % (topic, topic, number) for topic in (b"a", b"b") for number in range(130)]
        assert (ended.status, ended.err, ended.out.splitlines()) == (0, "", expected)
        limited = await start_tool("tail", "--peek", "--topic=a", "--channel=c", "--n=3", where)
        assert (await limited.end()).out == b"a0\na1\na2\n"
        for topic in ("a", "b"):
            channel = await channel_of(broker, topic, "c")
            assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (130, 0, 130)
            assert [each.channel_name for each in (await node.stats(topic)).topics[0].channels] == ["c"]


async def test_peek_names_what_it_cannot_show(broker, registry, start_tool, channel_of):
    """A channel that does not exist ends it with status 1; a body beyond 64 KiB is cut, and stderr says so."""
    where = f"--lookupd-http-address={registry.http_address}"
    async with Node(broker.http_address) as node, Producer(broker.tcp_address) as producer:
        await node.topic("create", "a")
        await node.channel("create", "a", "c")
        await producer.pub("a", b"x" * 70_000)
        await channel_of(broker, "a", "c")
        missing = await (await start_tool("nsq_tail", "--peek", "--topic=a", where)).end()
        assert (missing.status, missing.out) == (1, b"")
        assert re.search(r"no node has channel tail\d{6}#ephemeral of topic a: name one with --channel", missing.err)
        cut = await (await start_tool("nsq_tail", "--peek", "--topic=a", "--channel=c", where)).end()
        assert (cut.status, cut.out) == (0, b"x" * 65_536 + b"\n")
        assert "has 70000 bytes, the first 65536 are shown" in cut.err


async def test_peek_gives_the_reason_for_each_server_that_does_not_answer(start_tool, registry, unused_address):
    """A refused port, a registry without the topic, a port that is not HTTP: in one line, with status 1."""
    peek = ("tail", "--peek", "--topic=a", "--channel=c")
    host, _, port = unused_address.rpartition(":")
    refused = await (await start_tool(*peek, f"--nsqd-tcp-address={unused_address}")).end()
    lookups = (f"--lookupd-http-address={registry.http_address}", f"--lookupd-http-address={unused_address}")
    unknown = await (await start_tool(*peek, *lookups)).end()
    plain = await (await start_tool(*peek, f"--lookupd-http-address=https://{registry.http_address}")).end()
    assert [each.status for each in (refused, unknown, plain)] == [1, 1, 1]
    begins = "nsq tail: no node with topic a answers over HTTP: "
    assert refused.err == f"{begins}nsqd {unused_address}: HTTP {host}:{int(port) + 1}: connection refused\n"
    assert unknown.err == (
        f"{begins}nsqlookupd {registry.http_address}: 404 TOPIC_NOT_FOUND; "
        f"nsqlookupd {unused_address}: connection refused\n"
    )
    assert plain.err.startswith(f"{begins}nsqlookupd https://{registry.http_address}: TLS: ")


async def test_peek_on_gos_nsqd_is_one_line_and_status_1(start_tool):
    """It has no such request; nothing is printed and nothing is consumed."""
    cluster = GoCluster()
    try:
        cluster.nodes[0].channel("orders", "billing", depth=5)
        tool = await start_tool(
            *("tail", "--peek", "--topic=orders", "--channel=billing"),
            f"--lookupd-http-address={cluster.registry.address}",
        )
        ended = await tool.end()
    finally:
        for upstream in cluster.everything:
            upstream.stop()
    assert (ended.status, ended.out) == (1, b"")
    [line] = ended.err.splitlines()
    assert "cannot show messages without consuming them: brokerd can, Go's nsqd cannot" in line


async def test_peek_prints_headers_if_asked(broker, registry, start_tool, channel_of):
    """As for messages that are consumed."""
    where = f"--lookupd-http-address={registry.http_address}"
    async with Producer(broker.tcp_address, ProducerOptions(headers=True)) as producer:
        async with Node(broker.http_address) as node:
            await node.topic("create", "t")
            await node.channel("create", "t", "c")
        await producer.pub("t", b"one", headers={"tenant": "a"})
        await producer.pub("t", b"two")
    await channel_of(broker, "t", "c")
    for flags, printed in (
        (["--print-headers"], b'{"tenant": "a"} | one\n{} | two\n'),
        ([], b"one\ntwo\n"),
    ):
        tail = await start_tool("tail", "--topic=t", "--channel=c", "--peek", where, *flags)
        assert (await tail.end()).out == printed
