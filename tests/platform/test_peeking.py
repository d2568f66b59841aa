"""Reading the messages of a channel on all its nodes without consuming them."""

from __future__ import annotations

import time
from base64 import b64decode
from typing import Any
from urllib.parse import urlencode

import pytest

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


def peek(browser: Any, path: str = "messages", **more: Any) -> Any:
    return browser.request("GET", f"{path}?{urlencode({'topic': 'orders', 'channel': 'billing'} | more)}")


def test_pages_go_through_all_nodes_and_change_nothing(cluster, operator):
    """Each message is shown once, with its node, and afterwards the channels are unchanged."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 5)
    before = [broker.topics()["orders"]["channels"] for broker in cluster.brokers]
    pages = [peek(operator, limit=4, offset=offset).json() for offset in (0, 4, 8)]
    assert [len(page["messages"]) for page in pages] == [4, 4, 2]
    assert all(page["total"] == 10 for page in pages)
    seen = [message for page in pages for message in page["messages"]]
    assert len({(message["node"], message["id"]) for message in seen}) == 10
    assert {message["node"] for message in seen} == {broker.http_address for broker in cluster.brokers}
    assert sorted(b64decode(message["body"]) for message in seen) == sorted(b"message %d" % (n // 2) for n in range(10))
    assert abs(seen[0]["timestamp"] / 1000 - time.time()) < 60
    assert [broker.topics()["orders"]["channels"] for broker in cluster.brokers] == before


def test_a_deferred_message_says_when_it_is_due(cluster, operator):
    """In Unix milliseconds."""
    cluster.make_channel("orders", "billing")
    assert cluster.brokers[0].request("POST", "/pub?topic=orders&defer=60000", b"later").text == "OK"
    (message,) = peek(operator, state="deferred").json()["messages"]
    assert 0 < message["due"] / 1000 - time.time() < 61
    assert (message["client"], message["deadline"]) == (None, None)


def test_a_long_body_is_cut_and_can_be_had_whole(cluster, operator):
    """It is found by its id, also if the channel has moved on a little."""
    cluster.make_channel("orders", "billing")
    cluster.brokers[0].request("POST", "/pub?topic=orders", b"short")
    cluster.brokers[0].request("POST", "/pub?topic=orders", b"x" * 50_000)
    short, long = peek(operator, max_body_bytes=100).json()["messages"]
    assert (len(b64decode(long["body"])), long["truncated"], long["size"]) == (100, True, 50_000)
    assert short["truncated"] is False
    for _ in range(2):
        whole = peek(operator, f"messages/{long['id']}", node=long["node"]).json()
        assert (b64decode(whole["body"]), whole["truncated"]) == (b"x" * 50_000, False)
    gone = peek(operator, "messages/0000000000000000", node=long["node"])
    assert gone.status_code == 404
    assert "no longer there" in gone.json()["message"]


@pytest.mark.parametrize("path", ["messages/0000000000000000", "messages/0000000000000000/body"])
def test_a_message_of_a_channel_that_its_node_does_not_have_is_not_found(cluster, operator, path):
    """The node has not failed: its channel was deleted."""
    cluster.make_channel("orders", "billing")
    gone = peek(operator, path, node=cluster.brokers[0].http_address, channel="search")
    assert gone.status_code == 404
    assert gone.json()["message"].endswith("its node does not have the channel")


def test_a_go_node_is_distinguished_from_one_that_is_down(go_cluster, operator):
    """Each node has the reason why it shows nothing."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=3)
    beta.channel("orders", "billing", depth=3)
    beta.status["/channel/peek"] = (500, "INTERNAL_ERROR")
    answer = peek(operator).json()
    errors = {part["node"]: part["error"] for part in answer["nodes"]}
    assert "cannot list the messages of a channel" in errors[alpha.address]
    assert errors[beta.address] == "answers 500 INTERNAL_ERROR"
    assert (answer["messages"], answer["total"]) == ([], 0)
    assert all(part["total"] is None for part in answer["nodes"])


def test_an_invalid_response_is_reported_with_the_path(go_cluster, operator, monkeypatch):
    """A server at the node's address that is no broker answers with another page."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=3)
    beta.channel("orders", "billing", depth=3)
    original = beta.get

    def get(path: str, query: dict[str, str]) -> Any:
        return b"<!doctype html>" if path == "/channel/peek" else original(path, query)

    monkeypatch.setattr(beta, "get", get)
    errors = {part["node"]: part["error"] for part in peek(operator).json()["nodes"]}
    assert errors[beta.address].startswith("cannot read its /channel/peek: Invalid JSON")


@pytest.mark.parametrize(
    ("more", "status", "complaint"),
    [
        ({"channel": "nowhere"}, 404, "channel nowhere of topic orders"),
        ({"topic": "nowhere"}, 404, "topic nowhere"),
        ({"state": "lost"}, 422, "state: "),
        ({"limit": 101}, 422, "limit: "),
        ({"offset": -1}, 422, "offset: "),
        ({"channel": "a b"}, 422, "channel: "),
    ],
)
def test_missing_channels_and_invalid_parameters_are_named(cluster, operator, more, status, complaint):
    """With its name, or the parameter's."""
    cluster.make_channel("orders", "billing")
    response = peek(operator, **more)
    assert response.status_code == status
    assert complaint in response.json()["message"]


def test_bodies_are_for_operators_unless_the_setting_says_otherwise(cluster, browser, account, nsqadmin_settings):
    """A viewer is refused; with --message-role=viewer everybody may look; with admin an operator may not."""
    cluster.make_channel("orders", "billing")
    people = {}
    for role in ("viewer", "operator", "admin"):
        account(role)
        people[role] = browser()
        people[role].sign_in(role)
    limited = account("operator", "olga")
    limited.topic_patterns = ["returns.*"]
    limited.save()
    people["olga"] = browser()
    people["olga"].sign_in("olga")
    expected = {
        "operator": {"viewer": 403, "operator": 200, "olga": 403, "admin": 200},
        "viewer": {"viewer": 200, "operator": 200, "olga": 200, "admin": 200},
        "admin": {"viewer": 403, "operator": 403, "olga": 403, "admin": 200},
    }
    for setting, statuses in expected.items():
        nsqadmin_settings(message_role=setting)
        assert {name: peek(people[name]).status_code for name in statuses} == statuses
        answer = {name: people[name].request("GET", "me").json()["reads_messages"] for name in ("viewer", "operator")}
        assert answer == {name: statuses[name] == 200 for name in answer}
        answer = {name: people[name].request("GET", "me").json()["reads_all_topics"] for name in people}
        assert answer == {name: statuses[name] == 200 for name in people} | {"olga": setting == "viewer"}


def test_the_oldest_and_the_newest_are_those_of_all_nodes(cluster, operator):
    """Two nodes receive messages in turn: each end of the list has messages of both, in their order."""
    cluster.make_channel("orders", "billing")
    for number in range(8):
        assert cluster.brokers[number % 2].request("POST", "/pub?topic=orders", b"%d" % number).text == "OK"
    cluster.wait_until_routed("orders")
    nodes = [broker.http_address for broker in cluster.brokers]
    for order, numbers in (("oldest", [0, 1, 2]), ("newest", [7, 6, 5])):
        answer = peek(operator, order=order, limit=3).json()
        assert answer["total"] == 8
        assert [b64decode(each["body"]) for each in answer["messages"]] == [b"%d" % number for number in numbers]
        assert [each["node"] for each in answer["messages"]] == [nodes[number % 2] for number in numbers]
    refused = peek(operator, order="oldest", offset=3)
    assert (refused.status_code, refused.json()["field_errors"][0]["field"]) == (422, "offset")


def test_deferred_messages_of_all_nodes_are_in_the_order_in_which_they_are_due(cluster, operator):
    """The one that is due first was published last, on the other node."""
    cluster.make_channel("orders", "billing")
    for number, delay in enumerate((300_000, 200_000, 100_000)):
        body = b"%d" % number
        assert cluster.brokers[number % 2].request("POST", f"/pub?topic=orders&defer={delay}", body).text == "OK"
    for order, expected in (("oldest", [b"2", b"1"]), ("newest", [b"0", b"1"])):
        messages = peek(operator, state="deferred", order=order, limit=2).json()["messages"]
        assert [b64decode(each["body"]) for each in messages] == expected
