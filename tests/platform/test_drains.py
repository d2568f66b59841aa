"""Drains of nodes, by the API: of a broker as a process, and of Go's nodes, which cannot drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from bench.ports import free_ports
from nsqcluster import Client
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.collector import directory
from nsqplatform.cluster.collector.directory import Directory
from nsqplatform.cluster.readings.node import Node
from tests.harness.daemon import Broker
from tests.harness.waiting import wait_until
from tests.platform.our_nsq import OurCluster

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


@pytest.fixture
def given(cluster, settings):
    """The cluster, with its brokers given by address."""
    settings.NSQD_HTTP_ADDRESSES = tuple(broker.http_address for broker in cluster.brokers)
    return cluster


def fill(cluster: OurCluster, count: int) -> Broker:
    """The first broker, with ``count`` messages that no consumer takes."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", count)
    cluster.wait_until_routed("orders")
    return cluster.brokers[0]


def drain(caller: Any, node: str, **parameters: Any) -> Any:
    return caller.request("POST", "drains", {"node": node} | parameters)


def cancel(caller: Any, node: str) -> Any:
    return caller.request("POST", "drains/cancel", {"node": node})


def result(node: str, outcome: str, detail: str) -> dict[str, Any]:
    return {
        "outcome": "done" if outcome == "done" else "failed",
        "results": [{"node": node, "target": "nsqd", "outcome": outcome, "detail": detail}],
    }


def test_an_operator_drains_a_node_and_cancels_it(given, operator, redis):
    """The answer has the number of messages that are left; each request is in the audit trail with its parameters."""
    broker = fill(given, 3)
    node = broker.http_address
    begun = drain(operator, node, timeout_s=300, takes_publishes=False)
    assert (begun.status_code, begun.json()) == (200, result(node, "done", "3 messages are left"))
    state = broker.get("/drain")["drain"]
    assert (state["takes_publishes"], state["messages"]) == (False, 3)
    assert 290 < state["ends_within"] <= 300
    assert drain(operator, node, timeout_s=0, takes_publishes=True).json()["outcome"] == "done"
    state = broker.get("/drain")["drain"]
    assert (state["takes_publishes"], state["ends_within"]) == (True, None)
    assert cancel(operator, node).json() == result(node, "done", "")
    assert broker.get("/drain")["drain"] is None
    assert cancel(operator, node).json() == result(node, "failed", "400 NOT_DRAINING")
    entries = operator.request("GET", f"audit?object={node}").json()["entries"]
    assert [(each["action"], each["subject"], each["detail"], each["outcome"]) for each in entries] == [
        ("cancel drain", node, "", "failed"),
        ("cancel drain", node, "", "done"),
        ("drain", node, "no timeout; takes publishes", "done"),
        ("drain", node, "timeout 300 s; refuses publishes", "done"),
    ]
    assert all(each["user"] == "operator" for each in entries)
    events = operator.request("GET", f"events?scope=node&node={node}").json()["events"]
    assert [each["kind"] for each in events] == ["drain_begun", "drain_begun", "drain_cancelled"]


def test_without_parameters_the_settings_of_the_node_apply(given, operator, redis):
    """Its --drain-timeout and --drain-publishes."""
    broker = fill(given, 1)
    assert drain(operator, broker.http_address).json() == result(broker.http_address, "done", "1 message is left")
    state = broker.get("/drain")["drain"]
    assert 590 < state["ends_within"] <= 600
    assert state["takes_publishes"] is False


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"timeout_s": -1}, "timeout_s", "greater than or equal to 0"),
        ({"timeout_s": 1e9}, "timeout_s", "less than or equal to 2592000"),
        ({"timeout_s": "soon"}, "timeout_s", "valid integer"),
        ({"takes_publishes": "perhaps"}, "takes_publishes", "valid boolean"),
        ({"timeout": 5}, "timeout", "not permitted"),
        ({"node": None}, "node", "valid string"),
    ],
)
def test_a_wrong_parameter_is_named_and_nothing_is_drained(body, field, text, given, operator, redis):
    """Also one with an unknown name: a drain without its timeout would be another one."""
    node = given.brokers[0].http_address
    refused = operator.request("POST", "drains", {"node": node} | body)
    assert refused.status_code == 422, refused.content
    (fault,) = refused.json()["field_errors"]
    assert fault["field"] == field
    assert text in fault["message"]
    assert given.brokers[0].get("/drain")["drain"] is None
    assert not AuditEntry.objects.filter(action="drain").exists()


def test_a_go_node_cannot_drain_and_says_so(go_cluster, settings, operator):
    """Nothing is changed, and the attempt is in the audit trail."""
    node = go_cluster.nodes[0].address
    settings.NSQD_HTTP_ADDRESSES = (node,)
    for ask, action in ((drain, "drain"), (cancel, "cancel drain")):
        assert ask(operator, node).json() == result(node, "failed", "a Go node cannot drain")
        assert AuditEntry.objects.get(action=action).outcome == "failed"


def test_a_node_outside_the_cluster_is_not_called(given, operator, redis):
    """The platform sends no requests to addresses that a browser chooses."""
    for ask in (drain, cancel):
        unknown = ask(operator, "127.0.0.1:1")
        assert (unknown.status_code, unknown.json()["message"]) == (404, "there is no node 127.0.0.1:1")
    assert not AuditEntry.objects.filter(action__contains="drain").exists()


def test_a_node_that_does_not_answer_is_unreachable(given, operator, redis):
    """The reason is in its result."""
    broker = given.brokers[0]
    broker.stop()
    found = drain(operator, broker.http_address).json()
    assert found == result(broker.http_address, "unreachable", "connection refused")


@pytest.mark.parametrize("by", ["viewer", "limited"])
def test_who_may_not_act_on_all_topics_drains_no_node(by, callers, locked_api, given, redis):
    """A viewer, and an operator of some topics: a node has topics of all names. The refusal is in the audit trail."""
    node, who = given.brokers[0].http_address, callers(by).headers
    for path in ("drains", "drains/cancel"):
        refused = locked_api.post(f"/api/v1/{path}", {"node": node}, **who)
        assert refused.status_code == 403, refused.text
    assert given.brokers[0].get("/drain")["drain"] is None
    subjects = AuditEntry.objects.filter(outcome="refused", user=by).values_list("subject", flat=True)
    assert sorted(subjects) == ["POST /api/v1/drains", "POST /api/v1/drains/cancel"]


@pytest.fixture
def strict(tmp_path: Path, settings: Any, nsqadmin_settings: Callable[..., None]) -> Iterator[Broker]:
    """A broker that accepts HTTPS only, whose authority the platform trusts."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(ca))
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    certificate.private_key_pem.write_to_path(str(key))
    nsqadmin_settings(http_client_tls_root_ca_file=str(ca))
    [https] = free_ports(1)
    node = Broker(
        tmp_path,
        *(f"--https-address=127.0.0.1:{https}", "--tls-required", f"--tls-cert={cert}", f"--tls-key={key}"),
        "--broadcast-address=127.0.0.1",
    ).launch()
    settings.NSQLOOKUPD_HTTP_ADDRESSES, settings.NSQD_HTTP_ADDRESSES = (), (node.http_address,)
    yield node
    node.stop()


def test_a_node_that_requires_https_is_drained(strict, operator, redis):
    """It is empty, so its process ends, with status 0."""
    answer = drain(operator, strict.http_address).json()
    assert answer == result(strict.http_address, "done", "0 messages are left")
    assert strict.wait_for_exit() == 0


# ---- the snapshot


def row(snapshot: Any, node: str) -> Any:
    return next((each for each in (snapshot() or {"nodes": ()})["nodes"] if each["id"] == node), None)


def test_the_row_of_a_node_shows_its_drain_until_it_is_cancelled(cluster, operator, collect, snapshot, redis):
    """With the messages that are left and its end. The registries no longer list the node."""
    broker = fill(cluster, 3)
    node = broker.http_address
    collect()
    before = wait_until(lambda: row(snapshot, node), "the node in the snapshot")
    assert before["drain"] is None
    assert drain(operator, node, timeout_s=300).json()["outcome"] == "done"
    seen = wait_until(lambda: row(snapshot, node)["drain"], "the drain in the snapshot")
    taken_at = snapshot()["taken_at"]
    assert {name: seen[name] for name in ("takes_publishes", "messages")} == {"takes_publishes": False, "messages": 3}
    assert abs(seen["since"] - taken_at) < 30_000
    assert 0 < seen["ends_at"] - seen["since"] < 310_000
    assert node not in str(cluster.registry.get("/nodes"))
    assert drain(operator, node, timeout_s=0).json()["outcome"] == "done"
    wait_until(lambda: row(snapshot, node)["drain"]["ends_at"] is None, "a drain without an end")
    assert cancel(operator, node).json()["outcome"] == "done"
    wait_until(lambda: row(snapshot, node)["drain"] is None, "the node no longer drains")


def test_a_node_that_ended_after_its_drain_is_down(cluster, operator, collect, snapshot, redis):
    """As any node that has ended, with the figures of its last answer."""
    broker = fill(cluster, 2)
    node = broker.http_address
    collect()
    wait_until(lambda: row(snapshot, node), "the node in the snapshot")
    assert drain(operator, node, timeout_s=1).json()["outcome"] == "done"
    assert broker.wait_for_exit() == 0
    down = wait_until(lambda: (found := row(snapshot, node))["state"] == "down" and found, "the node down")
    assert (down["error"], down["depth"], down["drain"]) == ("connection refused", 2, None)


async def refresh(found: Directory, now: float) -> None:
    async with Client() as client:
        await found.refresh(client, now=now)


def test_a_node_that_drains_is_not_forgotten_although_no_registry_lists_it():
    """A drain can take longer than the five minutes after which other nodes are forgotten."""
    found = Directory(lookupd=(), nsqd=())
    found.remember([Node(id="a:1", address="a:1"), Node(id="b:1", address="b:1")], now=0.0)
    for now in (0.0, directory.FORGET_AFTER_S):
        found.keep(["a:1", "unknown:1"], now=now)
    asyncio.run(refresh(found, directory.FORGET_AFTER_S + 1))
    assert [node.id for node in found.nodes] == ["a:1"]
