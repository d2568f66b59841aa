"""Mirrored pairs on the platform: their rows in the snapshot, and hand-overs by the API."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts.models import Rule
from nsqplatform.alerts.readings import MetricReader
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.pairs import superseded
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqplatform.cluster.readings.stats import PolledStats
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Table
from tests.harness.etcd import EtcdServer
from tests.harness.pair import Member, Pair
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LONG_LEASE = "60s"
"""A lease that does not end within a test, however slow the machine is."""
NO_FOLLOWER = "no follower is in sync, so no other member may lead"


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    yield server
    server.stop()


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer, cluster: Any) -> Iterator[Pair]:
    """A pair in sync, registered with the cluster's registry, and two messages on a channel without consumers."""
    directory = tmp_path_factory.mktemp("pair")
    found = Pair(directory, etcd_server, f"--lookupd-tcp-address={cluster.registry.tcp_address}", lease=LONG_LEASE)
    for member in found.members:
        member.command.append(f"--broadcast-address={member.host}")
    try:
        found.start()
        primary = found.wait_for_primary()
        primary.post("/topic/create", topic="paired")
        primary.post("/channel/create", topic="paired", channel="all")
        for _ in range(2):
            primary.post("/pub", b"x", topic="paired")
        yield found
    finally:
        found.close()


@pytest.fixture
def operator(browser: Any, account: Any) -> Any:
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


def hand_over(caller: Any, node: str) -> Any:
    return caller.request("POST", "hand-overs", {"node": node})


def result(node: str, outcome: str, detail: str) -> dict[str, Any]:
    return {
        "outcome": "done" if outcome == "done" else "failed",
        "results": [{"node": node, "target": "nsqd", "outcome": outcome, "detail": detail}],
    }


def rows_of(snapshot: Any, pair: Pair) -> dict[str, Any]:
    """The rows of the pair's members, by id."""
    own = {member.http_address for member in pair.members}
    return {each["id"]: each for each in (snapshot() or {"nodes": ()})["nodes"] if each["id"] in own}


def depth_of(snapshot: Any) -> int | None:
    return next((int(each["depth"]) for each in snapshot()["channels"] if each["topic"] == "paired"), None)


def is_alone(member: Member) -> bool:
    return bool(member.stats(include_histograms="true")["mirror"]["under_replicated"])


def test_an_operator_hands_a_pair_over(pair, operator, collect, snapshot, redis):
    """The row shows who leads; afterwards the other member's node represents the pair, and nothing counts twice."""
    primary = pair.wait_for_primary()
    other, node = pair.other(primary), primary.http_address
    figures = pair.wait_until_in_sync()
    (to,) = set(figures["in_sync"]) - {figures["member"]}
    collect()
    before = wait_until(lambda: rows_of(snapshot, pair).get(node), "the pair in the snapshot")["mirror"]
    wait_until(lambda: rows_of(snapshot, pair)[node]["mirror"]["in_sync"] == figures["in_sync"], "the follower's state")
    assert {name: before[name] for name in ("pair", "member", "epoch")} == {
        "pair": figures["pair"],
        "member": figures["member"],
        "epoch": 1,
    }
    assert before["since"] == figures["since"] * 1000

    answer = hand_over(operator, node)
    assert (answer.status_code, answer.json()) == (200, result(node, "done", f"member {to} leads term 2"))
    wait_until(lambda: [*rows_of(snapshot, pair)] == [other.http_address], "only the other member's node")
    after = rows_of(snapshot, pair)[other.http_address]["mirror"]
    assert (after["pair"], after["member"], after["epoch"]) == (before["pair"], to, 2)
    wait_until(lambda: depth_of(snapshot) == 2, "the messages, once")
    (entry,) = operator.request("GET", f"audit?object={node}").json()["entries"]
    assert (entry["action"], entry["subject"], entry["outcome"]) == ("hand over", node, "done")
    (event,) = [each for each in operator.request("GET", "events").json()["events"] if each["kind"] == "handed_over"]
    assert (event["detail"], event["by"]) == (node, "operator")


def test_a_pair_without_a_follower_is_under_replicated_and_is_not_handed_over(pair, operator, collect, snapshot, redis):
    """The row and the alert metric show it; the API fails with the reason, and the member still leads."""
    primary = pair.wait_for_primary()
    node = primary.http_address
    collect()
    wait_until(lambda: rows_of(snapshot, pair).get(node), "the pair in the snapshot")
    pair.other(primary).end(signal.SIGKILL)
    wait_until(lambda: is_alone(primary), "the primary is alone")
    assert hand_over(operator, node).json() == result(node, "failed", NO_FOLLOWER)
    assert AuditEntry.objects.get(action="hand over").outcome == "failed"
    row = wait_until(
        lambda: (found := rows_of(snapshot, pair)[node])["mirror"]["under_replicated"] and found,
        "the row is under-replicated",
    )
    assert (row["state"], row["health"], row["mirror"]["epoch"]) == ("up", "OK", 1)
    assert row["mirror"]["in_sync"] == [row["mirror"]["member"]]


@pytest.mark.parametrize("by", ["viewer", "limited"])
def test_who_may_not_act_on_all_topics_hands_no_pair_over(by, callers, locked_api, cluster, redis):
    """A viewer, and an operator of some topics: a node has topics of all names. The refusal is in the audit trail."""
    node = cluster.brokers[0].http_address
    refused = locked_api.post("/api/v1/hand-overs", {"node": node}, **callers(by).headers)
    assert refused.status_code == 403, refused.text
    subjects = AuditEntry.objects.filter(outcome="refused", user=by).values_list("subject", flat=True)
    assert [*subjects] == ["POST /api/v1/hand-overs"]


def test_a_node_without_a_mirror_says_so(cluster, go_cluster, settings, operator, redis):
    """Ours and Go's."""
    ours, go = cluster.brokers[0].http_address, go_cluster.nodes[0].address
    settings.NSQD_HTTP_ADDRESSES = (ours, go)
    assert hand_over(operator, ours).json() == result(ours, "failed", "the node has no mirror")
    assert hand_over(operator, go).json() == result(go, "failed", "a Go node has no mirror")
    unknown = hand_over(operator, "127.0.0.1:1")
    assert (unknown.status_code, unknown.json()["message"]) == (404, "there is no node 127.0.0.1:1")


# ---- which node stands for a pair


def view(node: str, pair: str | None, epoch: int = 1, error: str | None = None) -> NodeView:
    """A node whose last reading was that of a pair."""
    mirror: dict[str, Any] | None = None
    if pair is not None:
        mirror = {"pair": pair, "member": "m", "epoch": epoch, "in_sync": ["m"], "under_replicated": True}
        mirror |= {"lag_bytes": 0, "lag_seconds": 0.0, "since": 0}
    body = {"version": "1.3.0", "topics": [], "mirror": mirror}
    stats = msgspec.convert(body, PolledStats)
    latest = Reading(stats, read_at=0.0, taken_at_s=0.0)
    return NodeView(node=Node(id=node, address=node), error=error, latest=latest)


@pytest.mark.parametrize(
    ("views", "hidden"),
    [
        ([view("a:1", None), view("b:1", None)], set()),
        ([view("a:1", "p"), view("b:1", "q")], set()),
        ([view("a:1", "p", error="connection refused")], set()),
        ([view("a:1", "p", 7, error="connection refused"), view("b:1", "p", 7)], {"a:1"}),
        ([view("a:1", "p", 2), view("b:1", "p", 1)], {"b:1"}),
        ([view("a:1", "p"), view("b:1", "p"), view("c:1", None)], {"a:1"}),
    ],
    ids=["no pairs", "two pairs", "down", "one is down", "terms", "both lead to the primary"],
)
def test_one_node_stands_for_a_pair(views: list[NodeView], hidden: set[str]) -> None:
    """It is up, or has the later term, or was listed last."""
    listed = {"a:1": 10.0, "b:1": 20.0}
    assert superseded(views, lambda node: listed.get(node, 0.0)) == hidden


# ---- the alert metric


@pytest.mark.parametrize(
    ("mirror", "value", "detail"),
    [
        (None, 0.0, ""),
        ({"under_replicated": False, "member": "a0"}, 0.0, "member a0 leads alone"),
        ({"under_replicated": True, "member": "a0"}, 1.0, "member a0 leads alone"),
    ],
)
def test_an_alert_rule_watches_for_pairs_that_are_under_replicated(mirror: Any, value: float, detail: str) -> None:
    row = {"id": "a:1", "state": "up", "error": None, "health": "OK", "publish_rate": 0.0, "mirror": mirror}
    nodes = Table("nodes", {name: [field] for name, field in row.items()})
    snapshot = Snapshot(1, 0, {"nodes": nodes, "topics": Table("topics", {}), "channels": Table("channels", {})})
    rule = Rule(pk=1, name="Pair", scope="node", metric="under_replicated", hold_s=0)
    reader = MetricReader(snapshot)
    assert reader.read(rule.watched, row).value == value
    assert reader.detail(rule.watched, row, 0.0) == detail
