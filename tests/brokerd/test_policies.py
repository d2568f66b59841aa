"""Policies: what channels do with failed messages, set for patterns of topics and channels while the broker runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.policies import Policies
from brokerd.policy import Policy
from tests.brokerd.conftest import create_channel, publish
from tests.harness.policies import policy_for
from tests.harness.waiting import wait_until

KEYS = "max_attempts, retry_delay, msg_ttl, expired, max_depth, max_bytes, overflow, dead_topic, sample_lives"

Connect = Callable[..., Any]
Start = Callable[..., Any]


def set_policy(broker: Any, pattern: str, channel: str = "*", **values: object) -> None:
    broker.post("/policy", json.dumps(values).encode(), pattern=pattern, channel=channel)


def policies_of(broker: Any) -> list[tuple[str, str, dict[str, Any]]]:
    return [(each["pattern"], each["channel"], each["policy"]) for each in broker.get("/policies")["policies"]]


def channel_of(broker: Any) -> dict[str, Any]:
    return dict(broker.stats(topic="t", include_histograms="true")["topics"][0]["channels"][0])


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker whose messages never die, with a topic ``t`` and its channel ``c``."""
    started = start_broker()
    create_channel(started)
    return started


def test_a_policy_applies_at_once_to_existing_and_new_channels(broker: Any, connect: Connect) -> None:
    """A message dies at the failure that the policy of its channel names; ``/stats`` names the policy."""
    assert channel_of(broker)["policy"] is None
    consumer = connect(broker)
    consumer.sub("t", "c", 10)
    publish(broker, b"a")
    for _ in range(3):
        consumer.send(b"REQ %b 0\n" % consumer.message()[0])
    message_id, _, _ = consumer.message()
    set_policy(broker, "t", max_attempts=1)
    assert channel_of(broker)["policy"] == {"pattern": "t", "channel": "*", "policy": {"max_attempts": 1}}
    consumer.send(b"REQ %b 0\n" % message_id)
    wait_until(lambda: channel_of(broker)["dead_count"] == 1, "it is dead")
    set_policy(broker, "later*", max_attempts=1)
    other = connect(broker)
    other.sub("later.1", "c", 10)
    other.pub("later.1", b"b")
    other.send(b"REQ %b 0\n" % other.message()[0])
    found = lambda: broker.stats(topic="later.1", include_histograms="true")["topics"][0]["channels"][0]  # noqa: E731
    wait_until(lambda: found()["dead_count"] == 1, "it is dead")


@pytest.mark.parametrize("killed", [False, True])
def test_policies_survive_a_restart(broker: Any, killed: bool) -> None:
    """Set, replaced and deleted ones."""
    set_policy(broker, "orders.*", max_attempts=3)
    set_policy(broker, "orders.*", max_attempts=5, retry_delay="1s..5m")
    set_policy(broker, "mail", "audit", max_attempts=1)
    set_policy(broker, "*", max_attempts=9)
    broker.post("/policy/delete", pattern="*")
    expected = [
        ("mail", "audit", {"max_attempts": 1}),
        ("orders.*", "*", {"max_attempts": 5, "retry_delay": "1s..5m"}),
    ]
    assert policies_of(broker) == expected
    broker.kill() if killed else broker.stop()
    broker.start().wait_until_ready()
    assert policies_of(broker) == expected


@pytest.mark.parametrize(
    ("params", "body", "message"),
    [
        ({}, b"{}", "MISSING_ARG_PATTERN"),
        ({"pattern": "a b"}, b'{"max_attempts":1}', "INVALID_ARG_PATTERN"),
        ({"pattern": "a", "channel": "[x]"}, b'{"max_attempts":1}', "INVALID_ARG_CHANNEL"),
        (
            {"pattern": "a"},
            b"text",
            f"INVALID_POLICY a policy is a JSON object with some of the keys {KEYS}",
        ),
        (
            {"pattern": "a"},
            b"{}",
            f"INVALID_POLICY a policy is a JSON object with some of the keys {KEYS}",
        ),
        (
            {"pattern": "a"},
            b'{"max_attempts":1,"max_atempts":2}',
            f"INVALID_POLICY max_atempts: unknown key; there are {KEYS}",
        ),
        (
            {"pattern": "a"},
            b'{"max_attempts":true}',
            "INVALID_POLICY max_attempts: must be a whole number from 0 to 65535",
        ),
        (
            {"pattern": "a"},
            b'{"max_attempts":65536}',
            "INVALID_POLICY max_attempts: must be a whole number from 0 to 65535",
        ),
        (
            {"pattern": "a"},
            b'{"retry_delay":"5m..1s"}',
            "INVALID_POLICY retry_delay: '5m..1s': MIN must be above 0 and at most MAX",
        ),
        (
            {"pattern": "a"},
            b'{"msg_ttl":"10"}',
            "INVALID_POLICY msg_ttl: the duration '10' needs a unit, for example 10ms or 10s",
        ),
        ({"pattern": "a"}, b'{"msg_ttl":"1us"}', "INVALID_POLICY msg_ttl: 1us is less than 1ms"),
        ({"pattern": "a"}, b'{"expired":"gone"}', "INVALID_POLICY expired: must be drop or dead"),
        ({"pattern": "a"}, b'{"max_depth":5}', "INVALID_POLICY max_depth: needs overflow: reject, drop-oldest or dead"),
        ({"pattern": "a"}, b'{"overflow":"dead"}', "INVALID_POLICY overflow: needs max_depth or max_bytes"),
        (
            {"pattern": "a", "channel": "b"},
            b'{"overflow":"reject","max_bytes":5}',
            "INVALID_POLICY overflow: reject is for whole topics, so the policy's channel must be *",
        ),
        (
            {"pattern": "a"},
            b'{"dead_topic":"b#ephemeral"}',
            "INVALID_POLICY dead_topic: must be the name of a topic that is not ephemeral",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused(broker: Any, params: dict[str, str], body: bytes, message: str) -> None:
    """With the name of the key, and nothing changed."""
    answer = broker.request("POST", f"/policy?{urlencode(params)}", body)
    assert (answer.status, json.loads(answer.text)) == (400, {"message": message})
    assert policies_of(broker) == []


def test_deleting_an_unknown_policy_is_refused(broker: Any) -> None:
    """404, also for the same topic with another channel."""
    set_policy(broker, "a", "b", max_attempts=1)
    answer = broker.request("POST", "/policy/delete?pattern=a")
    assert (answer.status, json.loads(answer.text)) == (404, {"message": "POLICY_NOT_FOUND"})
    broker.post("/policy/delete", pattern="a", channel="b")
    assert policies_of(broker) == []


def test_the_most_specific_policy_applies() -> None:
    """A name before a pattern, more letters before fewer, the topic before the channel; settings fill the gaps."""
    patterns = [("*", "*"), ("*", "audit"), ("orders.*", "*"), ("orders.*", "audit"), ("orders.eu", "*")]
    values = {each: {"max_attempts": number} for number, each in enumerate(patterns, 1)}
    policies = Policies(Policy(max_attempts=100, retry_delay_s=(1.0, 2.0)), values)

    def applied(topic: str, channel: str) -> int:
        assert policy_for(policies, topic, channel).retry_delay_s == (1.0, 2.0)
        return policy_for(policies, topic, channel).max_attempts

    assert applied("mail", "c") == 1
    assert applied("mail", "audit") == 2
    assert applied("orders.us", "c") == 3
    assert applied("orders.us", "audit") == 4
    assert applied("orders.eu", "audit") == 5
    assert policy_for(Policies(Policy(7), {}), "a", "b") == Policy(7)


NAMES = st.text("ab*?", min_size=1, max_size=3)


@given(st.lists(st.tuples(NAMES, NAMES), unique=True, max_size=6), st.text("ab", min_size=1), st.text("ab", min_size=1))
def test_which_policy_applies_does_not_depend_on_the_order_in_which_they_were_set(
    patterns: list[tuple[str, str]], topic: str, channel: str
) -> None:
    """So all nodes of a cluster agree."""
    values = {each: {"max_attempts": number} for number, each in enumerate(patterns)}
    one = Policies(Policy(), values).rule_for(topic, channel)
    other = Policies(Policy(), dict(reversed(values.items()))).rule_for(topic, channel)
    assert one == other


FILE = """
[[policies]]
pattern = "orders.*"
max_attempts = 7

[[policies]]
pattern = "orders.eu"
channel = "audit"
msg_ttl = "1h"
expired = "dead"
"""


def test_policies_of_the_settings_file_apply_and_are_changed_there_only(start_broker: Start, tmp_path: Path) -> None:
    """They go before one with the same patterns that was set while the broker ran, which is back without them."""
    config = tmp_path / "nsqd.toml"
    config.write_text("")
    broker = start_broker(f"--config={config}")
    set_policy(broker, "orders.*", max_attempts=3)
    set_policy(broker, "mail", max_attempts=1)
    broker.stop()
    config.write_text(FILE)
    broker.start().wait_until_ready()
    assert broker.get("/policies")["policies"] == [
        {"pattern": "orders.eu", "channel": "audit", "policy": {"msg_ttl": "1h", "expired": "dead"}, "in_file": True},
        {"pattern": "mail", "channel": "*", "policy": {"max_attempts": 1}},
        {"pattern": "orders.*", "channel": "*", "policy": {"max_attempts": 7}, "in_file": True},
    ]
    for path, body in (("/policy", b'{"max_attempts":1}'), ("/policy/delete", b"")):
        refused = broker.request("POST", f"{path}?pattern=orders.*", body)
        assert (refused.status, json.loads(refused.text)) == (400, {"message": "POLICY_IN_FILE"})
    broker.stop()
    config.write_text("")
    broker.start().wait_until_ready()
    assert policies_of(broker) == [("mail", "*", {"max_attempts": 1}), ("orders.*", "*", {"max_attempts": 3})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies = 3", "policies are tables [[policies]]"),
        ("[[policies]]\nmax_attempts = 3", "policy 1 of {path}: pattern: must be a glob of names, such as orders*"),
        ('[[policies]]\npattern = "a"\nmax_atempts = 3', "policy 1 of {path}: max_atempts: unknown key; there are "),
        (2 * '[[policies]]\npattern = "a"\nmax_depth = 0\n', "policy 2 of {path}: an earlier one has the pattern a"),
        ('[[policies]]\npattern = "*"\ndead_topic = "d"', "dead_topic: dead messages would go in a circle: d -> d"),
    ],
)
def test_a_settings_file_with_a_policy_that_cannot_be_ends_the_start(
    start_broker: Start, tmp_path: Path, text: str, message: str
) -> None:
    """With status 1, and one line that names the policy and what is wrong."""
    config = tmp_path / "nsqd.toml"
    config.write_text(text)
    broker = start_broker(f"--config={config}", ready=False)
    assert broker.wait_for_exit() == 1
    assert message.replace("{path}", str(config)) in broker.output
    assert "Traceback" not in broker.output
