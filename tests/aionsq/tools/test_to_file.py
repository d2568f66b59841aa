"""nsq_to_file against real servers."""

from __future__ import annotations

import asyncio
import gzip
import re
import signal
import sys
from pathlib import Path

import pytest

from aionsq import Node, Producer
from tests.harness.process import Process
from tests.harness.terminal import shown_on_terminal
from tests.harness.waiting import until


def contents(folder: Path) -> dict[str, bytes]:
    """By name relative to the folder; compressed files unpacked."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in paths
    }


def lines(folder: Path) -> list[bytes]:
    return b"".join(contents(folder).values()).splitlines()


async def publish(broker, topic: str, *bodies: bytes) -> None:
    async with Producer(broker.tcp_address) as producer:
        await producer.mpub(topic, bodies)


async def all_finished(broker, channel_of, *, but: int = 0) -> None:
    """Wait until the depth is 0 and at most ``but`` messages are in flight."""

    async def finished() -> bool:
        channel = await channel_of(broker, "t", "nsq_to_file")
        return channel["in_flight_count"] <= but and channel["depth"] == 0

    await until(finished)


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def archive(start_tool, broker, out):
    """Start nsq_to_file on topic t with more flags."""

    async def start(*flags: str, topics=("t",), **more):
        chosen = [f"--topic={topic}" for topic in topics]
        where = f"--nsqd-tcp-address={broker.tcp_address}"
        return await start_tool("nsq_to_file", *chosen, where, f"--output-dir={out}", *flags, **more)

    return start


async def test_messages_become_lines_and_are_finished_once_they_are_synced(broker, archive, out, channel_of):
    """The first at once, then at the sync interval; SIGTERM syncs and ends with status 0."""
    tool = await archive("--sync-interval=300ms")
    await publish(broker, "t", b"one")
    await until(lambda: lines(out) == [b"one"])
    await publish(broker, "t", b"two", b" ", b"three \xff")
    await until(lambda: lines(out) == [b"one", b"two", b" ", b"three \xff"])
    await tool.logged("[t/nsq_to_file] syncing 3 records to disk")
    await all_finished(broker, channel_of)
    await publish(broker, "t", b"last")
    await until(lambda: lines(out)[-1:] == [b"last"])
    tool.process.send_signal(signal.SIGTERM)
    ended = await tool.end()
    assert ended.status == 0
    assert "Traceback" not in ended.err
    channel = await channel_of(broker, "t", "nsq_to_file")
    assert (channel["depth"], channel["in_flight_count"], channel["requeue_count"]) == (0, 0, 0)
    (name,) = contents(out)
    assert re.fullmatch(r"t\.[\w-]+\.\d{4}-\d\d-\d\d_\d\d\.log", name)


async def test_a_full_flight_is_synced_without_waiting_for_the_interval(broker, archive, out, channel_of):
    """nsqd sends nothing more before an answer, so waiting for the interval would be useless."""
    await archive("--sync-interval=1h", "--max-in-flight=10")
    await publish(broker, "t", *(b"%d" % number for number in range(1000)))
    await until(lambda: len(lines(out)) == 1000)
    await all_finished(broker, channel_of, but=9)


async def test_a_sync_interval_beyond_the_message_timeout_delivers_nothing_twice(start_server, start_tool, out):
    """Messages that wait for a sync are touched."""
    broker = await start_server("brokerd", "--msg-timeout=600ms")
    tool = await start_tool(
        *("nsq_to_file", "--topic=t", f"--nsqd-tcp-address={broker.tcp_address}"),
        *(f"--output-dir={out}", "--sync-interval=3s"),
    )
    await publish(broker, "t", b"first")
    await until(lambda: out.exists() and lines(out) == [b"first"])
    await publish(broker, "t", b"one", b"two")
    await tool.logged("syncing 2 records to disk")
    tool.process.send_signal(signal.SIGTERM)
    assert (await tool.end()).status == 0
    assert sorted(lines(out)) == [b"first", b"one", b"two"]
    async with Node(broker.http_address) as node:
        ((channel,),) = [topic.channels for topic in (await node.stats("t")).topics]
        assert (channel.timeout_count, channel.depth) == (0, 0)


async def test_sighup_finishes_the_files_and_the_next_message_opens_one(broker, archive, out):
    """It is appended if the name is the same; with gzip, it is in the next revision. Also with a work folder."""
    plain = await archive("--channel=plain", "--filename-format=<TOPIC>.log", "--sync-interval=1h")
    work = out.parent / "work"
    packed = await archive("--channel=packed", "--gzip", f"--work-dir={work}", "--filename-format=p/<TOPIC><REV>.log")
    for tool in (plain, packed):
        await tool.logged("connected to nsqd")
    await publish(broker, "t", b"one")
    await until(lambda: out.exists() and lines(out) == [b"one"] and (work / "p/t-000000.log.gz").exists())
    for tool in (plain, packed):
        await tool.logged("syncing 1 records")
        tool.process.send_signal(signal.SIGHUP)
    await until(lambda: (out / "p/t-000000.log.gz").exists())
    (out / "t.log").rename(out / "t.log.1")
    await publish(broker, "t", b"two")
    await until(lambda: (out / "t.log").exists() and (work / "p/t-000001.log.gz").exists())
    for tool in (plain, packed):
        tool.process.send_signal(signal.SIGTERM)
        assert (await tool.end()).status == 0
    assert contents(out) == {
        "p/t-000000.log.gz": b"one\n",
        "p/t-000001.log.gz": b"two\n",
        "t.log": b"two\n",
        "t.log.1": b"one\n",
    }
    assert contents(work) == {}


async def test_rotation_with_a_work_folder_and_without_empty_files(broker, archive, out):
    """The combination that ends NSQ's own tool: a file closed without a successor, then a message."""
    work = out.parent / "work"
    tool = await archive(
        *(f"--work-dir={work}", "--skip-empty-files", "--rotate-interval=200ms", "--sync-interval=100ms"),
        "--filename-format=<TOPIC><REV>",
    )
    for number in range(3):
        await publish(broker, "t", b"%d" % number)
        await until(lambda number=number: (out / f"t-00000{number}").exists())
    tool.process.send_signal(signal.SIGINT)
    assert (await tool.end()).status == 0
    assert contents(out) == {f"t-00000{number}": b"%d\n" % number for number in range(3)}


async def test_without_topics_all_that_match_are_archived_from_the_start(broker, registry, start_tool, out):
    """Existing topics at the start, new ones later; a registry that is down only causes a line in the log."""
    await publish(broker, "orders.eu", b"one")
    await publish(broker, "payments", b"no")
    tool = await start_tool(
        *("nsq_to_file", "--topic-pattern=^orders", "--topic-refresh=100ms", f"--output-dir={out}"),
        *(f"--lookupd-http-address={registry.http_address}", "--lookupd-http-address=127.0.0.1:1"),
        *("--filename-format=<TOPIC>", "--consumer-opt=lookupd_poll_interval,100ms"),
    )
    await until(lambda: contents(out) == {"orders.eu": b"one\n"})
    await publish(broker, "orders.us", b"two")
    await until(lambda: contents(out) == {"orders.eu": b"one\n", "orders.us": b"two\n"})
    assert "ERROR: could not retrieve topic list: http://127.0.0.1:1" in await tool.logged("could not retrieve")
    tool.process.send_signal(signal.SIGTERM)
    ended = await tool.end()
    assert ended.status == 0
    assert ended.err.count("could not retrieve") == 0  # once, not at every round


async def test_several_topics_and_the_pattern_on_them(broker, archive, out):
    """--topic is filtered by --topic-pattern if both are given."""
    await archive("--topic-pattern=b", "--filename-format=<TOPIC>.<PID>", topics=("a", "b1", "b2"))
    for topic in ("a", "b1", "b2"):
        await publish(broker, topic, topic.encode())
    await until(lambda: sorted(lines(out)) == [b"b1", b"b2"])


async def test_a_file_that_cannot_be_written_ends_it_and_nothing_is_finished(broker, archive, out, channel_of):
    """The error has the file and the reason, with status 1; the topic's messages are still in the channel."""
    await publish(broker, "t", b"one")
    out.mkdir()
    (out / "t.log").mkdir()
    tool = await archive("--filename-format=<TOPIC>.log")
    ended = await tool.end()
    assert ended.status == 1
    assert f"FATAL: [t/nsq_to_file] {out}/t.log: Is a directory" in ended.err
    assert "Traceback" not in ended.err
    channel = await channel_of(broker, "t", "nsq_to_file")
    assert channel["depth"] + channel["deferred_count"] + channel["in_flight_count"] == 1


async def test_a_disk_that_fills_up_leaves_no_partial_line(broker, archive, out, channel_of):
    """The partial line is removed, and its message stays in the channel."""
    await publish(broker, "t", *(b"%05d" % number for number in range(1000)))
    # A file size limit simulates a full disk: the write that exceeds it is truncated, the next one refused.
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1001, 1001)); "
        "from aionsq.tools.to_file import main; sys.exit(main())"
    )
    flags = [
        "--topic=t",
        f"--nsqd-tcp-address={broker.tcp_address}",
        f"--output-dir={out}",
        "--filename-format=<TOPIC>",
    ]
    with Process([sys.executable, "-c", program, *flags]) as process:
        assert await asyncio.to_thread(process.wait_for_exit) == 1
        assert "FATAL: [t/nsq_to_file] write: File too large" in process.output
    kept = (out / "t").read_bytes()
    assert len(kept) % 6 == 0
    channel = await channel_of(broker, "t", "nsq_to_file")
    left = channel["depth"] + channel["deferred_count"] + channel["in_flight_count"]
    assert left + len(kept) // 6 >= 1000


async def test_a_terminal_shows_how_far_it_is(broker, registry, out):
    """One updating line with messages, rate and waiting messages; --progress=none disables it."""
    await publish(broker, "t", *(b"%d" % number for number in range(30)))

    command = [
        *(sys.executable, "-c", "import sys; from aionsq.tools.to_file import main; sys.exit(main())"),
        *("--topic=t", f"--lookupd-http-address={registry.http_address}", f"--output-dir={out}"),
    ]
    shown = await shown_on_terminal(command, lambda shown: b"syncing" in shown and b"waiting" in shown)
    assert re.search(rb"\d+ messages, [\d,]+/s, \d+ waiting", shown)
    assert b"INFO: [t/nsq_to_file] syncing 30 records to disk\r\n" in shown
    await publish(broker, "t", b"more")
    shown = await shown_on_terminal([*command, "--progress=none"], lambda shown: b"syncing" in shown)
    assert b"messages, " not in shown


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        (["--topic=t", "x"], 1, "unknown arguments: [x]"),
        (["--topic=t", "--log-level=loud"], 2, "'loud' is not a log level"),
        (["--topic=t", "--channel="], 1, "--channel is required"),
        (["--topic=t", "--http-client-connect-timeout=0"], 1, "--http-client-connect-timeout should be positive"),
        (["--topic=t", "--http-client-request-timeout=-1s"], 1, "--http-client-request-timeout should be positive"),
        (["--topic=t"], 1, "--nsqd-tcp-address or --lookupd-http-address required"),
        (
            ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--lookupd-http-address=127.0.0.1:1"],
            1,
            "use --nsqd-tcp-address or --lookupd-http-address not both",
        ),
        (["--nsqd-tcp-address=127.0.0.1:1", "--gzip-level=0"], 1, "invalid --gzip-level value (0), should be 1-9"),
        (["--nsqd-tcp-address=127.0.0.1:1"], 1, "--topic or --topic-pattern required"),
        (
            ["--nsqd-tcp-address=127.0.0.1:1", "--topic-pattern=x"],
            1,
            "--lookupd-http-address must be specified when no --topic specified",
        ),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--sync-interval=0"], 1, "--sync-interval should be positive"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--topic-pattern=("], 1, "--topic-pattern (: missing"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--topic-pattern=x"], 1, "no --topic matches --topic-pattern"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--consumer-opt=nope"], 2, "invalid option nope"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--gzip", "--filename-format=x"], 1, "missing <REV> in"),
        (["--topic=bad topic", "--nsqd-tcp-address=127.0.0.1:1"], 1, "'bad topic' is not valid"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1"], 1, "cannot connect to nsqd 127.0.0.1:1: connection refused"),
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--output-dir=/dev/null/x"], 1, "Not a directory"),
    ],
)
async def test_invalid_options_are_reported_and_end_it(start_tool, tmp_path, flags, status, says):
    """In NSQ's order and with NSQ's texts; also in cases in which NSQ's own tool keeps running idle."""
    tool = await start_tool("nsq_to_file", f"--output-dir={tmp_path}", *flags, env={"NSQLOOKUPD_HTTP_ADDRESSES": ""})
    ended = await tool.end()
    assert (ended.status, says in ended.err) == (status, True), ended.err
    assert "Traceback" not in ended.err
