"""A dead topic: dead messages are published there, and leave their channel once the topic has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.policies import Policies
from brokerd.policy import InvalidPolicy, Policy
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_dead import channel_of, consumer_of, counts, dead_of
from tests.brokerd.test_policies import policies_of, set_policy
from tests.harness.policies import policy_for
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker whose messages die at the first failure and go to topic ``t.dead``."""
    started = start_broker("--max-attempts=1")
    create_channel(started)
    set_policy(started, "t", dead_topic="t.dead")
    return started


def fail_all(connect: Connect, broker: Any, count: int) -> None:
    consumer = consumer_of(connect, broker, ready_count=count)
    for _ in range(count):
        consumer.send(b"REQ %b 0\n" % consumer.message()[0])
    wait_until(lambda: counts(broker)[:3] == (0, 0, 0), "all have failed")
    consumer.socket.close()


def in_dead_topic(connect: Connect, broker: Any, count: int) -> list[bytes]:
    consumer = connect(broker)
    consumer.sub("t.dead", "look", 2500)
    found = [consumer.message() for _ in range(count)]
    consumer.finish(*(message_id for message_id, _, _ in found))
    assert consumer.is_silent(0.2)
    assert {attempts for _, attempts, _ in found} <= {1}
    return [body for _, _, body in found]


def test_a_dead_message_is_published_to_the_dead_topic_and_leaves_its_channel(broker: Any, connect: Connect) -> None:
    """In the order of the messages; the topic is created. It counts as died."""
    publish(broker, b"a", b"b", b"c")
    fail_all(connect, broker, 3)
    assert in_dead_topic(connect, broker, 3) == [b"a", b"b", b"c"]
    wait_until(lambda: counts(broker) == (0, 0, 0, 0), "they have left")
    assert channel_of(broker)["died_count"] == 3


def test_messages_that_are_dead_already_go_when_the_policy_is_set(start_broker: Start, connect: Connect) -> None:
    """Whatever they died of, also those that an operator buried; thousands of them, of any size."""
    broker = start_broker("--max-attempts=1")
    create_channel(broker)
    bodies = [b"%d" % number + b"x" * (number % 7 * 1000) for number in range(2500)]
    for start in range(0, len(bodies), 500):
        broker.post("/mpub", b"\n".join(bodies[start : start + 500]), topic="t")
    fail_all(connect, broker, len(bodies))
    assert counts(broker)[3] == len(bodies)
    set_policy(broker, "t", dead_topic="t.dead")
    wait_until(lambda: counts(broker) == (0, 0, 0, 0), "they have left")
    consumer = connect(broker)
    consumer.sub("t.dead", "look", 2500)
    assert [consumer.message()[2] for _ in bodies] == bodies


def test_a_kill_between_publishing_and_leaving_loses_none(broker: Any, connect: Connect) -> None:
    """Each is in the dead topic at least once, and none is left behind."""
    set_policy(broker, "t", dead_topic="")
    publish(broker, *(b"%d" % number for number in range(50)))
    fail_all(connect, broker, 50)
    for _ in range(5):
        set_policy(broker, "t", dead_topic="t.dead")
        broker.kill()
        broker.start().wait_until_ready()
    wait_until(lambda: counts(broker) == (0, 0, 0, 0), "they have left")
    depth = broker.topics()["t.dead"]["depth"]
    assert depth >= 50
    assert set(in_dead_topic(connect, broker, depth)) == {b"%d" % number for number in range(50)}


def test_a_dead_topic_that_takes_nothing_leaves_the_messages_where_they_are(broker: Any, connect: Connect) -> None:
    """It is full: one line in the log; they go as soon as there is room."""
    set_policy(broker, "t.dead", overflow="reject", max_depth=1)
    broker.post("/pub", b"first", topic="t.dead")
    publish(broker, b"a", b"b")
    fail_all(connect, broker, 2)
    broker.wait_for_log("dead messages are not moved to topic t.dead: topic t.dead is full")
    assert set(dead_of(broker)) == {b"a", b"b"}
    broker.post("/policy/delete", pattern="t.dead")
    wait_until(lambda: counts(broker)[3] == 0, "they have left")
    assert in_dead_topic(connect, broker, 3) == [b"first", b"a", b"b"]


def test_a_dead_topic_with_room_for_some_takes_these(broker: Any, connect: Connect) -> None:
    """The rest stays dead, and nothing is lost."""
    set_policy(broker, "t", dead_topic="")
    publish(broker, *(b"%d" % number for number in range(10)))
    fail_all(connect, broker, 10)
    set_policy(broker, "t.dead", overflow="reject", max_depth=7)
    set_policy(broker, "t", dead_topic="t.dead")
    wait_until(lambda: counts(broker)[3] == 3, "seven have left")
    assert broker.topics()["t.dead"]["depth"] == 7


@pytest.mark.parametrize(
    ("policies", "refused", "circle"),
    [
        ([], ("*", {"dead_topic": "dead"}), "dead -> dead"),
        ([("b", {"dead_topic": "c"}), ("c", {"dead_topic": "a"})], ("a", {"dead_topic": "b"}), "a -> b -> c -> a"),
        ([("dead", {"max_attempts": 3})], ("d*", {"dead_topic": "dead"}), None),
        ([("dead", {"max_attempts": 3})], ("*", {"dead_topic": "other"}), "other -> other"),
    ],
)
def test_a_circle_of_dead_topics_is_refused_by_name(
    broker: Any, policies: list[tuple[str, dict[str, Any]]], refused: tuple[str, dict[str, Any]], circle: str | None
) -> None:
    """A more specific policy without a dead topic ends the way; nothing is changed by a refused one."""
    broker.post("/policy/delete", pattern="t")
    for pattern, values in policies:
        set_policy(broker, pattern, **values)
    before, (pattern, values) = policies_of(broker), refused
    answer = broker.request("POST", f"/policy?pattern={pattern}", json.dumps(values).encode())
    if circle is None:
        assert answer.status == 200
        deleted = broker.request("POST", "/policy/delete?pattern=dead")
        assert deleted.status == 400, "without it there would be a circle"
        assert "dead -> dead" in json.loads(deleted.text)["message"]
    else:
        message = f"INVALID_POLICY dead_topic: dead messages would go in a circle: {circle}"
        assert (answer.status, json.loads(answer.text)["message"]) == (400, message)
        assert policies_of(broker) == before


NAMES = st.sampled_from("abc")
PATTERNS = st.sampled_from(["a", "b", "c", "*", "?"])


@given(
    st.dictionaries(st.tuples(PATTERNS, PATTERNS), st.sampled_from(["", "a", "b", "c"]), max_size=6),
    NAMES,
    st.lists(NAMES, min_size=8, max_size=8),
)
def test_no_message_comes_back_by_policies_that_are_accepted(
    targets: dict[tuple[str, str], str], topic: str, channels: list[str]
) -> None:
    """Whatever channels it dies in on its way."""
    values = {patterns: {"dead_topic": target} for patterns, target in targets.items()}
    try:
        policies = Policies(Policy(), {}).changed(values)
    except InvalidPolicy:
        return
    seen = list[str]()
    for channel in channels:
        target = policy_for(policies, topic, channel).dead_topic
        if not target:
            return
        assert target not in seen
        seen.append(target)
        topic = target
