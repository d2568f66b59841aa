"""A broker and a real registry: what one learns from the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple
from urllib.request import urlopen

import pytest


class Registry(NamedTuple):
    """A running lookup; addresses are ``host:port``."""

    process: subprocess.Popen[str]
    tcp: str
    http: str

    def get(self, path: str) -> dict:
        with urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str) -> None:
        with urlopen(f"http://{self.http}{path}", b"", timeout=10) as answer:
            assert answer.status == 200


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A ``python -m lookup`` on free ports."""
    flags = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1")
    process = subprocess.Popen([sys.executable, "-m", "lookup", *flags], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found: dict[str, str] = {}
    for line in process.stderr:
        if match := re.search(r" (TCP|HTTP): listening on (\S+)", line):
            found[match[1]] = match[2]
        if len(found) == 2:
            break
    assert len(found) == 2, "the registry did not start"
    yield Registry(process, found["TCP"], found["HTTP"])
    process.kill()
    process.wait(10)
    process.stderr.close()


def test_consumers_find_the_broker_of_a_topic(start_broker, registry, eventually):
    """What is created on the broker can be looked up; what is deleted, or whose broker is gone, cannot."""
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp}", "--broadcast-address=127.0.0.1")
    eventually(lambda: registry.get("/nodes")["producers"])
    broker.request("POST", "/topic/create?topic=t")
    broker.request("POST", "/channel/create?topic=t&channel=c")
    eventually(
        lambda: "t" in registry.get("/topics")["topics"] and registry.get("/lookup?topic=t")["channels"] == ["c"]
    )
    (producer,) = registry.get("/lookup?topic=t")["producers"]
    assert (producer["broadcast_address"], producer["tcp_port"], producer["http_port"]) == (
        "127.0.0.1",
        broker.tcp[1],
        broker.http[1],
    )
    broker.request("POST", "/topic/delete?topic=t")
    eventually(lambda: registry.get("/lookup?topic=t")["producers"] == [])
    assert broker.terminate() == 0
    eventually(lambda: registry.get("/nodes")["producers"] == [])


def test_a_new_topic_gets_the_channels_it_has_elsewhere_from_its_first_message_on(
    start_broker, registry, connect, eventually
):
    """Every known channel receives all messages, also those published before the registry answered; ephemeral
    channels are left to their consumers."""
    for channel in ("a", "b", "e%23ephemeral"):
        registry.post(f"/channel/create?topic=t&channel={channel}")
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp}", "--broadcast-address=127.0.0.1")
    broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
    for number in range(5):
        assert broker.request("POST", "/pub?topic=t", b"%d" % number).text == "OK"
    eventually(lambda: len(broker.stats()["topics"][0]["channels"]) == 2)
    for channel in (b"a", b"b"):
        consumer = connect(broker)
        consumer.ok(b"SUB t " + channel + b"\n")
        consumer.send(b"RDY 10\n")
        assert sorted(consumer.message()[2] for _ in range(5)) == [b"%d" % number for number in range(5)]


def test_a_consumer_that_creates_the_topic_gets_its_messages_as_well(start_broker, registry, connect, eventually):
    """Subscribing to a topic that is new here works as ever, beside the channels that come from elsewhere."""
    registry.post("/channel/create?topic=t&channel=a")
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp}", "--broadcast-address=127.0.0.1")
    broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
    consumer = connect(broker)
    consumer.ok(b"SUB t mine\n")
    consumer.send(b"RDY 10\n")
    producer = connect(broker)
    producer.ok(b"DPUB t 50\n\x00\x00\x00\x05later")
    producer.ok(b"PUB t\n\x00\x00\x00\x03now")
    assert sorted(consumer.message()[2] for _ in range(2)) == [b"later", b"now"]
    eventually(lambda: [c["channel_name"] for c in broker.stats()["topics"][0]["channels"]] == ["a", "mine"])
