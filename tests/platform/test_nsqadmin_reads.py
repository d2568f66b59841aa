"""nsqadmin's GET endpoints: keys, sums, and warnings about nodes and registries that do not answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zlib
from typing import Any

import pytest

from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC_KEYS = [
    *("node", "hostname", "topic_name", "depth", "memory_depth", "backend_depth", "message_count"),
    *("delivery_msg_count", "nodes", "channels", "paused", "e2e_processing_latency"),
]
CHANNEL_KEYS = [
    *("node", "hostname", "topic_name", "channel_name", "depth", "memory_depth", "backend_depth", "in_flight_count"),
    *("deferred_count", "requeue_count", "timeout_count", "message_count", "client_count", "nodes", "clients"),
    *("paused", "e2e_processing_latency"),
]
CLIENT = {
    "client_id": "worker",
    "hostname": "host-1",
    "version": "V2",
    "remote_address": "10.0.0.9:4000",
    "user_agent": "go-nsq/1.1",
    "connect_ts": 1_700_000_000,
    "ready_count": 25,
    "in_flight_count": 3,
    "message_count": 100,
    "finish_count": 90,
    "requeue_count": 7,
    "sample_rate": 0,
    "deflate": False,
    "snappy": True,
    "authed": False,
    "auth_identity": "",
    "auth_identity_url": "",
    "tls": True,
    "tls_version": "tls1.3",
    "tls_cipher_suite": "TLS_AES_128_GCM_SHA256",
    "tls_negotiated_protocol": "",
    "tls_negotiated_protocol_is_mutual": False,
}
CLIENT_KEYS = [
    *("node", "remote_address", "version", "client_id", "hostname", "user_agent", "connect_ts", "connected"),
    *("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate", "deflate"),
    *("snappy", "authed", "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite", "tls_version"),
    *("tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"),
]


@pytest.fixture(params=["registries", "nodes"])
def mode(request, go_cluster, settings) -> str:
    """Both ways of finding nodes."""
    if request.param == "nodes":
        settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
        settings.NSQD_HTTP_ADDRESSES = tuple(node.address for node in go_cluster.nodes)
    return request.param


def latency(count: int, **values: float) -> dict[str, Any]:
    """``p99=…``, ``p95=…`` in nanoseconds."""
    return {
        "count": count,
        "percentiles": [{"quantile": int(name[1:]) / 100, "value": value} for name, value in values.items()],
    }


# ---- topics


def test_topics_are_the_names_of_all(mode, go_cluster, api):
    """Of all nodes, sorted, each once; with nsqadmin's headers."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    beta.topic("audit")
    answer = api.get("/api/topics")
    assert answer.text == '{"topics":["audit","orders"],"message":""}'
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"


def test_no_topics_are_null(mode, go_cluster, api):
    assert api.get("/api/topics").text == '{"topics":null,"message":""}'


def test_inactive_topics_are_those_nobody_produces(go_cluster, api):
    """With their channels, or null; only the exact value of the parameter selects them."""
    go_cluster.nodes[0].topic("orders")
    go_cluster.registry.idle.update({"old": ["archive"], "older": []})
    assert api.get("/api/topics?inactive=true").json() == {"topics": {"old": ["archive"], "older": None}, "message": ""}
    assert api.get("/api/topics?inactive=1").json()["topics"] == ["old", "older", "orders"]


def test_without_registries_no_topic_is_inactive(go_cluster, api, settings):
    settings.NSQLOOKUPD_HTTP_ADDRESSES, settings.NSQD_HTTP_ADDRESSES = (), (go_cluster.nodes[0].address,)
    assert api.get("/api/topics?inactive=true").json() == {"topics": {}, "message": ""}


def test_a_topic_that_could_not_be_looked_up_is_not_called_inactive(go_cluster, api):
    """It may have producers; the warning has the error."""
    go_cluster.registry.idle["old"] = []
    go_cluster.registry.status["/lookup"] = (500, "INTERNAL_ERROR")
    answer = api.get("/api/topics?inactive=true").json()
    assert answer["topics"] == {}
    assert "got response 500 Internal Server Error" in answer["message"]


# ---- a topic


def test_a_topic_is_summed_over_its_nodes(mode, go_cluster, api):
    """Counts and depths are sums, a topic that is paused on any node is paused, and per-node objects are sorted by host
    name."""
    alpha, beta = go_cluster.nodes
    beta.topic("orders", depth=7, backend_depth=2, message_count=70, paused=True)
    alpha.topic("orders", depth=3, backend_depth=1, message_count=30)
    alpha.channel("orders", "billing", depth=4, backend_depth=1, message_count=30, client_count=1, clients=[CLIENT])
    beta.channel("orders", "billing", depth=6, message_count=60)
    beta.channel("orders", "archive", depth=1)
    answer = api.get("/api/topics/orders").json()
    assert list(answer) == [*TOPIC_KEYS, "message"]
    assert [answer[key] for key in ("node", "hostname", "topic_name", "paused")] == ["*", "", "orders", True]
    assert [answer[key] for key in ("depth", "memory_depth", "backend_depth", "message_count")] == [10, 7, 3, 100]
    assert [node["node"] for node in answer["nodes"]] == [alpha.address, beta.address]
    assert [(node["depth"], node["nodes"]) for node in answer["nodes"]] == [(3, None), (7, None)]
    channels = {channel["channel_name"]: channel for channel in answer["channels"]}
    assert list(channels["billing"]) == CHANNEL_KEYS
    assert [channels["billing"][key] for key in ("node", "depth", "memory_depth", "message_count")] == ["*", 10, 9, 90]
    assert [node["depth"] for node in channels["billing"]["nodes"]] == [4, 6]
    assert channels["billing"]["clients"] is None
    assert [channel["depth"] for channel in answer["nodes"][0]["channels"]] == [4], "of the node, not of the cluster"


def test_a_topic_that_only_registries_know_is_empty(go_cluster, api):
    """This is no failure: it has no messages."""
    go_cluster.registry.idle["old"] = ["archive"]
    answer = api.get("/api/topics/old")
    assert answer.status_code == 200
    assert (answer.json()["depth"], answer.json()["nodes"], answer.json()["message"]) == (0, None, "")


def test_an_unknown_topic_is_not_found(mode, go_cluster, api):
    for path in ("nowhere", "nowhere/billing", "%FF", "%ED%A0%80/billing", "nowhere/%C3%28"):
        answer = api.get(f"/api/topics/{path}")
        assert (answer.status_code, answer.text) == (404, '{"message":"TOPIC_NOT_FOUND"}')


def test_an_unknown_channel_is_not_found(mode, go_cluster, api):
    go_cluster.nodes[0].topic("orders")
    answer = api.get("/api/topics/orders/nowhere")
    assert (answer.status_code, answer.text) == (404, '{"message":"CHANNEL_NOT_FOUND"}')


def test_ephemeral_names_work_percent_encoded(mode, go_cluster, api):
    """The # of a name is %23."""
    go_cluster.nodes[0].channel("orders#ephemeral", "tail#ephemeral", depth=2)
    assert api.get("/api/topics/orders%23ephemeral").json()["topic_name"] == "orders#ephemeral"
    assert api.get("/api/topics/orders%23ephemeral/tail%23ephemeral").json()["depth"] == 2


# ---- a channel


def test_a_channel_is_summed_and_lists_its_clients(mode, go_cluster, api):
    """Every key of a client; null without clients, an empty list for a node without any."""
    alpha, beta = go_cluster.nodes
    alpha.described = {"topology_zone": "z1", "topology_region": "r1"}
    near = CLIENT | {"client_id": "near", "topology_zone": "z1", "topology_region": "r1"}
    alpha.channel("orders", "billing", depth=4, client_count=2, clients=[CLIENT, near], zone_local_msg_count=5)
    beta.channel("orders", "billing", depth=6, in_flight_count=2, requeue_count=3, timeout_count=1, deferred_count=8)
    before = time.time()
    answer = api.get("/api/topics/orders/billing").json()
    assert [
        answer[key] for key in ("depth", "in_flight_count", "requeue_count", "timeout_count", "deferred_count")
    ] == [*(10, 2, 3, 1, 8)]
    assert (answer["delivery_msg_count"], answer["zone_local_msg_count"], answer["client_count"]) == (5, 5, 2)
    assert "global_msg_count" not in answer
    first, second = answer["clients"]
    assert first["client_id"] == "near", "those of the node's zone come first"
    assert (first["node_topology_zone"], first["topology_region"]) == ("z1", "r1")
    assert [key for key in second if not key.startswith("node_topology")] == CLIENT_KEYS
    assert second["connected"] % 1_000_000_000 == 0
    assert second["connected"] / 1e9 == pytest.approx(before - CLIENT["connect_ts"], abs=60)
    assert [len(node["clients"]) for node in answer["nodes"]] == [2, 0]
    beta.channel("orders", "archive")
    alone = api.get("/api/topics/orders/archive").json()
    assert (alone["clients"], alone["nodes"][0]["clients"], "delivery_msg_count" in alone) == (None, [], False)


def test_percentiles_of_several_nodes_are_bounds_and_a_mean(mode, go_cluster, api):
    """The minimum and maximum over the nodes with samples; per node, the node's own values."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", e2e_processing_latency=latency(1, p99=10, p95=5))
    beta.channel("orders", "billing", e2e_processing_latency=latency(9, p99=100, p95=50))
    answer = api.get("/api/topics/orders/billing").json()
    assert answer["e2e_processing_latency"] == {
        "count": 10,
        "percentiles": [
            {"quantile": 0.99, "min": 10, "max": 100, "average": 91, "count": 10},
            {"quantile": 0.95, "min": 5, "max": 50, "average": 45.5, "count": 10},
        ],
        "topic": "orders",
        "channel": "billing",
        "host": "*",
    }
    assert answer["nodes"][0]["e2e_processing_latency"] == {
        "count": 1,
        "percentiles": [
            {"quantile": 0.99, "value": 10, "min": 10, "max": 10, "average": 10, "count": 1},
            {"quantile": 0.95, "value": 5, "min": 5, "max": 5, "average": 5, "count": 1},
        ],
        "topic": "",
        "channel": "",
        "host": "",
    }


def test_keys_of_percentiles_are_in_gos_order(mode, go_cluster, api):
    """They are sorted, as they are a map in nsqadmin: scripts that compare texts see no difference."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", e2e_processing_latency=latency(1, p99=10))
    beta.channel("orders", "billing", e2e_processing_latency=latency(9, p99=100.5))
    text = api.get("/api/topics/orders/billing").text
    assert '{"average":91.45,"count":10,"max":100.5,"min":10,"quantile":0.99}' in text
    assert '{"average":10,"count":1,"max":10,"min":10,"quantile":0.99,"value":10}' in text


def test_a_topics_answer_does_not_depend_on_the_registrys_order(go_cluster, api):
    """Channels are sorted by name; percentiles are in the order of the first node by host name."""
    alpha, beta = go_cluster.nodes
    beta.channel("orders", "archive", e2e_processing_latency=latency(1, p50=1))
    beta.channel("orders", "billing", e2e_processing_latency=latency(1, p50=1, p99=2))
    alpha.channel("orders", "shipping", e2e_processing_latency=latency(1, p50=1))
    alpha.channel("orders", "billing", e2e_processing_latency=latency(1, p99=2, p50=1))
    first = api.get("/api/topics/orders")
    assert [channel["channel_name"] for channel in first.json()["channels"]] == ["archive", "billing", "shipping"]
    go_cluster.registry.nodes.reverse()
    assert api.get("/api/topics/orders").text == first.text


def test_a_node_without_samples_does_not_lower_the_minimum(go_cluster, api):
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", e2e_processing_latency=latency(4, p99=100))
    beta.channel("orders", "billing", e2e_processing_latency=latency(0, p99=0))
    [percentile] = api.get("/api/topics/orders/billing").json()["e2e_processing_latency"]["percentiles"]
    assert percentile == {"quantile": 0.99, "min": 100, "max": 100, "average": 100, "count": 4}


def test_without_percentiles_there_are_null(mode, go_cluster, api):
    go_cluster.nodes[0].channel("orders", "billing")
    assert api.get("/api/topics/orders/billing").json()["e2e_processing_latency"]["percentiles"] is None


def test_missing_fields_of_a_node_have_their_default(mode, go_cluster, api):
    """No latencies, no lists: the answer does not fail."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    original = alpha.get

    def bare(path: str, query: dict[str, str]) -> Any:
        return {"topics": [{"topic_name": "orders"}]} if path == "/stats" else original(path, query)

    alpha.get = bare
    answer = api.get("/api/topics/orders").json()
    assert (answer["channels"], answer["e2e_processing_latency"]["count"], answer["message"]) == (None, 0, "")


# ---- nodes


def test_nodes_are_listed_by_registries(go_cluster, api):
    """Each with every registry's entry, its topics and tombstones, and whether it is out of date."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    alpha.topic("audit")
    go_cluster.registry.tombstones.add(("orders", alpha.address))
    beta.described = {"version": "1.2.1", "topology_zone": "z1"}
    first, second = api.get("/api/nodes").json()["nodes"]
    assert first == {
        "remote_addresses": [f"{go_cluster.registry.address}/127.0.0.1:50000"],
        "remote_address": "127.0.0.1:50000",
        "hostname": "alpha",
        "broadcast_address": "127.0.0.1",
        "tcp_port": alpha.port + 1,
        "http_port": alpha.port,
        "version": "1.3.0",
        "topics": [{"topic": "audit", "tombstoned": False}, {"topic": "orders", "tombstoned": True}],
        "out_of_date": False,
    }
    assert (second["version"], second["out_of_date"], second["topology_zone"], second["topics"]) == (
        *("1.2.1", True, "z1"),
        None,
    )


def test_a_node_that_two_registries_list_is_one(go_cluster, api, settings):
    """With two entries."""
    from tests.platform.go_nsq import GoRegistry

    second = GoRegistry([go_cluster.nodes[0]])
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (go_cluster.registry.address, second.address)
    nodes = api.get("/api/nodes").json()["nodes"]
    second.stop()
    assert [len(node["remote_addresses"]) for node in nodes] == [2, 1]


def test_a_registry_without_tombstones_is_no_failure(go_cluster, api):
    """Older registries send none."""
    go_cluster.nodes[0].topic("orders")
    original = go_cluster.registry.get

    def without(path: str, query: dict[str, str]) -> Any:
        answer = original(path, query)
        for producer in answer["producers"] if path == "/nodes" else []:
            del producer["tombstones"]
        return answer

    go_cluster.registry.get = without
    assert api.get("/api/nodes").json()["nodes"][0]["topics"] == [{"topic": "orders", "tombstoned": False}]


def test_nodes_that_were_given_know_no_registries(go_cluster, api, settings):
    """No entries, nothing out of date, in the configured order."""
    alpha, beta = go_cluster.nodes
    settings.NSQLOOKUPD_HTTP_ADDRESSES, settings.NSQD_HTTP_ADDRESSES = (), (beta.address, alpha.address)
    beta.described = {"version": "1.0.0"}
    nodes = api.get("/api/nodes").json()["nodes"]
    assert [(node["hostname"], node["remote_addresses"], node["out_of_date"]) for node in nodes] == [
        ("beta", None, False),
        ("alpha", None, False),
    ]


def test_a_node_shows_its_topics_with_channels_and_clients(mode, go_cluster, api):
    """With the sums of its topics."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders", message_count=12)
    alpha.channel("orders", "billing", clients=[CLIENT], client_count=1)
    alpha.topic("audit", message_count=5)
    answer = api.get(f"/api/nodes/{alpha.address}").json()
    assert list(answer) == ["node", "topics", "total_messages", "total_clients", "message"]
    assert (answer["node"], answer["total_messages"], answer["total_clients"]) == (alpha.address, 17, 1)
    assert [topic["topic_name"] for topic in answer["topics"]] == ["orders", "audit"]
    assert answer["topics"][0]["channels"][0]["clients"][0]["client_id"] == "worker"


def test_an_unknown_node_is_not_found(mode, go_cluster, api):
    answer = api.get("/api/nodes/10.0.0.1:4151")
    assert (answer.status_code, answer.text) == (404, '{"message":"NODE_NOT_FOUND"}')


# ---- the counter


def test_the_counter_has_each_channel_of_each_node(mode, go_cluster, api):
    """Topics without channels are not in it."""
    alpha, beta = go_cluster.nodes
    for node, count in ((alpha, 30), (beta, 12)):
        node.channel("orders", "billing", message_count=count)
        node.topic("empty")
    answer = api.get("/api/counter").json()
    assert answer["stats"] == {
        f"orders:billing:{node.address}": {
            "node": node.address,
            "topic_name": "orders",
            "channel_name": "billing",
            "message_count": count,
        }
        for node, count in ((alpha, 30), (beta, 12))
    }


def test_the_counters_keys_are_sorted(mode, go_cluster, api, collect, snapshot):
    """As Go writes a map, by the whole key; also if the snapshot is used."""
    alpha, beta = go_cluster.nodes
    for node in (beta, alpha):
        node.channel("orders", "billing")
        node.channel("orders", "archive")
        node.channel("orders-old", "billing")  # the dash sorts before the colon
    asked = api.get("/api/counter")
    assert list(asked.json()["stats"]) == sorted(asked.json()["stats"])
    assert len(asked.json()["stats"]) == 6
    collect()
    wait_until(lambda: len((snapshot() or {"channels": []})["channels"]) == 3, "the snapshot")
    asked_for: list[str] = []
    for node in (alpha, beta):
        original = node.get

        def get(path: str, query: dict[str, str], original: Any = original) -> Any:
            if "include_histograms" not in query:
                asked_for.append(path)
            return original(path, query)

        node.get = get

    def from_snapshot() -> bool:
        asked_for.clear()
        assert api.get("/api/counter").text == asked.text
        return not asked_for

    wait_until(from_snapshot, "an answer from the snapshot")


# ---- who does not answer


@pytest.mark.parametrize("path", ["/api/topics/orders", "/api/topics/orders/billing", "/api/nodes", "/api/counter"])
def test_a_dead_node_makes_a_warning(mode, go_cluster, api, path):
    """The answer from the others has status 200, and the message names the node."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=3)
    beta.channel("orders", "billing")
    dead = [alpha, beta][1]
    dead.stop()
    answer = api.get(path)
    dead.start()
    assert answer.status_code == 200
    if mode == "registries" and path == "/api/nodes":
        assert answer.json()["message"] == "", "registries alone are asked"
    else:
        assert answer.json()["message"].startswith(f'WARNING: Get "http://{dead.address}/')
        assert f"dial tcp {dead.address}: connect: connection refused" in answer.json()["message"]


def test_a_frozen_node_takes_the_request_timeout_and_makes_a_warning(mode, go_cluster, api, short_request_timeout):
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing")
    beta.channel("orders", "billing")
    beta.hold = threading.Event()
    answer = api.get("/api/counter")
    beta.hold.set()
    assert answer.status_code == 200
    assert list(answer.json()["stats"]) == [f"orders:billing:{alpha.address}"]
    assert "Client.Timeout exceeded while awaiting headers" in answer.json()["message"]


INVALID = [b"{", b"[]", b'{"topics":[{"depth":1}]}', b'{"topics":7}', b'{"topics":[],"health":"\xe9"}', b""]


@pytest.mark.parametrize("nonsense", INVALID)
def test_a_node_with_an_invalid_answer_makes_a_warning(mode, go_cluster, api, nonsense):
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing")
    beta.channel("orders", "billing")
    original = beta.get
    beta.get = lambda path, query: nonsense if path == "/stats" else original(path, query)
    answer = api.get("/api/counter")
    assert answer.status_code == 200
    assert beta.address in answer.json()["message"]


def test_a_node_that_refuses_is_quoted(go_cluster, api):
    """Status line and body, as a quoted string."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing")
    beta.channel("orders", "billing")
    beta.status["/stats"] = (500, "INTERNAL_ERROR")
    message = api.get("/api/counter").json()["message"]
    assert message == 'WARNING: got response 500 Internal Server Error "{\\"message\\": \\"INTERNAL_ERROR\\"}"'


def test_a_registry_that_does_not_know_a_topic_makes_a_warning(go_cluster, api, settings):
    from tests.platform.go_nsq import GoRegistry

    other = GoRegistry([])
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (go_cluster.registry.address, other.address)
    go_cluster.nodes[0].topic("orders", depth=2)
    answer = api.get("/api/topics/orders").json()
    other.stop()
    assert answer["depth"] == 2
    assert "got response 404 Not Found" in answer["message"]


def test_failures_of_two_steps_are_both_reported(go_cluster, api, settings):
    """A registry's failure, then a node's."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (go_cluster.registry.address, "127.0.0.1:1")
    beta.stop()
    message = api.get("/api/topics/orders").json()["message"]
    beta.start()
    first, second = message.removeprefix("WARNING: ").split("; ")
    assert "127.0.0.1:1/lookup?topic=orders" in first
    assert beta.address in second


@pytest.mark.parametrize(
    "path", ["/api/topics", "/api/topics/orders", "/api/topics/orders/billing", "/api/nodes", "/api/counter"]
)
def test_without_any_upstream_the_answer_is_502(mode, go_cluster, api, path):
    for upstream in go_cluster.everything:
        upstream.stop()
    answer = api.get(path)
    for upstream in go_cluster.everything:
        upstream.start()
    assert answer.status_code == 502
    kind = "nsqlookupd" if mode == "registries" else "nsqd"
    assert answer.json()["message"].startswith(f"UPSTREAM_ERROR: failed to query any {kind}: Get ")


def test_a_dead_node_in_a_registrys_list_has_no_page(go_cluster, api, settings):
    """Listed by a registry, its stats fail: 502. If it is only in the settings, it is not found: 404."""
    dead = go_cluster.nodes[1]
    dead.stop()
    listed = api.get(f"/api/nodes/{dead.address}")
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = tuple(node.address for node in go_cluster.nodes)
    given = api.get(f"/api/nodes/{dead.address}")
    dead.start()
    assert listed.status_code == 502
    assert listed.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqd: ")
    assert (given.status_code, given.text) == (404, '{"message":"NODE_NOT_FOUND"}')


def test_a_cluster_without_nodes_counts_nothing(go_cluster, api):
    """This is no failure."""
    go_cluster.registry.nodes = []
    assert api.get("/api/counter").json() == {"stats": {}, "message": ""}
    assert api.get("/api/nodes").json() == {"nodes": None, "message": ""}


# ---- the conversation


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("PUT", "/api/topics", 405, "GET, OPTIONS, POST"),
        ("HEAD", "/api/topics", 405, "GET, OPTIONS, POST"),
        ("POST", "/api/nodes", 405, "GET, OPTIONS"),
        ("PATCH", "/api/topics/a/b", 405, "DELETE, GET, OPTIONS, POST"),
        ("POST", "/config/log_level", 405, "GET, OPTIONS, PUT"),
        ("OPTIONS", "/api/nodes/n", 200, "DELETE, GET, OPTIONS"),
    ],
)
def test_other_methods_are_refused_with_what_is_allowed(go_cluster, api, method, path, status, allow):
    answer = api.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (status, allow)
    if method not in ("HEAD", "OPTIONS"):
        assert answer.text == '{"message":"METHOD_NOT_ALLOWED"}'


@pytest.mark.parametrize("path", ["/", "/topics", "/nodes", "/counter"])
def test_pages_are_asked_for_by_get_and_head(api, path):
    """Other methods are refused; a request that changes something needs the CSRF token even for this refusal."""
    assert api.request("HEAD", path).status_code == api.get(path).status_code == 302
    options = api.request("OPTIONS", path)
    assert (options.status_code, options.headers["Allow"]) == (405, "GET, HEAD")
    refused = api.post(path, "x")
    assert (refused.status_code, refused.json()) == (403, {"message": "CSRF cookie not set"})


def test_a_publish_to_the_wrong_port_gets_an_error_in_json(api):
    """As for every path that the platform does not have."""
    answer = api.post("/pub?topic=orders", "x")
    assert (answer.status_code, answer.text) == (404, '{"message":"NOT_FOUND"}')


@pytest.mark.parametrize("query", ["inactive=%zz", "inactive=true;x", "%z=1"])
def test_a_query_that_cannot_be_read_is_invalid(go_cluster, api, query):
    """With nsqd's error code, where parameters are read."""
    answer = api.get(f"/api/topics?{query}")
    assert (answer.status_code, answer.json()) == (400, {"message": "INVALID_REQUEST"})
    assert api.get(f"/api/nodes?{query}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "location"),
    [
        ("GET", "/API/topics", 301, "/api/topics"),
        ("GET", "/api/topics/", 301, "/api/topics"),
        ("GET", "/api/topics/orders/billing/", 301, "/api/topics/orders/billing"),
        ("GET", "/Api/Topics/Orders/Billing?x=1", 301, "/api/topics/Orders/Billing?x=1"),
        ("POST", "/api/topics/", 307, "/api/topics"),
    ],
)
def test_nearly_right_paths_are_redirected(api, method, path, status, location):
    answer = api.request(method, path)
    assert (answer.status_code, answer.headers["Location"]) == (status, location)


def test_the_base_path_itself_is_the_first_page(api, nsqadmin_settings):
    """With and without a slash at its end; callers without a session are sent to the sign-in page."""
    nsqadmin_settings(base_path="/nsq")
    for path in ("/nsq", "/nsq/"):
        answer = api.get(path, Accept="text/html")
        assert answer.status_code == 302
        assert answer.headers["Location"].endswith("/signin?next=/nsq/")
    assert api.get("/nsqx", Accept="text/html").status_code == 404


@pytest.mark.parametrize("path", ["/api", "/api/x", "/config", "/nowhere", "/api/topics/a/b/c"])
def test_unknown_paths_are_not_found(api, path):
    answer = api.get(path)
    assert (answer.status_code, answer.text) == (404, '{"message":"NOT_FOUND"}')


def test_ping_is_ok_whatever_the_cluster_does(go_cluster, api):
    go_cluster.registry.stop()
    answer = api.get("/ping")
    go_cluster.registry.start()
    assert (answer.status_code, answer.text) == (200, "OK")
    assert answer.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("wanted", ["gzip", "deflate", "br, gzip;q=0.1, deflate"])
def test_answers_are_packed_as_asked(go_cluster, api, wanted):
    """gzip, or raw deflate; the first one that is named."""
    go_cluster.nodes[0].topic("orders")
    assert api.get("/api/topics", Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ping",
        "raw_path": b"/ping",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept-encoding", wanted.encode())],
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(api.application(scope, receive, send))
    body = sent[1]["body"]
    encoding = dict(sent[0]["headers"])[b"Content-Encoding"]
    assert (gzip.decompress(body) if encoding == b"gzip" else zlib.decompress(body, -15)) == b"OK"


def test_strings_are_escaped_as_go_escapes_them(go_cluster, api):
    """No name can end a script element."""
    go_cluster.nodes[0].channel("orders", "billing", clients=[CLIENT | {"user_agent": "<script>&"}])
    answer = api.get("/api/topics/orders/billing")
    assert "\\u003cscript\\u003e\\u0026" in answer.text
    assert json.loads(answer.text)["clients"][0]["user_agent"] == "<script>&"


# ---- from the collector's snapshot


def test_topics_and_counter_come_from_the_snapshot_while_it_is_fresh(mode, go_cluster, api, collect, snapshot):
    """The nodes are not called again, and the answer is the same."""
    alpha, beta = go_cluster.nodes
    for node in (alpha, beta):
        node.channel("orders", "billing", message_count=5)
    asked = {"topics": api.get("/api/topics").text, "counter": api.get("/api/counter").json()}
    collecting = collect()
    wait_until(lambda: len((snapshot() or {"channels": []})["channels"]) == 1, "the snapshot")
    seen: list[str] = []
    for upstream in go_cluster.everything:
        original = upstream.get

        def get(path: str, query: dict[str, str], original: Any = original) -> Any:
            if "include_histograms" not in query:
                seen.append(path)
            return original(path, query)

        upstream.get = get

    def without_asking() -> bool:
        seen.clear()
        answers = api.get("/api/topics").text, api.get("/api/counter").json()
        assert answers == (asked["topics"], asked["counter"])
        return seen == []

    wait_until(without_asking, "an answer without asking")
    collecting.stop()
    wait_until(lambda: not without_asking(), "the cluster asked again, because the snapshot is old")


def test_a_new_topic_is_listed_at_once(go_cluster, api, collect, snapshot):
    """A script that creates a topic and lists the topics finds it, even if the snapshot is older."""
    go_cluster.nodes[0].topic("orders")
    collect()
    wait_until(lambda: len((snapshot() or {"topics": []})["topics"]) == 1, "the snapshot")
    assert api.get("/api/topics").json()["topics"] == ["orders"]
    assert api.post("/api/topics", {"topic": "fresh"}).status_code == 200
    assert api.get("/api/topics").json()["topics"] == ["fresh", "orders"]


def test_the_snapshot_does_not_hide_servers_that_do_not_answer(go_cluster, api, collect, snapshot):
    """With a node down the cluster is called, so that the warning is there."""
    go_cluster.nodes[0].channel("orders", "billing")
    collect()
    wait_until(lambda: len((snapshot() or {"nodes": []})["nodes"]) == 2, "the snapshot")
    go_cluster.nodes[1].stop()
    wait_until(lambda: "connection refused" in api.get("/api/counter").json()["message"], "the warning")
    go_cluster.nodes[1].start()


def test_the_snapshot_does_not_hide_the_topics_of_a_node_that_has_not_answered_yet(go_cluster, api, collect, snapshot):
    """The collector has just started, and a node hangs: the registries are called, and name its topics."""
    alpha, beta = go_cluster.nodes
    alpha.topic("slow")
    beta.topic("quick")
    alpha.hold = threading.Event()
    collect()
    wait_until(lambda: len((snapshot() or {"topics": []})["topics"]) == 1, "beta's topic in the snapshot")

    def is_down() -> bool:
        assert api.get("/api/topics").json()["topics"] == ["quick", "slow"]
        return any(node["state"] == "down" for node in snapshot()["nodes"])

    wait_until(is_down, "alpha down")
    alpha.hold.set()
    wait_until(lambda: len(snapshot()["topics"]) == 2, "alpha's topic in the snapshot")
