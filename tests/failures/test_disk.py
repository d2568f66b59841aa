"""A disk that does not answer, or answers with errors.

Publishers get an error within a bounded time, consumers of what is in memory go on, ``/ping`` says it, and nothing
that was acknowledged is lost.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nsqwire import encoding
from nsqwire.frame import MESSAGE_WITH_HEADERS
from nsqwire.headers import encode_headers
from tests.failures.disk import HANG, FaultyDisk, reports_unreadable_pages
from tests.harness import header_commands
from tests.harness.daemon import Daemon
from tests.harness.v2 import ERROR, RESPONSE, V2Client, sized
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.failures.conftest import Connect, Start

STALLED = "the disk has not completed a sync within 1 s"
STALLED_CHANGE = "the disk has not completed an operation within 2 s"
LARGE = bytes(100_000)
"""A body that is written by a system call, not through the map."""


def health(broker: Daemon) -> tuple[int, str]:
    answer = broker.request("GET", "/ping")
    return answer.status, answer.text


def refusal(client: V2Client, body: bytes) -> bytes:
    """The error with which a publish is answered."""
    kind, data = client.command(b"PUB t\n" + sized(body))
    assert kind == ERROR, data
    return data


def consume(client: V2Client, count: int) -> list[bytes]:
    """Receive and finish messages, one after the other, and ask for no more."""
    bodies = []
    for _ in range(count):
        client.send(b"RDY 1\n")
        message_id, _, body = client.message()
        client.send(b"RDY 0\n")
        client.finish(message_id)
        bodies.append(body)
    return bodies


def left(broker: Daemon, connect: Connect) -> list[bytes]:
    """The bodies of all messages of channel ``c`` of topic ``t``."""
    [channel] = [each for each in broker.topics()["t"]["channels"] if each["channel_name"] == "c"]
    client = connect(broker)
    client.sub("t", "c")
    return sorted(consume(client, channel["depth"]))


def test_an_acknowledgement_that_waits_for_a_hanging_disk_becomes_an_error(
    disk: FaultyDisk, start: Start, connect: Connect
) -> None:
    """--sync-every=1: an error after --disk-timeout, to waiting and to new publishers. Consumers go on, new ones too.
    When the disk answers, publishes are accepted again, and after a kill all that was acknowledged is there."""
    broker = start(broker=disk.broker("--sync-every=1", "--disk-timeout=1s"))
    consumer, waiting, other = connect(broker), connect(broker), connect(broker)
    consumer.sub("t", "c")
    for number in range(4):
        waiting.pub("t", b"%d" % number)
    with disk.fault(sync=HANG):
        assert STALLED.encode() in refusal(waiting, b"refused")
        assert STALLED.encode() in refusal(other, b"refused")
        answer = broker.request("POST", "/pub?topic=t", b"refused")
        assert (answer.status, answer.text) == (503, '{"message":"EXITING"}')
        assert health(broker) == (500, f"NOK - {STALLED}")
        assert consume(consumer, 2) == [b"0", b"1"]
        late = connect(broker)
        late.sub("t", "c")
        assert consume(late, 1) == [b"2"]
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    connect(broker).pub("t", b"4")
    assert broker.request("POST", "/pub?topic=t", b"5").status == 200
    broker.end(signal.SIGKILL)
    broker.launch()
    bodies = left(broker, connect)
    assert set(bodies) - {b"refused"} >= {b"3", b"4", b"5"}
    assert set(bodies) <= {b"2", b"3", b"4", b"5", b"refused"}


def test_a_change_is_answered_once_it_is_on_the_disk(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """--sync-every=1: as a publish is; if the disk hangs, the answer is an error. Otherwise a power loss could take a
    change that was answered."""
    broker = start(broker=disk.broker("--sync-every=1", "--disk-timeout=1s"))
    for topic in ("t", "deleted"):
        connect(broker).sub(topic, "c")
        broker.post("/channel/create", topic=topic, channel="deleted")
    changes = (
        "/topic/create?topic=new",
        "/topic/pause?topic=t",
        "/topic/empty?topic=t",
        "/topic/delete?topic=deleted",
        "/channel/create?topic=t&channel=new",
        "/channel/pause?topic=t&channel=c",
        "/channel/empty?topic=t&channel=c",
        "/channel/delete?topic=t&channel=deleted",
    )
    with disk.fault(sync=HANG), ThreadPoolExecutor(len(changes)) as clients:
        answers = list(clients.map(lambda change: broker.request("POST", change), changes))
    assert [(answer.status, answer.text) for answer in answers] == [(503, '{"message":"EXITING"}')] * len(changes)
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    assert set(broker.topics()) == {"t", "new"}  # the changes were made
    assert broker.request("POST", "/topic/create?topic=later").status == 200


def test_publishes_that_do_not_wait_for_the_disk_are_refused_once_it_hangs(
    disk: FaultyDisk, start: Start, connect: Connect
) -> None:
    """Otherwise --sync-every and --sync-timeout would no longer limit what a power loss takes."""
    broker = start(broker=disk.broker("--sync-timeout=20ms", "--disk-timeout=1s"))
    client = connect(broker)
    client.sub("t", "c")
    accepted = 0
    with disk.fault(sync=HANG):
        publisher = connect(broker)
        while (answer := publisher.command(b"PUB t\n" + sized(b"x"))) == (RESPONSE, b"OK"):
            accepted += 1
            time.sleep(0.01)  # not more messages than the test needs
        assert STALLED.encode() in answer[1]
        assert health(broker)[0] == 500
    wait_until(lambda: health(broker)[0] == 200, "the disk answers")
    connect(broker).pub("t", b"x")
    assert accepted
    assert left(broker, connect) == [b"x"] * (accepted + 1)


def test_without_a_limit_a_disk_that_hangs_is_only_slow(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """--disk-timeout=0s: the acknowledgement comes when the disk answers, and no publish is refused."""
    broker = start(broker=disk.broker("--sync-every=1", "--disk-timeout=0s"))
    client = connect(broker)
    with disk.fault(sync=HANG):
        client.send(b"PUB t\n" + sized(b"x"))
        assert client.is_silent(3.0)
        assert health(broker) == (200, "OK")
    assert client.frame() == (RESPONSE, b"OK")


def test_a_disk_that_fails_after_it_hung_is_final(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """What is on the disk is unknown, so publishes are refused until a restart, although the disk answers again."""
    broker = start(broker=disk.broker("--sync-every=1", "--disk-timeout=1s"))
    with disk.fault(sync=HANG):
        assert STALLED.encode() in refusal(connect(broker), b"x")
        with disk.fault(sync=errno.EIO):
            wait_until(lambda: "Input/output error" in health(broker)[1], "the sync failed")
    assert b"Input/output error" in refusal(connect(broker), b"x")
    broker.end(signal.SIGKILL)
    broker.launch()
    connect(broker).pub("t", b"x")


def test_a_sync_without_a_descriptor_is_made_again(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """EMFILE says nothing about the disk: only the publishes that waited are refused, and no restart is needed."""
    broker = start(broker=disk.broker("--sync-every=1"))
    with disk.fault(sync=errno.EMFILE):
        assert b"Too many open files" in refusal(connect(broker), b"refused")
        assert health(broker) == (200, "OK")
    connect(broker).pub("t", b"0")
    broker.end(signal.SIGKILL)
    assert "nothing more is acknowledged" not in broker.output
    broker.launch()
    assert broker.topics()["t"]["depth"] == 2


def test_a_topic_that_cannot_be_created_in_time_is_refused(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """So are all publishes until the disk answers. Consumers go on, new clients and channels are served."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    publisher.mpub("t", [b"0", b"1", b"2"])
    with disk.fault(change=HANG):
        kind, data = publisher.command(b"PUB new\n" + sized(b"refused"))
        assert kind == ERROR
        assert STALLED_CHANGE.encode() in data
        assert STALLED_CHANGE.encode() in refusal(connect(broker), b"refused")
        assert broker.request("POST", "/pub?topic=t", b"refused").status == 503
        assert broker.request("POST", "/topic/create?topic=other").status == 503
        assert health(broker) == (500, f"NOK - {STALLED_CHANGE}")
        assert consume(consumer, 2) == [b"0", b"1"]
        consumer.settle()
        late = connect(broker)
        late.sub("t", "late")
        assert set(broker.topics()) == {"t"}
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    connect(broker).pub("new", b"later")
    connect(broker).pub("t", b"3")
    broker.end(signal.SIGKILL)
    broker.launch()
    assert left(broker, connect) == [b"2", b"3"]
    assert broker.topics()["new"]["depth"] == 1


def test_a_segment_that_cannot_be_created_in_time_is_used_later(
    disk: FaultyDisk, start: Start, connect: Connect
) -> None:
    """The publish that needed it is refused, and so are smaller ones. Once the disk answers, all are accepted."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    for _ in range(2):
        publisher.pub("t", LARGE)
    with disk.fault(change=HANG):
        assert STALLED_CHANGE.encode() in refusal(connect(broker), LARGE)
        assert STALLED_CHANGE.encode() in refusal(connect(broker), b"small")
        assert consume(consumer, 1) == [LARGE]
        consumer.settle()
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    publisher.pub("t", b"small")
    publisher.pub("t", LARGE)
    assert len(list(disk.data_path.glob("topics/*/*.log"))) == 2
    broker.end(signal.SIGKILL)
    broker.launch()
    assert left(broker, connect) == [LARGE, LARGE, b"small"]
    assert broker.stats(include_histograms="true")["lost_message_count"] == 0


def test_an_index_that_cannot_grow_in_time_grows_later(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """It has a record for each publish. The publish that needs space for one more is refused, and others then."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    publisher.pub("t", b"000")
    accepted = 1
    with disk.fault(change=HANG):
        while (answer := publisher.command(b"PUB t\n" + sized(b"%03d" % accepted))) == (RESPONSE, b"OK"):
            accepted += 1
        assert STALLED_CHANGE.encode() in answer[1]
        assert STALLED_CHANGE.encode() in refusal(connect(broker), b"refused")
        assert health(broker) == (500, f"NOK - {STALLED_CHANGE}")
        assert consume(consumer, 1) == [b"000"]
        consumer.settle()
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    late = connect(broker)
    for number in range(accepted, accepted + 200):
        late.pub("t", b"%03d" % number)
    broker.end(signal.SIGKILL)
    broker.launch()
    assert left(broker, connect) == [b"%03d" % number for number in range(1, accepted + 200)]


def test_a_file_of_headers_that_cannot_be_created_in_time_is_created_later(
    disk: FaultyDisk, start: Start, connect: Connect
) -> None:
    """The publish with headers is refused, and others then. Consumers go on."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    block, with_headers = encode_headers({"a": "b"}), encoding.identify({"feature_negotiation": True, "headers": True})
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    publisher.command(with_headers)
    publisher.pub("t", b"0")
    with disk.fault(change=HANG):
        kind, data = publisher.command(header_commands.hpub("t", block, b"refused"))
        assert kind == ERROR
        assert STALLED_CHANGE.encode() in data
        assert STALLED_CHANGE.encode() in refusal(connect(broker), b"refused")
        assert consume(consumer, 1) == [b"0"]
        consumer.settle()
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    assert list(disk.data_path.glob("topics/*/*.hdr")) == []
    late = connect(broker)
    late.command(with_headers)
    late.ok(header_commands.hpub("t", block, b"1"))
    broker.end(signal.SIGKILL)
    broker.launch()
    reader = connect(broker)
    reader.command(with_headers)
    reader.sub("t", "c", 1)
    kind, data = reader.frame()
    assert kind == MESSAGE_WITH_HEADERS
    assert data.endswith(block + b"1")


def test_consumers_go_on_while_a_segment_cannot_be_deleted(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """A thread deletes it once the disk answers; nobody waits for that, and publishes are accepted meanwhile."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    for _ in range(4):
        publisher.pub("t", LARGE)
    logs = sorted(disk.data_path.glob("topics/*/*.log"))
    assert len(logs) > 1
    with disk.fault(change=HANG):
        assert consume(consumer, 4) == [LARGE] * 4
        consumer.settle()
        publisher.pub("t", b"later")
        assert health(broker) == (200, "OK")
        assert logs[0].exists()
    wait_until(lambda: not logs[0].exists(), "the segment is deleted")
    broker.end(signal.SIGKILL)
    broker.launch()
    assert left(broker, connect) == [b"later"]


def test_a_deletion_of_a_topic_that_hangs_is_undone(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """The command fails, and the topic is there as before."""
    broker = start(broker=disk.broker("--disk-timeout=2s"))
    connect(broker).pub("t", b"x")
    broker.post("/channel/create", topic="t", channel="c")
    with disk.fault(change=HANG):
        assert broker.request("POST", "/topic/delete?topic=t").status == 503
    wait_until(lambda: health(broker) == (200, "OK"), "the disk answers")
    connect(broker).pub("t", b"y")
    broker.end(signal.SIGKILL)
    broker.launch()
    assert left(broker, connect) == [b"x", b"y"]


def test_a_write_that_hangs_stops_the_broker_and_nothing_else(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """Everybody waits, for longer than clients may be silent. When the write ends, all go on as if nothing had been:
    no client is disconnected."""
    broker = start(broker=disk.broker())
    consumer, publisher = connect(broker), connect(broker)
    for client in (consumer, publisher):
        client.command(encoding.identify({"feature_negotiation": True, "heartbeat_interval": 1000}))
    consumer.sub("t", "c")
    publisher.pub("t", b"small")
    with disk.fault(write=HANG):
        publisher.send(b"PUB t\n" + sized(LARGE))
        time.sleep(4)  # two intervals are the most that a client may be silent for
    assert publisher.frame() == (RESPONSE, b"OK")
    assert consume(consumer, 2) == [b"small", LARGE]
    publisher.pub("t", b"again")
    assert consume(consumer, 1) == [b"again"]


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_write_that_fails_refuses_what_needs_it(error: int, disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """A publish and a new topic; /ping says it, and recovers by itself once writes succeed. Consumers go on."""
    broker = start(broker=disk.broker())
    consumer, publisher = connect(broker), connect(broker)
    consumer.sub("t", "c")
    publisher.pub("t", LARGE)
    text = os.strerror(error)
    with disk.fault(write=error):
        assert text.encode() in refusal(connect(broker), LARGE)
        assert broker.request("POST", "/topic/create?topic=new").status == 503
        assert health(broker)[0] == 500
        assert text in health(broker)[1]
        assert consume(consumer, 1) == [LARGE]
    wait_until(lambda: health(broker) == (200, "OK"), "writes succeed")
    publisher.pub("t", b"later")
    assert consume(consumer, 1) == [b"later"]


def test_a_file_system_that_became_read_only_loses_nothing(disk: FaultyDisk, start: Start, connect: Connect) -> None:
    """As after an error of ext4: writes and syncs fail. Publishes are refused until a restart, consumers go on, and
    after the restart every message that was acknowledged and not finished is there."""
    broker = start(broker=disk.broker("--sync-every=1"))
    consumer = connect(broker)
    consumer.sub("t", "c")
    connect(broker).mpub("t", [b"0", b"1", b"2"])
    with disk.fault(write=errno.EROFS, sync=errno.EROFS):
        assert b"Read-only file system" in refusal(connect(broker), b"refused")
        assert health(broker)[0] == 500
        assert consume(consumer, 1) == [b"0"]
        assert b"Read-only file system" in refusal(connect(broker), b"refused")
        broker.end(signal.SIGTERM)
    broker.launch()
    connect(broker).pub("t", b"3")
    assert set(left(broker, connect)) - {b"0", b"refused"} == {b"1", b"2", b"3"}


def test_a_message_whose_headers_cannot_be_read_comes_without_them(
    disk: FaultyDisk, start: Start, connect: Connect
) -> None:
    """EIO: the log says so. Once they can be read again, the message has them, also when it is redelivered."""
    block = encode_headers({"a": "b"})
    with_headers = encoding.identify({"feature_negotiation": True, "headers": True})
    broker = start(broker=disk.broker())
    broker.post("/topic/create", topic="t")
    broker.post("/channel/create", topic="t", channel="c")
    publisher = connect(broker)
    publisher.command(with_headers)
    publisher.ok(header_commands.hpub("t", block, b"x"))
    broker.end(signal.SIGKILL)
    broker.launch()  # headers that were just published are still in memory
    consumer = connect(broker)
    consumer.command(with_headers)
    consumer.sub("t", "c")
    with disk.fault(read=errno.EIO):
        consumer.send(b"RDY 1\n")
        message_id, _, body = consumer.message()
        assert body == b"x"
        broker.wait_for_log("headers in .* are lost, .*Input/output error")
    consumer.send(b"REQ %b 0\n" % message_id)
    kind, data = consumer.frame()
    assert kind == MESSAGE_WITH_HEADERS
    assert data.endswith(block + b"x")


def test_older_messages_that_cannot_be_read_wait_and_other_topics_go_on(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    """Messages of an earlier process are checked before they are delivered. As long as their file cannot be read, their
    channel waits and the log says why; a new start counts what is missing as lost, and delivers the rest."""
    broker = start()
    connect(broker).pub("other", b"first")
    published = [b"%03d" % number + bytes(1000) for number in range(400)]
    publisher = connect(broker)
    for body in published:
        publisher.pub("t", body)
    broker.end(signal.SIGKILL)
    broker.launch()
    log, *_ = sorted(tmp_path.glob("data/topics/t.*/*.log"))
    consumer, other = connect(broker), connect(broker)
    consumer.sub("t", "c")
    assert consume(consumer, 1) == published[:1]
    consumer.settle()
    del published[0]
    os.truncate(log, 20 * mmap.PAGESIZE)  # behind the messages that were checked together with the first one
    consumer.send(b"RDY 1000\n")
    if not reports_unreadable_pages():
        assert broker.wait_for_exit() == -signal.SIGBUS
    else:
        broker.wait_for_log(f"a part of the file cannot be read: .*{log.name}")
        other.sub("other", "c")
        assert consume(other, 1) == [b"first"]
        broker.end(signal.SIGKILL)
    broker.launch()
    connect(broker).pub("t", b"last")
    published.append(b"last")
    late, bodies = connect(broker), list[bytes]()
    late.sub("t", "c")
    while len(bodies) < len(published) - lost_messages(broker):
        bodies += consume(late, 1)
    assert lost_messages(broker) > 100
    assert set(bodies) <= set(published)
    assert len(bodies) == len(set(bodies))
    assert str(log) in broker.output


def lost_messages(broker: Daemon) -> int:
    count: int = broker.stats(include_histograms="true")["lost_message_count"]
    return count


def test_a_page_that_cannot_be_read_ends_the_broker_with_the_reason(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    """A file that is cut stands for it: in both cases the system sends SIGBUS when the mapped page is read. The next
    start counts what was in the page as lost, and goes on."""
    broker = start()
    connect(broker).mpub("t", [b"%03d" % number + bytes(1000) for number in range(100)])
    [log] = tmp_path.glob("data/topics/*/*.log")
    os.truncate(log, 4096)
    consumer = connect(broker)
    consumer.sub("t", "c", 100)
    assert broker.wait_for_exit() == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in broker.output
    broker.launch()
    connect(broker).pub("t", b"later")
    assert [body[:5].rstrip(b"\0") for body in left(broker, connect)] == [b"000", b"001", b"002", b"later"]
    assert broker.stats(include_histograms="true")["lost_message_count"] == 97
