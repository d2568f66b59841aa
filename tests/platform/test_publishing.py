"""Publishing from the platform: to one node or several, validated, and audited without the body."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    assert signed_in.sign_in("operator").status_code == 200
    return signed_in


def publish(browser: Any, *bodies: str, **more: Any) -> Any:
    return browser.request("POST", "messages", {"topic": "orders", "bodies": bodies} | more)


def test_messages_of_every_format_reach_a_go_node_byte_for_byte(go_cluster, operator):
    """Text and JSON as typed, base64 decoded; one message by /pub, several by /mpub."""
    alpha, _ = go_cluster.nodes
    alpha.topic("orders")
    answer = publish(operator, "grüße\n").json()
    assert answer == {"node": alpha.address, "count": 1, "size": 8}
    publish(operator, '{"a": 1 }', "[2]", format="json")
    publish(operator, b64encode(bytes(range(256))).decode(), "AA==", format="base64")
    expected = ["grüße\n".encode(), b'{"a": 1 }', b"[2]", bytes(range(256)), b"\0"]
    assert alpha.published == [("orders", 0, body) for body in expected]


def test_a_deferral_applies_to_each_message(go_cluster, operator):
    """In milliseconds, message by message, because NSQ has no deferred MPUB."""
    alpha, _ = go_cluster.nodes
    alpha.topic("orders")
    assert publish(operator, "a", "b", defer_ms=1500).json()["count"] == 2
    assert sorted(alpha.published) == [("orders", 1500, b"a"), ("orders", 1500, b"b")]


def test_a_node_can_be_chosen_and_only_one_that_is_known(go_cluster, operator, redis):
    """Also one without the topic; the platform sends nothing to unknown addresses."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    redis.set("nsq:addresses", f'{{"{beta.address}": "{beta.address}"}}')
    assert publish(operator, "x", node=beta.address).json()["node"] == beta.address
    assert (alpha.published, [body for *_, body in beta.published]) == ([], [b"x"])
    refused = publish(operator, "x", node="127.0.0.1:1")
    assert refused.status_code == 404
    assert "there is no node 127.0.0.1:1" in refused.json()["message"]


def test_a_node_that_is_gone_is_skipped(go_cluster, operator):
    """If no node was chosen, another one takes the messages."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    alpha.stop()
    for _ in range(6):
        assert publish(operator, "x").json()["node"] == beta.address
    assert len(beta.published) == 6
    alpha.start()


def test_a_node_that_fails_is_named_and_the_attempt_written_down(go_cluster, operator):
    """It may have stored the message before it failed, so no other node is tried."""
    for node in go_cluster.nodes:
        node.topic("orders")
        node.status["/pub"] = (500, "INTERNAL_ERROR")
    response = publish(operator, "x")
    assert response.status_code == 502
    assert "answers 500 INTERNAL_ERROR" in response.json()["message"]
    entry = operator.request("GET", "audit").json()["entries"][0]
    assert (entry["action"], entry["outcome"]) == ("publish", "failed")


@pytest.mark.parametrize(
    ("request_body", "complaint"),
    [
        ({"bodies": []}, "bodies: "),
        ({"bodies": [""]}, "bodies.0: a message has at least one byte"),
        ({"bodies": ["{}", '{\n "a": }'], "format": "json"}, "bodies.1: not JSON: Expecting value at line 2, column 7"),
        ({"bodies": ["NaN"], "format": "json"}, "bodies.0: not JSON: NaN is not a value"),
        ({"bodies": ["[" * 100_000], "format": "json"}, "bodies.0: not JSON"),
        ({"bodies": ["%%"], "format": "base64"}, "bodies.0: not base64"),
        ({"bodies": ["x"], "format": "xml"}, "format: "),
        ({"bodies": ["x"], "defer_ms": -1}, "defer_ms: "),
        ({"bodies": ["x"], "defer_ms": 7_200_000}, "defer_ms: the delay is longer than this node permits"),
        ({"bodies": ["x"] * 101, "defer_ms": 1}, "bodies: 101 messages; at most 100 can be deferred"),
        ({"bodies": ["x" * 1_048_577]}, "bodies: a message is larger than this node accepts"),
        ({"bodies": ["x" * 1_000_000] * 6}, "bodies: 6,000,000 bytes together; the limit is 5,242,880"),
        ({"bodies": ["x"], "topic": "two words"}, "topic: "),
        ({"bodies": ["x"], "headers": {"a b": "x"}}, "headers: header name 'a b' is not 1 to 64 characters"),
        ({"bodies": ["x"], "headers": {"a": "x", "A": "y"}}, "headers: header a appears twice"),
        ({"bodies": ["x"], "headers": {"a": "x\ny"}}, "headers: value of header a has a control character"),
        ({"bodies": ["x"], "headers": {"a": " x"}}, "headers: value of header a begins or ends with a space"),
        ({"bodies": ["x"], "headers": {"a": 1}}, "headers.a: "),
        ({"bodies": ["x"], "headers": {"tenant": "acme"}}, "only brokerd does, not Go's nsqd"),
    ],
)
def test_an_invalid_publish_names_its_field(go_cluster, operator, request_body, complaint):
    """Nothing is published."""
    go_cluster.nodes[0].topic("orders")
    response = operator.request("POST", "messages", {"topic": "orders"} | request_body)
    assert response.status_code == 422, response.content
    assert complaint in response.json()["message"]
    assert go_cluster.nodes[0].published == []


def test_a_request_of_any_size_is_refused_in_words(go_cluster, operator):
    """Nine megabytes exceed every limit."""
    go_cluster.nodes[0].topic("orders")
    response = publish(operator, "x" * 9_000_000)
    assert response.status_code == 413
    assert "8,388,608 bytes" in response.json()["message"]


def test_a_publish_is_audited_without_its_body(go_cluster, operator):
    """Topic, count and bytes; the contents stay between producer and consumers."""
    alpha, _ = go_cluster.nodes
    alpha.topic("orders")
    publish(operator, "secret-one", "secret-two")
    response = operator.request("GET", "audit")
    entry = response.json()["entries"][0]
    assert (entry["user"], entry["action"], entry["topic"]) == ("operator", "publish", "orders")
    assert entry["results"][0]["node"] == alpha.address
    assert entry["results"][0]["detail"] == "2 messages, 20 bytes"
    assert b"secret" not in response.content


def test_a_viewer_and_an_operator_of_other_topics_publish_nothing(go_cluster, browser, account):
    """They are refused before any node is called."""
    go_cluster.nodes[0].topic("orders")
    account("viewer")
    limited = account("operator", "olga")
    limited.topic_patterns = ["returns.*"]
    limited.save()
    for name, why in (("viewer", "may not publish messages"), ("olga", "returns.*, not on orders")):
        person = browser()
        person.sign_in(name)
        response = publish(person, "x")
        assert response.status_code == 403
        assert why in response.json()["message"]
    assert go_cluster.nodes[0].published == []


def test_messages_are_published_to_our_own_broker_too(cluster, operator):
    """Like Go's: several at once, deferred ones, and errors for its own limits."""
    cluster.make_channel("orders", "billing")
    assert publish(operator, "a", "b", "c").json()["count"] == 3
    assert publish(operator, "later", defer_ms=60_000).json()["count"] == 1
    held = [broker.topics()["orders"]["channels"][0] for broker in cluster.brokers]
    assert sum(each["depth"] for each in held) == 3
    assert sum(each["deferred_count"] for each in held) == 1
    assert "--max-msg-size" in publish(operator, "x" * 1_048_577).json()["message"]
    assert "--max-req-timeout" in publish(operator, "x", defer_ms=7_200_000).json()["message"]
