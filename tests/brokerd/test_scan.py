"""Reading a topic's log over HTTP, by number and by time: exactly the messages that were published and are kept."""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.file_header import HEADER_BYTES
from brokerd.log import log as log_module
from brokerd.publisher_actions import cancel
from brokerd.topic_scan import CLOCK_MARGIN_NS, PAGE, LogPage, Span, scan_log
from nsqwire.errors import PublishFailed
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_losses import overwrite
from tests.brokerd.test_policies import set_policy
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

SMALL_SEGMENT = 8192


def scan(broker: Any, **query: object) -> dict[str, Any]:
    return dict(broker.get(f"/topic/scan?{urlencode({'topic': 't', **query})}"))


def pages(broker: Any, **query: object) -> list[dict[str, Any]]:
    found = [scan(broker, **query)]
    while found[-1]["next"] is not None:
        query["from"] = found[-1]["next"]
        found.append(scan(broker, **query))
    return found


def bodies(broker: Any, **query: object) -> list[bytes]:
    return [b64decode(each["body"]) for page in pages(broker, **query) for each in page["messages"]]


def consume(connect: Connect, broker: Any, count: int, *, channel: bytes = b"c") -> list[Any]:
    """Receive and finish ``count`` messages of topic ``t``."""
    consumer = connect(broker)
    consumer.ok(b"SUB t " + channel + b"\n")
    consumer.send(b"RDY %d\n" % count)
    taken = [consumer.message() for _ in range(count)]
    consumer.send(b"RDY 0\n" + b"".join(b"FIN " + message_id + b"\n" for message_id, _, _ in taken))
    wait_until(lambda: broker.topics()["t"]["channels"][0]["in_flight_count"] == 0, "the messages are finished")
    return taken


def test_every_message_is_read_whatever_its_channels_have_done_with_it(start_broker: Start, connect: Connect) -> None:
    """Finished, waiting and deferred ones, with ids, times and headers; nothing changes for the channels."""
    broker = start_broker("--retention=1h")
    create_channel(broker)
    before = time.time_ns()
    publish(broker, b"finished", b"ready")
    publish(broker, b"deferred", defer="600000")
    answer = broker.request("POST", "/pub?topic=t", b"\x00\xff<>", {"X-NSQ-Header-Tenant": "acme <&>"})
    assert answer.status == 200
    (first, _, _) = consume(connect, broker, 1)[0]
    stats = broker.stats(topic="t")["topics"]
    page = scan(broker)
    assert [(each["position"], b64decode(each["body"])) for each in page["messages"]] == [
        (0, b"finished"),
        (1, b"ready"),
        (2, b"deferred"),
        (3, b"\x00\xff<>"),
    ]
    assert page["messages"][0]["id"] == first.decode()
    assert len({each["id"] for each in page["messages"]}) == 4
    times = [each["timestamp"] for each in page["messages"]]
    assert times == sorted(times)
    assert before <= times[0]
    assert [each.get("headers") for each in page["messages"]] == [None, None, None, {"tenant": "acme <&>"}]
    assert (page["topic"], page["earliest"], page["start"], page["stop"], page["end"]) == ("t", 0, 0, 4, 4)
    assert (page["next"], page["skipped"]) == (None, 0)
    assert broker.stats(topic="t")["topics"] == stats


def test_pages_are_cut_by_numbers(channel: Any) -> None:
    """``limit``, ``from`` and ``to``; no message is on two pages, and ``limit=0`` returns the positions alone."""
    channel.post("/mpub", b"\n".join(b"%d" % number for number in range(25)), topic="t")
    assert bodies(channel, limit=4) == [b"%d" % number for number in range(25)]
    assert [len(page["messages"]) for page in pages(channel, limit=10)] == [10, 10, 5]
    assert bodies(channel, limit=3, **{"from": 7, "to": 15}) == [b"%d" % number for number in range(7, 15)]
    empty = scan(channel, limit=0, **{"from": 5})
    assert (empty["start"], empty["stop"], empty["next"], empty["messages"]) == (5, 25, 5, [])
    behind = scan(channel, **{"from": 2**63 - 1})
    assert (behind["start"], behind["stop"], behind["end"], behind["next"]) == (25, 25, 25, None)
    assert scan(channel, **{"from": 9, "to": 3})["messages"] == []


def test_a_page_ends_after_a_mebibyte_of_bodies(channel: Any) -> None:
    """So that one response does not delay deliveries; each page has at least one message, and whole bodies."""
    sent = [bytes([65 + number]) * 400_000 for number in range(7)]
    publish(channel, *sent)
    found = pages(channel)
    assert [len(page["messages"]) for page in found] == [3, 3, 1]
    assert bodies(channel) == sent


def test_messages_are_chosen_by_time(channel: Any) -> None:
    """``since`` is included, ``until`` is not; a duration is that long before now, and a time may be in the future."""
    publish(channel, b"1", b"2", b"3")
    first, second, third = (each["timestamp"] for each in scan(channel)["messages"])

    def at(timestamp: int) -> str:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp // 1000)).isoformat()

    assert first // 1000 < second // 1000 < third // 1000, "publishes take longer than a microsecond"
    assert bodies(channel, since=at(second)) == [b"2", b"3"]
    assert bodies(channel, until=at(third)) == [b"1", b"2"]
    assert bodies(channel, since=at(second), until=at(third)) == [b"2"]
    assert bodies(channel, since="1h") == [b"1", b"2", b"3"]
    assert bodies(channel, until="1h") == []
    assert bodies(channel, since="2200-01-01T00:00:00Z") == []
    assert bodies(channel, until="2200-01-01T00:00:00+02:00") == [b"1", b"2", b"3"]


def test_mistakes_are_answered_with_their_codes(channel: Any) -> None:
    """Each names the parameter."""
    for query, status, code in (
        ({"topic": "none"}, 404, "TOPIC_NOT_FOUND"),
        ({"topic": "not valid"}, 400, "INVALID_TOPIC"),
        ({"from": "-1"}, 400, "INVALID_ARG_FROM"),
        ({"from": 2**63}, 400, "INVALID_ARG_FROM"),
        ({"to": "x"}, 400, "INVALID_ARG_TO"),
        ({"since": "yesterday"}, 400, "INVALID_ARG_SINCE"),
        ({"since": "2026-03-14T10:00:00"}, 400, "INVALID_ARG_SINCE"),
        ({"until": ""}, 400, "INVALID_ARG_UNTIL"),
        ({"limit": PAGE + 1}, 400, "INVALID_ARG_LIMIT"),
    ):
        answer = channel.request("GET", f"/topic/scan?{urlencode({'topic': 't', **query})}")
        assert (answer.status, json.loads(answer.text)) == (status, {"message": code}), query
    answer = channel.request("GET", "/topic/scan")
    assert (answer.status, json.loads(answer.text)) == (400, {"message": "MISSING_ARG_TOPIC"})


def test_emptied_and_cancelled_messages_that_waited_in_the_topic_are_not_there(broker: Any) -> None:
    """Nobody can receive them any more. What a channel drops stays in the log."""
    broker.post("/topic/create", topic="t")
    publish(broker, b"emptied", b"too")
    broker.post("/topic/empty", topic="t")
    publish(broker, b"kept")
    answer = json.loads(broker.post("/pub", b"cancelled", topic="t", ids="true"))
    broker.post("/message/cancel", answer["ids"][0].encode(), topic="t")
    publish(broker, b"last")
    assert bodies(broker) == [b"kept", b"last"]
    assert sum(page["skipped"] for page in pages(broker, limit=1)) == 3
    broker.post("/channel/create", topic="t", channel="c")
    broker.post("/channel/empty", topic="t", channel="c")
    assert bodies(broker) == [b"kept", b"last"]


def test_a_dead_topic_is_read_like_any_other(start_broker: Start, connect: Connect) -> None:
    """It has the body and the headers of the message that died."""
    broker = start_broker("--retention=1h")
    create_channel(broker)
    set_policy(broker, "t", max_attempts=1, dead_topic="t.dead")
    broker.request("POST", "/pub?topic=t", b"dies", {"X-NSQ-Header-Tenant": "acme"})
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    consumer.send(b"REQ " + message_id + b" 0\n")
    wait_until(lambda: "t.dead" in broker.topics() and broker.topics()["t.dead"]["message_count"] == 1, "it died")
    (message,) = broker.get("/topic/scan?topic=t.dead")["messages"]
    assert (b64decode(message["body"]), message["headers"]) == (b"dies", {"tenant": "acme"})
    assert bodies(broker) == [b"dies"]


def test_a_scan_during_publishes_sees_each_message_once(channel: Any) -> None:
    """Each page goes on where the last one ended, so nothing is missing or twice when the publishers have ended."""
    done = threading.Event()

    def publish_all(name: bytes) -> None:
        for number in range(150):
            channel.post("/mpub", b"\n".join(b"%b %d %d" % (name, number, each) for each in range(5)), topic="t")

    def publish_and_say() -> None:
        others = [threading.Thread(target=publish_all, args=(b"%d" % number,)) for number in range(2)]
        for each in others:
            each.start()
        for each in others:
            each.join()
        done.set()

    publisher = threading.Thread(target=publish_and_say)
    publisher.start()
    seen: list[bytes] = []
    position, requests = 0, 0
    while True:
        was_done = done.is_set()
        page = scan(channel, limit=37, **{"from": position})
        seen += [b64decode(each["body"]) for each in page["messages"]]
        requests += 1
        if page["next"] is None and was_done:
            break
        position = page["stop"] if page["next"] is None else page["next"]
    publisher.join()
    assert sorted(seen) == sorted(
        b"%d %d %d" % (name, number, each) for name in range(2) for number in range(150) for each in range(5)
    )
    assert requests >= 1500 / 37


def test_a_kill_loses_no_acknowledged_message(start_broker: Start) -> None:
    """They are read after it, with the same numbers, ids and times."""
    broker = start_broker()
    create_channel(broker)
    for number in range(40):
        broker.post("/mpub", b"\n".join(b"%d %d" % (number, each) for each in range(10)), topic="t")
    before = [message for page in pages(broker) for message in page["messages"]]
    broker.kill()
    again = start_broker(data_path=broker.data_path)
    publish(again, b"after")
    after = [message for page in pages(again, limit=7) for message in page["messages"]]
    assert after[:-1] == before
    assert (len(before), b64decode(after[-1]["body"]), after[-1]["position"]) == (400, b"after", 400)


# -- with a clock of the test's own ------------------------------------------------------------------------------------


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", SMALL_SEGMENT)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", SMALL_SEGMENT)


ALL = Span()


def walk(node: Node, span: Span = ALL, *, limit: int = PAGE) -> Iterator[LogPage]:
    """The pages of a scan of topic ``t``."""
    while True:
        page = scan_log(node.broker.topics["t"].messages, span, limit=limit)
        yield page
        if page["next"] is None:
            return
        assert page["next"] > page["start"], "a page makes progress"
        span = span._replace(start=page["next"])


def test_the_beginning_moves_when_segments_are_removed(small_segments: None, tmp_path: Path) -> None:
    """A scan that had begun goes on at the oldest message that is left, and ``start`` says so."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    topic.channel("c")
    for number in range(40):
        topic.publish([b"%d" % number + bytes(990)])
    first = scan_log(topic.messages, Span(), limit=5)
    assert (first["start"], first["earliest"], first["next"]) == (0, 0, 5)
    deliver_and_finish(node, 30)
    second = scan_log(topic.messages, Span(start=5), limit=5)
    assert second["earliest"] > 5
    assert second["start"] == second["earliest"] == second["messages"][0]["position"]
    assert second["end"] == 40


def test_damaged_batches_are_counted_and_their_bodies_are_not_returned(small_segments: None, tmp_path: Path) -> None:
    """Before and after a restart; a missing file too. The rest is there."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    topic.channel("c")
    sent = [b"%06d" % number + bytes(994) for number in range(30)]
    for body in sent:
        topic.publish([body])
    files = sorted(tmp_path.glob("topics/t.*/*.log"))
    assert len(files) > 3
    overwrite(files[0], HEADER_BYTES + 2 * 1034 + 50, b"?")
    per_file = int(files[1].stem)

    def check(gone: set[int]) -> None:
        found = list(walk(node, limit=4))
        positions = [each["position"] for page in found for each in page["messages"]]
        assert positions == [number for number in range(30) if number not in gone]
        assert all(b64decode(each["body"]) == sent[each["position"]] for page in found for each in page["messages"])
        assert sum(page["skipped"] for page in found) == len(gone)

    check({2})
    node.kill()
    files[2].unlink()
    files[2].with_suffix(".idx").unlink()
    node.open()
    check({2, *range(2 * per_file, 3 * per_file)})


def test_a_segment_that_was_truncated_is_a_storage_failure(small_segments: None, tmp_path: Path) -> None:
    """Of a scan as of a publish, when the file is mapped again."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    topic.channel("c")
    topic.publish([b"x"])
    topic.log.unmap()
    [path] = tmp_path.glob("topics/t.*/*.log")
    os.truncate(path, 100)
    with pytest.raises(OSError, match="truncated"):
        list(walk(node))
    with pytest.raises(PublishFailed, match="truncated"):
        topic.publish([b"y"])


def test_a_scan_of_many_segments_keeps_no_file_open(small_segments: None, tmp_path: Path) -> None:
    """Segments that were closed before are closed after each page."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    topic.channel("c")
    for _ in range(60):
        topic.publish_with_headers([bytes(1000)], [encode_headers({"a": "b"})])
    topic.messages.log.unmap()
    assert sum(len(page["messages"]) for page in walk(node, limit=3)) == 60
    assert [each.is_mapped for each in topic.log.segments] == [False] * len(topic.log.segments)


def test_a_clock_that_was_set_back_hides_no_message(small_segments: None, tmp_path: Path) -> None:
    """By up to a minute, as often as it likes: whatever the requested times, the messages of these are returned."""
    with pytest.MonkeyPatch.context() as patch:
        node = Node(tmp_path, wall=1_773_446_400.0, patch=patch)
        topic = node.broker.topic("t")
        topic.channel("c")
        times = [node.wall + offset for offset in (0, 50, 58, 5, 59, 3, 61, 90, 118, 65, 119, 62, 120)]
        for node.wall in times:
            topic.publish([bytes(900)])
        stored = [int(each * 1e9) for each in times]
        for since in [None, *stored]:
            for until in [None, *stored]:
                span = Span(since_ns=since, until_ns=until)
                found = [each["timestamp"] for page in walk(node, span) for each in page["messages"]]
                assert found == [each for each in stored if span.has(each)], span


def deliver_and_finish(node: Node, count: int) -> None:
    """Let a consumer of channel ``c`` receive up to ``count`` messages and finish them."""
    got: list[Delivery] = []
    client = node.subscribe("t", "c", count, got.append)
    node.pass_until(node.now)
    channel = node.broker.topic("t").channel("c")
    lines = memoryview(b"".join(b"FIN %b\n" % each.message_id for each in got))
    assert channel.finish(client, lines, len(got), node.wall_ns()) == []
    channel.unsubscribe(client)


STEPS = [*["publish"] * 6, "clock", "clock", "kill", "empty", "finish", "cancel", "channel", "scan"]


class Kept(NamedTuple):
    """What the model knows about a message."""

    position: int
    body: bytes
    timestamp: int
    headers: dict[str, str] | None


def check_scan(node: Node, model: list[Kept], rng: random.Random) -> None:
    """Compare scans of random spans with the model. Messages below ``earliest`` may have been removed."""
    for _ in range(6):
        times = sorted(rng.choice(model).timestamp + rng.choice([-1, 0, 1]) for _ in range(2)) if model else [0, 0]
        span = Span(
            start=rng.choice([0, rng.randrange(len(model) + 3)]),
            end=rng.choice([None, rng.randrange(len(model) + 3)]),
            since_ns=rng.choice([None, times[0]]),
            until_ns=rng.choice([None, times[1]]),
        )
        found = list(walk(node, span, limit=rng.choice([1, 2, 7, PAGE])))
        expected = [
            each
            for each in model
            if each.position >= max(span.start, found[0]["earliest"])
            and (span.end is None or each.position < span.end)
            and span.has(each.timestamp)
        ]
        rows = [
            Kept(each["position"], b64decode(each["body"]), each["timestamp"], each.get("headers"))
            for page in found
            for each in page["messages"]
        ]
        assert rows == expected, span


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(5, 50))
def test_a_scan_returns_exactly_what_was_published_and_is_kept(rng: random.Random, steps: int) -> None:
    """Random publishes, finishes, cancels, emptied topics, kills, and clocks that are set back by up to a minute."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(log_module, "FIRST_SEGMENT_BYTES", SMALL_SEGMENT)
        patch.setattr(log_module, "LAST_SEGMENT_BYTES", SMALL_SEGMENT)
        node = Node(Path(folder), wall=1_773_446_400.0, patch=patch)
        node.broker.topic("t")
        latest = node.wall
        model: list[Kept] = []
        ids: dict[int, bytes] = {}
        for _ in range(steps):
            topic = node.broker.topics["t"]
            step = rng.choice(STEPS)
            if step == "publish":
                sent = [rng.randbytes(rng.choice([0, 1, 30, 900])) for _ in range(rng.choice([1, 1, 2, 5]))]
                headers = [{"n": str(rng.random())} if rng.random() < 0.3 else None for _ in sent]
                blocks = [encode_headers(each) if each else b"" for each in headers]
                numbers = topic.publish_with_headers(sent, blocks, defer_ms=rng.choice([0, 0, 0, 5000]))
                assert len(numbers) == len(sent)
                ids |= dict(zip(numbers, topic.messages.ids(numbers), strict=True))
                model += [
                    Kept(number, body, node.wall_ns(), each)
                    for number, body, each in zip(numbers, sent, headers, strict=True)
                ]
            elif step == "clock":
                back = CLOCK_MARGIN_NS / 1e9 - 1e-3
                node.wall = max(latest - back, node.wall + rng.choice([0.5, 20, 600, -back]))
                latest = max(latest, node.wall)
            elif step == "kill":
                node.kill()
                node.open()
            elif step == "empty":
                model = [each for each in model if not topic.messages.waits(each.position)]
                topic.empty()
            elif step == "cancel" and model:
                chosen = [rng.choice(model).position for _ in range(2)]
                waiting = [number for number in chosen if topic.messages.waits(number)]
                model = [each for each in model if each.position not in waiting]
                cancel(topic, [ids[number] for number in chosen])
            elif step == "finish" and model:
                if topic.channels:
                    deliver_and_finish(node, rng.randrange(len(model)) + 1)
            elif step == "channel":
                topic.channel("c")
            else:
                check_scan(node, model, rng)
        check_scan(node, model, rng)
        node.kill()
