"""Ephemeral topics and channels: they exist while they are used, and leave nothing on disk."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
from base64 import b64decode
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness import web
from tests.harness.waiting import DEADLINE_S, wait_until

Connect = Callable[..., Any]


def pub(topic: str, body: bytes) -> bytes:
    return f"PUB {topic}\n".encode() + struct.pack(">i", len(body)) + body


def tree(broker: Any) -> dict[str, list[str]]:
    """The broker's topic names with their channel names."""
    topics = broker.stats()["topics"]
    return {each["topic_name"]: [channel["channel_name"] for channel in each["channels"]] for each in topics}


def post(broker: Any, path: str) -> int:
    return web.post(broker.url + path, trust_env=False).status_code


def test_an_ephemeral_channel_is_deleted_with_its_last_consumer(broker: Any, connect: Connect) -> None:
    """Not with the first of two; a new channel of that name is empty."""
    first, second = connect(broker), connect(broker)
    first.ok(b"SUB t c#ephemeral\n")
    second.ok(b"SUB t c#ephemeral\n")
    connect(broker).ok(pub("t", b"old"))
    first.socket.close()
    wait_until(lambda: broker.stats()["topics"][0]["channels"][0]["client_count"] == 1)
    second.socket.close()
    wait_until(lambda: tree(broker) == {"t": []})
    third = connect(broker)
    third.ok(b"SUB t c#ephemeral\n")
    third.send(b"RDY 10\n")
    connect(broker).ok(pub("t", b"new"))
    assert third.message()[2] == b"new"


def test_an_ephemeral_topic_is_deleted_with_its_last_channel(broker: Any, connect: Connect) -> None:
    """The consumer of its ephemeral channel disconnects, so the channel is removed, and then the topic."""
    peer = connect(broker)
    peer.ok(b"SUB t#ephemeral c#ephemeral\n")
    peer.send(b"RDY 1\n")
    peer.send(pub("t#ephemeral", b"x"))
    kinds = sorted(peer.frame()[0] for _ in range(2))
    assert kinds == [0, 2]
    peer.socket.close()
    wait_until(lambda: tree(broker) == {})


def test_an_ephemeral_topic_without_channels_stays(broker: Any, connect: Connect) -> None:
    """It keeps messages for its first channel."""
    publisher = connect(broker)
    publisher.ok(pub("t#ephemeral", b"x"))
    assert tree(broker) == {"t#ephemeral": []}
    peer = connect(broker)
    peer.ok(b"SUB t#ephemeral c\n")
    peer.send(b"RDY 1\n")
    assert peer.message()[2] == b"x"


def test_an_ephemeral_topic_stays_while_it_has_a_lasting_channel(broker: Any, connect: Connect) -> None:
    """Deleting that channel deletes the topic."""
    peer = connect(broker)
    peer.ok(b"SUB t#ephemeral lasting\n")
    peer.socket.close()
    wait_until(lambda: broker.stats()["topics"][0]["channels"][0]["client_count"] == 0)
    assert tree(broker) == {"t#ephemeral": ["lasting"]}
    assert post(broker, "/channel/delete?topic=t%23ephemeral&channel=lasting") == 200
    wait_until(lambda: tree(broker) == {})


def test_an_ephemeral_channel_made_by_http_waits_for_a_first_consumer(broker: Any, connect: Connect) -> None:
    """It exists until a first consumer came and left."""
    assert post(broker, "/topic/create?topic=t") == 200
    assert post(broker, "/channel/create?topic=t&channel=c%23ephemeral") == 200
    connect(broker).ok(pub("t", b"x"))
    assert tree(broker) == {"t": ["c#ephemeral"]}
    peer = connect(broker)
    peer.ok(b"SUB t c#ephemeral\n")
    peer.send(b"RDY 1\n")
    assert peer.message()[2] == b"x"
    peer.socket.close()
    wait_until(lambda: tree(broker) == {"t": []})


def test_nothing_ephemeral_is_on_disk_or_survives(start_broker: Callable[..., Any], connect: Connect) -> None:
    """After a restart only the durable topic and channel exist."""
    broker = start_broker()
    peer = connect(broker)
    peer.ok(b"SUB lasting c#ephemeral\n")
    other = connect(broker)
    other.ok(b"SUB passing#ephemeral c\n")
    other.ok(pub("passing#ephemeral", b"x" * 1000))
    lasting = connect(broker)
    lasting.ok(b"SUB lasting c\n")
    names = [path.name for path in broker.data_path.rglob("*")]
    assert not [name for name in names if "ephemeral" in name]
    assert broker.terminate() == 0
    again = start_broker(data_path=broker.data_path)
    assert tree(again) == {"lasting": ["c"]}


def message_id(broker: Any, connect: Connect, topic: str) -> bytes:
    """The id of a message that is published to a topic of this name."""
    peer = connect(broker)
    peer.ok(f"SUB {topic} c\n".encode())
    peer.ok(pub(topic, b"x"))
    peer.send(b"RDY 1\n")
    return bytes(peer.message()[0])


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_ids_of_an_ephemeral_topic_are_not_reused_after_a_restart(
    how: str, start_broker: Callable[..., Any], connect: Connect
) -> None:
    """Neither a durable topic nor another ephemeral one reuses them, whichever is created first."""
    topics = [["a#ephemeral", "b#ephemeral"], ["durable"], ["a#ephemeral", "later"], ["last", "b#ephemeral"]]
    broker = start_broker()
    given = []
    for names in topics:
        given += [message_id(broker, connect, name) for name in names]
        getattr(broker, how)()
        broker = start_broker(data_path=broker.data_path)
    assert len(set(given)) == len(given)
    assert not any("damaged" in line for line in broker.log)


def test_an_ephemeral_channel_without_consumers_keeps_the_newest_messages(
    start_broker: Callable[..., Any], connect: Connect
) -> None:
    """It keeps at most ``--mem-queue-size`` messages, while a durable channel of the same topic keeps all."""
    broker = start_broker("--mem-queue-size=10")
    consumer = connect(broker)
    consumer.ok(b"SUB t c#ephemeral\n")
    assert broker.request("POST", "/channel/create?topic=t&channel=lasting").status == 200
    for number in range(30):
        assert broker.request("POST", "/pub?topic=t", b"%d" % number).status == 200
    depths = {c["channel_name"]: c["depth"] for c in broker.stats(topic="t")["topics"][0]["channels"]}
    assert depths == {"c#ephemeral": 10, "lasting": 30}
    consumer.send(b"RDY 100\n")
    assert [consumer.message()[2] for _ in range(10)] == [b"%d" % number for number in range(20, 30)]


def test_an_ephemeral_topic_without_channels_is_bounded(start_broker: Callable[..., Any], connect: Connect) -> None:
    """Messages beyond ``--mem-queue-size`` are accepted, counted and dropped; the first channel gets the rest."""
    broker = start_broker("--mem-queue-size=10")
    for number in range(30):
        assert broker.request("POST", "/pub?topic=t%23ephemeral", b"%d" % number).status == 200
    topic = broker.stats()["topics"][0]
    assert (topic["depth"], topic["message_count"]) == (10, 30)
    consumer = connect(broker)
    consumer.ok(b"SUB t#ephemeral c\n")
    consumer.send(b"RDY 100\n")
    assert [consumer.message()[2] for _ in range(10)] == [b"%d" % number for number in range(10)]


def test_requests_that_arrive_together_are_dropped_one_by_one(start_broker: Callable[..., Any]) -> None:
    """Of thirty requests that the broker reads in one turn, ten are kept, as of thirty PUBs."""
    broker = start_broker("--mem-queue-size=10")
    assert broker.request("POST", "/topic/create?topic=t%23ephemeral", b"").status == 200
    head = b"POST /pub?topic=t%23ephemeral HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(broker.http, DEADLINE_S)) for _ in range(30)]
        broker.request("GET", "/ping")  # all connections are accepted
        broker.process.send_signal(signal.SIGSTOP)
        for client in clients:
            client.sendall(head + b"x")
        broker.process.send_signal(signal.SIGCONT)
        assert {client.recv(4096)[:15] for client in clients} == {b"HTTP/1.1 200 OK"}
    topic = broker.stats()["topics"][0]
    assert (topic["depth"], topic["message_count"]) == (10, 30)


def allocated_bytes(broker: Any) -> int:
    [line] = re.findall(r"^nsq_topic_log_allocated_bytes\{.*\} (\S+)$", broker.request("GET", "/metrics").text, re.M)
    return int(float(line))


def test_one_message_in_flight_for_long_keeps_no_memory_of_an_ephemeral_topic(broker: Any, connect: Connect) -> None:
    """The first message is in flight and another is deferred while 55 MB are finished; both keep their contents."""
    keeper, worker = connect(broker), connect(broker)
    for peer in (keeper, worker):
        peer.ok(b"SUB t#ephemeral c\n")
    keeper.send(b"RDY 1\n")
    kept = b"kept" * 1000
    publisher = connect(broker)
    publisher.ok(pub("t#ephemeral", kept))
    message_id, attempts, body = keeper.message()
    assert (attempts, body) == (1, kept)
    assert broker.request("POST", "/pub?topic=t%23ephemeral&defer=3600000", b"later").status == 200
    worker.send(b"RDY 1\n")
    for number in range(60):
        sent = b"%d" % number * 500_000
        publisher.ok(pub("t#ephemeral", sent))
        done, _, received = worker.message()
        assert received == sent
        worker.send(b"FIN " + done + b"\n")
    assert allocated_bytes(broker) <= 3 * 8 * 1024 * 1024
    page = json.loads(broker.request("GET", "/channel/peek?topic=t%23ephemeral&channel=c&state=deferred").text)
    assert [b64decode(message["body"]) for message in page["messages"]] == [b"later"]
    channel = broker.stats(include_histograms="true")["topics"][0]["channels"][0]
    assert (channel["in_flight_count"], channel["deferred_count"]) == (1, 1)
    assert channel["oldest_unfinished_age_ns"] > 0
    # Commands of two connections have no order: CLS is answered once the worker has disconnected.
    worker.send(b"CLS\n")
    assert worker.frame() == (0, b"CLOSE_WAIT")
    keeper.send(b"REQ " + message_id + b" 0\n")
    assert keeper.message() == (message_id, 2, kept)
    keeper.send(b"FIN " + message_id + b"\n")
    keeper.send(b"FIN " + message_id + b"\n")
    assert keeper.frame() == (1, b"E_FIN_FAILED FIN " + message_id + b" failed ID not in flight")


def test_an_ephemeral_topic_keeps_no_more_of_publishes_sent_together(
    start_broker: Callable[..., Any], connect: Connect
) -> None:
    """Those beyond --mem-queue-size are accepted and dropped, the newest first, as if published one by one."""
    broker = start_broker("--mem-queue-size=5")
    peer = connect(broker)
    peer.ok(pub("t#ephemeral", b"0"))
    peer.send(b"".join(pub("t#ephemeral", b"%d" % number) for number in range(1, 10)))
    assert [peer.frame() for _ in range(9)] == [(0, b"OK")] * 9
    [topic] = broker.stats()["topics"]
    assert (topic["depth"], topic["message_count"]) == (5, 10)
    peer.ok(b"SUB t#ephemeral c\n")
    peer.send(b"RDY 10\n")
    assert [peer.message()[2] for _ in range(5)] == [b"%d" % number for number in range(5)]
