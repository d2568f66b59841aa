"""The lives of sampled messages: what happened to one in n messages of a topic, as GET /lives returns it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

import brokerd.log.log as log_module
from brokerd.client import Client
from brokerd.lives import LifeEvent, Lives, What
from tests.brokerd.clockwork import MSG_TIMEOUT_S, Delivery, Node
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_policies import channel_of, set_policy
from tests.harness.v2 import sized
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]


def lives(broker: Any, **params: object) -> dict[str, Any]:
    answer = broker.request("GET", f"/lives?{urlencode(params)}")
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text))


def events(broker: Any, channel: str | None = "c") -> list[tuple[Any, ...]]:
    """(event, attempts, reason, delay in ms, client) of the events in a channel; None: in the topic."""
    return [
        (each["event"], each["attempts"], each["reason"], each["delay_ms"], each["client_id"])
        for each in lives(broker)["events"]
        if each["channel"] == channel
    ]


def consumer_of(connect: Connect, broker: Any, name: str, channel: bytes = b"c", timeout_ms: int = 60_000) -> Any:
    consumer = connect(broker)
    terms = {"client_id": name, "msg_timeout": timeout_ms}
    consumer.command(b"IDENTIFY\n" + sized(json.dumps(terms).encode()))
    consumer.ok(b"SUB t %b\n" % channel)
    consumer.send(b"RDY 10\n")
    return consumer


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``, of which all messages are sampled."""
    started = start_broker()
    create_channel(started)
    set_policy(started, "t", sample_lives=1)
    return started


def test_a_message_has_its_events_in_each_channel(broker: Any, connect: Connect) -> None:
    """Published, delivered, requeued, timed out and finished: when, in which channel, at which attempt, and by whom."""
    broker.post("/channel/create", topic="t", channel="other")
    publisher = connect(broker)
    publisher.command(b"IDENTIFY\n" + sized(b'{"client_id":"shop"}'))
    publisher.pub("t", b"hello")
    first = consumer_of(connect, broker, "worker-1")
    message_id, _, _ = first.message()
    first.send(b"RDY 0\nREQ %b 50\n" % message_id)
    hasty = consumer_of(connect, broker, "hasty", timeout_ms=1000)
    assert hasty.message()[1] == 2  # after the delay, and it is left to time out: more than once if this test is slow
    hasty.send(b"RDY 0\n")
    wait_until(lambda: channel_of(broker)["depth"] == 1, "it has timed out")
    third = consumer_of(connect, broker, "worker-3")
    third.finish(third.message()[0])
    second = consumer_of(connect, broker, "worker-2", b"other")
    second.finish(second.message()[0])

    assert events(broker, None) == [("published", 0, "", None, "shop")]
    attempts = channel_of(broker)["timeout_count"] + 2
    assert events(broker) == [
        ("delivered", 1, "", None, "worker-1"),
        ("requeued", 1, "", 50, "worker-1"),
        *((what, attempt, "", None, "hasty") for attempt in range(2, attempts) for what in ("delivered", "timed_out")),
        ("delivered", attempts, "", None, "worker-3"),
        ("finished", attempts, "", None, "worker-3"),
    ]
    assert events(broker, "other") == [
        ("delivered", 1, "", None, "worker-2"),
        ("finished", 1, "", None, "worker-2"),
    ]
    found = lives(broker)["events"]
    assert {each["id"] for each in found} == {message_id.decode()}
    assert {each["topic"] for each in found} == {"t"}
    assert [each["number"] for each in found] == list(range(len(found)))
    addresses = {each["client_id"]: each["client_address"] for each in found}
    for name, client in (("shop", publisher), ("worker-1", first), ("worker-2", second)):
        assert addresses[name] == "{}:{}".format(*client.socket.getsockname()[:2])
    assert all(isinstance(each["at"], int) for each in found)


def test_only_one_in_n_messages_is_sampled_however_it_is_published(start_broker: Start, connect: Connect) -> None:
    """PUB, MPUB, DPUB, HPUB, a run of PUBs in one read, and HTTP: the messages whose numbers are multiples of n."""
    broker = start_broker()
    create_channel(broker)
    set_policy(broker, "t", sample_lives=3)
    publisher = connect(broker)
    publisher.command(b"IDENTIFY\n" + sized(b'{"client_id":"shop","feature_negotiation":true,"headers":true}'))
    publisher.pub("t", b"0")
    publisher.mpub("t", [b"1", b"2", b"3", b"4"])
    publisher.send(b"".join(b"PUB t\n" + sized(b"%d" % number) for number in range(5, 9)))
    for _ in range(4):
        assert publisher.frame()[1] == b"OK"
    for number in (9, 10, 11):
        publisher.dpub("t", 10, b"%d" % number)
    for _ in (12, 13):
        publisher.ok(b"HPUB t\n" + sized(sized(b'{"a":"b"}') + b"x"))
    for number in range(14, 16):
        broker.post("/pub", b"%d" % number, topic="t")
    broker.post("/mpub", b"16\n17\n18", topic="t")
    published = [each for each in lives(broker)["events"] if each["channel"] is None]
    assert [int(each["id"][6:], 16) for each in published] == [0, 3, 6, 9, 12, 15, 18]
    assert [each["client_id"] for each in published] == ["shop"] * 5 + [""] * 2
    assert [each["delay_ms"] for each in published] == [None] * 3 + [10] + [None] * 3
    assert all(each["client_address"].startswith("127.0.0.1:") for each in published)

    consumer = consumer_of(connect, broker, "worker")
    consumer.send(b"RDY 19\n")
    ids = [consumer.message()[0] for _ in range(19)]
    consumer.finish(*ids)
    wait_until(lambda: sum(each[0] == "finished" for each in events(broker)) == 7, "all are finished")
    assert Counter(each[0] for each in events(broker)) == {"delivered": 7, "finished": 7}


def test_without_the_policy_nothing_is_recorded(start_broker: Start, connect: Connect) -> None:
    """Also for other topics, and from the moment on when it is deleted. The events before are kept."""
    broker = start_broker()
    create_channel(broker)
    set_policy(broker, "other", sample_lives=1)
    publish(broker, b"a")
    consumer = consumer_of(connect, broker, "worker")
    consumer.finish(consumer.message()[0])
    consumer.settle()
    assert lives(broker)["events"] == []
    assert broker.stats(include_histograms="true")["lives_end"] == 0

    set_policy(broker, "t", sample_lives=1)
    assert broker.stats(topic="t", include_histograms="true")["topics"][0]["sample_lives"] == 1
    publish(broker, b"b")
    consumer.message()
    broker.post("/policy/delete", pattern="t", channel="*")
    publish(broker, b"c")
    consumer.finish(consumer.message()[0])
    consumer.settle()
    assert [each["event"] for each in lives(broker)["events"]] == ["published", "delivered"]
    assert broker.stats(include_histograms="true")["lives_end"] == 2


def test_deaths_drops_and_the_acts_of_operators_and_publishers(start_broker: Start, connect: Connect) -> None:
    """Each with its reason."""
    broker = start_broker()
    create_channel(broker)
    set_policy(broker, "t", sample_lives=1, max_attempts=1, dead_topic="")
    consumer = consumer_of(connect, broker, "worker")
    publish(broker, b"dies")
    dead, _, _ = consumer.message()
    consumer.send(b"REQ %b 0\n" % dead)
    wait_until(lambda: ("dead", 1, "attempts", None, "") in events(broker), "it has died")
    broker.post("/channel/requeue", dead, topic="t", channel="c")
    assert consumer.message()[0] == dead
    broker.post("/channel/finish", dead, topic="t", channel="c")
    assert events(broker) == [
        ("delivered", 1, "", None, "worker"),
        ("requeued", 1, "", None, "worker"),
        ("dead", 1, "attempts", None, ""),
        ("requeued", 1, "operator", None, ""),
        ("delivered", 1, "", None, "worker"),
        ("finished", 1, "operator", None, ""),
    ]

    set_policy(broker, "t", sample_lives=1)
    publish(broker, b"held")
    held, _, _ = consumer.message()
    consumer.socket.close()
    wait_until(lambda: ("requeued", 1, "disconnected", None, "worker") in events(broker), "its client has left")
    broker.post("/message/cancel", held, topic="t")
    broker.post("/pub", b"deferred", topic="t", defer="60000")
    publish(broker, b"emptied")
    broker.post("/channel/empty", topic="t", channel="c")
    assert events(broker)[6:] == [
        ("delivered", 1, "", None, "worker"),
        ("requeued", 1, "disconnected", None, "worker"),
        ("cancelled", 1, "", None, ""),
        ("dropped", 0, "emptied", None, ""),
        ("dropped", 0, "emptied", None, ""),
    ]
    broker.post("/channel/pause", topic="t", channel="c")
    set_policy(broker, "t", sample_lives=1, max_depth=1, overflow="drop-oldest")
    publish(broker, b"oldest")
    publish(broker, b"newest")
    wait_until(lambda: events(broker)[-1] == ("dropped", 0, "overflow", None, ""), "the oldest is dropped")


def test_a_restart_begins_anew(broker: Any, connect: Connect) -> None:
    """The boot id changes, numbers begin at 0, and the same messages are sampled. Nothing was stored."""
    publish(broker, b"a", b"b")
    before = lives(broker)
    assert [each["number"] for each in before["events"]] == [0, 1]
    broker.stop()
    broker.start().wait_until_ready()
    after = lives(broker)
    assert after["boot_id"] != before["boot_id"]
    assert (after["events"], after["end"]) == ([], 0)
    consumer = consumer_of(connect, broker, "worker")
    consumer.message()
    consumer.message()
    assert [each["id"] for each in lives(broker)["events"]] == [each["id"] for each in before["events"]]


def test_a_long_client_id_is_cut(broker: Any, connect: Connect) -> None:
    """A page has up to 2,000 events, and each has the id."""
    publish(broker, b"a")
    consumer_of(connect, broker, "worker-" * 100_000).message()
    [delivered] = lives(broker, **{"from": 1})["events"]
    assert delivered["client_id"] == ("worker-" * 100)[:256]


def test_pages_and_events_that_were_overwritten(start_broker: Start) -> None:
    """A reader gets each event once, and the number of those that it missed because newer ones needed the room."""
    broker = start_broker()
    create_channel(broker)
    set_policy(broker, "t", sample_lives=1)
    broker.post("/mpub", b"\n".join(b"%d" % number for number in range(40_000)), topic="t")
    found: list[int] = []
    page = lives(broker, **{"from": 1})
    assert page["end"] == 40_000
    assert page["lost"] == 40_000 - 32_768 - 1
    while page["events"]:
        found += [each["number"] for each in page["events"]]
        page = lives(broker, **{"from": page["next"]})
        assert page["lost"] == 0
    assert found == list(range(40_000 - 32_768, 40_000))
    assert page["next"] == page["end"] == 40_000
    assert lives(broker)["lost"] == 0  # a reader that begins has missed nothing that it knows of


def test_an_emptied_message_whose_segment_is_gone_is_dropped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ephemeral topic keeps copies of the unfinished messages of old segments."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 4096)
    node = Node(tmp_path)
    node.broker.set_policy("t#ephemeral", "*", {"sample_lives": 1})
    topic = node.broker.topic("t#ephemeral")
    channel = topic.channel("c")
    got: list[Delivery] = []
    client = node.subscribe("t#ephemeral", "c", 100, got.append)
    for number in range(50):
        topic.publish([b"%d" % number + b"x" * 500])
        node.pass_until(node.now)
        if number:
            channel.finish(client, memoryview(b"FIN %b\n" % got[-1].message_id), 1, node.wall_ns())
    assert topic.log.first_seq > 1, "old segments are gone"
    channel.empty()
    dropped = [each for each in node.broker.runtime.lives.page(0, 1000).events if each.what is What.DROPPED]
    assert [(each.id, each.attempts, each.reason) for each in dropped] == [(got[0].message_id, 1, "emptied")]


@pytest.mark.parametrize("query", ["from=-1", "from=x", "limit=2001", "limit=x", "from=9223372036854775808"])
def test_a_wrong_parameter_is_named(broker: Any, query: str) -> None:
    answer = broker.request("GET", f"/lives?{query}")
    assert answer.status == 400
    assert json.loads(answer.text) == {"message": f"INVALID_ARG_{query.partition('=')[0].upper()}"}


@pytest.mark.parametrize(
    ("channel", "value", "error"),
    [
        ("*", -1, "sample_lives: must be a whole number from 0 to 9223372036854775807"),
        ("*", "10", "sample_lives: must be a whole number from 0 to 9223372036854775807"),
        ("c", 10, "sample_lives: it is for whole topics, so the policy's channel must be *"),
    ],
)
def test_a_wrong_policy_is_refused(broker: Any, channel: str, value: object, error: str) -> None:
    query = urlencode({"pattern": "t", "channel": channel})
    answer = broker.request("POST", f"/policy?{query}", json.dumps({"sample_lives": value}).encode())
    assert answer.status == 400
    assert error in json.loads(answer.text)["message"]


def event(number: int) -> LifeEvent:
    return LifeEvent(number, "t", None, b"0" * 16, What.PUBLISHED, 0, 0, "", None, "", "")


@given(st.lists(st.integers(-5, 5), max_size=30), st.integers(0, 60), st.integers(0, 9))
def test_every_event_is_on_a_page_or_counted_as_lost(steps: list[int], start: int, limit: int) -> None:
    """Whatever was overwritten or did not fit: a positive step adds events, a negative one loses some."""
    ring = Lives(capacity=7)
    for step in steps:
        for _ in range(step):
            ring.add(event(ring.end))
        if step < 0:
            ring.lose(-step)
    page = ring.page(start, limit)
    numbers = [each.number for each in page.events]
    assert numbers == sorted(numbers)
    assert len(numbers) <= limit
    assert all(number >= start for number in numbers)
    if start:
        assert page.next - start == len(numbers) + page.lost
    if limit:
        seen, lost = list[int](), 0
        at = 1
        while at < ring.end:
            page = ring.page(at, limit)
            seen, lost, at = seen + [each.number for each in page.events], lost + page.lost, page.next
        assert len(seen) + lost == max(0, ring.end - 1)
        assert len(set(seen)) == len(seen)


# -- what clients did, and what was recorded ---------------------------------------------------------------------------


class Seen(NamedTuple):
    """An event as a client knows it."""

    channel: str
    id: bytes
    what: What
    attempts: int
    client: str
    delay_ms: int | None = None
    reason: str = ""


def by_message(seen: Seen) -> tuple[str, bytes]:
    return seen.channel, seen.id


class Story:
    """Consumers of two channels of a node, and all that happened to them."""

    def __init__(self, node: Node, every: int) -> None:
        self.node, self.every = node, every
        self.seen: list[Seen] = []
        self.held: dict[tuple[str, int, bytes], Delivery] = {}
        """By channel, the client's number and the id."""
        self.clients: dict[str, list[Client]] = {"a": [], "b": []}
        node.broker.set_policy("t", "*", {"sample_lives": every})
        self.topic = node.broker.topic("t")
        for name in self.clients:
            self.topic.channel(name)
            self.join(name)

    def join(self, channel: str) -> None:
        def got(delivery: Delivery) -> None:
            client = delivery.client
            self.held[channel, client.number, delivery.message_id] = delivery
            self.see(channel, delivery.message_id, What.DELIVERED, delivery.attempts, client)

        client = self.node.subscribe("t", channel, 4, got)
        client.client_id = f"{channel}{client.number}"
        self.clients[channel].append(client)

    def see(
        self,
        channel: str,
        message_id: bytes,
        what: What,
        attempts: int,
        client: Client,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> None:
        if int(message_id[6:], 16) % self.every == 0:
            self.seen.append(Seen(channel, message_id, what, attempts, client.client_id, delay_ms, reason))

    def pass_time(self, seconds: float) -> None:
        """Less than a time-out, so that no message is delivered and times out in the same step."""
        assert seconds < MSG_TIMEOUT_S
        end = self.node.now + seconds
        for key, each in list(self.held.items()):
            if each.at + MSG_TIMEOUT_S <= end:
                del self.held[key]
                self.see(key[0], key[2], What.TIMED_OUT, each.attempts, each.client)
        self.node.pass_until(end)

    def answer(self, channel: str, count: int, delay_ms: int | None) -> None:
        """The first client of a channel that has messages finishes some, or requeues them with a delay."""
        for client in self.clients[channel]:
            keys = [key for key in self.held if key[:2] == (channel, client.number)][:count]
            if keys:
                break
        else:
            return
        target = self.topic.channel(channel)
        ids = [key[2] for key in keys]
        for key in keys:
            done = What.FINISHED if delay_ms is None else What.REQUEUED
            self.see(channel, key[2], done, self.held.pop(key).attempts, client, delay_ms or None)
        if delay_ms is None:
            lines = memoryview(b"".join(b"FIN %b\n" % each for each in ids))
            assert not target.finish(client, lines, len(ids), self.node.wall_ns())
        else:
            lines = memoryview(b"".join(b"REQ %b %03d\n" % (each, delay_ms) for each in ids))
            assert not target.requeue(client, lines, len(ids), delay_ms / 1000, self.node.now)

    def leave(self, channel: str) -> None:
        client = self.clients[channel].pop(0)
        for key in [key for key in self.held if key[:2] == (channel, client.number)]:
            each = self.held.pop(key)
            self.see(channel, key[2], What.REQUEUED, each.attempts, client, reason="disconnected")
        self.topic.channel(channel).unsubscribe(client)
        self.join(channel)


def step_of(rng: random.Random, story: Story) -> list[tuple[int, int | None]]:
    """Let something happen. Returns the number and the delay in ms of each sampled message that was published."""
    channel, count = rng.choice("ab"), rng.randint(1, 3)
    kind = rng.choice(["publish", "publish", "pass", "pass", "finish", "finish", "requeue", "join", "leave"])
    if kind == "publish":
        defer_ms = rng.choice([0, 0, 500])
        seqs = story.topic.publish([b"x"] * rng.randint(1, 7), defer_ms=defer_ms)
        return [(seq, defer_ms or None) for seq in seqs if seq % story.every == 0]
    if kind == "pass":
        story.pass_time(rng.choice([0.0, 1.0, 35.0, 50.0]))
    elif kind == "finish":
        story.answer(channel, count, None)
    elif kind == "requeue":
        story.answer(channel, count, rng.choice([0, 200]))
    elif kind == "join":
        story.join(channel)
    else:
        story.leave(channel)
    return []


def test_the_events_are_what_the_clients_did(tmp_path: Path) -> None:
    """For 60 random sequences of publishes, deliveries, answers, time-outs and disconnections: each event of a sampled
    message once, those of a message and a channel in their order, and none of another message."""
    kinds: Counter[What] = Counter()
    for number in range(60):
        rng, folder = random.Random(number), tmp_path / str(number)
        folder.mkdir()
        node = Node(folder)
        story, published = Story(node, rng.choice([1, 1, 2, 3])), list[tuple[int, int | None]]()
        for _ in range(60):
            published += step_of(rng, story)
        recorded = node.broker.runtime.lives.page(0, 100_000).events
        node.kill()
        in_topic = [(int(each.id[6:], 16), each.delay_ms) for each in recorded if each.channel is None]
        in_channels = [
            Seen(each.channel, each.id, each.what, each.attempts, each.client_id, each.delay_ms, each.reason)
            for each in recorded
            if each.channel is not None
        ]
        assert in_topic == published, f"story {number}"
        assert sorted(in_channels, key=by_message) == sorted(story.seen, key=by_message), f"story {number}"
        kinds.update(each.what for each in recorded)
    assert set(kinds) == {What.PUBLISHED, What.DELIVERED, What.REQUEUED, What.TIMED_OUT, What.FINISHED}
    assert min(kinds.values()) > 100
