"""Policies of a cluster, by the API: of two brokers, and of nodes of Go that have none."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from nsqplatform.accounts.models import AuditEntry
from tests.platform.go_nsq import GoNode
from tests.platform.our_nsq import OurCluster

pytestmark = pytest.mark.django_db(transaction=True)

FIVE = {"max_attempts": 5, "retry_delay": "1s..5m"}


@pytest.fixture
def cluster(cluster, settings):
    """With the brokers given by address, so that one that is down is still a node."""
    settings.NSQD_HTTP_ADDRESSES = tuple(broker.http_address for broker in cluster.brokers)
    return cluster


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


@pytest.fixture
def go_nodes(settings):
    """A node of Go, given beside the cluster's registry."""
    node = GoNode("alpha")
    settings.NSQD_HTTP_ADDRESSES = (*settings.NSQD_HTTP_ADDRESSES, node.address)
    yield [node.address]
    node.stop()


def set_policy(caller: Any, topic: str, policy: Any, **more: Any) -> Any:
    return caller.request("POST", "policies", {"topic_pattern": topic, "policy": policy} | more)


def delete_policy(caller: Any, topic: str, channel: str = "*") -> Any:
    return caller.request("DELETE", f"policies?{urlencode({'topic_pattern': topic, 'channel_pattern': channel})}")


def listed(caller: Any) -> Any:
    answer = caller.request("GET", "policies")
    assert answer.status_code == 200, answer.content
    return answer.json()


def ids(cluster: OurCluster) -> list[str]:
    return sorted(broker.http_address for broker in cluster.brokers)


def test_an_operator_sets_and_deletes_a_policy_on_all_nodes(cluster, operator, redis):
    """With the outcome of each node, and an entry in the audit trail for each change."""
    made = set_policy(operator, "orders.*", FIVE, channel_pattern="billing")
    assert made.status_code == 200, made.content
    assert made.json() == {
        "outcome": "done",
        "results": [{"node": node, "target": "nsqd", "outcome": "done", "detail": ""} for node in ids(cluster)],
    }
    assert listed(operator) == {
        "policies": [
            {
                "topic_pattern": "orders.*",
                "channel_pattern": "billing",
                "policy": FIVE,
                "drift": False,
                "nodes": [{"node": node, "policy": FIVE} for node in ids(cluster)],
            }
        ],
        "nodes": ids(cluster),
        "without_policies": [],
        "errors": [],
    }
    assert delete_policy(operator, "orders.*", "billing").json()["outcome"] == "done"
    assert listed(operator)["policies"] == []
    gone = delete_policy(operator, "orders.*", "billing")
    assert (gone.status_code, gone.json()["message"]) == (
        404,
        "no node of the cluster has a policy of topics orders.*, channels billing",
    )
    entries = AuditEntry.objects.filter(action__endswith="policy").order_by("id")
    assert [(each.action, each.subject, each.detail, each.outcome) for each in entries] == [
        ("set policy", "orders.* / billing", "max_attempts=5 retry_delay=1s..5m", "done"),
        ("delete policy", "orders.* / billing", "", "done"),
    ]
    assert [result["node"] for result in entries[0].results] == ids(cluster)


def test_nodes_that_differ_are_mended_by_one_of_them(cluster, operator, redis):
    """One policy, or all of them; what was changed is returned and audited."""
    first, second = sorted(cluster.brokers, key=lambda broker: broker.http_address)
    first.post("/policy", b'{"max_attempts":5}', pattern="orders.*")
    second.post("/policy", b'{"max_attempts":1}', pattern="orders.*")
    second.post("/policy", b'{"max_attempts":2}', pattern="old")
    first.post("/policy", b'{"max_attempts":3}', pattern="mail", channel="audit")
    assert {row["topic_pattern"]: row["drift"] for row in listed(operator)["policies"]} == {
        "mail": True,
        "old": True,
        "orders.*": True,
    }
    one = operator.request(
        "POST", "policies/mend", {"node": first.http_address, "topic_pattern": "mail", "channel_pattern": "audit"}
    )
    (mended,) = one.json()["policies"]
    assert (mended["topic_pattern"], mended["channel_pattern"], mended["outcome"]) == ("mail", "audit", "done")
    assert [result["node"] for result in mended["results"]] == [second.http_address]
    rest = operator.request("POST", "policies/mend", {"node": first.http_address}).json()["policies"]
    assert [each["topic_pattern"] for each in rest] == ["orders.*", "old"]
    assert {row["topic_pattern"]: (row["policy"], row["drift"]) for row in listed(operator)["policies"]} == {
        "mail": ({"max_attempts": 3}, False),
        "orders.*": ({"max_attempts": 5}, False),
    }
    entries = AuditEntry.objects.filter(action__endswith="policy").order_by("id")
    assert [(each.action, each.subject, each.detail) for each in entries] == [
        ("set policy", "mail / audit", f"as on {first.http_address}; max_attempts=3"),
        ("set policy", "orders.* / *", f"as on {first.http_address}; max_attempts=5"),
        ("delete policy", "old / *", f"as on {first.http_address}"),
    ]
    unknown = operator.request("POST", "policies/mend", {"node": "nowhere:1"})
    assert (unknown.status_code, "there is no node nowhere:1" in unknown.json()["message"]) == (404, True)


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"policy": {"max_attempts": -1}}, "policy.max_attempts", "must be a whole number from 0 to"),
        ({"policy": {"max_atempts": 1}}, "policy.max_atempts", "unknown key"),
        ({"policy": {}}, "policy", "a policy is a JSON object"),
        ({"policy": {"a": "x" * 20_000}}, "policy", "longer than 16,384 characters"),
        ({"policy": "five"}, "policy", "valid dictionary"),
        ({"topic_pattern": "a b"}, "topic_pattern", "a pattern has 1 to 64 of the characters"),
        ({"channel_pattern": "[x]"}, "channel_pattern", "a pattern has 1 to 64 of the characters"),
        ({"topic_pattern": ""}, "topic_pattern", "at least 1 character"),
    ],
)
def test_a_policy_that_is_refused_has_the_error_at_its_field(body, field, text, cluster, operator, redis):
    """The key that the nodes name; nothing is changed or audited."""
    refused = operator.request("POST", "policies", {"topic_pattern": "orders.*", "policy": FIVE} | body)
    assert refused.status_code == 422, refused.content
    (fault,) = refused.json()["field_errors"]
    assert fault["field"] == field
    assert text in fault["message"]
    assert listed(operator)["policies"] == []
    assert not AuditEntry.objects.filter(action__endswith="policy").exists()


def test_an_operator_of_some_topics_changes_the_policies_of_these_only(cluster, operator, browser, account, redis):
    """A pattern that also matches other topics is refused, and so is mending such a policy; a viewer only looks."""
    limited = account("operator", "limited")
    limited.topic_patterns = ["orders.*"]
    limited.save()
    account("viewer")
    caller, viewer = browser(), browser()
    caller.sign_in("limited")
    viewer.sign_in("viewer")
    for pattern, status in (("orders.*", 200), ("orders.eu.?", 200), ("*", 403), ("orders*", 403), ("mail", 403)):
        assert set_policy(caller, pattern, FIVE).status_code == status, pattern
    refused = set_policy(caller, "*", FIVE).json()["message"]
    assert refused == "you may act on topics orders.*, not on all of *"
    node = cluster.brokers[0]
    node.post("/policy", b'{"max_attempts":1}', pattern="mail")
    node.post("/policy", b'{"max_attempts":1}', pattern="orders.eu.?")
    assert delete_policy(caller, "mail").status_code == 403
    everything = {"node": node.http_address}
    assert caller.request("POST", "policies/mend", everything).status_code == 403
    mended = caller.request("POST", "policies/mend", everything | {"topic_pattern": "orders.eu.?"})
    assert mended.status_code == 200, mended.content
    assert {row["topic_pattern"]: row["drift"] for row in listed(viewer)["policies"]} == {
        "mail": True,
        "orders.*": False,
        "orders.eu.?": False,
    }
    assert set_policy(viewer, "orders.*", FIVE).status_code == 403
    assert delete_policy(viewer, "orders.*").status_code == 403
    assert viewer.request("POST", "policies/mend", everything).status_code == 403


def test_a_node_that_is_down_fails_and_the_other_is_changed(cluster, operator, redis):
    """The outcome is partial; the list names the node."""
    cluster.brokers[1].stop()
    down = cluster.brokers[1].http_address
    answer = set_policy(operator, "orders.*", FIVE).json()
    assert answer["outcome"] == "partial"
    assert {result["node"]: result["outcome"] for result in answer["results"]} == {
        cluster.brokers[0].http_address: "done",
        down: "unreachable",
    }
    found = listed(operator)
    assert [(each["node"], each["detail"]) for each in found["errors"]] == [(down, "connection refused")]
    assert [row["drift"] for row in found["policies"]] == [False]


def test_nodes_of_go_have_none(cluster, go_nodes, operator, redis):
    """They are named, and the others are changed."""
    answer = set_policy(operator, "orders.*", FIVE).json()
    assert answer["outcome"] == "done"
    absent = [result["detail"] for result in answer["results"] if result["outcome"] == "absent"]
    assert absent == ["this node has no policies (nsqd)"]
    found = listed(operator)
    assert (found["without_policies"], [row["drift"] for row in found["policies"]]) == (go_nodes, [False])


def test_a_cluster_of_go_cannot_have_any(go_cluster, operator, redis):
    """Setting one is refused, and the list says which nodes have none."""
    refused = set_policy(operator, "orders.*", FIVE)
    assert (refused.status_code, refused.json()["message"]) == (
        404,
        "no node of the cluster has policies: Go's nsqd has none",
    )
    assert len(listed(operator)["without_policies"]) == 2


def test_the_policy_that_applies_to_a_channel(cluster, operator, redis):
    """Of each node that has it; null if only the node's settings apply."""
    cluster.make_channel("orders.eu", "billing")
    first, second = sorted(cluster.brokers, key=lambda broker: broker.http_address)
    first.post("/policy", b'{"max_attempts":5}', pattern="orders.*")

    def applied(channel: str) -> Any:
        return operator.request("GET", f"policies/applied?topic=orders.eu&channel={channel}")

    assert applied("billing").json()["nodes"] == [
        {
            "node": first.http_address,
            "applied": {"topic_pattern": "orders.*", "channel_pattern": "*", "policy": {"max_attempts": 5}},
            "error": "",
        },
        {"node": second.http_address, "applied": None, "error": ""},
    ]
    assert applied("none").json() == {"nodes": []}
    assert operator.request("GET", "policies/applied?topic=nowhere&channel=c").status_code == 404
