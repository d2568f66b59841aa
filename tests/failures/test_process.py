"""A broker's process that is paused, or reaches its limits of memory and of descriptors."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil
import pytest

from nsqwire import encoding
from nsqwire.headers import encode_headers
from tests.harness import header_commands
from tests.harness.daemon import Daemon
from tests.harness.v2 import ERROR, MESSAGE, RESPONSE, V2Client, sized
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.failures.conftest import Connect, Start

MIB = 1 << 20
DESCRIPTORS = 256
TOPICS = int(os.environ.get("BUSY_TOPICS", "1000"))
BUSY = 60
"""Topics that are busy beside many connections."""
PAUSE_S = 4.0
"""Longer than two heartbeats of a client that asks for the shortest interval, and than the message timeout."""


def depths(broker: Daemon) -> dict[str, int]:
    """The unfinished messages of each topic without channels."""
    return {name: topic["depth"] for name, topic in broker.topics().items()}


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_a_paused_broker_goes_on_where_it_was(sync_every: int, start: Start, connect: Connect) -> None:
    """SIGSTOP for longer than heartbeats and message timeouts: no client is disconnected, no publish is refused, what
    was acknowledged is delivered, and what is delivered again has one more attempt."""
    broker = start(f"--sync-every={sync_every}", "--msg-timeout=1s", "--disk-timeout=1s")
    consumer, publisher = connect(broker), connect(broker)
    for client in (consumer, publisher):
        client.command(encoding.identify({"feature_negotiation": True, "heartbeat_interval": 1000}))
    consumer.sub("t", "c", 10)
    publisher.mpub("t", [b"answered", b"unanswered"])
    attempts = Counter[bytes]()
    finished = set[bytes]()
    [answered, unanswered] = [consumer.message() for _ in range(2)]
    attempts.update([answered[2], unanswered[2]])
    broker.signal(signal.SIGSTOP)
    consumer.send(b"FIN %b\n" % answered[0])
    publisher.send(b"PUB t\n" + sized(b"meanwhile"))
    time.sleep(PAUSE_S)
    broker.signal(signal.SIGCONT)
    assert publisher.frame() == (RESPONSE, b"OK")
    publisher.pub("t", b"afterwards")
    while not {b"unanswered", b"meanwhile", b"afterwards"} <= finished:
        kind, data = consumer.frame()
        if kind == ERROR:
            assert data.startswith(b"E_FIN_FAILED FIN"), data  # a message that had timed out
            continue
        assert kind == MESSAGE
        message_id, body = data[10:26], data[26:]
        attempts[body] += 1
        assert int.from_bytes(data[8:10], "big") == attempts[body]
        consumer.send(b"FIN %b\n" % message_id)
        finished.add(body)
    assert attempts[b"unanswered"] > 1
    assert publisher.command(b"PUB t\n" + sized(b"last")) == (RESPONSE, b"OK")
    broker.end(signal.SIGKILL)
    broker.launch()
    [channel] = broker.topics()["t"]["channels"]
    late = connect(broker)
    late.sub("t", "c", 10)
    left = {late.message()[2] for _ in range(channel["depth"])}
    assert b"last" in left
    assert left <= {b"last", *finished, b"answered"}


def publish_until_refused(broker: Daemon, connect: Connect, body: bytes) -> dict[str, int]:
    """Publish to ever more topics until a publish is refused a few times. Returns the acknowledged ones by topic."""
    acknowledged, refused, client = Counter[str](), 0, connect(broker)
    for number in range(100_000):
        topic = f"t{number}"
        try:
            answer = client.command(f"PUB {topic}\n".encode() + sized(body))
        except (EOFError, ConnectionError):
            answer = ERROR, b"closed"
        if answer == (RESPONSE, b"OK"):
            acknowledged[topic] += 1
            continue
        refused += 1
        if refused == 20:
            return acknowledged
        try:
            client = connect(broker)
        except OSError:
            return acknowledged  # the process has ended
    raise AssertionError("the limit was never reached")


@pytest.mark.parametrize(("room", "body"), [(300 * MIB, bytes(900_000)), (4 * MIB, b"small")])
def test_a_broker_without_memory_refuses_or_ends_and_loses_nothing(
    room: int, body: bytes, start: Start, connect: Connect
) -> None:
    """RLIMIT_AS is reached by load. What needs much is refused. If nothing can go on, the process ends with one line.
    In both cases every acknowledged message is there after the next start."""
    broker = start()
    connect(broker).pub("first", b"x")
    process = psutil.Process(broker.process.pid)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (process.memory_info().vms + room, resource.RLIM_INFINITY))
    acknowledged = publish_until_refused(broker, connect, body)
    assert acknowledged
    if broker.is_running and room > 100 * MIB:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(broker.is_answering, "it is healthy once there is memory")
        connect(broker).pub("first", b"x")
        assert "Traceback" not in broker.output
        broker.end(signal.SIGKILL)
    else:
        wait_until(lambda: not broker.is_running or answers(broker), "it ends or goes on")
        if broker.is_running:
            broker.end(signal.SIGKILL)
        else:
            assert broker.wait_for_exit() == 1
            assert "the process ends: not enough memory" in broker.output
    broker.launch()
    found = depths(broker)
    assert {topic: found.get(topic, 0) for topic in acknowledged} == acknowledged


def answers(broker: Daemon) -> bool:
    """Whether the broker answers ``/ping``, even if it is not healthy."""
    try:
        return broker.request("GET", "/ping").status > 0
    except OSError:
        return False


def start_with_few_descriptors(start: Start) -> Daemon:
    """A broker with at most DESCRIPTORS descriptors."""
    broker = start("--sync-timeout=50ms")
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    return broker


def test_topics_without_descriptors_are_refused_and_the_others_go_on(start: Start, connect: Connect) -> None:
    """More topics than descriptors: publishes to some are refused with the reason. New clients can connect, a topic
    in use goes on, syncs take place, and nothing that was acknowledged is lost."""
    broker = start_with_few_descriptors(start)
    block, acknowledged, refused = encode_headers({"a": "b"}), Counter[str](), 0

    def publisher() -> V2Client:
        client = connect(broker)
        client.command(encoding.identify({"feature_negotiation": True, "headers": True}))
        return client

    client, steady = publisher(), connect(broker)
    for number in [*range(TOPICS), *range(10)]:
        if number % 50 == 0:
            steady.pub("steady", b"x")  # a topic that is quiet for ten seconds gives its descriptors to others
            acknowledged["steady"] += 1
        kind, data = client.command(header_commands.hpub(f"t{number}", block, bytes(9000)))
        if (kind, data) == (RESPONSE, b"OK"):
            acknowledged[f"t{number}"] += 1
        else:
            assert b"Too many open files" in data
            refused += 1
            client.socket.close()
            client = publisher()
    assert refused > TOPICS // 2
    consumer = connect(broker)
    consumer.sub("steady", "c", acknowledged["steady"])
    consumer.finish(*(consumer.message()[0] for _ in range(acknowledged["steady"])))
    assert broker.request("GET", "/stats").status == 200
    broker.end(signal.SIGKILL)
    assert "fdatasync failed" not in broker.output
    broker.launch()
    found = depths(broker)
    del acknowledged["steady"]
    assert {topic: found.get(topic, 0) for topic in acknowledged} == acknowledged


def test_http_connections_without_descriptors_make_room_for_new_ones(start: Start, connect: Connect) -> None:
    """Busy topics, and far more HTTP connections than descriptors, which send nothing: an operator is served, and so
    are publishers and consumers, old and new. The connections that were quiet for the longest time are closed, and no
    sync lacks a descriptor."""
    broker = start_with_few_descriptors(start)
    first = connect(broker)
    for number in range(BUSY):
        first.pub(f"t{number}", b"x")
    idle = list[socket.socket]()
    with ExitStack() as ends:
        for number in range(2 * DESCRIPTORS):
            idle.append(ends.enter_context(socket.create_connection(broker.http)))
            if number % 8 == 0:  # the broker accepts those before it, too
                assert broker.request("GET", "/ping").status == 200
        for _ in range(5):
            assert broker.request("GET", "/ping").text == "OK"
            assert len(broker.topics()) == BUSY
            assert broker.request("POST", "/pub?topic=t0", b"y").status == 200
            first.pub("t1", b"y")
        assert is_closed(idle[0])
        assert not is_closed(idle[-1])
    assert "a sync is put off" not in broker.output
    assert depths(broker)["t0"] == 6
    consumer = connect(broker)
    consumer.sub("t1", "c", 10)
    consumer.finish(*(consumer.message()[0] for _ in range(6)))


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_connections_without_descriptors_are_refused_and_the_others_go_on(start: Start, connect: Connect) -> None:
    """More connections than descriptors: the last ones are closed, and the log says so once in a while. Those that are
    served go on, and so do syncs and HTTP. A new topic can be created, but its first message, which needs a file, is
    refused. Later there is room again."""
    broker = start_with_few_descriptors(start)
    first = connect(broker)
    first.pub("t", b"first")
    served, refused = list[V2Client](), 0
    for _ in range(2 * DESCRIPTORS):
        try:
            client = V2Client(broker.tcp)
            client.pub("t", b"x")
            served.append(client)
        except (EOFError, ConnectionError):
            refused += 1
    assert refused > DESCRIPTORS
    assert len(served) > DESCRIPTORS // 2
    assert len([line for line in broker.log if "connections refused" in line]) < 10
    assert broker.request("POST", "/topic/create?topic=new").status == 200
    assert broker.request("POST", "/pub?topic=new", b"x").status == 503
    first.pub("t", b"later")
    for client in served:
        client.pub("t", b"y")
    assert broker.is_answering()
    assert "a sync is put off" not in broker.output
    for client in served:
        client.socket.close()
    wait_until(lambda: broker.stats()["producers"] is None or len(broker.stats()["producers"]) < 10, "they are gone")
    for topic in ("new", "u"):
        connect(broker).pub(topic, b"x")
    assert depths(broker) == {"t": 2 + 2 * len(served), "new": 1, "u": 1}
