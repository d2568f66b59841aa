"""nsqadmin's actions: what is called, what is answered, who is told; and who may."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def given_nodes(go_cluster, settings) -> Any:
    """The cluster without its registry: mode D."""
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = tuple(node.address for node in go_cluster.nodes)
    return go_cluster


def refused(answer: Any, status: int, message: str) -> None:
    assert (answer.status_code, answer.json()) == (status, {"message": message})


# ---- what is done


def test_creating_a_topic_tells_the_registries_alone(go_cluster, api):
    answer = api.post("/api/topics", {"topic": "orders"})
    assert answer.status_code == 200
    assert answer.json()["message"] == ""
    assert go_cluster.registry.posts == [("/topic/create", {"topic": "orders"})]
    assert all(node.posts == [] for node in go_cluster.nodes)


def test_creating_a_channel_makes_it_on_registries_and_producers(go_cluster, api):
    """Keys may be in any case, and what follows the first value is not looked at."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    assert api.post("/api/topics", '{"Topic":"orders","CHANNEL":"billing","x":1} rest').json()["message"] == ""
    assert [path for path, _ in go_cluster.registry.posts] == ["/topic/create", "/channel/create"]
    assert all(node.posts == [("/channel/create", {"topic": "orders", "channel": "billing"})] for node in (alpha, beta))


def test_without_registries_a_topic_is_made_on_the_nodes(given_nodes, api):
    """Where nsqadmin would quietly do nothing."""
    assert api.post("/api/topics", {"topic": "orders", "channel": ""}).json()["message"] == ""
    assert all("orders" in node.topics for node in given_nodes.nodes)


@pytest.mark.parametrize("action", ["pause", "unpause", "empty"])
@pytest.mark.parametrize("channel", ["", "/billing"])
def test_pausing_and_emptying_go_to_every_producer(go_cluster, api, action, channel):
    for node in go_cluster.nodes:
        node.channel("orders", "billing", depth=5)
    answer = api.post(f"/api/topics/orders{channel}", {"action": action})
    assert answer.json()["message"] == ""
    kind, query = ("channel", {"topic": "orders", "channel": "billing"}) if channel else ("topic", {"topic": "orders"})
    assert all(node.posts == [(f"/{kind}/{action}", query)] for node in go_cluster.nodes)
    assert [each["outcome"] for each in answer.json()["results"]] == ["done", "done"]


@pytest.mark.parametrize("channel", ["", "/billing%23ephemeral"])
def test_deleting_goes_to_registries_and_producers(go_cluster, api, channel):
    for node in go_cluster.nodes:
        node.channel("orders", "billing#ephemeral")
    assert api.delete(f"/api/topics/orders{channel}").json()["message"] == ""
    path = "/channel/delete" if channel else "/topic/delete"
    assert [each.posts[0][0] for each in go_cluster.everything] == [path] * 3
    assert all((node.topics == {}) is not bool(channel) for node in go_cluster.nodes)


def test_a_tombstone_marks_the_node_and_takes_the_topic_off_it(go_cluster, api):
    """The other producer keeps it."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    answer = api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    assert (answer.status_code, answer.json()["message"]) == (200, "")
    assert go_cluster.registry.tombstones == {("orders", alpha.address)}
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)


def test_a_tombstone_shows_until_the_node_has_unregistered(go_cluster, api):
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.post = lambda path, query: (200, "")  # a node that takes its time
    api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    assert api.get("/api/nodes").json()["nodes"][0]["topics"] == [{"topic": "orders", "tombstoned": True}]


def test_a_tombstone_on_a_dead_node_says_what_was_done_and_what_not(go_cluster, api):
    """The registries did mark it: 200, with the node that could not be reached."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.stop()
    answer = api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    alpha.start()
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqd {alpha.address}: connection refused"
    assert {each["target"]: each["outcome"] for each in answer.json()["results"]} == {
        "nsqlookupd": "done",
        "nsqd": "unreachable",
    }


def test_without_registries_a_tombstone_deletes_the_topic_on_that_node(given_nodes, api):
    alpha, beta = given_nodes.nodes
    alpha.topic("orders")
    beta.topic("orders")
    assert api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"}).json()["message"] == ""
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)
    refused(api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"}), 404, "TOPIC_NOT_FOUND")


# ---- what is refused


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "EOF"),
        ("  \n", "EOF"),
        ("{", "unexpected EOF"),
        ('{"topic":"a', "unexpected EOF"),
        ("zzz", "invalid character 'z' looking for beginning of value"),
        ("{z", "invalid character 'z' looking for beginning of object key string"),
        ("[]", "json: cannot unmarshal array into Go value of type struct"),
        ('{"topic":7}', "json: cannot unmarshal number into Go struct field .topic of type string"),
        ("null", "INVALID_TOPIC"),
        ("{}", "INVALID_TOPIC"),
        ('{"topic":"a b"}', "INVALID_TOPIC"),
        (f'{{"topic":"{"t" * 65}"}}', "INVALID_TOPIC"),
        ('{"topic":"#ephemeral"}', "INVALID_TOPIC"),
        ('{"topic":"t","channel":"a/b"}', "INVALID_CHANNEL"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(go_cluster, api, body, message):
    """In the words of Go's decoder, or with the code of the name; and nothing is sent anywhere."""
    refused(api.post("/api/topics", body), 400, message)
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.parametrize("path", ["/api/topics/orders", "/api/topics/orders/billing"])
@pytest.mark.parametrize(
    ("body", "message"), [("", "EOF"), ("{}", "INVALID_ACTION"), ('{"action":"explode"}', "INVALID_ACTION")]
)
def test_an_action_that_there_is_not_is_refused(go_cluster, api, path, body, message):
    refused(api.post(path, body), 400, message)


@pytest.mark.parametrize(("body", "message"), [("", "INVALID_BODY"), ("zzz", "INVALID_BODY"), ("{}", "INVALID_TOPIC")])
def test_a_tombstone_needs_a_topic(go_cluster, api, body, message):
    refused(api.delete(f"/api/nodes/{go_cluster.nodes[0].address}", body), 400, message)


def test_a_tombstone_needs_a_node_that_is_there(go_cluster, api):
    refused(api.delete("/api/nodes/10.0.0.1:4151", {"topic": "orders"}), 404, "NODE_NOT_FOUND")
    assert go_cluster.registry.posts == []


@pytest.mark.parametrize("path", ["/api/topics/nowhere", "/api/topics/nowhere/billing", "/api/topics/a%20b"])
def test_actions_on_what_nobody_has_are_not_found(go_cluster, api, path):
    for answer in (api.post(path, {"action": "pause"}), api.delete(path)):
        refused(answer, 404, "TOPIC_NOT_FOUND")


def test_a_channel_that_no_node_has_is_not_found(go_cluster, api):
    go_cluster.nodes[0].topic("orders")
    refused(api.post("/api/topics/orders/nowhere", {"action": "pause"}), 404, "CHANNEL_NOT_FOUND")


def test_a_body_beyond_a_mebibyte_is_refused(go_cluster, api):
    refused(api.post("/api/topics", b"x" * (1 << 20) + b"x"), 413, "BODY_TOO_BIG")


# ---- who does not answer


def test_a_dead_node_makes_a_warning_and_the_others_act(go_cluster, api):
    """Listed by the registry still: the answer is 200, and names it."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders")
    beta.topic("orders")
    beta.stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    beta.start()
    assert answer.status_code == 200
    assert answer.json()["message"] == f"WARNING: nsqd {beta.address}: connection refused"
    assert alpha.topics["orders"]["paused"]


def test_frozen_nodes_cost_one_timeout_together(go_cluster, api):
    """They are asked at once, not one after the other."""
    for node in go_cluster.nodes:
        node.topic("orders")
        node.hold = threading.Event()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    for node in go_cluster.nodes:
        node.hold.set()
    assert answer.status_code == 502
    assert answer.json()["message"].count("no answer within 1 s; it may still do it") == 2
    assert answer.json()["message"].startswith("UPSTREAM_ERROR: nsqd ")


def test_when_all_refuse_the_answer_is_no_success(go_cluster, api):
    """With each one's words."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    alpha.status["/topic/pause"] = (500, "INTERNAL_ERROR")
    answer = api.post("/api/topics/orders", {"action": "pause"})
    assert answer.status_code == 502
    assert answer.json()["message"] == f"UPSTREAM_ERROR: nsqd {alpha.address}: 500 INTERNAL_ERROR"


def test_without_any_registry_nothing_is_done(go_cluster, api):
    """Not to a topic that may be there, and not to one that is to be made."""
    go_cluster.nodes[0].topic("orders")
    go_cluster.registry.stop()
    answers = [
        api.post("/api/topics", {"topic": "fresh"}),
        api.delete("/api/topics/orders"),
        api.post("/api/topics/orders", {"action": "empty"}),
    ]
    go_cluster.registry.start()
    for answer in answers:
        assert answer.status_code == 502
        assert answer.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: ")
    assert "orders" in go_cluster.nodes[0].topics


def test_given_nodes_one_of_them_down(given_nodes, api):
    """A topic that the others do not have: not found, or perhaps on the dead one, which is said."""
    given_nodes.nodes[1].stop()
    answer = api.post("/api/topics/orders", {"action": "pause"})
    given_nodes.nodes[1].start()
    assert answer.status_code == 502
    assert given_nodes.nodes[1].address in answer.json()["message"]


# ---- notifications


class Endpoint:
    """Takes notifications."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.kinds: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.kinds.append(self.headers["Content-Type"])
                endpoint.got.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def endpoint(nsqadmin_settings) -> Iterator[Endpoint]:
    made = Endpoint()
    nsqadmin_settings(notification_http_endpoint=made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_each_action_is_told(go_cluster, api, endpoint, wait_until):
    """With nsqadmin's keys; those that are empty are left out."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing")
    api.post(
        "/api/topics/orders/billing",
        {"action": "pause"},
        Authorization="Basic YWxpY2U6c2VjcmV0",
        User_Agent="cron/1",
        X_Scheme="https",
    )
    [told] = wait_until(lambda: endpoint.got, "the notification")
    assert endpoint.kinds == ["application/json"]
    assert told.pop("timestamp") > 1_700_000_000
    assert told.pop("via")
    assert told == {
        "action": "pause_channel",
        "topic": "orders",
        "channel": "billing",
        "user": "alice",
        "remote_ip": "127.0.0.1:51234",
        "user_agent": "cron/1",
        "url": "https://localhost/api/topics/orders/billing",
    }


def test_every_action_has_its_name(go_cluster, api, endpoint, wait_until):
    """Creating a channel makes its topic too, and tells of both."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    api.post("/api/topics", {"topic": "orders", "channel": "billing"})
    for action in ("pause", "unpause", "empty"):
        api.post("/api/topics/orders", {"action": action})
        api.post("/api/topics/orders/billing", {"action": action})
    api.delete("/api/topics/orders/billing")
    api.delete("/api/topics/orders")
    alpha.topic("orders")
    api.delete(f"/api/nodes/{alpha.address}", {"topic": "orders"})
    wait_until(lambda: len(endpoint.got) == 11, "all of them")
    assert [told["action"] for told in endpoint.got] == [
        *("create_topic", "create_channel", "pause_topic", "pause_channel", "unpause_topic", "unpause_channel"),
        *("empty_topic", "empty_channel", "delete_channel", "delete_topic", "tombstone_topic_producer"),
    ]
    assert endpoint.got[-1]["node"] == alpha.address
    assert "user" not in endpoint.got[0]
    assert "channel" not in endpoint.got[0]


def test_an_endpoint_that_is_not_there_harms_nothing(go_cluster, api, nsqadmin_settings):
    nsqadmin_settings(notification_http_endpoint="http://127.0.0.1:1/hook")
    for _ in range(3):
        assert api.post("/api/topics", {"topic": "orders"}).status_code == 200
    assert api.get("/ping").text == "OK"


def test_what_was_refused_is_not_told(go_cluster, api, endpoint, wait_until):
    api.post("/api/topics/nowhere", {"action": "pause"})
    api.post("/api/topics", {"topic": "orders"})
    wait_until(lambda: endpoint.got, "the one that was done")
    assert [told["action"] for told in endpoint.got] == ["create_topic"]


def test_what_is_done_on_the_pages_is_told_too(go_cluster, browser, account, endpoint, wait_until):
    """With who did it."""
    go_cluster.nodes[0].topic("orders")
    account("operator")
    operator = browser()
    operator.sign_in("operator")
    operator.request("POST", "actions", {"action": "pause", "topic": "orders"})
    [told] = wait_until(lambda: endpoint.got, "the notification")
    assert (told["action"], told["user"], told["remote_ip"]) == ("pause_topic", "operator", "127.0.0.1")
