"""Actions on topics and channels: their effect on each node, and their entries in the audit trail."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    assert signed_in.sign_in("operator").status_code == 200
    return signed_in


def act(browser: Any, action: str, topic: str, channel: str | None = None) -> Any:
    body = {"action": action, "topic": topic} | ({"channel": channel} if channel else {})
    return browser.request("POST", "actions", body)


def outcomes(response: Any) -> dict[str, str]:
    assert response.status_code == 200, response.content
    return {result["node"]: result["outcome"] for result in response.json()["results"]}


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_pausing_reaches_every_node_that_has_the_topic(go_cluster, operator, verb):
    """Each node is named in the answer; a node without the topic is not called."""
    for node in go_cluster.nodes:
        node.topic("orders", paused=verb == "unpause")
    go_cluster.nodes[0].topic("other")
    response = act(operator, verb, "orders")
    assert response.json()["outcome"] == "done"
    assert outcomes(response) == {node.address: "done" for node in go_cluster.nodes}
    assert [node.topics["orders"]["paused"] for node in go_cluster.nodes] == [verb == "pause"] * 2
    assert outcomes(act(operator, verb, "other")) == {go_cluster.nodes[0].address: "done"}


def test_emptying_a_channel_spares_nodes_without_it(go_cluster, operator):
    """A node that has the topic but not the channel is named, and is no failure."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    beta.topic("orders")
    response = act(operator, "empty", "orders", "billing")
    assert outcomes(response) == {alpha.address: "done", beta.address: "absent"}
    assert response.json()["outcome"] == "done"
    assert alpha.channel("orders", "billing")["depth"] == 0


def test_deleting_a_topic_goes_to_registries_first(go_cluster, operator):
    """So no consumer is sent to a node for a topic that is being deleted."""
    order: list[str] = []
    for upstream in go_cluster.everything:
        original = upstream.post
        upstream.post = lambda path, query, original=original, name=upstream.address: (
            order.append(name) or original(path, query)
        )
    for node in go_cluster.nodes:
        node.topic("orders")
    response = act(operator, "delete", "orders")
    assert response.json()["outcome"] == "done"
    assert order[0] == go_cluster.registry.address
    assert all("orders" not in node.topics for node in go_cluster.nodes)
    targets = {result["node"]: result["target"] for result in response.json()["results"]}
    assert targets[go_cluster.registry.address] == "nsqlookupd"


def test_ephemeral_names_arrive_whole(go_cluster, operator):
    """The # of a name does not cut the request short."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders#ephemeral", "tail#ephemeral")
    assert outcomes(act(operator, "pause", "orders#ephemeral", "tail#ephemeral")) == {alpha.address: "done"}
    assert alpha.channel("orders#ephemeral", "tail#ephemeral")["paused"]


def test_creating_a_channel_makes_it_on_registries_and_producers(go_cluster, operator):
    """Consumers find it at the registry; the topic's nodes keep messages for it from then on."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    response = act(operator, "create", "orders", "archive")
    assert outcomes(response) == {go_cluster.registry.address: "done", alpha.address: "done"}
    assert [each["channel_name"] for each in alpha.topics["orders"]["channels"]] == ["archive"]
    assert go_cluster.registry.idle["orders"] == ["archive"]
    assert beta.topics == {}


def test_creating_a_topic_without_registries_makes_it_on_the_nodes(go_cluster, operator, settings):
    """Without a registry, only the nodes can store it."""
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = tuple(node.address for node in go_cluster.nodes)
    assert outcomes(act(operator, "create", "orders")) == {node.address: "done" for node in go_cluster.nodes}
    assert all("orders" in node.topics for node in go_cluster.nodes)


def test_a_node_that_is_down_makes_the_outcome_partial(go_cluster, operator, collect, snapshot):
    """The snapshot still has the node with the topic, although the registry has dropped it."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    collect()
    wait_until(lambda: [len(topic["nodes"]) for topic in (snapshot() or {"topics": []})["topics"]] == [2], "both nodes")
    beta.stop()
    go_cluster.registry.nodes = [alpha]
    response = act(operator, "pause", "orders")
    assert response.json()["outcome"] == "partial"
    assert outcomes(response) == {alpha.address: "done", beta.address: "unreachable"}
    results = {result["node"]: result["detail"] for result in response.json()["results"]}
    assert results[beta.address] == "connection refused"
    beta.start()


def test_a_refusing_node_is_reported_with_its_own_message(go_cluster, operator):
    """Its status and message are beside its name."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.status["/topic/pause"] = (500, "INTERNAL_ERROR")
    response = act(operator, "pause", "orders").json()
    assert response == {
        "outcome": "failed",
        "results": [{"node": alpha.address, "target": "nsqd", "outcome": "failed", "detail": "500 INTERNAL_ERROR"}],
    }


def test_a_hanging_node_does_not_hang_the_action(go_cluster, operator, short_request_timeout):
    """After its deadline the node counts as unreachable, and the answer warns that it may still act."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    alpha.hold = threading.Event()
    response = act(operator, "pause", "orders")
    alpha.hold.set()
    assert outcomes(response) == {alpha.address: "unreachable", beta.address: "done"}
    assert "may still" in next(each["detail"] for each in response.json()["results"] if each["detail"])


@pytest.mark.parametrize("action", ["pause", "empty", "delete"])
@pytest.mark.parametrize("channel", [None, "billing"])
def test_an_unknown_topic_or_channel_is_not_found_for_an_action(go_cluster, operator, action, channel):
    """A misspelt name differs from a failure, and leaves no audit entry."""
    response = act(operator, action, "orderz", channel)
    assert response.status_code == 404
    assert "orderz" in response.json()["message"]
    assert operator.request("GET", "audit?object=orderz").json() == {"entries": []}


def test_a_channel_that_no_node_has_is_not_found(go_cluster, operator):
    """Also if the topic exists."""
    go_cluster.nodes[0].topic("orders")
    response = act(operator, "pause", "orders", "nowhere")
    assert (response.status_code, response.json()["message"]) == (
        404,
        "no node of the cluster has channel nowhere of topic orders",
    )


def test_without_any_registry_the_answer_says_which_did_not_answer(go_cluster, operator):
    """Without an answer, nothing is known about the cluster."""
    go_cluster.registry.stop()
    response = act(operator, "pause", "orders")
    assert response.status_code == 502
    assert response.json()["message"] == f"nsqlookupd {go_cluster.registry.address}: connection refused"
    go_cluster.registry.start()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"action": "explode", "topic": "t"}, "action: "),
        ({"action": "pause"}, "topic: Field required"),
        ({"action": "pause", "topic": "*"}, "topic: "),
        ({"action": "pause", "topic": "t" * 65}, "topic: "),
        ({"action": "pause", "topic": "t", "channel": "a b"}, "channel: "),
        ([], ""),
        ("pause", ""),
    ],
)
def test_malformed_requests_name_the_field(go_cluster, operator, body, complaint):
    """Nothing is sent to any node."""
    response = operator.request("POST", "actions", body)
    assert response.status_code == 422
    assert complaint in response.json()["message"]
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


def test_a_body_that_is_no_json_is_refused(go_cluster, operator):
    """With the error format of the API."""
    response = operator.client.generic(
        "POST",
        "/api/v1/actions",
        data=b"{",
        content_type="application/json",
        headers={"X-CSRFToken": operator.csrf},
    )
    assert response.status_code in (400, 422)
    assert response.json()["message"]


def test_the_audit_trail_has_user_action_time_and_outcome(go_cluster, operator):
    """Newest first, in pages."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing")
    for action in ("pause", "unpause", "empty"):
        act(operator, action, "orders", "billing")
    first = operator.request("GET", "audit?limit=2").json()["entries"]
    assert [entry["action"] for entry in first] == ["empty", "unpause"]
    rest = operator.request("GET", f"audit?object=orders&limit=2&before={first[-1]['id']}").json()["entries"]
    assert [entry["action"] for entry in rest] == ["pause"]
    entry = rest[0]
    assert (entry["user"], entry["topic"], entry["channel"], entry["outcome"], entry["remote_address"]) == (
        "operator",
        "orders",
        "billing",
        "done",
        "127.0.0.1",
    )
    assert entry["results"] == [{"node": alpha.address, "target": "nsqd", "outcome": "done", "detail": ""}]
    assert entry["at"] > 1_700_000_000_000


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "before=x"])
def test_audit_pages_have_sensible_sizes(operator, query):
    """An invalid size is refused."""
    response = operator.request("GET", f"audit?{query}")
    assert response.status_code == 422
    assert query.split("=")[0] in response.json()["message"]


def test_a_topic_is_removed_from_one_node(go_cluster, operator):
    """Registries hide that node, it deletes the topic, the other node keeps it; the audit trail and the answer name
    each node."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    response = operator.request("POST", "tombstones", {"topic": "orders", "node": alpha.address})
    assert response.status_code == 200, response.content
    assert response.json()["outcome"] == "done"
    assert go_cluster.registry.tombstones == {("orders", alpha.address)}
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)
    assert operator.request("GET", "audit").json()["entries"][0]["action"] == "tombstone"
    stranger = operator.request("POST", "tombstones", {"topic": "orders", "node": "127.0.0.1:1"})
    assert stranger.status_code == 404


def rewind(browser: Any, since: str, channel: str = "billing") -> Any:
    return browser.request("POST", "rewinds", {"topic": "orders", "channel": channel, "since": since})


def test_gos_nodes_cannot_rewind_and_say_so(go_cluster, operator):
    """Each is named with the reason; nothing is changed, and the attempt is in the audit trail."""
    for node in go_cluster.nodes:
        node.topic("orders")
        node.channel("orders", "billing")
    outcomes = rewind(operator, "2026-01-01T00:00:00Z").json()
    assert outcomes["outcome"] == "failed"
    assert {each["detail"] for each in outcomes["results"]} == {
        "this nsqd cannot rewind (Go's keeps nothing that was finished)"
    }
    entry = operator.request("GET", "audit").json()["entries"][0]
    assert (entry["action"], entry["channel"], entry["outcome"]) == ("rewind", "billing", "failed")


def test_gos_nodes_cannot_count_what_a_rewind_redelivers(go_cluster, operator):
    """Each is named with the reason, and has no number."""
    for node in go_cluster.nodes:
        node.topic("orders")
        node.channel("orders", "billing")
    counted = operator.request("GET", "rewinds?topic=orders&channel=billing&since=2026-01-01T00:00:00Z").json()
    assert len(counted["nodes"]) == len(go_cluster.nodes)
    assert {(each["messages"], each["error"]) for each in counted["nodes"]} == {
        (None, "this nsqd cannot rewind (Go's keeps nothing that was finished)")
    }


@pytest.mark.parametrize(
    ("since", "reason"), [("2026-01-01T00:00:00", "zone"), ("9999-01-01T00:00:00Z", "past"), ("yesterday", "datetime")]
)
def test_a_time_to_rewind_to_is_past_and_has_its_zone(since, reason, go_cluster, operator):
    """Other times are refused by name, and no node is called."""
    response = rewind(operator, since)
    assert response.status_code == 422
    assert "since" in response.json()["message"]
    assert reason in response.json()["message"]
