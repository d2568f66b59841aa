"""Kills and deletions in the middle of an operation: the broker starts again with every acknowledged message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import wait_until

Start = Callable[..., Any]
Connect = Callable[..., Any]


def published(broker: Any, *, topic: str = "t", body: bytes = b"x", query: str = "") -> None:
    assert broker.request("POST", f"/pub?topic={topic}{query}", body).status == 200


def channel_of(broker: Any, topic: str = "t") -> dict[str, Any]:
    return broker.stats(topic=topic)["topics"][0]["channels"][0]


@pytest.mark.parametrize("target", ["channel", "topic"])
def test_a_due_message_of_a_deleted_topic_does_not_prevent_a_start(target: str, start_broker: Start) -> None:
    """Its deferred message becomes due after the deletion, before a kill."""
    broker = start_broker()
    published(broker)
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    published(broker, query="&defer=100")
    published(broker, topic="clock", query="&defer=300")
    assert broker.request("POST", "/channel/create?topic=clock&channel=c").status == 200
    assert broker.request("POST", f"/{target}/delete?topic=t&channel=c").status == 200
    wait_until(lambda: channel_of(broker, "clock")["depth"] == 1)
    broker.kill()
    again = start_broker(data_path=broker.data_path)
    assert ("t" in {topic["topic_name"] for topic in again.stats()["topics"]}) == (target == "channel")


def test_an_empty_newest_segment_takes_a_batch_that_does_not_fit_it(start_broker: Start, tmp_path: Path) -> None:
    """A kill between the creation of a segment and its first batch leaves it so; acknowledged messages then survive a
    kill."""
    broker = start_broker(data_path=tmp_path)
    assert broker.request("POST", "/topic/create?topic=t").status == 200
    broker.kill()
    [directory] = (tmp_path / "topics").iterdir()
    (directory / f"{0:020d}.log").write_bytes(bytes(4096))
    broker = start_broker(data_path=tmp_path)
    for _ in range(3):
        published(broker, body=b"x" * 10_000)
    broker.kill()
    assert start_broker(data_path=tmp_path).stats()["topics"][0]["depth"] == 3


def test_messages_of_before_a_change_of_node_id_can_be_finished(start_broker: Start, connect: Connect) -> None:
    """A container that returns with another host name has another default id; the ids of older messages stay valid."""
    broker = start_broker("--node-id=1")
    published(broker)
    broker.kill()
    again = start_broker("--node-id=2", data_path=broker.data_path)
    consumer = connect(again)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    assert message_id.startswith(b"004")
    consumer.send(b"FIN " + message_id + b"\n")
    wait_until(lambda: channel_of(again)["in_flight_count"] == 0)
    assert channel_of(again)["depth"] == 0


def test_deferred_messages_of_a_paused_topic_survive_its_end(start_broker: Start, connect: Connect) -> None:
    """Deferred while paused, unpaused, killed: each is delivered once, except for emptied ones."""
    broker = start_broker()
    published(broker)
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    assert broker.request("POST", "/topic/pause?topic=t").status == 200
    published(broker, query="&defer=60000")
    assert broker.request("POST", "/topic/empty?topic=t").status == 200
    published(broker, query="&defer=60000")
    assert broker.request("POST", "/topic/unpause?topic=t").status == 200
    before = {key: channel_of(broker)[key] for key in ("depth", "deferred_count")}
    broker.kill()
    again = start_broker(data_path=broker.data_path)
    assert (
        {key: channel_of(again)[key] for key in ("depth", "deferred_count")}
        == before
        == {
            "depth": 1,
            "deferred_count": 1,
        }
    )


def test_a_topic_of_deferred_messages_only_gives_its_segments_back(start_broker: Start, connect: Connect) -> None:
    """Segments of delivered and finished messages are removed although the topic has no ordinary message."""
    broker = start_broker()
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 100\n")
    body = b"x" * 200_000
    producer = connect(broker)
    for _ in range(12):
        producer.ok(b"DPUB t 10\n" + struct.pack(">i", len(body)) + body)
    for _ in range(12):
        message_id, _, _ = consumer.message()
        consumer.send(b"FIN " + message_id + b"\n")
    wait_until(lambda: len(list(broker.data_path.glob("topics/*/*.log"))) == 1)


def open_files(process_id: int, directory: Path) -> list[str]:
    """Files below ``directory`` that a process has open or mapped."""
    descriptors = []
    for link in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            descriptors.append(link.readlink())
    maps = Path(f"/proc/{process_id}/maps").read_text().split()
    return [str(path) for path in [*descriptors, *maps] if str(path).startswith(str(directory))]


def test_idle_topics_have_no_open_files_and_maps(start_broker: Start, connect: Connect) -> None:
    """Neither after a restart with a backlog nor while their ages are requested; their messages are delivered."""
    broker = start_broker()
    for number in range(60):
        published(broker, topic=f"t{number}", body=b"%d" % number)
        assert broker.request("POST", f"/channel/create?topic=t{number}&channel=c").status == 200
    assert len(open_files(broker.process.pid, broker.data_path / "topics")) > 60
    broker.kill()
    broker = start_broker(data_path=broker.data_path)
    assert open_files(broker.process.pid, broker.data_path / "topics") == []
    consumer = connect(broker)
    consumer.ok(b"SUB t7 c\n")
    consumer.send(b"RDY 1\n")
    assert consumer.message()[2] == b"7"
    published(broker, topic="t8")
    assert {Path(name).parent.name.split(".")[0] for name in open_files(broker.process.pid, broker.data_path)} >= {
        "t7",
        "t8",
    }
