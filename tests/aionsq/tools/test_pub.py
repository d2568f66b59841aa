"""nsq pub."""

from __future__ import annotations

import asyncio
import re
import signal
import time

from aionsq import Node
from tests.harness.waiting import DEADLINE_S, until


async def test_pub_stores_every_record_of_standard_input(broker, start_tool):
    """Empty records are skipped, and the last one needs no newline; the number of stored records is printed."""
    async with Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
    tool = await start_tool("pub", "--topic", "t", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"one\n\ntwo\n" + b"".join(b"%d\n" % number for number in range(1000)) + b"last")
    assert (ended.status, ended.err) == (0, "nsq pub: 1,003 messages stored in t\n")
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
        tool = await start_tool("pub", "--topic=t", "--delimiter=;", "--nsqd-tcp-address", address, stdin=file)
        assert (await tool.end()).err == "nsq pub: 3 messages stored in t\n"


async def test_pub_takes_topic_and_messages_as_arguments(broker, start_tool):
    """Flags may precede and follow them, ``--`` ends the flags; without a message, standard input is read."""
    flag = f"--nsqd-tcp-address={broker.tcp_address}"
    tool = await start_tool("pub", "t", "one", flag, "two words", "--", "--three")
    assert (await tool.end()).err == "nsq pub: 3 messages stored in t\n"
    tool = await start_tool("pub", flag, "t")
    assert (await tool.end(b"four\nfive\n")).err == "nsq pub: 2 messages stored in t\n"
    tool = await start_tool("pub", flag, "--topic=t", "--message=six", "seven")
    assert (await tool.end()).err == "nsq pub: 2 messages stored in t\n"
    tail = await start_tool("tail", "--topic=t", "--channel=c", "-n=7", "--nsqd-tcp-address", broker.tcp_address)
    printed = sorted((await tail.end()).out.splitlines())
    assert printed == sorted([b"one", b"two words", b"--three", b"four", b"five", b"six", b"seven"])


async def test_to_nsq_takes_flags_only(broker, start_tool):
    """As NSQ's."""
    tool = await start_tool("to_nsq", "t", "one", f"--nsqd-tcp-address={broker.tcp_address}")
    ended = await tool.end()
    assert (ended.status, ended.err.startswith("to_nsq: unknown arguments: [t one ")) == (1, True)


async def test_pub_publishes_typed_lines_at_once(broker, start_tool):
    """Each line is published at once; Ctrl-C prints the number of stored messages, without a traceback."""
    tool = await start_tool("pub", "--topic", "t", "--nsqd-tcp-address", broker.tcp_address)
    tool.process.stdin.write(b"first\n")
    async with Node(broker.http_address) as node:

        async def is_stored() -> bool:
            return any(topic.message_count for topic in (await node.stats("t")).topics)

        await until(is_stored, "the line is stored")
    tool.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        assert await tool.process.wait() == 130
        assert await tool.process.stderr.read() == b"nsq pub: interrupted; 1 message stored in t\n"


async def test_pub_that_fails_says_why_and_how_much_was_stored(broker, start_tool):
    """A record that is too big ends it with status 1."""
    tool = await start_tool("pub", "--topic=t", "--batch-size=1", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"fine\n" + b"x" * 1_048_577 + b"\n")
    assert ended.status == 1
    assert ended.err == "nsq pub: message of 1048577 bytes is larger than 1048576 (1 message stored in t, 1 not)\n"


async def test_pub_with_standard_input_closed_publishes_nothing(broker, in_shell):
    """As a supervisor may start it."""
    ended = await in_shell(f"nsq pub --topic=t --nsqd-tcp-address={broker.tcp_address} <&-")
    assert (ended.status, ended.err) == (0, "nsq pub: 0 messages stored in t\n")


async def test_a_record_that_is_too_big_takes_none_of_its_batch_with_it(broker, start_tool):
    """The records before it are stored."""
    tool = await start_tool("to_nsq", "--topic=t", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"a\nb\n" + b"x" * 1_048_577 + b"\n")
    assert ended.status == 1
    assert ended.err.endswith("(2 messages stored in t, 1 not)\n")


async def test_every_address_gets_every_record(broker, start_server, start_tool):
    """Stored means stored by all of them."""
    second = await start_server("brokerd")
    flags = [f"--nsqd-tcp-address={each.tcp_address}" for each in (broker, second)]
    ended = await (await start_tool("to_nsq", "--topic=t", *flags)).end(b"a\nb\nc")
    assert (ended.status, ended.err) == (0, "to_nsq: 3 messages stored in t\n")
    for each in (broker, second):
        async with Node(each.http_address) as node:
            assert (await node.stats("t")).topics[0].message_count == 3


async def test_a_rate_is_kept_and_logged(broker, start_tool):
    """After a burst of one second's records."""
    began_at = time.monotonic()
    tool = await start_tool("to_nsq", "--topic=t", "--rate=50", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"x\n" * 100)
    assert time.monotonic() - began_at > 0.9
    assert ended.err == "to_nsq: Throttling messages rate to max:50/second\nto_nsq: 100 messages stored in t\n"


async def test_a_signal_ends_to_nsq_with_status_0(broker, start_tool):
    """Status 0, after storing what it had read."""
    tool = await start_tool("to_nsq", "--topic=t", "--nsqd-tcp-address", broker.tcp_address)
    tool.process.stdin.write(b"one\ntwo\nunfinished")

    async def stored():
        async with Node(broker.http_address) as node:
            return [topic.message_count for topic in (await node.stats("t")).topics] == [2]

    await until(stored)
    tool.process.send_signal(signal.SIGTERM)
    ended = await tool.end()
    assert (ended.status, ended.err) == (0, "to_nsq: interrupted; 2 messages stored in t\n")


async def test_deferred_messages_are_delivered_when_they_are_due(broker, start_tool, channel_of):
    """--defer, with records of standard input as with --message."""
    async with Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
    began_at = time.monotonic()
    tool = await start_tool("pub", "--topic=t", "--defer=1s", "--nsqd-tcp-address", broker.tcp_address)
    assert (await tool.end(b"a\nb\n")).err == "nsq pub: 2 messages stored in t\n"
    row = await channel_of(broker, "t", "c")
    if time.monotonic() - began_at < 0.9:
        assert (row["deferred_count"], row["depth"]) == (2, 0)
    tail = await start_tool("tail", "--topic=t", "--channel=c", "-n=2", "--nsqd-tcp-address", broker.tcp_address)
    assert sorted((await tail.end()).out.splitlines()) == [b"a", b"b"]
    assert time.monotonic() - began_at > 1


async def test_pub_prints_the_ids_of_what_it_has_stored(broker, start_tool):
    """One a line, in the order of the records, and nothing else on standard output."""
    tool = await start_tool("pub", "--topic=t", "--ids", "--nsqd-tcp-address", broker.tcp_address)
    ended = await tool.end(b"".join(b"%d\n" % number for number in range(450)))
    ids = [int(line, 16) for line in ended.out.splitlines()]
    assert (len(ids), ids) == (450, sorted(set(ids)))
    assert (ended.status, ended.err) == (0, "nsq pub: 450 messages stored in t\n")


async def test_pub_ends_where_it_can_print_no_ids(broker, in_shell):
    """In one line; the batches that are under way are not reported one by one."""
    pub = f"nsq pub --topic=t --ids --nsqd-tcp-address={broker.tcp_address}"
    ended = await in_shell(f"seq 200000 | {pub} > /dev/full")
    assert ended.status == 1
    assert re.fullmatch(r"nsq pub: .*No space left on device.*\n", ended.err, re.IGNORECASE), ended.err


async def test_pub_sends_headers_and_tail_prints_them(broker, start_tool):
    """``--header`` of all messages, alone, in batches and deferred; ``--print-headers``, with the topic."""
    async with Node(broker.http_address) as node:
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
    to = f"--nsqd-tcp-address={broker.tcp_address}"
    headers = "--header=Tenant=a=b", "--header=kind=é"
    for flags in (["--message=1"], ["--message=2", "--message=3"], ["--message=4", "--defer=1ms"]):
        tool = await start_tool("pub", "--topic=t", to, *headers, *flags)
        assert (await tool.end()).status == 0
    tool = await start_tool("pub", "--topic=t", to, "--message=5")
    assert (await tool.end()).status == 0
    tail = await start_tool("tail", "--topic=t", "--channel=c", "-n=5", to, "--print-headers", "--print-topic")
    shown = 't | {"tenant": "a=b", "kind": "é"} | '.encode()
    printed = (await tail.end()).out.splitlines()
    assert sorted(printed) == sorted([*(shown + b"%d" % number for number in range(1, 5)), b"t | {} | 5"])


async def test_pub_refuses_headers_that_cannot_be_sent(broker, nsqd, start_tool):
    """One line names the flag, or the node that has no headers, as Go's nsqd; nothing is stored."""
    for header, says in (
        ("tenant", "--header tenant: not name=value"),
        ("a b=c", "--header: header name 'a b' is not 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'"),
    ):
        tool = await start_tool(
            "pub", "--topic=t", f"--nsqd-tcp-address={broker.tcp_address}", "--message=x", f"--header={header}"
        )
        ended = await tool.end()
        assert (ended.status, ended.err) == (2, f"nsq pub: {says}\n")
    tool = await start_tool("pub", "--topic=t", f"--nsqd-tcp-address={nsqd.address}", "--message=x", "--header=a=b")
    ended = await tool.end()
    refused = f"nsqd {nsqd.address} does not take headers; not stored (0 messages stored in t, 1 not)"
    assert (ended.status, ended.err) == (1, f"nsq pub: {refused}\n")
