"""Failed deliveries: no message is lost, and deliveries resume by themselves as soon as possible."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerd.channel import Channel
from brokerd.journal.journal import Journal
from tests.brokerd.clockwork import MSG_TIMEOUT_S, START_S, Node
from tests.durability.fuse import FUSE, Killed, fused_journal_put

Start = Callable[..., Any]
Connect = Callable[..., Any]


def allow_open_files(broker: Any, count: int) -> None:
    """Lower or raise a running broker's limit of open files."""
    pid = broker.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize("ready", [1, 100])
def test_a_consumer_is_served_once_there_are_file_descriptors_again(
    ready: int, start_broker: Start, connect: Connect
) -> None:
    """The log of an idle topic cannot be mapped while no file can be opened; nobody has to intervene."""
    broker = start_broker()
    for body in (b"one", b"two", b"three"):
        assert broker.request("POST", "/pub?topic=t", body).status == 200
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    broker.kill()
    broker = start_broker(data_path=broker.data_path)  # after a start, every topic is idle
    consumer, other = connect(broker), connect(broker)
    consumer.ok(b"SUB t c\n")
    other.ok(b"SUB t c\n")
    allow_open_files(broker, 3)
    consumer.send(b"RDY %d\n" % ready)
    broker.wait_for_log(r"TOPIC\(t\): CHANNEL\(c\): delivery failed: .*Too many open files")
    allow_open_files(broker, 1024)
    bodies = []
    for _ in range(3):
        message_id, attempts, body = consumer.message()
        assert attempts == 1
        bodies.append(body)
        consumer.send(b"FIN " + message_id + b"\n")
    assert bodies == [b"one", b"two", b"three"]
    scrape = broker.request("GET", "/metrics").text
    assert "nsq_delivery_failures_total 0" not in scrape
    assert "nsq_delivery_failures_total " in scrape


class Failing:
    """Makes a method of a channel fail at its first calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, method: str, times: int) -> None:
        self.left = times
        real = getattr(owner, method)

        def fails(*arguments: Any, **named: Any) -> Any:
            if self.left:
                self.left -= 1
                raise OSError(24, "Too many open files")
            return real(*arguments, **named)

        monkeypatch.setattr(owner, method, fails)


@pytest.fixture
def node(tmp_path: Path) -> Any:
    made = Node(tmp_path)
    yield made
    made.broker.close()


def test_a_requeued_message_is_delivered_after_a_failed_delivery(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed delivery counts no attempt, and the message keeps its place."""
    topic, channel, consumer, got = _with_requeued(node)
    failing = Failing(monkeypatch, topic.log, "segment_of", 2)
    consumer.ready_count = 10
    channel.offer(consumer)
    node.pass_until(node.now + 10)
    assert failing.left == 0
    assert got == [b"a", b"b"]
    assert (channel.depth, channel.in_flight_count) == (0, 2)


def _with_requeued(node: Node) -> tuple[Any, Channel, Any, list[bytes]]:
    got: list[bytes] = []
    topic = node.broker.topic("t")
    first = node.subscribe("t", "c", 10, lambda each: None)
    channel = topic.channels["c"]
    topic.publish([b"a", b"b"])
    node.pass_until(node.now)
    channel.unsubscribe(first)
    consumer = node.subscribe("t", "c", 0, lambda each: got.append(each.body))
    return topic, channel, consumer, got


def test_a_timer_that_fails_is_run_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that times out while the timer of its channel fails is redelivered a little later."""
    got = node.consumer("t", "c", ready_count=1)
    node.broker.topic("t").publish([b"x"])
    node.pass_until(START_S)
    failing = Failing(monkeypatch, node.broker.topic("t").channels["c"], "tick", 3)
    node.pass_until(START_S + MSG_TIMEOUT_S + 10)
    assert failing.left == 0
    assert [(attempts, body) for _, attempts, body in got] == [(1, b"x"), (2, b"x")]
    assert node.broker.runtime.supervisor.failure_count == 3


def test_a_connection_that_cannot_be_written_to_is_closed_and_others_are_served(node: Node) -> None:
    """Its messages are requeued, as those of any client that disconnects."""
    closed = []

    def broken(frames: object) -> None:
        raise RuntimeError("the transport is broken")

    got = node.consumer("t", "c", ready_count=1)
    topic = node.broker.topic("t")
    bad = node.subscribe("t", "c", 1, lambda each: None)
    bad.send, bad.hang_up = broken, lambda: closed.append(True)
    topic.publish([b"a", b"b"])
    node.pass_until(START_S)
    assert closed
    assert len(got) == 1


@pytest.mark.parametrize("requeued", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("how", ["before", "torn", "after"])
def test_a_kill_never_forgets_an_attempt_that_a_client_saw(
    how: str, requeued: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery is recorded in the journal before it is sent, so the next one has a higher number of attempts."""
    monkeypatch.setattr(Journal, "_put", fused_journal_put(Journal._put))
    seen: list[int] = []
    topic = node.broker.topic("t")
    client = node.subscribe("t", "c", 10, lambda each: seen.append(each.attempts))
    topic.publish([b"x"])
    if requeued:
        node.pass_until(node.now)
        topic.channels["c"].unsubscribe(client)
        client = node.subscribe("t", "c", 10, lambda each: seen.append(each.attempts))
    monkeypatch.setattr(FUSE, "how", how)
    FUSE.writes = 1
    with pytest.raises(Killed):
        node.pass_until(node.now + 1)
    FUSE.put_out()
    node.kill()
    node.open()
    got = node.consumer("t", "c")
    node.pass_until(node.now + 1)
    [(_, attempts, _)] = got
    assert attempts > max(seen, default=0)
