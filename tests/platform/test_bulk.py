"""One action on many topics and channels, and a search over all clients."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    assert signed_in.sign_in("operator").status_code == 200
    return signed_in


def bulk(browser: Any, action: str, *targets: str) -> Any:
    """``targets`` are written ``topic`` or ``topic/channel``."""
    split = [target.split("/") for target in targets]
    body = [{"topic": names[0]} | ({"channel": names[1]} if len(names) > 1 else {}) for names in split]
    return browser.request("POST", "actions/bulk", {"action": action, "targets": body})


def test_each_target_has_its_own_outcome_and_audit_entry(go_cluster, operator):
    """A failed or missing target does not stop the others; the answers are in the requested order."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    beta.channel("orders", "billing", depth=7)
    alpha.channel("orders", "archive", depth=3)
    beta.status["/channel/empty"] = (500, "INTERNAL_ERROR")
    response = bulk(operator, "empty", "orders/archive", "orders/nowhere", "orders/billing")
    assert response.status_code == 200, response.content
    outcomes = response.json()["outcomes"]
    assert [(each["channel"], each["outcome"]) for each in outcomes] == [
        ("archive", "partial"),
        ("nowhere", "failed"),
        ("billing", "partial"),
    ]
    assert {each["outcome"] for each in outcomes[1]["results"]} == {"absent", "failed"}
    assert {each["node"]: each["outcome"] for each in outcomes[2]["results"]} == {
        alpha.address: "done",
        beta.address: "failed",
    }
    assert (alpha.channel("orders", "billing")["depth"], alpha.channel("orders", "archive")["depth"]) == (0, 0)
    entries = operator.request("GET", "audit").json()["entries"]
    assert {"archive", "billing"} <= {entry["channel"] for entry in entries}
    assert {entry["user"] for entry in entries} == {"operator"}


def test_a_missing_target_has_its_own_outcome(go_cluster, operator):
    """With the reason, and without an audit entry, like a single action."""
    go_cluster.nodes[0].topic("orders")
    there, gone = bulk(operator, "pause", "orders", "orderz").json()["outcomes"]
    assert (there["outcome"], gone["outcome"]) == ("done", "failed")
    assert "orderz" in gone["message"]
    assert gone["results"] == []
    assert [entry["topic"] for entry in operator.request("GET", "audit?object=order").json()["entries"]] == ["orders"]


def test_a_viewer_changes_nothing(go_cluster, browser, account):
    """None of the targets is changed."""
    account("viewer")
    viewer = browser()
    viewer.sign_in("viewer")
    go_cluster.nodes[0].topic("orders")
    assert bulk(viewer, "pause", "orders").status_code == 403
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"action": "create", "targets": [{"topic": "t"}]}, "action: "),
        ({"action": "pause", "targets": []}, "targets: "),
        ({"action": "pause", "targets": [{"topic": "t"}] * 51}, "targets: "),
        ({"action": "pause", "targets": [{"topic": "*"}]}, "targets.0.topic: "),
    ],
)
def test_malformed_requests_name_the_field(go_cluster, operator, body, complaint):
    """Nothing is sent to any node."""
    response = operator.request("POST", "actions/bulk", body)
    assert response.status_code == 422
    assert complaint in response.json()["message"]
    assert all(upstream.posts == [] for upstream in go_cluster.everything)
